"""A population of off-policy agents through the compiled loop: hyperparameters and worlds in, ``TrainResult`` out."""

from __future__ import annotations

from typing import Any, Dict, Optional, Tuple, Type, Union

import numpy as np
from torch import Tensor

import agents.ddqn
import agents.dueling_ddqn
import agents.sac
import agents.td3
import agents.td3_discrete
from agents.algorithm import Algorithm
from agents.hyper import Hyper
from agents.kernels import ahead, ddqn, dueling_ddqn, off_policy, sac, td3, td3_discrete
from agents.kernels.members import no_twin, settings, train_each
from agents.kernels.worlds import create_world
from agents.population import initial_weights, nets_of, size
from agents.replay import capacity
from agents.result import TrainResult
from envs.section import EnvSection
from envs.task import Task

TWINS: Dict[Type[Algorithm], Tuple[str, Any]] = {  # a learner's name, and its class in the kernels
    agents.ddqn.DDQN: ("ddqn", ddqn.DDQN),
    agents.dueling_ddqn.DuelingDDQN: ("duelingddqn", dueling_ddqn.DuelingDDQN),
    agents.sac.SAC: ("sac", sac.SAC),
    agents.td3.TD3: ("td3", td3.TD3),
    agents.td3_discrete.TD3Discrete: ("td3_discrete", td3_discrete.TD3Discrete),
}


def why_not(algorithm: Type[Algorithm], task: Task, hyper: Hyper) -> Optional[str]:
    """The reason why the compiled loop cannot train this population, or None if it can: then its kernel is there."""
    if algorithm not in TWINS:
        return f"{algorithm.__name__} has no compiled twin"
    if no_twin(task) is None and getattr(hyper.section, "published_dueling_mean", False):
        return "the kernel takes the mean advantage over the actions, not over the batch"
    return no_twin(task) or ahead.why_not(TWINS[algorithm][0])


def train_population(
    algorithm: Type[Algorithm], task: Task, kind: str, section: EnvSection, worlds: Union[np.ndarray, Tensor],
    hyper: Hyper, keys: np.ndarray, test_each: bool, threads: int = 1,
) -> TrainResult:  # fmt: skip
    """As ``agents.off_policy.train_population``, on the CPU; members are shared among ``threads``, and the result is
    the same for any number of them."""
    name, twin = TWINS[algorithm]
    ahead.compiled_ahead(name)
    nets = nets_of(algorithm, task, hyper)
    weights = initial_weights(nets, keys)
    result = TrainResult.before_training(weights, hyper.section.train_episodes, hyper.section.test_episodes)
    rows = capacity(hyper, task.max_steps)
    worlds = np.ascontiguousarray(worlds, dtype=np.float32)
    ukeys = np.ascontiguousarray(keys, dtype=np.int64).view(np.uint64)

    def one(i: int, counts: np.ndarray) -> None:
        s: Any = hyper.member(i)
        F, columns = task.observation_size, twin.columns(task)
        off_policy.train(
            twin.create(task, s, weights[i, : size(nets[i])]),
            create_world(task, kind, section, s.gamma, worlds[i]),
            create_world(task, "real", section, s.gamma, worlds[i]),
            settings(off_policy.Settings, task, s, test_each=test_each, capacity=int(rows[i])),
            np.empty((rows[i], 2 * F + columns + 2), np.float32), off_policy.Batch.create(F + columns, s.batch_size),
            np.empty(columns, np.float32), ukeys[i],
            result.test_return[i], result.episode_return[i], result.episode_length[i], counts,
        )  # fmt: skip

    train_each(one, result, threads)
    return result
