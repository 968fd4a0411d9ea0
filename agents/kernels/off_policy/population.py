"""A population of off-policy agents through the compiled loop: hyperparameters and worlds in, ``TrainResult`` out."""

from __future__ import annotations

from functools import partial
from typing import Any, Callable, Dict, Optional, Tuple, Type

import numpy as np

import envolve.agents.off_policy.ddqn
import envolve.agents.off_policy.dueling_ddqn
import envolve.agents.off_policy.sac
import envolve.agents.off_policy.td3
import envolve.agents.off_policy.td3_discrete
from envolve.agents.common.compiling import TASKS, kernels_of
from envolve.agents.common.hyper import Hyper
from envolve.agents.common.job import Job
from envolve.agents.common.population import initial_weights, nets_of, size
from envolve.agents.common.replay import capacity
from envolve.agents.common.result import TrainResult
from envolve.agents.kernels.building import ahead, without_torch
from envolve.agents.kernels.common.members import add_tests, python_steps, settings, train_each, without_tests
from envolve.agents.kernels.common.worlds import create_world
from envolve.agents.kernels.off_policy import ddqn, dueling_ddqn, sac, td3, td3_discrete
from envolve.agents.kernels.off_policy import training as off_policy
from envolve.agents.off_policy import depths as torch_path
from envolve.agents.off_policy.algorithm import Algorithm
from envolve.envs.task import Task

TWINS: Dict[Type[Algorithm], Tuple[str, Any]] = {  # a learner's name, and its class in the kernels
    envolve.agents.off_policy.ddqn.DDQN: ("ddqn", ddqn.DDQN),
    envolve.agents.off_policy.dueling_ddqn.DuelingDDQN: ("duelingddqn", dueling_ddqn.DuelingDDQN),
    envolve.agents.off_policy.sac.SAC: ("sac", sac.SAC),
    envolve.agents.off_policy.td3.TD3: ("td3", td3.TD3),
    envolve.agents.off_policy.td3_discrete.TD3Discrete: ("td3_discrete", td3_discrete.TD3Discrete),
}


def why_not(algorithm: Type[Algorithm], task: Task, hyper: Hyper, apart: bool = False) -> Optional[str]:
    """The reason why the compiled loop cannot train this population, or None if it can: then its kernel is there.
    apart: as of ``kernels_of``."""
    if algorithm not in TWINS:
        return f"{algorithm.__name__} has no compiled twin"
    if getattr(hyper.section, "published_dueling_mean", False):
        return "the kernel takes the mean advantage over the actions, not over the batch"
    if algorithm is envolve.agents.off_policy.td3_discrete.TD3Discrete and task.name not in TASKS:
        if getattr(hyper.section, "test_noise", False):
            return "test_noise needs the temperature that training ended with, and tests are made apart from it"
    return ahead.why_not(kernels_of(TWINS[algorithm][0], task.name, apart))


def parts(name: str) -> Dict[str, Callable[[], None]]:
    """As ``building/shortest.py`` asks for them."""
    return {"training": partial(_shortest, name)}


def _shortest(name: str) -> None:
    global initial_weights
    from envolve.agents.kernels.building import shortest

    if without_torch.pretended():
        initial_weights = shortest.weights_of_zeros  # this process compiles, and does nothing else
    shortest.train_shortest(name, hidden_size=1, hidden_layer=1, batch_size=1)


def train_population(algorithm: Type[Algorithm], job: Job, threads: int = 1, apart: bool = False) -> TrainResult:
    """As ``envolve.agents.off_policy.depths.train_population``, on the CPU; members are shared among ``threads``, and
    the result is the same for any number of them. apart: see ``python_steps``, where ``stepwise.py`` trains, with one
    thread."""
    name, twin = TWINS[algorithm]
    if python_steps(job.task, apart):
        from envolve.agents.kernels.off_policy import stepwise

        return stepwise.train_population(algorithm, job)
    ahead.compiled_ahead(name)
    task, hyper = job.task, job.hyper
    nets = nets_of(algorithm, task, hyper)
    weights = initial_weights(nets, job.keys)
    result = TrainResult.before_training(weights, hyper.section.train_episodes, hyper.section.test_episodes)
    capacities = capacity(hyper, task.max_steps).tolist()
    worlds = np.ascontiguousarray(job.worlds, dtype=np.float32)
    ukeys = np.ascontiguousarray(job.keys, dtype=np.int64).view(np.uint64)

    def one(i: int, counts: np.ndarray) -> None:
        s: Any = hyper.member(i)
        F, columns = task.observation_size, twin.columns(task)
        off_policy.train(
            twin.create(task, s, weights[i, : size(nets[i])]),
            create_world(task, job.kind, job.section, s.gamma, worlds[i]),
            create_world(task, "real", job.section, s.gamma, worlds[i]),
            settings(
                off_policy.OffPolicySettings,
                task,
                s,
                test_each=job.test_each,
                capacity=capacities[i],
                **without_tests(task),
            ),
            np.empty((capacities[i], 2 * F + columns + 2), np.float32),
            off_policy.Batch.create(F + columns, s.batch_size),
            np.empty(columns, np.float32),
            ukeys[i],
            result.test_return[i],
            result.episode_return[i],
            result.episode_length[i],
            counts,
        )

    train_each(one, result, threads)
    add_tests(
        result, task, lambda i: torch_path.test_trained(algorithm, task, hyper.take(i), result.weights[i], job.keys[i])
    )
    return result
