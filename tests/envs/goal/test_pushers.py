"""Pusher with goals: where objects begin and should end, and that the arm can move them."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from envolve.envs.goal.engines import make_episodes
from envolve.envs.goal.simulated import SimulatedEpisodes, SimulatedTask
from envolve.envs.goal.task import Beginnings, Random, make_goal_task
from tests.envs.goal.plain_loop import follow

GOALS = {"pusher_easy": ((-0.55, -0.25), (-0.2, 0.2)), "pusher_hard": ((-0.65, 0.35), (-0.55, 0.45))}


@pytest.mark.parametrize("name", GOALS)
def test_starts_and_goals(name: str) -> None:
    task, K = make_goal_task(name), 20_000
    zero = torch.zeros(K, dtype=torch.int64)
    start = task.start(Random(zero, torch.arange(K)), zero)
    goal = task.goal(Random(zero + 1, torch.arange(K)), start, zero)
    assert (start[:, :7] == 0).all() and (start[:, 18:] == 0).all() and (goal[:, 2] == -0.275).all()
    assert 0.0049 < start[:, 11:18].abs().max() <= 0.005
    for column, (low, high) in enumerate(GOALS[name]):  # slides along y, then x
        slid = goal[:, 1 - column] - (-0.05, 0.45)[column]
        assert low - 1e-6 <= slid.min() and slid.max() <= high + 1e-6
        assert slid.mean().item() == pytest.approx((low + high) / 2, abs=0.01)
        assert slid.std().item() == pytest.approx((high - low) / math.sqrt(12), rel=0.03)
    y, x = start[:, 7], start[:, 8]
    away = torch.hypot(x + 0.45 - goal[:, 0], y - 0.05 - goal[:, 1])
    assert away.min() >= 0.17 - 1e-6
    there = away > 0.1701  # the others were pushed out of their box, perhaps
    assert there.double().mean() > 0.8 and not there.all()
    assert y[there].min() >= -0.3 and y[there].max() <= 0 and x[there].abs().max() <= 0.2
    assert y[there].min() < -0.29 and y[there].max() > -0.01 and x[there].abs().max() > 0.19


def test_the_models_mark_lies_at_the_goal() -> None:
    episodes = make_episodes(make_goal_task("pusher_easy"), torch.tensor([1]), 8)
    assert isinstance(episodes, SimulatedEpisodes)
    mark = episodes.sim.joint_position[:, 9:11]
    here = torch.stack((0.45 + mark[:, 1], -0.05 + mark[:, 0]), 1)
    np.testing.assert_allclose(episodes.goal[0, :, :2], here, atol=1e-6)


class BesideTheArm(Beginnings):
    """The hand lies on the table and the object in the way of its turning, r from the shoulder's axis."""

    def start(self, random: Random, members: torch.Tensor) -> torch.Tensor:
        start, lift, turn = torch.zeros(len(members), 22), math.asin(0.275 / 0.721), 0.6
        reach = 0.1 + 0.721 * math.cos(lift)  # m, to the wrist
        start[:, 0], start[:, 1] = turn - 0.45, lift
        start[:, 7], start[:, 8] = reach * math.sin(turn) - 0.6 + 0.05, reach * math.cos(turn) - 0.45
        return start

    def goal(self, random: Random, start: torch.Tensor, members: torch.Tensor) -> torch.Tensor:
        return torch.zeros(len(members), 3)


def test_the_arm_touches_the_object() -> None:
    task = make_goal_task("pusher_hard")
    assert isinstance(task, SimulatedTask)
    e = SimulatedEpisodes(task, torch.tensor([1]), 1, beginnings=BesideTheArm())
    before = e.features[0, 0, 7:13].clone()
    assert before[2].item() == pytest.approx(-0.275, abs=1e-3)  # the wrist's height: 0.05 m over the table
    action = torch.zeros(40, 1, 1, 7)
    action[..., 0], action[..., 1] = 1, 0.5  # turn, and press it down
    follow(e, action)
    after = e.features[0, 0, 7:13]
    assert (after[3:5] - before[3:5]).norm() > 0.005 and after[5] == before[5]
    assert after[0] < before[0] and after[1] > before[1] + 0.1  # it turned left
