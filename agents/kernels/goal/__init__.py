"""Kernels of contrastive RL."""

from envolve.agents.kernels.building.registry import AHEAD
from envolve.core.registry import Place

AHEAD.add("crl", Place("envolve.agents.kernels.goal.crl_population", "parts"))
