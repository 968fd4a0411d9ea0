"""Contexts whose best actions are near zero on average: the weights are the optimum, and distilled worlds use them."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from envolve.envs.section import EnvSection
from envolve.envs.task import Task
from envolve.outer.config.load import ConfigError, config_of
from envolve.outer.distil import begin
from envolve.outer.distil.balance import RIDGE, balanced, weights_of
from envolve.outer.distil.expert import Expert

PENDULUM: dict[str, Any] = {
    "env_name": "Pendulum-v0",
    "agents": {
        "gtn": {"agent_name": "TD3", "init": "distilled"},
        "expert": {"learner": "ars", "agents": 1, "balance": True},
        "ars_expert": {"train_steps": 400, "directions": 1},
        "td3": {},
    },
    "envs": {"Pendulum-v0": {"contextual_bandit": True}},
}


def actions(seed: int, n: int, A: int, shift: float) -> Tensor:
    """Actions of a policy that is often at a bound, float32 [n, A]."""
    return (torch.randn(n, A, generator=torch.Generator().manual_seed(seed)) + shift).clamp(-1, 1)


@given(st.integers(0, 10**6), st.integers(1, 6), st.floats(-3, 3))
@settings(max_examples=40, deadline=None)
def test_weights_are_the_optimum(seed: int, A: int, shift: float) -> None:
    """p is an exponential of l . a, and its mean action is -RIDGE l: the conditions of the convex problem's minimum. A
    shift of 3 leaves almost no action on the other side."""
    a = actions(seed, 500, A, shift).double()
    p = weights_of(a.float())
    assert torch.isfinite(p).all() and abs(float(p.sum()) - 1) < 1e-9
    known = torch.cat((a, torch.ones(len(a), 1, dtype=torch.float64)), 1)
    seen = p > 1e-250
    tilt = torch.linalg.lstsq(known[seen], p[seen].log()[:, None], driver="gelsd").solution[:A, 0]
    assert torch.allclose(p @ a, -RIDGE * tilt, atol=1e-6)
    assert torch.allclose(known[seen] @ torch.cat((tilt, (p.log() - a @ tilt)[seen][:1])), p[seen].log(), atol=1e-5)


def test_known_weights() -> None:
    """Three actions of 1 and one of -1: shares of 0.525 and 0.475, as tanh(l + log(3) / 2) = -0.1 l at l = -0.5. Where
    all actions are equal, so are the weights."""
    p = weights_of(torch.tensor([[1.0], [1.0], [1.0], [-1.0]]))
    assert RIDGE == 0.1 and abs(float(p[3]) - 0.475) < 0.001 and p[0] == p[1] == p[2]
    assert torch.allclose(weights_of(torch.ones(7, 2)), torch.full((7,), 1 / 7, dtype=torch.float64))


def test_balanced_contexts_are_rows_with_a_mean_action_near_zero() -> None:
    a = actions(1, 4000, 3, 0.7)
    assert float(a.mean(0).min()) > 0.4
    contexts = torch.cat((a, torch.arange(4000.0)[:, None]), 1)
    made = balanced(contexts, a, 5)
    assert made.shape == contexts.shape
    assert float(made[:, :3].mean(0).abs().max()) < 0.12
    row = made[:, 3].long()
    assert torch.equal(made, contexts[row])
    count = torch.bincount(row, minlength=4000).double()
    assert (count - 4000 * weights_of(a)).abs().max() < 1 + 1e-6, "systematic: rounded up or down"
    assert torch.equal(made, balanced(contexts, a, 5)) and not torch.equal(made, balanced(contexts, a, 6))


@pytest.mark.parametrize("balance", [True, False])
def test_a_distilled_world_is_fitted_to_balanced_contexts(balance: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The expert pushes to the right in four of five states."""
    seen: list[Tensor] = []
    states = torch.randn(2000, 3, generator=torch.Generator().manual_seed(3))

    def act(x: Tensor) -> Tensor:
        return 2 * (x[:, :1] + 0.8).clamp(-1, 1)

    def fit(task: Task, section: EnvSection, contexts: Tensor, *_: object) -> Tensor:
        seen.append(contexts)
        return torch.zeros(begin.world_size("se", task, section))

    monkeypatch.setattr(begin, "train_experts", lambda *_: [Expert(act, states, 400, -500.0)])
    monkeypatch.setattr(begin, "fit_bandit", fit)
    raw = copy.deepcopy(PENDULUM)
    raw["agents"]["expert"]["balance"] = balance
    begin.distil(config_of(raw, (), "test").data, torch.tensor([0]))
    (contexts,) = seen
    mean = float(act(contexts).mean() / 2)
    assert len(contexts) == 2000 and (abs(mean) < 0.15 if balance else mean > 0.5)
    assert {*map(tuple, contexts.tolist())} <= {*map(tuple, states.tolist())}, "contexts are states that were visited"


@pytest.mark.parametrize("env, words", [
    ("CartPole-v0", "agents.expert.balance: found true, expected false: CartPole-v0 has discrete actions"),
    ("Pendulum-v0", "agents.expert.balance: found true, expected false with stored_contexts"),
])  # fmt: skip
def test_what_cannot_be_balanced_is_said(env: str, words: str) -> None:
    discrete = env == "CartPole-v0"
    learner = "ddqn" if discrete else "td3"
    raw = {
        "env_name": env,
        "agents": {
            "gtn": {"agent_name": learner, "init": "distilled"},
            "expert": {"learner": learner, "balance": True},
            f"{learner}_expert": {"train_steps": 100},
            learner: {},
        },
        "envs": {env: {"contextual_bandit": True, "stored_contexts": 0 if discrete else 10}},
    }
    with pytest.raises(ConfigError, match=words):
        config_of(raw, (), "test")
