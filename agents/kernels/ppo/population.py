"""A PPO population through the compiled loop: hyperparameters and worlds in, ``TrainResult`` out."""

from __future__ import annotations

from functools import partial
from typing import Any, Callable, Dict, Optional, Sequence, Tuple

import numpy as np

from envolve.agents.common.compiling import kernels_of
from envolve.agents.common.hyper import Hyper
from envolve.agents.common.job import Job
from envolve.agents.common.result import TrainResult
from envolve.agents.kernels.building import ahead, without_torch
from envolve.agents.kernels.common.members import add_tests, python_steps, settings, train_each, without_tests
from envolve.agents.kernels.common.worlds import create_world
from envolve.agents.kernels.ppo import training as ppo
from envolve.agents.ppo.policy import initial_weights, networks
from envolve.agents.ppo.training import check, rollout_length, test_trained
from envolve.envs.nets.networks import MLPShape
from envolve.envs.task import Task

Nets = Tuple[MLPShape, MLPShape]  # actor and critic


def why_not(task: Task, hyper: Hyper, apart: bool = False) -> Optional[str]:
    """The reason why the compiled loop cannot train this population, or None if it can: then its kernel is there.
    apart: as of ``kernels_of``."""
    return ahead.why_not(kernels_of("ppo", task.name, apart))


def parts(name: str) -> Dict[str, Callable[[], None]]:
    """As ``building/shortest.py`` asks for them."""
    return {"training": partial(_shortest, name)}


def _shortest(name: str) -> None:
    global initial_weights
    from envolve.agents.kernels.building import shortest

    def zeros(task: Task, agents: Sequence[Any], hyper: Hyper, keys: np.ndarray) -> np.ndarray:
        return shortest.weights_of_zeros(agents, keys).repeat(2, axis=1)  # room for standard deviations

    if without_torch.pretended():
        initial_weights = zeros  # this process compiles, and does nothing else
    shortest.train_shortest(name, hidden_size=1, hidden_layer=1, num_envs=1, rollout_steps=2, ppo_epochs=1)


def create(job: Job, i: int, nets: Nets, weights: np.ndarray, **own: Any) -> Tuple[ppo.PPO, ppo.PPOSettings]:
    """Member i of a job, whose networks and weights are given, and its settings. weights: float32 [D_max], trained in
    place."""
    s: Any = job.hyper.member(i)
    (actor, critic), task = nets, job.task
    T, monte_carlo = rollout_length(s, task.max_steps), s.advantage == "monte_carlo"
    c = settings(ppo.PPOSettings, task, s, update_kl=0.0, rollout_steps=T, monte_carlo=monte_carlo, **own)
    flat = weights[: task.action_size + actor.size + critic.size]
    return ppo.PPO.create(task, actor, c, s.test_noise, flat, s.squash), c


def train_population(job: Job, threads: int = 1, apart: bool = False) -> TrainResult:
    """As ``train_population`` of ``agents/ppo/training.py``, on the CPU; members are shared among ``threads``, and the
    result is the same for any number of them. apart: see ``python_steps``, where ``stepwise.py`` trains, with one
    thread."""
    if python_steps(job.task, apart):
        from envolve.agents.kernels.ppo import stepwise

        return stepwise.train_population(job)
    ahead.compiled_ahead("ppo")
    task, hyper, s = job.task, job.hyper, job.hyper.section
    check(s, hyper, task.max_steps)  # type: ignore[arg-type]
    agents = networks(task, hyper)
    weights = initial_weights(task, agents, hyper, job.keys)
    result = TrainResult.before_training(weights, s.train_episodes, s.test_episodes)
    worlds = np.ascontiguousarray(job.worlds, dtype=np.float32)
    ukeys = np.ascontiguousarray(job.keys, dtype=np.int64).view(np.uint64)

    def one(i: int, counts: np.ndarray) -> None:
        agent, c = create(job, i, agents[i], weights[i], test_each=job.test_each, **without_tests(task))
        ppo.train(
            agent,
            create_world(task, job.kind, job.section, c.gamma, worlds[i]),
            create_world(task, "real", job.section, c.gamma, worlds[i]),
            c,
            ukeys[i],
            result.test_return[i],
            result.episode_return[i],
            result.episode_length[i],
            counts,
        )

    train_each(one, result, threads)
    add_tests(result, task, lambda i: test_trained(task, hyper.take(i), result.weights[i], job.keys[i]))
    return result
