"""Pusher beside Gymnasium's Pusher-v5."""

import torch

from envolve.envs.physics.task import Pose
from tests.envs.physics.gymnasium_twin import assert_same_model, assert_step_for_step, begin, control_step, make


def test_model_is_gymnasiums():
    assert_same_model("Pusher", "pusher_v5.xml")


def test_physics_are_gymnasiums_bit_for_bit_and_observation_and_reward_to_float32():
    assert_step_for_step(make("Pusher", 4), "Pusher-v5", 100)


def test_score_is_minus_the_distance_from_the_object_to_the_goal_on_the_table():
    task = make("Pusher", 3)
    begin(task, torch.arange(3), seed=1)
    between = task.state["object_position"][:, :2] - task.state["goal"]
    torch.testing.assert_close(task.score().float(), -between.norm(dim=1))
    assert task.score_after_end().max() < task.score().min() and task.score().dtype == torch.float64


def test_objects_begin_where_gymnasium_puts_them():
    task = make("Pusher", 3000)
    begin(task, torch.arange(3000), seed=4)
    y, x = task.sim.joint_position[:, 7], task.sim.joint_position[:, 8]
    assert y.min() >= -0.3 and y.max() <= 0 and x.abs().max() <= 0.2
    assert torch.hypot(x, y).min() > 0.17
    # the area left: 0.3 x 0.4 less half a disc of radius 0.17, and of it the part beyond y = -0.17
    area = 0.12 - 0.5 * torch.pi * 0.17**2
    assert abs((y < -0.17).double().mean() - 0.13 * 0.4 / area) < 0.04
    assert (task.sim.joint_position[:, 9:] == 0).all() and (task.sim.joint_position[:, :7] == 0).all()
    assert task.sim.joint_velocity.abs().max() <= 0.005 and (task.sim.joint_velocity[:, 7:] == 0).all()


def test_the_models_goal_stands_where_the_goal_says():
    task = make("Pusher", 2)
    begin(task, torch.arange(2), seed=1)
    pose = Pose(*(part.expand(2, *part.shape) for part in task.rest))
    goal = torch.tensor([[0.45, -0.05], [0.6, 0.1]])
    task.sim.set_state(torch.arange(2), *task.place(pose, goal))
    position = task.sim.output("body_state")[:, task.sim.body_index("goal"), :2]
    torch.testing.assert_close(position.float(), goal)


def test_an_object_that_is_hit_moves():
    task = make("Pusher", 64)
    begin(task, torch.arange(64), seed=1)
    before = task.state["object_position"].clone()
    for _ in range(60):
        control_step(task, task.compute_torque(torch.linspace(-1, 1, 64)[:, None].expand(64, 7), task.state))
    assert (task.state["object_position"] - before).norm(dim=1).max() > 0.005
