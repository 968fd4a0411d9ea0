"""The shortest trainings that there are: each calls the kernels of a learner once, with every type that they are ever
called with. Compiling is calling them in a process that has none; checking is calling them in one that loads them.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Callable, Dict

import numpy as np
import torch

from envolve.agents.common.sections import CONTINUOUS_ONLY, LEARNERS, TabularSection
from envolve.agents.kernels.goal import crl_population
from envolve.agents.kernels.off_policy import update
from envolve.agents.kernels.shaped import ppo_population as shaped_ppo_population
from envolve.agents.train import train
from envolve.envs.section import EnvSection
from envolve.envs.task import make_task


def parts(name: str) -> Dict[str, Callable[[], None]]:
    """Of learner ``name`` (``ahead.compiled_ahead``): what its kernels are for -> what calls those. Parts share no
    kernel that Python calls, so they can be compiled side by side."""
    if name == "shaped_ppo":
        return {part: partial(shaped_ppo_population.shortest, part) for part in shaped_ppo_population.PARTS}
    if name == "crl":
        return {part: partial(crl_population.shortest, part) for part in crl_population.PARTS}
    if name in update.AHEAD:
        return {"update": partial(update.shortest, name)}
    return {"training": partial(_train, name)}


def _train(name: str) -> None:
    """A learner of ``envolve.agents.train``."""
    shortest: Dict[str, Any] = {"train_episodes": 2, "init_episodes": 0, "test_episodes": 1}
    world = "Pendulum-v0" if name in CONTINUOUS_ONLY else "CartPole-v0"
    if LEARNERS[name] is TabularSection:
        world = "Cliff"
    else:
        shortest.update(hidden_size=1, hidden_layer=1)
        shortest.update({"num_envs": 1, "rollout_steps": 2, "ppo_epochs": 1} if name == "ppo" else {"batch_size": 1})
    train(
        name, LEARNERS[name](**shortest), None, make_task(world, max_steps=2), "real", EnvSection(), torch.zeros(1, 1),
        np.zeros(1, np.int64), backend="compiled",
    )  # fmt: skip
