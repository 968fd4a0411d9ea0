"""A small population of any learner, for its tests of both back ends, and what is promised of all of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from envolve.agents.common import population
from envolve.agents.common.hyper import draw
from envolve.agents.common.job import Job
from envolve.agents.common.result import OK, TrainResult
from envolve.agents.kernels.off_policy import population as off_policy_population
from envolve.agents.off_policy import depths
from envolve.agents.off_policy.training import OffPolicy
from envolve.envs.section import EnvSection
from envolve.envs.task import Task, make_task
from envolve.envs.worlds.world import init_world
from tests.agents.same import assert_same_bytes

OTHERS = [0, 1, 3, 4]  # of five members, when something is wrong with the third


class Setup:
    """``values`` overrides hyperparameters member by member. Subclasses name the learner and their own defaults."""

    algorithm: Any
    section_class: Any
    small: dict[str, Any] = {}
    default_kind, default_task = "real", "CartPole-v0"
    max_steps: int | None = None
    solved_reward: float | None = None
    loops: tuple[Any, Any] = (depths, off_policy_population)  # of PyTorch, compiled

    def __init__(
        self,
        kind="",
        name="",
        P=5,
        max_steps=None,
        env=None,
        values=None,
        seed=100,
        solved_reward=None,
        test_each=False,
        **section,
    ):
        self.kind, self.test_each = kind or self.default_kind, test_each
        self.task = self.make_task(name, max_steps or self.max_steps, solved_reward or self.solved_reward)
        self.env = EnvSection(**{"hidden_size": 13, **(env or {})})
        self.keys = np.arange(P) + seed
        self.hyper = draw(self.section_class(**{**self.small, **section}), self.keys)
        self.hyper.values.update({k: np.array(v) for k, v in (values or {}).items()})
        self.worlds = np.zeros((P, 1), np.float32)
        if self.kind != "real":
            self.worlds = init_world(self.kind, self.task, self.env, torch.as_tensor(self.keys) + 9).numpy()

    def make_task(self, name: str, max_steps: int | None, solved_reward: float | None) -> Task:
        return make_task(name or self.default_task, max_steps=max_steps, solved_reward=solved_reward)

    def torch(self, rows=slice(None)) -> TrainResult:
        return self.loops[0].train_population(*self.own(), self.job(rows))

    def compiled(self, rows=slice(None), **options) -> TrainResult:
        return self.loops[1].train_population(*self.own(), self.job(rows), **options)

    def own(self) -> tuple[Any, ...]:
        """What a loop takes before the job."""
        return (self.algorithm,)

    def job(self, rows=slice(None)) -> Job:
        hyper, worlds, keys = self.hyper.take(rows), torch.as_tensor(self.worlds[rows]), self.keys[rows]
        return Job(self.task, self.kind, self.env, worlds, hyper, keys, self.test_each)

    def learner(self):
        """The inner object of an off-policy population of one depth, before training; its nets, and the widest."""
        agents = population.nets_of(self.algorithm, self.task, self.hyper)
        widest = population.widest(agents)
        weights = torch.as_tensor(population.initial_weights(agents, self.keys))
        params = population.stack(weights, agents, widest)
        algorithm = self.algorithm(self.task, self.hyper, widest, params, torch.as_tensor(self.hyper["hidden_size"]))
        return OffPolicy(self.job(), algorithm), agents, widest


def check_padding(setup: Setup) -> None:
    """Units that a member has not stay exactly zero, and all that it has learn."""
    run, agents, widest = setup.learner()
    before = run.final.rows.params.clone()
    run.train()
    after = run.final.rows.params
    for i, nets in enumerate(agents):
        used = torch.zeros(population.size(widest), dtype=torch.bool)
        used[population.embedding(nets, widest)] = True
        assert used.sum() == population.size(nets) and (after[i, ~used] == 0).all()
        assert (after[i, used] != before[i, used]).float().mean() > 0.9


def check_third_diverged(sick: TrainResult, sound: TrainResult, status: int, rounding: float = 0.0) -> None:
    """The third of five members ends with ``status``; the others have the same bits, but for the ``rounding`` of tests,
    which are of four members or five."""
    np.testing.assert_allclose(sick.test_return[OTHERS], sound.test_return[OTHERS], rtol=rounding)
    assert_same_bytes(replace(sick, test_return=sound.test_return), sound, OTHERS, OTHERS)
    assert sick.status.tolist() == [OK, OK, status, OK, OK] and np.isnan(sick.test_return[2]).all()
