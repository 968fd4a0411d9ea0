"""The arm and its cube: where they begin, that the cube rests, is pushed, gripped, lifted and put into a bin; MuJoCo's
own steps."""

from __future__ import annotations

from math import cos, hypot, pi, sin

import numpy as np
import pytest
import torch
from torch import Tensor

from envolve.envs.goal.arm import HIGH, LOW
from envolve.envs.goal.arm_cube import ArmAndCube, ArmBinpickEasy, ArmBinpickHard, ArmGrasp, ArmPushEasy, ArmPushHard
from envolve.envs.goal.engines import make_episodes
from envolve.envs.goal.simulated import SimulatedEpisodes
from envolve.envs.goal.task import Beginnings, Random
from tests.envs.goal.plain_loop import follow
from tests.envs.goal.test_arm import end

ALL = (ArmPushEasy, ArmPushHard, ArmGrasp, ArmBinpickEasy, ArmBinpickHard)
SHUT, WIDE = 1.0, -1.0
FINGER = 0.22  # m, from the last link's beginning to the fingers' middles
GRID = np.stack(np.meshgrid(*(np.linspace(a, b, 60) for a, b in zip(LOW[1:3], HIGH[1:3])), indexing="ij"), -1)


def fingers(q: np.ndarray) -> np.ndarray:
    """Where they are, forward and up (m), by joints 2 and 4, [2] -> [2]: the hand upright where joint 6 permits."""
    wrist = max(q[0] - q[1], LOW[3])
    tilt = q[0] - q[1] - wrist
    forward, _, up = end(0.0, q[0], q[1], wrist)
    return np.array([forward - FINGER * sin(tilt), up - FINGER * cos(tilt)])


PLACES = np.array([fingers(q) for q in GRID.reshape(-1, 2)])


class Placed(Beginnings):
    """Cubes at these places, [n, 2]."""

    def __init__(self, task: ArmAndCube, places: list[tuple[float, float]]) -> None:
        self.task, self.places = task, torch.tensor(places)

    def start(self, random: Random, members: Tensor) -> Tensor:
        return torch.cat((self.places, self.task.start(random, members)[:, 2:]), 1)

    def goal(self, random: Random, start: Tensor, members: Tensor) -> Tensor:
        return self.task.goal(random, start, members)


def episodes(task: ArmAndCube, places: list[tuple[float, float]]) -> SimulatedEpisodes:
    e = make_episodes(task, torch.tensor([5]), len(places), beginnings=Placed(task, places))
    assert isinstance(e, SimulatedEpisodes)
    return e


def to(places: Tensor, up: float, grip: float) -> Tensor:
    """The action that brings the open or shut hand to places [n, 2] at this height of its fingers, [1, n, 5]: from the
    nearest of a grid with Newton's steps."""
    out = []
    for x, y in places.double().tolist():
        wanted = np.array([hypot(x, y), up])
        q = GRID.reshape(-1, 2)[np.linalg.norm(PLACES - wanted, axis=1).argmin()].copy()
        for _ in range(6):
            slope = np.stack([(fingers(q + d) - fingers(q - d)) / 2e-5 for d in 1e-5 * np.eye(2)], 1)
            q -= np.linalg.solve(slope, fingers(q) - wanted)
        assert np.abs(fingers(q) - wanted).max() < 2e-3, (x, y, up)
        angles = np.array([np.arctan2(y, x), *q, max(q[0] - q[1], LOW[3])])
        assert (np.array(LOW) - 1e-6 <= angles).all() and (angles <= np.array(HIGH)).all(), angles
        out.append([*(2 * (angles - LOW) / (np.array(HIGH) - LOW) - 1), grip])
    return torch.tensor(out, dtype=torch.float32)[None]


def cube(e: SimulatedEpisodes) -> Tensor:
    return e.features[0, :, :3].clone()


