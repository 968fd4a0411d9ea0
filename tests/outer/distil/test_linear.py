"""The nearest linear policy: one that is linear, a start for random search, and what a configuration may say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from envolve.envs.section import EnvSection
from envolve.envs.task import make_task
from envolve.outer.config.load import ConfigError, config_of
from envolve.outer.config.section import ARSSection
from envolve.outer.distil import bandit, linear
from envolve.outer.distil.ars import ARS
from envolve.outer.distil.expert import Expert, improved
from envolve.outer.distil.linear import nearest_linear
from envolve.outer.evaluate.networks import DISTIL, evaluate

CAR = make_task("MountainCarContinuous-v0")


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear, "ROUNDS", 2)
    monkeypatch.setattr(linear, "STEPS", 500)
    monkeypatch.setattr(bandit, "CONTEXT_STEPS", 50)


@pytest.fixture
def poor(short: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests of what is done, not of how well."""
    monkeypatch.setattr(linear, "STEPS", 20)


def by_hand(x: Tensor) -> Tensor:
    """Pushes where the car goes, more at the left: solves the task, and is linear but for its clipping."""
    return (30 * x[:, 1:] - 0.2 * x[:, :1] - 0.15).clamp(-1, 1)


def anywhere(count: int) -> Tensor:
    u = torch.rand(count, 2, generator=torch.Generator().manual_seed(0))
    return u * torch.tensor([1.8, 0.14]) - torch.tensor([1.2, 0.07])


def test_it_is_the_policy_itself_where_that_is_linear(short: None) -> None:
    states = anywhere(3000)
    policy = ARS(CAR, ARSSection(train_steps=1), 1, nearest_linear(CAR, by_hand, states, 5)).policy()
    assert (policy(states) - by_hand(states)).abs().mean() < 0.02


@pytest.mark.parametrize("key", [5, -5])
def test_it_repeats_itself_and_counts_its_episodes(poor: None, key: int) -> None:
    states = anywhere(3000)
    found, again = (nearest_linear(CAR, by_hand, states, key) for _ in range(2))
    assert torch.equal(found.weights, again.weights) and torch.equal(found.mean, again.mean)
    assert found.steps == again.steps >= linear.ROUNDS * linear.EPISODES * 60


def test_a_search_that_begins_there_is_ahead_of_one_that_does_not(short: None) -> None:
    section = ARSSection(train_steps=1, directions=2, noise_std=0.01, step_size=0.01, test_episodes=5)
    key = np.array([3])
    teacher = Expert(by_hand, anywhere(3000), 12_345, 92.0)
    made = improved(CAR, EnvSection(), section, teacher, key)
    assert made is not None and made.mean_return > 85 and made.steps > 12_345 + len(made.states)
    plain = ARS(CAR, section, 3)
    plain.train()
    assert plain.score() < 5
    assert improved(CAR, EnvSection(), section, None, key) is None, "a teacher that diverged"


def raw(**expert: Any) -> dict[str, Any]:
    return {
        "env_name": "Pendulum-v0",
        "envs": {"Pendulum-v0": {"contextual_bandit": True, "hidden_size": 8, "hidden_layer": 1, "max_steps": 40}},
        "agents": {
            "gtn": {"agent_name": "TD3", "init": "distilled"},
            "td3": {"train_steps": 100},
            "expert": {"learner": "ars", "imitate": "sac", "fit_steps": 50, "agents": 1, **expert},
            "ars_expert": {"train_steps": 400, "directions": 2, "top": 1, "test_episodes": 2},
            "sac_expert": {
                "train_steps": 100,
                "test_episodes": 2,
                "hidden_size": 8,
                "batch_size": 8,
                "init_episodes": 1,
            },
        },
    }


def test_a_run_imitates_its_teacher_and_counts_all_steps(poor: None) -> None:
    data = config_of(raw(), (), "test").data
    seeds = torch.tensor([3, 4])
    values = evaluate(data, torch.zeros(2, 1), seeds, DISTIL)
    again = evaluate(data, torch.zeros(1, 1), seeds[1:], DISTIL)
    assert torch.equal(values["world"][1:], again["world"]), "a member's world depends on its chunk"
    assert values["train_steps"].tolist() == [500, 500]
    assert torch.isfinite(values["score"]).all() and not any(values["reason"])
    imitation, contexts = linear.ROUNDS * linear.EPISODES * 40, 20 * 40
    assert (values["real_steps"] >= 100 + 80 + imitation + 400 + 80 + contexts).all()


def test_what_cannot_be_imitated_is_said() -> None:
    def said(data: dict[str, Any]) -> str:
        with pytest.raises(ConfigError) as e:
            config_of(data, (), "test")
        return str(e.value)

    assert "only ars imitates, and agents.expert.learner is sac" in said(raw(learner="sac"))
    assert "did you mean sac" in said(raw(imitate="sacc"))
    assert "expected a learner with networks" in said(raw(imitate="ars"))
    missing = raw()
    del missing["agents"]["sac_expert"]
    assert "no section agents.sac_expert" in said(missing)
    endless = raw()
    endless["agents"]["sac_expert"]["train_steps"] = 0
    assert "0 (no limit)" in said(endless)
