"""What holds for every task that is taken from Gymnasium."""

import pytest
import torch

from envolve.envs.physics.task import physics_task
from tests.envs.physics.gymnasium_twin import begin, control_step, make
from tests.envs.physics.shaped_by_the_task import make_envs

TASKS = ["HalfCheetah", "Ant", "Humanoid", "Reacher", "Pusher"]


@pytest.mark.parametrize("name", TASKS)
def test_runs_under_its_own_shapers_through_the_ends_of_episodes(name, monkeypatch):
    monkeypatch.setattr(physics_task(name), "max_steps", 20)
    envs = make_envs(physics_task(name), 6)
    envs.begin()
    generator, ended = torch.Generator().manual_seed(0), 0
    for _ in range(25):
        action = 2 * torch.rand(1, 6, envs.action_sizes[0], generator=generator) - 1
        step = envs.step(action)
        ended += int((step.terminated | step.truncated).sum())
        assert torch.isfinite(step.obs).all() and torch.isfinite(step.reward).all() and torch.isfinite(step.score).all()
    assert not envs.failures and ended >= 6


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("parameter, value", [("mass_scale", 3.0), ("gravity", 4.0), ("friction_scale", 0.1)])
def test_a_moved_parameter_moves_the_physics_of_its_environments_alone(name, parameter, value):
    task, ids = make(name, 2), torch.tensor([1])
    scaled = torch.tensor([value])
    if parameter == "gravity":
        scaled = torch.tensor([[0.0, 0.0, -value]])
    task.sim.set_property(parameter, ids, scaled)
    begin(task, torch.arange(2), seed=1)
    alone = make(name, 1)
    begin(alone, torch.arange(1), seed=1)
    for sim in (task.sim, alone.sim):  # the same beginning for both
        sim.qpos[:] = alone.sim.qpos
        sim.qvel[:] = alone.sim.qvel
    for step in range(40):
        torque = task.compute_torque(torch.full((2, task.action_size), 0.75 * (-1) ** (step // 8)), task.state)
        control_step(task, torque)
        control_step(alone, torque[:1])
    assert torch.equal(task.sim.qpos[0], alone.sim.qpos[0])
    if (name, parameter) not in STILL:
        assert not torch.equal(task.sim.qpos[1], task.sim.qpos[0])


STILL = {
    ("Reacher", "gravity"),  # its joints turn about the vertical
    ("Reacher", "friction_scale"),  # nothing touches anything
    ("Pusher", "friction_scale"),  # all contacts are without friction (condim 1)
}


@pytest.mark.parametrize("name", TASKS)
def test_quantities_say_unit_and_meaning(name):
    for quantity, (_, unit, meaning) in physics_task(name).quantities.items():
        assert meaning or unit, quantity
    assert physics_task(name).score_unit and physics_task(name).score_meaning
    assert set(physics_task(name).parameters) == {"mass_scale", "friction_scale", "gravity", "reset_noise"}