@pytest.mark.parametrize("cls", ALL)
def test_sizes_starts_and_goals(cls: type[ArmAndCube]) -> None:
    """As the table of JaxGCRL's tasks has them; nothing begins in something else."""
    where = {  # the cube's middle and spread, the goal's, decisions
        ArmPushEasy: ((-0.1, 0.6), 0.1, (0.1, 0.6), 0.1, 150),
        ArmPushHard: ((-0.25, 0.65), 0.25, (0.25, 0.65), 0.25, 150),
        ArmGrasp: ((0.0, 0.6), 0.3, None, None, 100),
        ArmBinpickEasy: ((-0.15, 0.6), 0.07, (0.17, 0.6), 0.005, 150),
        ArmBinpickHard: ((-0.3, 0.6), 0.15, (0.3, 0.6), 0.15, 150),
    }
    task, K = cls(), 4000
    middle, spread, goals, goal_spread, length = where[cls]
    sizes = (24, 5, 7) if cls is ArmGrasp else (18, 5, 3)
    assert (task.state_size, task.action_size, task.goal_size) == sizes and task.episode_length == length
    zero = torch.zeros(K, dtype=torch.int64)
    start = task.start(Random(zero, torch.arange(K)), zero)
    goal = task.goal(Random(zero + 1, torch.arange(K)), start, zero)
    for axis in range(2):
        assert (start[:, axis] - middle[axis]).abs().max() == pytest.approx(spread, rel=0.01)
        assert (start[:, axis] - middle[axis]).abs().mean() == pytest.approx(spread / 2, rel=0.05)
        if goals is not None:
            assert (goal[:, axis] - goals[axis]).abs().max() == pytest.approx(goal_spread, rel=0.01)
    if goals is None:
        side = torch.tensor([0.0375, 0, 0])
        torch.testing.assert_close(goal[:, :3], start[:, :3] + side)
        torch.testing.assert_close(goal[:, 3:6], start[:, :3] - side)
        assert goal[:, 6].unique().tolist() == pytest.approx([0.075])
    else:
        assert (goal[:, 2] == start[:, 2]).all() and torch.equal(task.whereabouts(start), start[:, :3])
    e = make_episodes(task, torch.tensor([5]), 40)
    assert isinstance(e, SimulatedEpisodes)
    assert e.sim.joints[7:] == ("left_finger", "right_finger") and not e.sim.unstable.any()
    begun = cube(e)
    rest = torch.tensor([[[-0.0, 0.0, 0.0, 0.0, WIDE]]]).repeat(1, 40, 1)
    rest[..., :4] = torch.tensor(2 * (np.array((1.571, 0.742, -1.571, 3.054)) - LOW) / (np.array(HIGH) - LOW) - 1)
    for _ in range(20):
        outcome = e.advance(rest)
    assert (cube(e) - begun).abs().max() < 1e-3 and not outcome.terminated.any()  # it rests


@pytest.mark.parametrize("cls", [ArmPushEasy, ArmGrasp])
def test_the_features(cls: type[ArmAndCube]) -> None:
    task = cls()
    e = episodes(task, [(-0.15, 0.5), (0.1, 0.7)])
    place = torch.tensor([[0.05, 0.65], [-0.05, 0.6]])
    for _ in range(50):
        e.advance(to(place, 0.12, WIDE))
    f = e.features[0]
    np.testing.assert_allclose(f[:, 10:13], np.c_[place, 2 * [0.12 + FINGER]], atol=2e-3)
    assert f[:, 13:16].abs().max() < 0.02
    np.testing.assert_allclose(f[:, 3:10], e.sim.joint_position[:, :7], atol=1e-6)
    apart, force = f[:, -2], f[:, -1]
    assert apart.tolist() == pytest.approx(2 * [0.115], abs=1e-3) and force.abs().max() < 0.1
    if cls is ArmGrasp:
        middle = (f[:, 16:19] + f[:, 19:22]) / 2
        np.testing.assert_allclose(middle, np.c_[place, 2 * [0.12]], atol=3e-3)
        # where the arm points along y the fingers lie along x; it turns with the first joint
        yaw = f[:, 3] - pi / 2
        way = f[:, 16:19] - f[:, 19:22]
        np.testing.assert_allclose(way[:, 1] / way[:, 0], torch.tan(yaw), atol=0.02)
    for _ in range(10):
        e.advance(to(place, 0.12, SHUT))
    assert e.features[0, :, -2].tolist() == pytest.approx(2 * [0.015], abs=2e-3)


