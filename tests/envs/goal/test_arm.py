"""The arm: its lengths by trigonometry, where it turns to, and that it gets to its goals."""

from __future__ import annotations

from math import cos, pi, sin

import numpy as np
import pytest
import torch

from envolve.envs.goal.arm import HIGH, LOW, ArmReach
from envolve.envs.goal.simulated import SimulatedEpisodes
from envolve.envs.goal.task import Random
from tests.envs.goal.plain_loop import follow


def end(q1: float, q2: float, q4: float, q6: float) -> list[float]:
    """Where the last link begins, joints 3 and 5 at 0: forward from the axis of joint 1, then up; m."""
    forearm, last = q2 - q4, q2 - q4 - q6  # turned forward so far
    forward = 0.316 * sin(q2) + 0.0825 * cos(q2) - 0.0825 * cos(forearm) + 0.384 * sin(forearm) + 0.088 * cos(last)
    up = 0.333 + 0.316 * cos(q2) - 0.0825 * sin(q2) + 0.0825 * sin(forearm) + 0.384 * cos(forearm) - 0.088 * sin(last)
    return [forward * cos(q1), forward * sin(q1), up]


def test_where_it_begins_and_its_goals_are() -> None:
    task, K = ArmReach(), 5000
    zero = torch.zeros(K, dtype=torch.int64)
    start = task.start(Random(zero, torch.arange(K)), zero)
    assert len(start.unique(dim=0)) == 1 and (start[:, 7:] == 0).all()
    goal = task.goal(Random(zero, torch.arange(K)), start, zero)
    for axis, (low, high) in enumerate(((-0.2, 0.2), (0.3, 0.7), (0.1, 0.5))):
        at = goal[:, axis]
        assert low <= at.min() < low + 0.01 and high - 0.01 < at.max() <= high
        assert at.mean().item() == pytest.approx((low + high) / 2, abs=0.01)
    e = SimulatedEpisodes(task, torch.tensor([1]), 2)
    np.testing.assert_allclose(e.features[0, 0, 7:10], end(1.571, 0.742, -1.571, 3.054), atol=1e-5)
    np.testing.assert_allclose(task.whereabouts(start[:2]), e.features[0, :, 7:10], atol=1e-5)
    assert (e.features[0, :, 10:] == 0).all()


def test_it_turns_to_the_angles_it_is_told() -> None:
    task = ArmReach()
    e = SimulatedEpisodes(task, torch.tensor([1]), 5)
    corner = torch.tensor([[-1.0, -1, 1, 1], [1, 1, -1, -1], [0.3, 0.1, 0.4, -0.5], [0, 0, 0, 0], [0, 0.5, 0.5, 0.2]])
    told = task.effort(corner, e.sim)
    assert told[0, [0, 1, 3, 5]].tolist() == pytest.approx([LOW[0], LOW[1], HIGH[2], HIGH[3]], rel=1e-5)
    assert told[1, [0, 1, 3, 5]].tolist() == pytest.approx([HIGH[0], HIGH[1], LOW[2], LOW[3]], rel=1e-5)
    assert (told[:, [2, 4]] == 0).all() and told[:, 6].unique().tolist() == pytest.approx([1.449])
    calm = corner[2:][[0, 1, 2, 1, 2]]
    told = task.effort(calm, e.sim)
    for _ in range(60):
        outcome = e.advance(calm[None])
    features = outcome.features[0]
    np.testing.assert_allclose(features[:, :7], told, atol=0.02)
    for f in features.tolist():
        assert f[7:10] == pytest.approx(end(f[0], f[1], f[3], f[5]), abs=0.01)
    assert features[:, 10:].abs().max() < 0.05 and not outcome.terminated.any()


def test_goals_can_be_reached() -> None:
    """By angles found on a grid, nine of ten goals; held there, the arm stays near."""
    task, n = ArmReach(), 12
    e = SimulatedEpisodes(task, torch.tensor([5]), n)
    grid = np.stack(np.meshgrid(*(np.linspace(a, b, 14) for a, b in zip(LOW, HIGH)), indexing="ij"), -1).reshape(-1, 4)
    places = np.array([end(*q) for q in grid])
    angles = np.stack([grid[np.linalg.norm(places - g, axis=1).argmin()] for g in e.goal[0].numpy()])
    action = torch.from_numpy(2 * (angles - LOW) / (np.array(HIGH) - LOW) - 1).float()[None]
    near = torch.zeros(n)
    for _ in range(80):
        near += e.advance(action).success[0]
    assert (near > 30).float().mean() >= 0.9


def test_through_fast_turns_it_is_mujocos() -> None:
    e = SimulatedEpisodes(ArmReach(), torch.tensor([1]), 2)
    generator = torch.Generator().manual_seed(0)
    follow(e, 2 * torch.rand(10, 1, 2, 4, generator=generator) - 1)
    assert e.features[..., 10:].abs().max() > 0.1 and pi > e.features[..., 0].abs().max()
