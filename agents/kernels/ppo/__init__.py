"""Kernels of PPO."""

from envolve.agents.kernels.building.registry import AHEAD
from envolve.core.registry import Place

AHEAD.add("ppo", Place("envolve.agents.kernels.ppo.population", "parts"))