def test_a_cube_is_pushed_to_its_goal() -> None:
    """From the left with a shut hand: along x, and the cube stays on the table and where it was put."""
    e = episodes(ArmPushEasy(), [(-0.1, 0.6), (-0.15, 0.52), (-0.05, 0.65)])
    begun = cube(e)
    way = [(begun[:, :2] + torch.tensor([-0.12, 0.0]), 0.15, 25), (begun[:, :2] + torch.tensor([-0.12, 0.0]), 0.04, 25)]
    way += [(begun[:, :2] + torch.tensor([k / 100, 0.0]), 0.04, 3) for k in range(-11, 13)]
    for place, up, decisions in way:
        for _ in range(decisions):
            e.advance(to(place, up, SHUT))
    moved = cube(e) - begun
    assert (moved[:, 0] > 0.1).all() and (moved[:, 1].abs() < 0.06).all() and (moved[:, 2].abs() < 0.01).all()
    there = cube(e)
    for _ in range(20):
        outcome = e.advance(to(begun[:, :2] + torch.tensor([0.1, 0.0]), 0.15, SHUT))
    assert (cube(e) - there).abs().max() < 0.02 and not outcome.terminated.any()


def grasp(e: SimulatedEpisodes) -> list[Tensor]:
    """Open above the cube, down, shut -> successes after each."""
    there, found = cube(e)[:, :2], []
    for up, grip, decisions in ((0.12, WIDE, 30), (0.03, WIDE, 20), (0.03, SHUT, 12)):
        for _ in range(decisions):
            outcome = e.advance(to(there, up, grip))
        found.append(outcome.success[0].clone())
    return found


def test_a_cube_is_grasped_and_lifted() -> None:
    """Success only once the fingers have it between them; the goal goes with it, and so does success."""
    task = ArmGrasp()
    e = episodes(task, [(0.0, 0.6), (-0.2, 0.55), (0.25, 0.55), (0.1, 0.65)])
    above, around, shut = grasp(e)
    assert not above.any() and not around.any() and shut.all()
    assert (e.features[0, :, -1] > 0.5).all()  # they press
    place = cube(e)[:, :2]
    for _ in range(60):
        outcome = e.advance(to(place, 0.12, SHUT))
    assert (cube(e)[:, 2] > 0.1).all() and outcome.success.all()
    torch.testing.assert_close(e.goal[0], task.beside(cube(e)))
    held = cube(e)
    for _ in range(20):
        e.advance(to(place, 0.12, SHUT))
    assert (cube(e) - held).abs().max() < 5e-4  # it does not slip, in a second
    for _ in range(20):
        outcome = e.advance(to(place, 0.12, WIDE))
    assert (cube(e)[:, 2] < 0.035).all() and not outcome.success.any()
    for _ in range(20):
        outcome = e.advance(to(place, 0.12, SHUT))
    assert not outcome.success.any()  # nothing in between


def test_from_bin_to_bin() -> None:
    """Lifted over the walls the cube gets to its goal; pushed along the floor it stays in its bin."""
    e = episodes(ArmBinpickEasy(), [(-0.15, 0.6), (-0.2, 0.55), (-0.1, 0.64)])
    grasp(e)
    over = cube(e)[:, :2]
    for part in torch.linspace(0, 1, 40):
        e.advance(to(over + part * (e.goal[0, :, :2] - over), 0.05 + 0.15 * min(1.0, 5 * float(part)), SHUT))
    for up, grip, decisions in ((0.2, SHUT, 20), (0.05, SHUT, 20), (0.05, WIDE, 10), (0.2, WIDE, 20)):
        for _ in range(decisions):
            outcome = e.advance(to(e.goal[0, :, :2], up, grip))
    assert outcome.success.all() and (cube(e)[:, 2] < 0.035).all()
    e.begin_all()
    x, _, half = ArmBinpickEasy.bins[0]
    place = cube(e)[:, :2] + torch.tensor([-0.08, 0.0])
    for up, ahead, decisions in ((0.2, 0.0, 25), (0.04, 0.0, 25), *((0.04, k / 50, 3) for k in range(18))):
        for _ in range(decisions):
            e.advance(to(place + torch.tensor([ahead, 0.0]), up, SHUT))
    assert (cube(e)[:, 0] < x + half).all() and (cube(e)[:, 0] > x).all()


@pytest.mark.parametrize("cls", [ArmPushEasy, ArmBinpickHard])
def test_it_is_mujocos(cls: type[ArmAndCube]) -> None:
    e = episodes(cls(), [(-0.1, 0.6), (-0.2, 0.5)])
    follow(e, 2 * torch.rand(8, 1, 2, 5, generator=torch.Generator().manual_seed(0)) - 1)
