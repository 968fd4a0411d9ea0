"""An ant with a ball or a block: where they begin, that they can be moved, and that the room is closed."""

from __future__ import annotations

import math

import mujoco
import numpy as np
import pytest
import torch

from envolve.envs.goal.ant_objects import AntAndObject, AntBall, AntPush
from envolve.envs.goal.simulated import SimulatedEpisodes
from envolve.envs.goal.task import Beginnings, Random, make_goal_task
from tests.envs.goal.plain_loop import follow, model_of

K = 20_000
ZERO = torch.zeros(K, dtype=torch.int64)


def drawn(task: AntAndObject) -> tuple[torch.Tensor, torch.Tensor]:
    start = task.start(Random(ZERO, torch.arange(K)), ZERO)
    return start, task.goal(Random(ZERO + 1, torch.arange(K)), start, ZERO)


def test_ball_and_goal() -> None:
    """The ball is a fifth of the goal plus a point on the unit circle, of any angle whatever the goal's."""
    start, goal = drawn(AntBall())
    assert start.shape == (K, 33) and (start[:, 31:] == 0).all() and start[:, :2].abs().max() <= 0.1
    assert goal.norm(dim=1).sub(5).abs().max() < 1e-4
    rest = start[:, 15:17] - 0.2 * goal
    assert rest.norm(dim=1).sub(1).abs().max() < 1e-3
    angle, other = torch.atan2(goal[:, 1], goal[:, 0]), torch.atan2(rest[:, 1], rest[:, 0])
    together = torch.histogramdd(torch.stack((angle, other), 1), [6, 6], range=[-math.pi, math.pi] * 2).hist
    assert ((together - K / 36) ** 2 / (K / 36)).sum() < 35 + 4 * math.sqrt(70)  # independent, uniform each


def test_ant_random_start() -> None:
    task = make_goal_task("ant_random_start")
    start = task.start(Random(ZERO, torch.arange(K)), ZERO)
    goal = task.goal(Random(ZERO + 1, torch.arange(K)), start, ZERO)
    assert goal.norm(dim=1).sub(10).abs().max() < 1e-4
    away = start[:, :2] - goal
    assert away.norm(dim=1).sub(10).abs().max() < 1e-2 and away.mean(0).abs().max() < 0.3
    turn = torch.atan2(away[:, 1], away[:, 0]) - torch.atan2(goal[:, 1], goal[:, 0])
    assert abs(float(torch.cos(turn).mean())) < 0.03 and abs(float(torch.sin(turn).mean())) < 0.03


def test_goals_behind_the_block() -> None:
    task = AntPush()
    start, goal = drawn(task)
    assert 0.099 < start[:, 15:17].abs().max() <= 0.1 and (start[:, 31:] == 0).all()
    first = goal[:, 0] > goal[:, 1]
    assert first.double().mean().item() == pytest.approx(0.5, abs=0.02)
    low, high = goal.amax(1), goal.amin(1)
    assert low.min() >= 16 and low.max() < 18 and high.min() >= 8 and high.max() < 10
    assert (goal - goal.floor()).std().item() == pytest.approx(1 / math.sqrt(12), rel=0.03)
    assert not task.maze.in_wall(*goal.unbind(1)).any() and (task.maze.start == 0).all()


def test_the_room_around_the_block() -> None:
    """Published: fixed blocks of 8 m cells A to G, here as many square metres of wall, in the same places."""
    model = model_of(AntPush())
    walls = [model.geom(i) for i in range(model.ngeom) if model.geom(i).name.startswith("wall")]
    published = [((-4, 20), (8, 8)), ((8, 24), (4, 4)), ((20, 20), (8, 8)), ((-8, 4), (4, 8)), ((24, 8), (4, 4)),
                 ((20, -4), (8, 8)), ((0, -8), (12, 4))]  # fmt: skip
    for x in range(-11, 28, 2):
        for y in range(-11, 28, 2):
            here = np.array([x, y])
            mine = sum(bool((np.abs(here - g.pos[:2]) < g.size[:2]).all()) for g in walls)
            assert mine == any((np.abs(here - np.array(c)) < np.array(s)).all() for c, s in published), (x, y)
    block = model.geom("object")
    assert (2 * block.size == (7.2, 7.2, 3.6)).all() and (model.body("object").pos[:2] == 8).all()
    assert all(g.pos[2] + g.size[2] == 4 for g in walls)


