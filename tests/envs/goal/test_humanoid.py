"""Humanoid with goals: where they are, that nothing of them is in its state, when it has fallen."""

from __future__ import annotations

import math

import pytest
import torch

from envolve.envs.goal.engines import make_episodes
from envolve.envs.goal.humanoid import Humanoid
from envolve.envs.goal.simulated import SimulatedEpisodes
from envolve.envs.goal.task import Random


def test_starts_and_goals() -> None:
    task, K = Humanoid(), 20_000
    zero = torch.zeros(K, dtype=torch.int64)
    start = task.start(Random(zero, torch.arange(K)), zero)
    assert len(start.unique(dim=0)) == 1  # without noise
    goal = task.goal(Random(zero, torch.arange(K)), start, zero)
    radius, angle = goal[:, :2].norm(dim=1), torch.atan2(goal[:, 1], goal[:, 0])
    assert (goal[:, 2] == 1.25).all() and 1 <= radius.min() < 1.01 and 4.99 < radius.max() <= 5.0001
    assert radius.mean().item() == pytest.approx(3, rel=0.01)  # uniform in the radius, not in the plane
    assert radius.std().item() == pytest.approx(4 / math.sqrt(12), rel=0.02)
    assert torch.histc(angle, 8, -math.pi, math.pi).sub(K / 8).abs().max() < 5 * math.sqrt(K / 8)


def test_it_begins_as_the_model_stands_and_its_state_knows_no_goal() -> None:
    episodes = make_episodes(Humanoid(), torch.tensor([1]), 4)
    assert isinstance(episodes, SimulatedEpisodes)
    rest = torch.from_numpy(episodes.sim.model.qpos0).float()  # type: ignore[attr-defined]
    assert torch.equal(episodes.features[0, :, :24], rest.expand(4, 24)) and (episodes.features[0, :, 24:47] == 0).all()
    assert len(episodes.goal[0].unique(dim=0)) == 4 and len(episodes.features[0].unique(dim=0)) == 1
    inertia = episodes.features[0, 0, 47:157].view(11, 10)
    model = episodes.sim.model  # type: ignore[attr-defined]
    assert inertia[:, 9].sum().item() == pytest.approx(float(model.body_mass[1:].sum()), rel=1e-6)
    assert inertia[:, 6:9].sum(0).abs().max() < 1e-5  # kg m: about the whole body's centre of mass


def test_it_is_over_when_it_has_fallen() -> None:
    """Limp, it lies down within two seconds, and begins anew."""
    episodes = make_episodes(Humanoid(), torch.tensor([1, 2]), 2)
    lengths = []
    for t in range(120):
        outcome = episodes.step(torch.zeros(2, 2, 17))
        z = outcome.features[..., 2]
        assert torch.equal(outcome.terminated, (z < 1.0) | (z > 2.0))
        if outcome.over.any():
            lengths.append(t)
            assert outcome.over.all() and episodes.features[..., 2].sub(1.4).abs().max() < 1e-6
    assert len(lengths) >= 1 and lengths[0] > 10
