"""Kernels of PPO, as whole trainings and as steps in worlds of Python."""

from envolve.agents.common.compiling import STEPS
from envolve.agents.kernels.building.registry import AHEAD
from envolve.core.registry import Place

AHEAD.add("ppo", Place("envolve.agents.kernels.ppo.population", "parts"))
AHEAD.add("ppo" + STEPS, Place("envolve.agents.kernels.ppo.stepwise", "parts"))
