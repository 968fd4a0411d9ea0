"""Kernels of DDQN, Dueling DDQN, TD3, discrete TD3 and SAC, as whole trainings, as steps in worlds of Python, and as
updates alone."""

from envolve.agents.common.compiling import STEPS
from envolve.agents.kernels.building.registry import AHEAD
from envolve.core.registry import Place

for _name in ("ddqn", "duelingddqn", "td3", "td3_discrete", "sac"):
    AHEAD.add(_name, Place("envolve.agents.kernels.off_policy.population", "parts"))
    AHEAD.add(_name + STEPS, Place("envolve.agents.kernels.off_policy.stepwise", "parts"))
for _name in ("sac_update", "td3_update"):
    AHEAD.add(_name, Place("envolve.agents.kernels.off_policy.update", "parts"))