class Thrown(Beginnings):
    """An ant and an object with the coordinates (x, y) and velocities along x given, m and m/s."""

    def __init__(self, ant: tuple[float, float, float], thing: tuple[float, float, float]) -> None:
        self.ant, self.thing = ant, thing

    def start(self, random: Random, members: torch.Tensor) -> torch.Tensor:
        start = torch.zeros(len(members), 33)
        start[:, :17] = torch.tensor([*self.ant[:2], 0.55, 1, 0, 0, 0, 0, 1, 0, -1, 0, -1, 0, 1, *self.thing[:2]])
        start[:, 17], start[:, 31] = self.ant[2], self.thing[2]
        return start

    def goal(self, random: Random, start: torch.Tensor, members: torch.Tensor) -> torch.Tensor:
        return torch.zeros(len(members), 2)


def thrown(task: AntAndObject, steps: int, *coordinates: tuple[float, float, float]) -> torch.Tensor:
    """Features after each step, [steps, 31], beside a plain loop over MuJoCo."""
    e, out, model = SimulatedEpisodes(task, torch.tensor([1]), 1, beginnings=Thrown(*coordinates)), [], model_of(task)
    actions = torch.zeros(steps, 1, 1, 8)
    copies = None
    for action in actions:
        copies = follow(e, action[None], copies)
        out.append(e.features[0, 0].clone())
    assert copies is not None
    now = mujoco.MjData(model)
    now.qpos[:] = copies[0].qpos
    mujoco.mj_kinematics(model, now)
    np.testing.assert_allclose(out[-1][29:], now.body("object").xpos[:2], atol=1e-5)
    assert not e.sim.unstable.any()
    return torch.stack(out)


def test_a_ball_rolls_on_until_it_hits_the_ant() -> None:
    there = thrown(AntBall(), 60, (0.0, 0.0, 0.0), (4.0, 0.0, -3.0))
    rolled, ant = there[:, 29], there[:, 0]
    np.testing.assert_allclose(rolled[:10], 4 - 0.15 * torch.arange(1, 11), atol=1e-5)  # without friction
    assert (rolled - ant).min() > 0.5 and rolled[-1] > 0.5  # which stops it: nine times as heavy, on its feet
    assert (ant[:18].abs() < 1e-6).all() and ant.min() < -0.002 and ant.abs().max() > 0.02  # and is jolted
    pushed = thrown(AntBall(), 20, (0.0, 0.0, 4.0), (1.6, 0.0, 0.0))
    assert (pushed[:5, 29] == 1.6).all() and pushed[-1, 29] > 3 and pushed[-1, 0] < 1.6  # an ant that jumps at it
    missed = thrown(AntBall(), 40, (0.0, 5.0, 0.0), (4.0, 0.0, -3.0))
    assert missed[-1, 29].item() == pytest.approx(-2.0, abs=1e-4)


def test_a_block_that_is_hit_moves_and_stops() -> None:
    there = thrown(AntPush(), 40, (3.0, 8.0, 12.0), (0.0, 0.0, 0.0))
    block, ant = there[:, 29], there[:, 0]
    assert block[-1] > 8.5 and block[-1] == block[-3]  # friction held it
    assert (block - ant).min() > 3.5  # the ant stays on its side, 3.6 m from its middle


def test_the_block_stops_at_the_wall_and_the_ant_at_the_block() -> None:
    there = thrown(AntPush(), 40, (11.8, 8.0, 12.0), (8.3, 0.0, 0.0))
    block, ant = there[:, 29], there[:, 0]
    assert block.max() < 16.5  # the wall of row 4 begins at x = 20, half a block further
    assert (block - ant).min() > 3.5


def test_a_ball_between_goal_and_ant_is_a_success_only_at_its_goal() -> None:
    task = AntBall()
    features, goal = torch.zeros(2, 31), torch.tensor([[3.0, 4.0], [3.0, 4.0]])
    features[0, 29:], features[1, :2] = torch.tensor([3.0, 4.49]), torch.tensor([3.0, 4.0])  # the ball; the ant
    assert task.success(features, goal).tolist() == [True, False]
