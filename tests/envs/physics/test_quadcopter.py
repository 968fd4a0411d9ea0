"""The quadcopter: Newton's and Euler's equations by hand, the equations of the task, and that it can be flown."""

from __future__ import annotations

import math

import pytest
import torch

from envolve.envs.physics.quadcopter import HOVER, LOST, MAX_THRUST, Quadcopter
from tests.envs.physics.shaped_by_the_task import make_envs, make_task, place

MASS, ARM, DRAG, INERTIA = 0.716, 0.17, 0.016, (0.00752, 0.00752, 0.01304)


def upright(**changes: list[float]) -> torch.Tensor:
    root = torch.zeros(13, dtype=torch.float64)
    root[2], root[6] = 1.5, 1.0
    at = {"position": 0, "quaternion": 3, "linear": 7, "angular": 10}
    for name, values in changes.items():
        root[at[name] : at[name] + len(values)] = torch.tensor(values, dtype=torch.float64)
    return root


def accelerations(thrusts: list[float], root: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Of one engine step from ``root`` -> linear, angular, world frame."""
    task = make_task(Quadcopter, 1)
    place(task, root)
    task.sim.set_effort(torch.tensor([thrusts], dtype=torch.float64))
    task.sim.step(1)
    change = (task.sim.root_state[0, 0, 7:] - root[7:]) / task.sim.timestep
    return change[:3], change[3:]


def test_thrusts_accelerate_it_as_newtons_and_eulers_equations_say() -> None:
    front, left, back, right = 1.0, 2.0, 3.5, 0.5
    linear, angular = accelerations([front, left, back, right], upright())
    expected = [0.0, 0.0, (front + left + back + right) / MASS - 9.81]
    assert linear.tolist() == pytest.approx(expected, abs=1e-9)
    torque = [ARM * (left - right), ARM * (back - front), DRAG * (front + back - left - right)]
    assert angular.tolist() == pytest.approx([t / i for t, i in zip(torque, INERTIA)], rel=1e-6)


def test_thrust_is_along_the_rotors_axis_and_never_downwards() -> None:
    half = math.sqrt(0.5)
    linear, _ = accelerations([2.0] * 4, upright(quaternion=[0, half, 0, half]))  # nose down: up is now +x
    assert linear.tolist() == pytest.approx([8.0 / MASS, 0, -9.81], abs=1e-6)
    linear, angular = accelerations([-3.0] * 4, upright())
    assert linear.tolist() == pytest.approx([0, 0, -9.81]) and angular.abs().max() == 0
    linear, _ = accelerations([50.0] * 4, upright())
    assert linear[2] == pytest.approx(4 * MAX_THRUST / MASS - 9.81)


def test_actuators_are_the_rotors_and_their_limit_is_a_thrust() -> None:
    sim = make_task(Quadcopter, 1).sim
    assert sim.actuators == ("front", "left", "back", "right") and sim.joints == ()
    assert sim.effort_limit.tolist() == [MAX_THRUST] * 4
    assert MAX_THRUST == pytest.approx(8.54858e-6 * 838**2, rel=1e-4)


def test_action_zero_hovers_and_the_reported_thrust_is_the_one_applied() -> None:
    envs = make_envs(Quadcopter, 1)
    envs.begin()
    place(envs.task, upright())
    for _ in range(100):
        step = envs.step(torch.zeros(1, 1, 4))
    assert envs.task.state["root_states"][0, :3].tolist() == pytest.approx([0, 0, 1.5], abs=1e-4)
    assert not step.terminated.any()
    envs.step(torch.full((1, 1, 4), -3.0))
    assert envs.task.state["torque"].abs().max() == 0
    envs.step(torch.ones(1, 1, 4))
    assert envs.task.state["torque"][0].tolist() == pytest.approx([2 * HOVER] * 4)


def fly(obs: torch.Tensor) -> torch.Tensor:
    """A cascade of P and D controllers on the observation [n, 13] -> action [n, 4]."""
    to_goal, q, velocity, rates = obs[:, :3] * 3, obs[:, 3:7], obs[:, 7:10] * 2, obs[:, 10:13] * math.pi
    wanted = (2 * to_goal - 2 * velocity).clamp(-3, 3)  # acceleration, m/s^2
    tilt = 2 * (q[:, 3:] * q[:, :2])  # of small rotations: about x and y, rad
    roll = 8 * (-wanted[:, 1] / 9.81 - tilt[:, 0]) - 1.5 * rates[:, 0]
    pitch = 8 * (wanted[:, 0] / 9.81 - tilt[:, 1]) - 1.5 * rates[:, 1]
    yaw, lift = -0.5 * rates[:, 2], wanted[:, 2] / 9.81
    roll, pitch, yaw = 0.2 * roll, 0.2 * pitch, 0.2 * yaw
    return torch.stack((lift - pitch + yaw, lift + roll - yaw, lift + pitch + yaw, lift - roll - yaw), 1).clamp(-1, 1)


def test_a_cascade_of_controllers_flies_to_the_goal_and_scores_far_better_than_hovering() -> None:
    final, scores = {}, {}
    for name, policy in (("fly", fly), ("hover", lambda obs: torch.zeros(len(obs), 4))):
        envs = make_envs(Quadcopter, 32)
        obs, total, alive = envs.begin(evaluation=True), torch.zeros(32).double(), torch.ones(32).bool()
        for _ in range(Quadcopter.max_steps):
            step = envs.step(policy(obs[0])[None])
            obs = step.obs
            total += torch.where(alive, step.score[0], envs.task.score_after_end())
            alive &= ~step.terminated[0]
        final[name], scores[name] = -step.score[0], total / Quadcopter.max_steps
    assert final["fly"].max() < 0.05
    assert scores["fly"].mean() > -0.4 and scores["hover"].mean() < -1.5
    assert scores["hover"].min() >= -LOST, "nothing is worse than being lost"


def test_state_observation_reward_and_termination_are_what_the_task_says() -> None:
    task = make_task(Quadcopter, 1)
    half = math.sqrt(0.5)
    task.state["goal"][:] = torch.tensor([1.0, 2.0, 3.0])
    # rolled by 90 degrees to its right side: up is -y, and the world's rate about z is its own about y
    place(task, upright(quaternion=[half, 0, 0, half], linear=[1, 2, 3], angular=[0, 0, 2]))
    state = task.state
    assert state["up"][0].tolist() == pytest.approx([0, -1, 0], abs=1e-6)
    assert state["body_rates"][0].tolist() == pytest.approx([0, 2, 0], abs=1e-6)
    assert state["to_goal"][0].tolist() == [1, 2, 1.5]
    expected = [1 / 3, 2 / 3, 0.5, half, 0, 0, half, 0.5, 1, 1.5, 0, 2 / math.pi, 0]
    assert Quadcopter.compute_observation(state)[0].tolist() == pytest.approx(expected, abs=1e-6)
    near = 1 / (1 + 1 + 4 + 2.25)
    reward, _ = Quadcopter.compute_reward(state)
    assert reward[0] == pytest.approx(near + near / (1 + 1) + near / (1 + 4))
    assert task.score()[0] == pytest.approx(-math.sqrt(7.25))
    assert not Quadcopter.compute_terminal(state).any()
    place(task, upright(position=[0, 0, 0.29]))
    assert Quadcopter.compute_terminal(state).all()
    place(task, upright(position=[5.0, 0, 4.0]))
    assert not Quadcopter.compute_terminal(state).any()
    place(task, upright(position=[-4.0, 2, 3.1]))
    assert Quadcopter.compute_terminal(state).all()


def test_episodes_begin_tilted_within_the_range_and_with_goals_from_all_of_theirs() -> None:
    envs = make_envs(Quadcopter, 512)
    envs.begin()
    up, goal = envs.task.state["up"], envs.task.state["goal"]
    assert math.cos(0.2) ** 2 - 1e-6 <= up[:, 2].min() < math.cos(0.18) ** 2
    assert torch.allclose(envs.task.state["root_states"][:, 3:7].norm(dim=1), torch.ones(512))
    low, high = torch.tensor([-1.0, -1.0, 1.0]), torch.tensor([1.0, 1.0, 2.0])
    assert (goal >= low).all() and (goal <= high).all()
    assert (goal.min(0).values < low + 0.05).all() and (goal.max(0).values > high - 0.05).all()
