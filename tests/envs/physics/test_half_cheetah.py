"""HalfCheetah beside Gymnasium's HalfCheetah-v5."""

import torch

from tests.envs.physics.gymnasium_twin import assert_same_model, assert_step_for_step, begin, control_step, make


def test_model_is_gymnasiums_but_for_the_islands():
    assert_same_model("HalfCheetah", "half_cheetah.xml", "disableflags")


def test_physics_are_gymnasiums_bit_for_bit_and_observation_and_reward_to_float32():
    assert_step_for_step(make("HalfCheetah", 3), "HalfCheetah-v5", 150)


def test_score_is_the_mean_forward_velocity():
    task = make("HalfCheetah", 4)
    begin(task, torch.arange(4), seed=1)
    x = task.sim.joint_position[:, 0].clone()
    scores = []
    for step in range(20):
        control_step(task, task.compute_torque(torch.full((4, 6), 0.5 * (-1) ** step), task.state))
        scores.append(task.score())
    torch.testing.assert_close(
        torch.stack(scores).mean(0), (task.sim.joint_position[:, 0] - x) / (20 * task.dt), rtol=1e-12, atol=1e-12
    )
    assert scores[0].dtype == torch.float64


def test_reset_noise_is_uniform_in_position_and_normal_in_velocity():
    task = make("HalfCheetah", 500)
    task.state["reset_noise"].copy_(torch.linspace(0, 0.2, 500))
    begin(task, torch.arange(500), seed=2)
    scale = task.state["reset_noise"].double()[:, None].clamp_min(1e-9)
    position, velocity = task.sim.joint_position / scale, task.sim.joint_velocity / scale
    assert position.abs().max() <= 1 and position[1:].std() > 0.55 and abs(position[1:].mean()) < 0.05
    assert abs(velocity[1:].std() - 1) < 0.05 and velocity.abs().max() > 3
    assert (task.sim.joint_position[0] == 0).all()


def test_the_velocity_after_a_reset_is_the_instantaneous_one_and_others_keep_theirs():
    task = make("HalfCheetah", 3)
    begin(task, torch.arange(3), seed=1)
    control_step(task, task.compute_torque(torch.ones(3, 6), task.state))
    before = task.state["forward_velocity"].clone()
    begin(task, torch.tensor([1]), seed=7)
    after = task.state["forward_velocity"]
    assert after[0] == before[0] and after[2] == before[2]
    assert after[1] == task.state["torso_velocity"][1, 0]
