"""A PPO population through the compiled loop: hyperparameters and worlds in, ``TrainResult`` out."""

from __future__ import annotations

from functools import partial
from typing import Any, Callable, Dict, Optional, Sequence

import numpy as np

from envolve.agents.common.hyper import Hyper
from envolve.agents.common.job import Job
from envolve.agents.common.result import TrainResult
from envolve.agents.kernels.building import ahead, without_torch
from envolve.agents.kernels.common.members import add_tests, no_twin, settings, train_each, without_tests
from envolve.agents.kernels.common.worlds import create_world
from envolve.agents.kernels.ppo import training as ppo
from envolve.agents.ppo.policy import initial_weights, networks
from envolve.agents.ppo.training import check, rollout_length, test_trained
from envolve.envs.task import Task


def why_not(task: Task, hyper: Hyper, apart: bool = False) -> Optional[str]:
    """The reason why the compiled loop cannot train this population, or None if it can: then its kernel is there.
    apart: see ``no_twin``."""
    return no_twin(task, apart) or ahead.why_not("ppo")


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


def train_population(job: Job, threads: int = 1) -> TrainResult:
    """As ``train_population`` of ``agents/ppo/training.py``, on the CPU; members are shared among ``threads``, and the
    result is the same for any number of them."""
    ahead.compiled_ahead("ppo")
    task, hyper, s = job.task, job.hyper, job.hyper.section
    check(s, hyper, task.max_steps)  # type: ignore[arg-type]
    agents = networks(task, hyper)
    weights = initial_weights(task, agents, hyper, job.keys)
    result = TrainResult.before_training(weights, s.train_episodes, s.test_episodes)
    worlds = np.ascontiguousarray(job.worlds, dtype=np.float32)
    ukeys = np.ascontiguousarray(job.keys, dtype=np.int64).view(np.uint64)

    def one(i: int, counts: np.ndarray) -> None:
        own: Any = hyper.member(i)
        actor, critic = agents[i]
        c = settings(
            ppo.PPOSettings,
            task,
            own,
            test_each=job.test_each,
            update_kl=0.0,
            rollout_steps=rollout_length(own, task.max_steps),
            monte_carlo=own.advantage == "monte_carlo",
            **without_tests(task),
        )
        own_weights = weights[i, : task.action_size + actor.size + critic.size]
        agent = ppo.PPO.create(task, actor, c, own.test_noise, own_weights, own.squash)
        ppo.train(
            agent,
            create_world(task, job.kind, job.section, own.gamma, worlds[i]),
            create_world(task, "real", job.section, own.gamma, worlds[i]),
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
