"""Kernels of PPO over candidates."""

from envolve.agents.kernels.building.registry import AHEAD
from envolve.core.registry import Place

AHEAD.add("shaped_ppo", Place("envolve.agents.kernels.shaped.ppo_population", "parts"))
