"""Compiled learners in worlds whose steps Python takes, against the PyTorch path."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from envolve.agents.common.sections import (
    DDQNSection,
    DuelingDDQNSection,
    LearnerSection,
    SACSection,
    TD3DiscreteSection,
    TD3Section,
    VarySection,
)
from envolve.agents.train import train
from envolve.envs.classic.cartpole import CartPole
from envolve.envs.classic.pendulum import Pendulum
from envolve.envs.section import EnvSection
from envolve.envs.task import TASKS, Task
from envolve.envs.worlds.world import init_world
from tests.examples import some_slow

SMALL: dict[str, Any] = {"hidden_size": 12, "hidden_layer": 1, "batch_size": 10, "test_episodes": 2, "lr": 3e-3}
LEARNERS: dict[str, LearnerSection] = {
    "ddqn": DDQNSection(**SMALL),
    "td3": TD3Section(**SMALL, policy_delay=2),
    "sac": SACSection(**SMALL),
    "duelingddqn": DuelingDDQNSection(**SMALL),
    "td3_discrete": TD3DiscreteSection(**SMALL),
}
VARIED = VarySection(vary_hp=True, vary_layers=True)
CASES: dict[str, tuple[str, dict[str, Any]]] = {  # kind of world, what is special
    "real": ("real", {}),
    "real, as long as the budget": ("real", {"train_steps": 47, "early_out_num": 1000}),
    "real, two steps per decision, cut at the limit": ("real", {"same_action_num": 2, "bootstrap_time_limit": True}),
    "real, small memory": ("real", {"rb_size": 20}),
    "rn": ("rn", {}),
    "se": ("se", {"early_out_min_steps": 20}),
    "tested, varied": ("rn", {"test_each": True, "vary": True}),
}


class TwinlessCartPole(CartPole):
    name = "TwinlessCartPole-v0"


class TwinlessPendulum(Pendulum):
    name = "TwinlessPendulum-v0"


@pytest.fixture(autouse=True)
def tasks() -> Iterator[None]:
    for cls in (TwinlessCartPole, TwinlessPendulum):
        TASKS.register(cls.name, cls)
    yield
    for cls in (TwinlessCartPole, TwinlessPendulum):
        TASKS.unregister(cls.name)


def trained(name: str, backend: str, kind: str, own: dict[str, Any], task: Task | None = None) -> Any:
    section = LEARNERS[name]
    settings = {"train_steps": 90, "train_episodes": 9, "init_episodes": 1, **own}
    test_each, vary = settings.pop("test_each", False), settings.pop("vary", False)
    section = type(section)(**{**vars(section), **settings})
    cls = TwinlessCartPole if "ddqn" in name or name == "td3_discrete" else TwinlessPendulum
    task = task or cls(max_steps=17)
    world = EnvSection(hidden_size=8, reward_env_type=2, max_steps=17)
    worlds = init_world(kind, task, world, torch.arange(3)) if kind != "real" else torch.zeros(3, 1)
    varied = VARIED if vary else None
    return train(name, section, varied, task, kind, world, worlds, np.array([5, 6, 7]), test_each, backend)


EVERY = [(name, case) for name in LEARNERS for case in CASES]
FAST = [("ddqn", case) for case in CASES]


@pytest.mark.parametrize(("name", "case"), some_slow(EVERY, FAST))
def test_equals_the_pytorch_path(name: str, case: str) -> None:
    kind, own = CASES[case]
    a, b = (trained(name, backend, kind, own) for backend in ("torch", "compiled"))
    assert (b.updates > 5).all() or kind == "se"  # there a random world may settle early
    assert b.updates.max() > 5
    for count in ("train_steps", "updates", "episodes", "real_steps", "status", "episode_length"):
        np.testing.assert_array_equal(getattr(a, count), getattr(b, count), count)
    np.testing.assert_allclose(a.episode_return, b.episode_return, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(a.test_return, b.test_return, rtol=1e-2, atol=1e-2)
    np.testing.assert_allclose(a.weights, b.weights, rtol=1e-2, atol=1e-3)


def test_members_do_not_notice_each_other() -> None:
    """Bit for bit: the second of three, and alone."""
    together = trained("ddqn", "compiled", "real", {})
    few = {"train_steps": 90, "train_episodes": 9, "init_episodes": 1}
    section, world = DDQNSection(**{**vars(LEARNERS["ddqn"]), **few}), EnvSection(max_steps=17)
    task, keys = TwinlessCartPole(max_steps=17), np.array([6])
    alone = train("ddqn", section, None, task, "real", world, torch.zeros(1, 1), keys)
    assert alone.weights.tobytes() == together.weights[1:2].tobytes()
    assert alone.test_return.tobytes() == together.test_return[1:2].tobytes()


class Failing(TwinlessCartPole):
    """Its episodes fail where the cart moves fast."""

    stops_itself = True

    def stopped(self, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        fast = state[..., 1].abs() > 1.9
        return torch.zeros_like(fast), fast

    def complaint(self, state: torch.Tensor) -> str:
        return "too fast"


@pytest.mark.parametrize("own", [{}, {"train_steps": 40}])
def test_a_world_that_fails_ends_its_member_alone(own: dict[str, Any]) -> None:
    a, b = (trained("ddqn", backend, "real", own, Failing(max_steps=17)) for backend in ("torch", "compiled"))
    assert (a.status == b.status).all() and 0 < (b.status != 0).sum()
    assert a.complaints == b.complaints and set(b.complaints.values()) == {"too fast"}
    np.testing.assert_array_equal(a.real_steps, b.real_steps)


def test_weights_that_are_not_finite_end_a_member() -> None:
    own = {"lr": 1e30, "train_steps": 90}
    a, b = (trained("ddqn", backend, "real", own) for backend in ("torch", "compiled"))
    assert (b.status != 0).all() and (a.status == b.status).all() and np.isnan(b.test_return).all()
