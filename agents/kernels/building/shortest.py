"""The shortest trainings that there are: each calls the kernels of a learner once, with every type that they are ever
called with. Compiling is calling them in a process that has none; checking is calling them in one that loads them.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Callable, Dict, Sequence

import numpy as np

from envolve.agents.common.learners import CONTINUOUS, LEARNERS
from envolve.agents.common.sections import TabularSection
from envolve.agents.kernels.building import without_torch
from envolve.agents.train import train
from envolve.envs.section import EnvSection
from envolve.envs.task import make_task


def parts(name: str) -> Dict[str, Callable[[], None]]:
    """Parts of learner ``name`` (``ahead.compiled_ahead``): what its kernels are for -> what calls those. They share
    no kernel that Python calls, so they can be compiled side by side."""
    if name in without_torch.NEED_NONE:
        return {"training": partial(_train, name)}
    from envolve.agents.kernels.goal import crl_population
    from envolve.agents.kernels.off_policy import update
    from envolve.agents.kernels.shaped import ppo_population as shaped_ppo_population

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
    world = "Pendulum-v0" if LEARNERS[name].actions == CONTINUOUS else "CartPole-v0"
    if LEARNERS[name].section is TabularSection:
        world = "Cliff"
    else:
        shortest.update(hidden_size=1, hidden_layer=1)
        shortest.update({"num_envs": 1, "rollout_steps": 2, "ppo_epochs": 1} if name == "ppo" else {"batch_size": 1})
    if without_torch.pretended():
        _weights_of_zeros(name)
    params: Any = np.zeros((1, 1), np.float32)
    train(
        name, LEARNERS[name].section(**shortest), None, make_task(world, max_steps=2), "real", EnvSection(), params,
        np.zeros(1, np.int64), backend="compiled",
    )  # fmt: skip


def _weights_of_zeros(name: str) -> None:
    """torch draws the initial weights; to compile, any will do."""
    from envolve.agents.kernels.off_policy import population as off_policy_population
    from envolve.agents.kernels.ppo import population as ppo_population

    def of_nets(agents: Sequence[Any], keys: np.ndarray) -> np.ndarray:
        return np.zeros((len(keys), max(sum(net.size for net in nets) for nets in agents)), np.float32)

    def of_policies(task: Any, agents: Sequence[Any], hyper: Any, keys: np.ndarray) -> np.ndarray:
        return of_nets([*agents], keys).repeat(2, axis=1)  # room for standard deviations

    caller: Any = ppo_population if name == "ppo" else off_policy_population
    caller.initial_weights = of_policies if name == "ppo" else of_nets
