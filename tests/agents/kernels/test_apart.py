"""Bandits of a task that has no compiled twin: trained by the kernels, tested by the PyTorch path."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numba
import numpy as np
import pytest
import torch

from envolve.agents.common.hyper import draw
from envolve.agents.common.learners import LEARNERS
from envolve.agents.common.sections import DDQNSection, LearnerSection, PPOSection, TD3Section, VarySection
from envolve.agents.kernels.building import ahead
from envolve.agents.kernels.common.members import python_steps
from envolve.agents.kernels.off_policy import sac, td3
from envolve.agents.kernels.off_policy.population import why_not
from envolve.agents.off_policy.td3_discrete import TD3Discrete
from envolve.agents.train import train
from envolve.envs.classic.cartpole import CartPole
from envolve.envs.classic.pendulum import Pendulum
from envolve.envs.section import EnvSection
from envolve.envs.task import TASKS, Task
from envolve.envs.worlds.world import init_world

SECTION = EnvSection(contextual_bandit=True, hidden_size=16)
COMMON: dict[str, Any] = {"train_episodes": 100, "train_steps": 100, "test_episodes": 3, "hidden_size": 16}
CASES: list[tuple[str, type[Task], LearnerSection]] = [
    ("ddqn", CartPole, DDQNSection(init_episodes=0, hidden_layer=1, **COMMON)),
    ("td3", Pendulum, TD3Section(init_episodes=20, hidden_layer=1, batch_size=16, **COMMON)),
    ("ppo", Pendulum, PPOSection(rollout_steps=50, ppo_epochs=4, advantage="gae", **COMMON)),
    ("td3", Pendulum, TD3Section(init_episodes=20, hidden_layer=1, batch_size=16, test_noise=True, **COMMON)),
    ("ppo", Pendulum, PPOSection(rollout_steps=50, ppo_epochs=4, test_noise=True, **COMMON)),
]


NAMES = ["ddqn", "td3", "ppo", "td3, noise in tests", "ppo, noise in tests"]


@pytest.fixture(
    params=[pytest.param(c, id=n, marks=pytest.mark.slow if "," in n else ()) for c, n in zip(CASES, NAMES)]
)
def case(request: pytest.FixtureRequest) -> Iterator[tuple[str, Task, Task, LearnerSection]]:
    """A learner, a task with a twin, the same one without, and the learner's section."""
    name, cls, section = request.param
    other = type("Twinless", (cls,), {"name": "Twinless-v0"})
    TASKS.register("Twinless-v0", other)
    yield name, cls(), other(), section
    TASKS.unregister("Twinless-v0")


def trained(name: str, task: Task, section: LearnerSection, backend: str, vary: VarySection | None = None) -> Any:
    worlds = init_world("se", task, SECTION, torch.arange(3))
    return train(name, section, vary, task, "se", SECTION, worlds, np.array([5, 6, 7]), backend=backend)


def test_training_has_the_bits_of_a_task_with_a_twin(case: tuple[str, Task, Task, LearnerSection]) -> None:
    name, with_twin, without, section = case
    a, b = (trained(name, task, section, "compiled") for task in (with_twin, without))
    assert a.weights.tobytes() == b.weights.tobytes() and (a.train_steps == b.train_steps).all()
    assert np.isfinite(b.test_return).all() and (b.real_steps > 0).all()
    np.testing.assert_allclose(b.test_return, a.test_return, rtol=1e-3)
    assert (abs(b.real_steps - a.real_steps) <= 3).all()


def test_tests_are_those_of_the_pytorch_path(case: tuple[str, Task, Task, LearnerSection]) -> None:
    name, _, without, section = case
    vary = VarySection(vary_hp=True, vary_layers=True)  # members of several depths and widths
    a, b = (trained(name, without, section, backend, vary) for backend in ("torch", "compiled"))
    assert a.test_return.shape == b.test_return.shape and (a.status == b.status).all()
    np.testing.assert_allclose(a.weights, b.weights, rtol=0.1, atol=0.05)
    np.testing.assert_allclose(a.test_return, b.test_return, rtol=0.2)


def twinless(**own: object) -> Task:
    return type("Twinless", (CartPole,), {"name": "Twinless-v0", **own})()


def test_tests_that_need_the_end_of_a_schedule_have_no_twin(monkeypatch: pytest.MonkeyPatch) -> None:
    """They would explore as at the beginning."""
    monkeypatch.setattr(ahead, "why_not", lambda name: None)
    section = LEARNERS["td3_discrete"].section
    for test_noise in (False, True):
        hyper = draw(section(test_noise=test_noise), np.arange(2))
        reasons = [why_not(TD3Discrete, twinless(), hyper, apart) for apart in (False, True)]
        assert [reason is not None for reason in reasons] == [test_noise] * 2
        assert why_not(TD3Discrete, CartPole(), hyper) is None


def test_whole_numbers_of_a_users_task_are_no_other_type() -> None:
    """numba would compile everything again, in every process."""
    assert type(twinless(default_solved_reward=200).solved_reward) is float
    for name, twin in (("td3", td3.TD3), ("sac", sac.SAC)):
        section, weights = LEARNERS[name].section(), np.zeros(1_000_000, np.float32)
        agents = [twin.create(twinless(action_size=1, max_action=bound), section, weights) for bound in (2, 2.0)]
        assert numba.typeof(agents[0]) == numba.typeof(agents[1]), name


def test_only_bandits_need_no_twin() -> None:
    task = twinless()
    assert python_steps(task) and not python_steps(task, apart=True) and not python_steps(CartPole())
