"""The loop of goal-conditioned training: how much it does, that members do not meet, that it goes on the same."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch

from envolve.agents.goal.crl_section import CRLSection
from envolve.agents.goal.crl_train import GoalTraining
from envolve.envs.goal.task import make_goal_task

SMALL = CRLSection(
    h_dim=16,
    repr_dim=8,
    batch_size=32,
    num_envs=4,
    unroll_length=5,
    min_replay_size=10,
    max_replay_size=60,
)


def training(keys: list[int], section: CRLSection = SMALL, name: str = "reacher", **options: object) -> GoalTraining:
    task = make_goal_task(name)
    return GoalTraining(task, task, section, torch.tensor(keys), episode_length=12, num_eval_envs=6, **options)


def test_how_much_is_done() -> None:
    """4 environments, 5 decisions a phase, 2 phases until updates begin; 4 * 11 / 32 = 1.375 updates a phase."""
    t = training([1])
    done = []
    for _ in range(9):
        t.iteration()
        done.append((t.steps, t.updates, int(t.learner.updates)))
    assert done == [(20 * (i + 1), u, u) for i, u in enumerate([0, 1, 2, 4, 5, 6, 8, 9, 11])]
    assert int(t.replay.written) == 45 and t.episodes.episode.unique().tolist() == [3]
    assert t.replay.current.unique().tolist() == [3]  # 45 decisions are 3 whole episodes
    twice = training([1], action_repeat=2)
    twice.iteration()
    assert twice.steps == 40


def test_what_is_remembered_is_what_happened() -> None:
    """From a remembered state its action leads to the next remembered state, but where an episode ended."""
    t = training([1, 2], name="simple_u_maze")
    for _ in range(5):
        t.iteration()
    state, action = t.replay.fields["state"], t.replay.fields["action"]
    for row in range(23):
        same = (t.episodes.task.dynamics(state[:, row], action[:, row]) == state[:, row + 1]).all(-1)
        assert not same.any() if row == 11 else same.all()
    assert (action[:, :23].std(dim=(1, 2)) > 0.2).all() and action.abs().max() < 1


@pytest.mark.parametrize("name", ["reacher", "simple_u_maze"])
def test_a_population_is_its_members(name: str) -> None:
    own = {"policy_lr": [1e-3, 3e-4, 1e-3], "discounting": [0.9, 0.99, 0.5]}
    together = training([5, 6, 7], name=name, own=own)
    for _ in range(6):
        together.iteration()
    result = together.evaluate()
    assert result.near.shape == (3, 6) and result.updates == 6 and result.length.eq(12).all()
    for i, key in enumerate((5, 6, 7)):
        alone = training([key], dataclasses.replace(SMALL, **{n: v[i] for n, v in own.items()}), name)
        for _ in range(6):
            alone.iteration()
        torch.testing.assert_close(together.learner.params[i], alone.learner.params[0], atol=1e-4, rtol=1e-3)
        mine = alone.evaluate()
        torch.testing.assert_close(result.distance[i], mine.distance[0], atol=1e-3, rtol=1e-2)
        torch.testing.assert_close(result.learning[i], mine.learning[0], atol=1e-2, rtol=1e-2)


def test_one_that_diverges_harms_no_other() -> None:
    sick, well = training([5, 6, 7]), training([5, 6, 7])
    for t in (sick, well):
        t.iteration()
    sick.learner.params[1] = math.nan
    for t in (sick, well):
        for _ in range(4):
            t.iteration()
    a, b = sick.evaluate(), well.evaluate()
    assert a.near[1].isnan().all() and a.success[1].isnan().all() and not b.near.isnan().any()
    assert torch.equal(sick.learner.params[[0, 2]], well.learner.params[[0, 2]])
    assert torch.equal(a.distance[[0, 2]], b.distance[[0, 2]])


@pytest.mark.parametrize("after", [1, 7, 15])
def test_what_is_kept_goes_on_the_same(after: int) -> None:
    """Also with a ring that has wrapped, and in the middle of an episode."""
    section = dataclasses.replace(SMALL, normalize_observations=True)
    whole, first = training([5, 6], section), training([5, 6], section)
    for t in (whole, first):
        for _ in range(after):
            t.iteration()
        t.evaluate()
    second = training([5, 6], section)
    second.load_state_dict(first.state_dict())
    for t in (whole, second):
        for _ in range(4):
            t.iteration()
    a, b = whole.evaluate(), second.evaluate()
    assert torch.equal(whole.learner.params, second.learner.params) and a.steps == b.steps and a.updates == b.updates
    assert torch.equal(a.distance, b.distance) and torch.equal(a.near, b.near)
    assert torch.equal(torch.nan_to_num(a.learning), torch.nan_to_num(b.learning))


def test_the_distance_is_that_at_the_first_episodes_end() -> None:
    t = training([1, 2])
    task = t.eval_episodes.task
    task.terminates, task.terminated = True, lambda state: state[..., 0] > 0  # type: ignore[method-assign]
    seen = t.evaluate()
    e, ended = t.eval_episodes, {}
    e.episode.zero_()
    e.begin_all()
    for step in range(e.length):
        outcome = e.advance(t.learner.greedy(e.features, e.goal))
        distance = task.distance(outcome.features, e.goal)
        for where in outcome.over.nonzero().tolist():
            ended.setdefault(tuple(where), (step + 1, distance[tuple(where)].item()))
    assert {length for length, _ in ended.values()} > {e.length}, "some end early and some in time"
    for where, (length, distance_then) in ended.items():
        assert (seen.length[where], seen.distance[where]) == (length, distance_then)


def test_what_cannot_be() -> None:
    reacher, maze = make_goal_task("reacher"), make_goal_task("simple_u_maze")
    with pytest.raises(ValueError, match="eval_env: simple_u_maze has state_size 4"):
        GoalTraining(reacher, maze, SMALL, torch.tensor([1]))
    with pytest.raises(ValueError, match="max_replay_size: found 4, expected at least unroll_length"):
        GoalTraining(reacher, reacher, dataclasses.replace(SMALL, max_replay_size=4), torch.tensor([1]))
    GoalTraining(maze, make_goal_task("simple_u_maze_eval"), SMALL, torch.tensor([1]))


@pytest.mark.slow
def test_reacher_is_learned() -> None:
    """Three members, 60,000 steps each: success of at least 0.9 and near the goal for half of the time (a random policy
    comes near it in half of the episodes, for a fifth of the time)."""
    section = CRLSection(
        num_envs=32, discounting=0.9, min_replay_size=100, h_dim=128, policy_lr=1e-3, critic_lr=1e-3, alpha_lr=1e-3
    )
    task = make_goal_task("reacher")
    t = GoalTraining(task, task, section, torch.tensor([0, 1, 2]))
    before = t.evaluate()
    while t.steps < 60_000:
        t.iteration()
    after = t.evaluate()
    assert (before.near.mean(1) < 350).all()
    assert (after.success.mean(1) >= 0.9).all() and (after.near.mean(1) > 500).all()
