"""A bandit that teaches a hand-written policy of continuous actions."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from envolve.envs.section import EnvSection
from envolve.envs.task import make_task
from envolve.envs.worlds.contextual_bandit import ContextualBandit
from envolve.outer.distil import bandit
from tests.outer.distil.energy import energy_distance

PENDULUM = make_task("Pendulum-v0")


def by_hand(observation: Tensor) -> Tensor:
    return (2 * torch.tanh(-4 * observation[:, 1:2] - observation[:, 2:])).clamp(-2, 2)


def test_the_same_key_gives_the_same_bandit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bandit, "CONTEXT_STEPS", 20)
    section, given = EnvSection(contextual_bandit=True, hidden_size=8), states(500)
    one, same, other = (bandit.fit_bandit(PENDULUM, section, given, by_hand, key, 20) for key in (-7, -7, 8))
    assert torch.equal(one, same) and not torch.equal(one, other)


def states(count: int) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    angle, velocity = (2 * torch.rand(2, count, generator=generator) - 1) * torch.tensor([[math.pi], [6.0]])
    return torch.stack((torch.cos(angle), torch.sin(angle), velocity), 1)


def test_it_pays_most_for_the_policys_action_in_contexts_like_the_given_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bandit, "CONTEXT_STEPS", 400)
    section, given = EnvSection(contextual_bandit=True, hidden_size=32, activation_fn="tanh"), states(2000)
    flat = bandit.fit_bandit(PENDULUM, section, given, by_hand, -7, 400)
    world = ContextualBandit(PENDULUM, section, flat[None])
    state = world.reset(torch.rand(1, 500, 3, generator=torch.Generator().manual_seed(1)))
    scale = given.std(0)
    far = energy_distance(given[:500] / scale, 2 + given[500:1000] / scale)
    assert energy_distance(state[0] / scale, given[:500] / scale) < 0.05 * far
    grid = torch.linspace(-2, 2, 41)
    paid = torch.stack([world.step(state, torch.full((1, 500, 1), float(a)))[1][0] for a in grid])
    best = grid[paid.argmax(0)]
    error = (best - by_hand(state[0])[:, 0]).abs()
    assert error.mean() < 0.35 and error.median() < 0.15
    lost = paid.amax(0) - paid[[0, -1]].amin(0)  # the worse of the two extreme actions
    assert lost.mean() > 0.6
