"""Envolve: evolve the environment, not the agent."""
