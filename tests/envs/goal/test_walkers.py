"""Goal tasks in MuJoCo: coordinates, falls, resets of some environments alone, going on bit by bit."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from envolve.envs.goal.engines import make_episodes
from envolve.envs.goal.task import Random, make_goal_task
from envolve.envs.goal.walkers import ANT_REST


@pytest.mark.parametrize("name", ["ant", "cheetah"])
def test_features_are_what_was_begun_with(name: str) -> None:
    task, keys = make_goal_task(name), torch.tensor([3, 4])
    episodes = make_episodes(task, keys, 5)
    members, number = torch.arange(2).repeat_interleave(5), torch.arange(5).repeat(2)
    start = task.start(Random(episodes.start_key[members], number), members)
    if name == "ant":
        start[:, 3:7] /= start[:, 3:7].norm(dim=1, keepdim=True)
    np.testing.assert_allclose(episodes.features.view(10, -1), start, atol=1e-6)
    before = episodes.features.clone()
    outcome = episodes.step(torch.zeros(2, 5, task.action_size))
    assert outcome.features.shape == (2, 5, task.state_size) and (outcome.features != before).any()
    if name == "ant":
        assert episodes.sim.model.numeric("init_qpos").data.tolist() == list(ANT_REST)  # type: ignore[attr-defined]
    else:
        assert episodes.sim.rest_state()[1].tolist() == [0.0] * 9


@pytest.mark.parametrize("name", ["ant", "ant_random_start", "ant_u_maze", "ant_ball"])
def test_the_ant_of_brax_spring(name: str) -> None:
    """Each link is 1 kg and 1 kg m2 about its own middle; without armature."""
    model = make_episodes(make_goal_task(name), torch.tensor([1]), 1).sim.model  # type: ignore[attr-defined]
    ant = [model.body(i) for i in range(1, 14)]
    links = [body for body in ant if body.jntnum[0]]
    assert ant[0].name == "torso" and len(links) == 9 and model.opt.timestep == 0.005
    assert all(body.mass[0] == 1 and (body.inertia == 1).all() for body in links)
    assert sum(body.mass[0] for body in ant) == 9 and not model.dof_armature.any()
    legs = {body.name: np.abs(body.ipos) for body in links[1:]}
    for leg, middle in legs.items():  # capsules from the joint to 0.2 and 0.4 m along x and y
        np.testing.assert_allclose(middle, [0.1, 0.1, 0] if leg.startswith("aux") else [0.2, 0.2, 0])
    assert (links[0].ipos == 0).all()


def test_in_mjx_the_ant_is_gymnasiums() -> None:
    model = make_episodes(make_goal_task("ant_push"), torch.tensor([1]), 1).sim.model  # type: ignore[attr-defined]
    assert model.opt.timestep == 0.01 and (model.dof_armature[6:14] == 1).all() and model.body("torso").mass[0] < 0.4


def test_coordinates_are_mujocos() -> None:
    """After some steps, the free body's angular velocity included."""
    episodes = make_episodes(make_goal_task("ant"), torch.tensor([1]), 3)
    for _ in range(5):
        episodes.step(torch.rand(1, 3, 8) - 0.5)
    sim = episodes.sim
    expected = torch.cat((sim.qpos, sim.qvel), 1)  # type: ignore[attr-defined]
    np.testing.assert_allclose(episodes.features[0], expected, atol=1e-6)


def test_goals() -> None:
    zero = torch.zeros(1000, dtype=torch.int64)
    goal = make_goal_task("ant").goal(Random(zero, torch.arange(1000)), torch.zeros(1000, 29), zero)
    assert goal.norm(dim=1).sub(10).abs().max() < 1e-5 and goal.mean(0).abs().max() < 1
    assert make_goal_task("cheetah").goal(Random(zero, zero), torch.zeros(1000, 18), zero).unique().tolist() == [5.0]


def test_who_falls_begins_anew_alone() -> None:
    """And gets another start and goal, while the others go on."""
    task = make_goal_task("ant")
    episodes, generator = make_episodes(task, torch.tensor([1, 2]), 20), torch.Generator().manual_seed(0)
    ended = 0
    for _ in range(150):
        goal, t = episodes.goal.clone(), episodes.t.clone()
        outcome = episodes.step(2 * torch.rand(2, 20, 8, generator=generator) - 1)
        z = outcome.features[..., 2]
        assert torch.equal(outcome.terminated, (z < 0.2) | (z > 1.0)) and torch.equal(outcome.over, outcome.terminated)
        changed = (episodes.goal != goal).any(-1)
        assert torch.equal(changed, outcome.over)
        assert torch.equal(episodes.t, torch.where(outcome.over, torch.zeros_like(t), t + 1))
        begun = episodes.features[outcome.over]
        assert ((begun[:, :2].abs() <= 0.1).all() and (begun[:, 2] - 0.55).abs().le(0.1).all()) if len(begun) else True
        ended += int(outcome.over.sum())
    assert ended >= 3 and episodes.episode.sum() == ended


def test_the_same_episodes_whoever_else_is_there() -> None:
    task, keys = make_goal_task("ant"), torch.tensor([1, 2, 3])
    together, alone = make_episodes(task, keys, 4), make_episodes(task, keys[1:2], 4)
    generator = torch.Generator().manual_seed(0)
    for _ in range(40):
        action = 2 * torch.rand(3, 4, 8, generator=generator) - 1
        a, b = together.step(action), alone.step(action[1:2])
        assert torch.equal(a.features[1:2], b.features) and torch.equal(together.goal[1:2], alone.goal)


def test_an_action_that_is_no_number_harms_no_other() -> None:
    episodes = make_episodes(make_goal_task("ant"), torch.tensor([1, 2]), 2)
    action = torch.zeros(2, 2, 8)
    action[0] = math.nan
    for _ in range(5):
        outcome = episodes.step(action)
    assert torch.isfinite(outcome.features).all() and not outcome.over.any()


def test_going_on_bit_by_bit() -> None:
    task, keys, generator = make_goal_task("ant"), torch.tensor([1, 2]), torch.Generator().manual_seed(0)
    actions = 2 * torch.rand(60, 2, 6, 8, generator=generator) - 1
    whole = make_episodes(task, keys, 6)
    for action in actions[:30]:
        whole.step(action)
    parts = make_episodes(task, keys, 6)
    parts.load_state_dict(whole.state_dict())
    for action in actions[30:]:
        a, b = whole.step(action), parts.step(action)
        assert torch.equal(a.features, b.features) and torch.equal(a.over, b.over)
