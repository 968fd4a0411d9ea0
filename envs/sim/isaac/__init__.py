"""NVIDIA Isaac Gym Preview 4 as an engine: the adapter, its assets, actors and efforts (docs/isaacgym.md)."""
