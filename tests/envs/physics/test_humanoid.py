"""Humanoid beside Gymnasium's Humanoid-v5."""

import torch

from envolve.envs.sim.simulator import MODELS
from tests.envs.physics.gymnasium_twin import (
    assert_same_model,
    assert_step_for_step,
    begin,
    control_step,
    make,
    with_option,
)

WRENCH = slice(270, 348)


def test_model_is_gymnasiums_but_for_integrator_and_solver():
    assert_same_model("Humanoid", "humanoid.xml", "integrator", "solver", "disableflags")


def test_equals_gymnasiums_environment_on_our_model():
    ended = assert_step_for_step(make("Humanoid", 3), "Humanoid-v5", 60, xml_file=str(MODELS / "humanoid.xml"))
    assert ended


def test_equals_gymnasiums_environment_with_its_integrator_and_solver(tmp_path):
    # MuJoCo evaluates sensors, hence our contact wrenches, in the first stage of RK4, Gymnasium in the last: left out.
    path = with_option(MODELS / "humanoid.xml", tmp_path, integrator="RK4", solver="PGS")
    columns = slice(0, WRENCH.start)
    assert assert_step_for_step(make("Humanoid", 3, path), "Humanoid-v5", 60, skip=["contact"], columns=columns)


def test_largest_action_is_gymnasiums_largest_control():
    task = make("Humanoid", 1)
    torch.testing.assert_close(
        task.compute_torque(torch.full((1, 17), 7.0), task.state)[0].double(), task.sim.effort_limit
    )


def test_lands_on_its_feet_and_the_contact_costs():
    task = make("Humanoid", 1)
    begin(task, torch.arange(1), seed=1)
    assert (task.state["contact_wrench"] == 0).all()
    for _ in range(20):
        _, components = control_step(task, torch.zeros(1, 17))
    assert task.state["contact_wrench"][0, :, 5].max() > 100 and components["contact"] < 0


def test_reset_noise_is_uniform_in_mujocos_coordinates():
    task = make("Humanoid", 400)
    begin(task, torch.arange(400), seed=2)
    velocity, joints = task.sim.qvel, task.sim.joint_position
    assert velocity.abs().max() <= 0.01 and joints.abs().max() <= 0.01
    assert (velocity.std(0) > 0.005).all() and (joints.std(0) > 0.005).all()
    assert (task.sim.qpos[:, 3:7].norm(dim=1) - 1).abs().max() < 1e-12
    assert (task.sim.qpos[:, 2] - 1.4).abs().max() <= 0.01


def test_has_fallen_below_1_m_above_2_m_and_where_the_height_is_unknown():
    task = make("Humanoid", 5)
    task.state["torso_position"][:, 2] = torch.tensor([0.99, 1.01, 1.99, 2.01, float("nan")])
    assert task.compute_terminal(task.state).tolist() == [True, False, False, True, True]
