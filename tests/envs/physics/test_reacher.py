"""Reacher beside Gymnasium's Reacher-v5."""

import math

import mujoco
import torch

from envolve.envs.physics.task import Pose
from tests.envs.physics.gymnasium_twin import assert_same_model, assert_step_for_step, begin, control_step, make


def test_model_is_gymnasiums():
    assert_same_model("Reacher", "reacher.xml")


def test_physics_are_gymnasiums_bit_for_bit_and_observation_and_reward_to_float32():
    assert_step_for_step(make("Reacher", 4), "Reacher-v5", 50)


def test_score_is_minus_the_distance_from_the_fingertip_to_the_target():
    task = make("Reacher", 4)
    begin(task, torch.arange(4), seed=1)
    for _ in range(10):
        control_step(task, task.compute_torque(torch.full((4, 2), 0.3), task.state))
    data = mujoco.MjData(task.sim.model)
    for i in range(4):
        data.qpos[:] = task.sim.qpos[i]
        mujoco.mj_kinematics(task.sim.model, data)
        between = torch.from_numpy(data.body("fingertip").xpos - data.body("target").xpos)
        torch.testing.assert_close(task.score()[i], -between.norm(), rtol=0, atol=1e-14)
    assert task.score_after_end().max() < task.score().min()


def test_goals_are_uniform_in_the_disc_and_the_targets_lie_there():
    task = make("Reacher", 2000)
    begin(task, torch.arange(2000), seed=4)
    goal = task.state["goal"]
    assert (task.sim.joint_position[:, 2:].float() == goal).all() and (task.sim.joint_velocity[:, 2:] == 0).all()
    radius = goal.norm(dim=1)
    assert radius.max() <= 0.2
    # of a uniform disc, r^2 / R^2 is uniform: mean 1/2, variance 1/12
    share = (radius / 0.2).square()
    assert abs(share.mean() - 0.5) < 0.03 and abs(share.var() - 1 / 12) < 0.01
    angle = torch.atan2(goal[:, 1], goal[:, 0])
    assert abs(angle.mean()) < 0.15 and abs(angle.std() - math.pi / math.sqrt(3)) < 0.1
    assert task.sim.joint_position[:, :2].abs().max() <= 0.1 and task.sim.joint_velocity.abs().max() <= 0.005


def test_a_goal_of_ones_own_moves_the_target():
    task = make("Reacher", 1)
    placed = task.place(Pose(*(part[None] for part in task.rest)), torch.tensor([[0.0625, 0.125]]))
    assert placed.joint_position.tolist() == [[0.0, 0.0, 0.0625, 0.125]]
