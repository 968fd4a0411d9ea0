"""Contexts whose best actions are zero on average: the weights are the optimum, and a distilled world's contexts have
them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
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
    """Of a policy that is often at a bound, float32 [n, A]."""
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
    """Three actions of 1 and one of -1: equal shares but for RIDGE. Where all actions are equal, so are the weights."""
    p = weights_of(torch.tensor([[1.0], [1.0], [1.0], [-1.0]]))
    assert abs(float(p[3]) - 0.5) < 0.006 and p[0] == p[1] == p[2]
    assert torch.allclose(weights_of(torch.ones(7, 2)), torch.full((7,), 1 / 7, dtype=torch.float64))


def test_balanced_contexts_are_rows_with_a_mean_action_of_zero() -> None:
    a = actions(1, 4000, 3, 0.7)
    assert float(a.mean(0).min()) > 0.4
    contexts = torch.cat((a, torch.arange(4000.0)[:, None]), 1)
    made = balanced(contexts, a, 5)
    assert made.shape == contexts.shape and float(made[:, :3].mean(0).abs().max()) < 0.03
    row = made[:, 3].long()
    assert torch.equal(made, contexts[row])
    count = torch.bincount(row, minlength=4000).double()
    assert (count - 4000 * weights_of(a)).abs().max() < 1 + 1e-6, "systematic: rounded up or down"
    assert torch.equal(made, balanced(contexts, a, 5)) and not torch.equal(made, balanced(contexts, a, 6))


@pytest.mark.parametrize("balance", [True, False])
def test_a_distilled_world_is_fitted_to_balanced_contexts(balance: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[float] = []

    def fit(
        task: Task, _: EnvSection, contexts: Tensor, act: Callable[[Tensor], Tensor], key: int, steps: int
    ) -> Tensor:
        seen.append(float(act(contexts).mean() / task.max_action))
        return torch.zeros(begin.world_size("se", task, section))

    monkeypatch.setattr(begin, "fit_bandit", fit)
    raw = {**PENDULUM, "agents": {**PENDULUM["agents"]}}
    raw["agents"]["expert"] = {**PENDULUM["agents"]["expert"], "balance": balance}
    data = config_of(raw, (), "test").data
    section = begin.env_section(data)
    for key in range(3):
        begin.distil(data, torch.tensor([key]))
    assert (np.abs(seen) < 0.03).all() == balance, seen


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
