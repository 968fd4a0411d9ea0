"""Physics engines behind one interface, ``simulator.Simulator``."""
