"""A bandit fitted in units of each feature's standard deviation, then written in the task's own units.

Features of different sizes, as positions and velocities of a robot are, make the fit slow: on HalfCheetah-v5 it hardly
begins. The networks of a world take and give the task's own units (``envs/worlds/units.py``). Python 3.8.
"""

from __future__ import annotations

from typing import Callable

from torch import Tensor

from envolve.envs.section import EnvSection
from envolve.envs.task import Task
from envolve.envs.worlds.units import observed
from envolve.outer.distil.bandit import fit_bandit
from envolve.outer.distil.energy import units_of


def fit_in_units(
    task: Task, section: EnvSection, contexts: Tensor, act: Callable[[Tensor], Tensor], key: int, steps: int = 0
) -> Tensor:
    """``fit_bandit`` in units of each feature -> the parameters in the task's units, float32 [D]. One-hot codes have
    no units."""
    mean, scale = contexts.mean(0), units_of(contexts, task.codes)
    for begin, end in task.codes:
        mean[begin:end] = 0
    flat = fit_bandit(task, section, (contexts - mean) / scale, lambda x: act(x * scale + mean), key, steps)
    return observed(task, section, flat, mean, scale)
