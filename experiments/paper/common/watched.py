"""Off-policy agents whose steps are watched, or disturbed: their training in PyTorch, with a world of one's own making.

The compiled learners step worlds that no Python can reach into; this is
``envolve.agents.off_policy.depths.train_population`` with a hook. Without one it gives the same bits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from envolve.agents.common.hyper import draw
from envolve.agents.common.job import Job
from envolve.agents.common.learners import is_off_policy, off_policy_learners
from envolve.agents.common.population import initial_weights, nets_of, stack, unstack, widest
from envolve.agents.common.result import TrainResult
from envolve.agents.common.rollout import repeat, reset_uniforms
from envolve.agents.off_policy.algorithm import Algorithm
from envolve.agents.off_policy.training import OffPolicy
from envolve.agents.train import algorithm
from envolve.core import rng
from envolve.envs.section import EnvSection
from envolve.envs.task import Task
from envolve.envs.worlds.world import RealTask, World
from envolve.experiments.paper.common.learners import LearnerSettings
from envolve.outer.config.load import ConfigError

Wrap = Callable[[World, "Watched"], World]  # the world of the members in run.m -> what they train in


class Wrapped(World):
    """A world that behaves as another one; a subclass changes ``step``."""

    def __init__(self, inner: World) -> None:
        super().__init__(inner.task, inner.P)
        self.inner, self.reward_noise = inner, inner.reward_noise

    @property
    def reset_uniforms(self) -> int:
        return self.inner.reset_uniforms

    def reset(self, u: Tensor, members: slice | Tensor = slice(None)) -> Tensor:
        return self.inner.reset(u, members)

    def observe(self, state: Tensor) -> Tensor:
        return self.inner.observe(state)

    def step(self, state: Tensor, action: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        return self.inner.step(state, action)


class Watched(OffPolicy):
    """The training, which asks ``wrap`` for its worlds: at the beginning, and whenever members have finished."""

    def __init__(self, wrap: Wrap, *args: Any) -> None:
        self.wrap = wrap
        super().__init__(*args)

    def _of_live(self) -> None:
        super()._of_live()
        self.world = self.wrap(self.world, self)


@dataclass
class Trained:
    result: TrainResult
    run: Watched  # ``run.final``: the agents


def check_watchable(learner: LearnerSettings) -> None:
    """Raises ConfigError."""
    if not is_off_policy(learner.name):
        raise ConfigError([f"--agent: found {learner.name}, expected one of {', '.join(off_policy_learners())}"])


def train_watched(
    learner: LearnerSettings,
    task: Task,
    section: EnvSection,
    worlds: Tensor,
    keys: np.ndarray,
    wrap: Wrap,
    device: str = "cpu",
) -> Trained:
    """One agent per SE, rows of worlds float32 [P, D]; keys: int64 [P]. All have the learner's own hyperparameters."""
    cls, hyper = algorithm(learner.name), draw(learner.section, keys)
    agents = nets_of(cls, task, hyper)
    weights = initial_weights(agents, keys)
    result = TrainResult.before_training(weights, learner.section.train_episodes, learner.section.test_episodes)
    nets = widest(agents)
    params = stack(torch.as_tensor(weights, device=device), agents, nets)
    width = torch.as_tensor(hyper["hidden_size"], dtype=torch.int64, device=device)
    run = Watched(wrap, Job(task, "se", section, worlds, hyper, keys), cls(task, hyper, nets, params, width))
    run.train()
    result.put(np.arange(len(keys)), run, unstack(run.final.rows.params, agents, nets, weights.shape[1]))
    return Trained(result, run)


@dataclass
class Steps:
    """Transitions, a row each. Observations float32 [n, F], action int64 [n] or float32 [n, A], else float32 [n]."""

    observation: np.ndarray
    action: np.ndarray
    next_observation: np.ndarray
    reward: np.ndarray
    done: np.ndarray

    def take(self, rows: np.ndarray) -> Steps:
        return Steps(*(getattr(self, name)[rows] for name in self.__dataclass_fields__))

    def append(self, other: Steps) -> Steps:
        return Steps(*(np.concatenate([a, b]) for a, b in zip(vars(self).values(), vars(other).values())))


class StepRecorder:
    """Notes every step of members in training. Use ``recorder.wrap`` as the Wrap."""

    def __init__(self) -> None:
        self.parts: list[tuple[Tensor, ...]] = []

    def wrap(self, world: World, run: Watched) -> World:
        recorder = self

        class Recording(Wrapped):
            def step(self, state: Tensor, action: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
                out = next_state, reward, done, failed = self.inner.step(state, action)
                kept = run.m.live[:, None] & ~failed
                values = (self.observe(state), action, self.observe(next_state), reward, done)
                recorder.parts.append(tuple(v[kept].clone() for v in values))
                return out

        return Recording(world)

    def steps(self) -> Steps:
        return join(self.parts)


def join(parts: list[tuple[Tensor, ...]]) -> Steps:
    return Steps(*(torch.cat(column).cpu().numpy() for column in zip(*parts)))


def walk(task: Task, trained: Trained, episodes: int) -> Steps:
    """Tests of the trained agents on the task; failed agents are left out."""
    run = trained.run
    rows = (run.status == 0).nonzero()[:, 0]
    return walk_agents(task, run.final.take(rows), run.keys[rows], run.s.same_action_num, episodes)[0]


def walk_agents(task: Task, agents: Algorithm, keys: Tensor, skip: int, episodes: int) -> tuple[Steps, np.ndarray]:
    """What agents do in the tests that end their training, which begin alike -> steps of the task, and whose each is,
    int64 [n].

    keys: int64 [P]; skip: steps with one action, each of which is noted.
    """
    world, R, key = RealTask(task, len(keys)), task.reset_uniforms, rng.fold(keys, rng.FINAL_TEST)
    noise = rng.fold(key, rng.EXPLORE)
    number = torch.zeros_like(key)[:, None] + torch.arange(episodes, device=key.device)
    whose = torch.arange(len(keys), device=key.device)[:, None].expand(number.shape)
    state = world.reset(reset_uniforms(key, number * R, R))
    t, over = torch.zeros_like(number), torch.zeros_like(number, dtype=torch.bool)
    parts, owners = [], []
    while not over.all():
        action = agents.test_action(world.observe(state), noise, number * task.max_steps + t)
        for _ in range(skip):
            observation = world.observe(state)
            state, reward, done, _, next_t, ended = repeat(world, state, action, t, 1, task.max_steps)
            parts.append(tuple(v[~over] for v in (observation, action, world.observe(state), reward, done)))
            owners.append(whose[~over])
            t = torch.where(over, t, next_t)
            over = over | ended
    return join(parts), torch.cat(owners).cpu().numpy()
