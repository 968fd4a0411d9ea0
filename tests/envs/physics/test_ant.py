"""Ant beside Gymnasium's Ant-v5."""

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

WRENCH = slice(27, 105)


def test_model_is_gymnasiums_but_for_the_integrator():
    assert_same_model("Ant", "ant.xml", "integrator", "disableflags")


def test_equals_gymnasiums_environment_on_our_model():
    ended = assert_step_for_step(make("Ant", 4), "Ant-v5", 100, xml_file=str(MODELS / "ant.xml"))
    assert ended


def test_equals_gymnasiums_environment_with_its_integrator(tmp_path):
    # MuJoCo evaluates sensors, hence our contact wrenches, in the first stage of RK4, Gymnasium in the last: left out.
    task = make("Ant", 4, with_option(MODELS / "ant.xml", tmp_path, integrator="RK4"))
    assert assert_step_for_step(task, "Ant-v5", 80, skip=["contact"], columns=slice(0, WRENCH.start))


def test_contact_wrenches_are_seen_and_clipped():
    task = make("Ant", 2)
    begin(task, torch.arange(2), seed=1)
    for _ in range(30):
        _, components = control_step(task, torch.zeros(2, 8))
    wrench = task.compute_observation(task.state)[:, WRENCH]
    assert wrench.abs().max() == 1 and task.state["contact_wrench"].abs().max() > 2
    assert (components["contact"] < 0).all()


def test_score_is_the_displacement_per_second_and_nothing_after_the_end():
    task = make("Ant", 4)
    begin(task, torch.arange(4), seed=1)
    x, scores = task.sim.root_state[:, 0, 0].clone(), []
    for step in range(10):
        control_step(task, task.compute_torque(torch.full((4, 8), 0.5 * (-1) ** step), task.state))
        scores.append(task.score())
    distance = task.sim.root_state[:, 0, 0] - x
    torch.testing.assert_close(torch.stack(scores).mean(0), distance / (10 * task.dt), rtol=1e-12, atol=1e-12)
    assert scores[0].dtype == torch.float64 and (task.score_after_end() == 0).all()


def test_has_fallen_below_20_cm_above_1_m_and_where_the_height_is_unknown():
    task = make("Ant", 5)
    task.state["torso_position"][:, 2] = torch.tensor([0.19, 0.21, 0.99, 1.01, float("nan")])
    assert task.compute_terminal(task.state).tolist() == [True, False, False, True, True]
