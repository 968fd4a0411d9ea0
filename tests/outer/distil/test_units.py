"""A bandit that is fitted in units of each feature."""

from __future__ import annotations

import pytest
import torch

from envolve.envs.nets.networks import forward
from envolve.envs.section import EnvSection
from envolve.envs.task import make_task
from envolve.envs.worlds.world import world_nets
from envolve.outer.distil import bandit
from envolve.outer.distil.units import fit_in_units

SECTION = EnvSection(contextual_bandit=True, hidden_size=16, hidden_layer=1, activation_fn="leakyrelu")


def test_a_fit_in_units_learns_features_of_different_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A policy of small positions beside large velocities: the reward's best action is nearer to it."""
    monkeypatch.setattr(bandit, "CONTEXT_STEPS", 10)
    task = make_task("HalfCheetah-v5")
    g = torch.Generator().manual_seed(0)
    sizes = torch.tensor([0.1] * 8 + [8.0] * 9)
    contexts = sizes * torch.randn(4000, 17, generator=g)
    weights = torch.randn(6, 17, generator=g) / sizes / 17**0.5
    weights[:, 8:] = 0  # positions alone decide

    def act(x: torch.Tensor) -> torch.Tensor:
        return (x @ weights.T).clamp(-1, 1)

    init, reward = (shape for _, shape in world_nets("se", task, SECTION))

    def error(flat: torch.Tensor) -> float:
        x, a = contexts[:500], 2 * torch.rand(500, 6, generator=torch.Generator().manual_seed(1)) - 1
        paid = forward(reward, flat[None, init.size :], torch.cat((a, x), 1).T[None])[0, 0]
        return float((paid + (a - act(x)).abs().mean(1)).square().mean())

    plain = bandit.fit_bandit(task, SECTION, contexts, act, 7, 300)
    assert error(fit_in_units(task, SECTION, contexts, act, 7, 300)) < 0.7 * error(plain)
