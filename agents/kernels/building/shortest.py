"""The shortest trainings that there are: each calls the kernels of a learner once, with every type that they are ever
called with. Compiling is calling them in a process that has none; checking is calling them in one that loads them.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, Sequence

import numpy as np

from envolve.agents.common.learners import CONTINUOUS, LEARNERS
from envolve.agents.kernels.building.registry import kernels
from envolve.agents.train import train
from envolve.envs.section import EnvSection
from envolve.envs.task import make_task

Parts = Dict[str, Callable[[], None]]


def parts(name: str) -> Parts:
    """Parts of learner ``name`` (``ahead.compiled_ahead``): what its kernels are for -> what calls those. They share
    no kernel that Python calls, so they can be compiled side by side."""
    made: Parts = kernels().find(name).load()(name)
    return made


def train_shortest(name: str, world: str = "", **settings: Any) -> None:
    """Calls a learner of ``envolve.agents.train``. world: default: one with its kind of actions."""
    world = world or ("Pendulum-v0" if LEARNERS[name].actions == CONTINUOUS else "CartPole-v0")
    section = LEARNERS[name].section(train_episodes=2, init_episodes=0, test_episodes=1, **settings)
    params: Any = np.zeros((1, 1), np.float32)
    task = make_task(world, max_steps=2)
    train(name, section, None, task, "real", EnvSection(), params, np.zeros(1, np.int64), backend="compiled")


def weights_of_zeros(agents: Sequence[Any], keys: np.ndarray) -> np.ndarray:
    """In place of ``initial_weights``, which torch draws: to compile, any will do."""
    return np.zeros((len(keys), max(sum(net.size for net in nets) for nets in agents)), np.float32)
