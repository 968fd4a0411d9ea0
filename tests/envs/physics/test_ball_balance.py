"""The ball on the plate: it rolls as a solid ball does, is seen where it is, and can be balanced."""

from __future__ import annotations

import math

import pytest
import torch

from envolve.envs.physics.ball_balance import BALL, HEIGHT, SURFACE, BallBalance
from tests.envs.physics.shaped_by_the_task import make_envs, make_task, place


def ball(x: float = 0, y: float = 0, z: float = HEIGHT + SURFACE + BALL, velocity: tuple[float, ...] = (0, 0, 0)):
    root = torch.zeros(13, dtype=torch.float64)
    root[:3], root[6], root[7:10] = torch.tensor([x, y, z]), 1.0, torch.tensor(velocity)
    return root


def on_tilted_plate(a: float, b: float, x: float, y: float, gap: float = 0.0) -> torch.Tensor:
    """The ball at (x, y) of a plate with these angles, by matrices."""
    cos, sin = math.cos, math.sin
    rx = torch.tensor([[1, 0, 0], [0, cos(a), -sin(a)], [0, sin(a), cos(a)]], dtype=torch.float64)
    ry = torch.tensor([[cos(b), 0, sin(b)], [0, 1, 0], [-sin(b), 0, cos(b)]], dtype=torch.float64)
    at = rx @ ry @ torch.tensor([x, y, SURFACE + BALL + gap], dtype=torch.float64)
    return ball(*(at + torch.tensor([0, 0, HEIGHT])).tolist())


@pytest.mark.parametrize("axis", [0, 1])
def test_on_a_tilted_plate_it_rolls_down_as_a_solid_ball(axis: int) -> None:
    task, tilt = make_task(BallBalance, 1), 0.1
    angles = torch.zeros(2)
    angles[axis] = tilt
    place(task, on_tilted_plate(float(angles[0]), float(angles[1]), 0, 0), angles)
    for _ in range(50):  # 0.5 s; the plate is held by its motors against the ball's small torque
        hold = 2000 * (angles - task.state["plate_angles"]) - 20 * task.state["plate_rates"]
        task.sim.set_effort(hold)
        task.sim.step(task.substeps)
        task.measure()
    expected = 5 / 7 * 9.81 * math.sin(tilt) * 0.5  # speed along the plate; a sliding one: without the 5/7
    speed = task.state["ball_velocity"][0].norm()
    assert speed == pytest.approx(expected, rel=0.03)
    # About +x the plate's +y side rises, about +y its -x side does.
    assert task.state["ball_velocity"][0, 1 - axis].sign() == (-1 if axis == 0 else 1)
    assert task.state["ball_spin"][0].norm() == pytest.approx(float(speed) / BALL, rel=0.02)


def test_it_is_seen_in_the_plates_frame() -> None:
    task = make_task(BallBalance, 1)
    place(task, on_tilted_plate(0.2, -0.3, 0.25, -0.1, gap=0.02), torch.tensor([0.2, -0.3]))
    assert task.state["ball_on_plate"][0].tolist() == pytest.approx([0.25, -0.1, 0.02], abs=1e-6)
    assert task.state["plate_angles"][0].tolist() == pytest.approx([0.2, -0.3])


def test_it_is_off_beyond_the_rim_or_below_the_surface_and_scores_only_on_the_plate() -> None:
    task = make_task(BallBalance, 1)
    for x, gap, off in ((0.49, 0.0, False), (0.0, 0.3, False), (0.51, 0.0, True), (0.3, -0.11, True)):
        place(task, on_tilted_plate(0.1, 0.2, x, 0.0, gap), torch.tensor([0.1, 0.2]))
        assert bool(BallBalance.compute_terminal(task.state)) == off
        assert float(task.score()) == (0.0 if off else 1.0)
    task.buffer.zero_()  # as a candidate might
    assert float(task.score()) == 0.0


def test_a_ball_at_rest_in_the_middle_stays_there() -> None:
    envs = make_envs(BallBalance, 1)
    envs.begin()
    place(envs.task, ball())
    for _ in range(200):
        envs.step(torch.zeros(1, 1, 2))
    assert envs.task.state["ball_position"].abs().max() < 5e-3
    assert envs.task.state["plate_angles"].abs().max() < 1e-3


def test_a_feedback_law_keeps_it_on_the_plate_and_a_level_plate_does_not() -> None:
    scores = {}
    for name, gain in (("feedback", 1.0), ("level", 0.0)):
        envs = make_envs(BallBalance, 64)
        obs, total, alive = envs.begin(evaluation=True), torch.zeros(64).double(), torch.ones(64).bool()
        for _ in range(BallBalance.max_steps):
            position, velocity = obs[0, :, 4:7], obs[0, :, 7:10]
            wanted = gain * (1.5 * position + 1.2 * velocity)  # x is turned back by -b, y by +a
            step = envs.step(torch.stack((wanted[:, 1], -wanted[:, 0]), 1).clamp(-1, 1)[None])
            obs = step.obs
            total += torch.where(alive, step.score[0], envs.task.score_after_end())
            alive &= ~step.terminated[0]
        scores[name] = total / BallBalance.max_steps
    assert scores["feedback"].min() == 1.0
    assert 0.2 < scores["level"].mean() < 0.7


def test_reward_and_observation_are_what_the_task_says() -> None:
    task = make_task(BallBalance, 1)
    place(task, ball(0.3, 0.4, velocity=(0.6, 0, 0.8)), torch.tensor([0.1, -0.2]))
    reward, _ = BallBalance.compute_reward(task.state)
    assert float(reward) == pytest.approx(1 / 1.5 / 2)
    expected = [0.1, -0.2, 0, 0, 0.3, 0.4, 0, 0.6, 0, 0.8]
    assert BallBalance.compute_observation(task.state)[0].tolist() == pytest.approx(expected, abs=1e-6)
    torque = BallBalance.compute_torque(torch.tensor([[1.0, -0.5]]), task.state)
    assert torque[0].tolist() == pytest.approx([50 * 0.2, 50 * 0.05])


def test_episodes_begin_with_the_ball_rolling_anywhere_within_its_ranges() -> None:
    envs = make_envs(BallBalance, 1024)
    envs.begin()
    state = envs.task.state
    distance, velocity = state["ball_on_plate"][:, :2].norm(dim=1), state["ball_velocity"]
    assert distance.min() < 0.01 and 0.29 < distance.max() <= 0.3 + 1e-6
    assert torch.allclose(distance, state["ball_distance"], atol=1e-6)
    assert torch.allclose(velocity.norm(dim=1), state["ball_speed"], atol=1e-6)
    # Rolling without slip: the point of the ball that touches the plate stands still, v + w x (0, 0, -radius) = 0.
    down = torch.tensor([0.0, 0.0, -BALL]).expand(1024, 3)
    assert (velocity + torch.linalg.cross(state["ball_spin"], down)).abs().max() < 1e-6
    assert not BallBalance.compute_terminal(state).any()
