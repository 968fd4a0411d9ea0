"""Shapers of starts and goals: each family against its density, members apart, evaluation untouched."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

import envolve.envs.goal.tasks  # noqa: F401  # they register themselves
from envolve.agents.goal.crl_section import CRLSection
from envolve.agents.goal.crl_train import GoalTraining
from envolve.envs.goal.point import CELL
from envolve.envs.goal.shapers import FAMILIES, Shaped, ShapeSpace, arc, samples
from envolve.envs.goal.task import GOAL_TASKS, make_goal_task

N = 4000


def drawn(task: str, family: str, theta: Tensor, role: str = "goal") -> tuple[Tensor, Tensor]:
    """theta [P, D] -> starts and goals [P, N, ..]."""
    space = ShapeSpace(make_goal_task(task), **{role: family})
    members = torch.arange(len(theta)).repeat_interleave(N)
    start, goal = samples(Shaped(space, theta), members, seed=3)
    return start.view(len(theta), N, -1), goal.view(len(theta), N, -1)


def uniform(x: Tensor, low: float, high: float) -> None:
    """x is uniform in [low, high]: ends, mean and deviation within 5 standard errors, and its distribution function."""
    width = high - low
    assert low - 1e-5 <= float(x.min()) and float(x.max()) <= high + 1e-5
    gap = (x.double().sort().values - low) / width - (torch.arange(N) + 0.5) / N
    assert float(gap.abs().max()) < 2.0 / math.sqrt(N)  # Kolmogorov: 1.95 has a chance of 0.001


def test_circle() -> None:
    """Two members: a ring with its radii the wrong way round and negative, and an arc of one radius."""
    theta = torch.tensor([[-6.0, 2.0, 0.3, 1.0], [3.0, 3.0, math.pi / 2, 100.0]])
    _, goal = drawn("ant", "circle", theta)
    radius, angle = goal.norm(dim=2), torch.atan2(goal[..., 1], goal[..., 0])
    uniform(radius[0], 2.0, 6.0)
    uniform(angle[0], -0.2, 0.8)
    assert (radius[1] - 3).abs().max() < 1e-5
    uniform(angle[1], -math.pi, math.pi)
    assert abs(float(torch.corrcoef(torch.stack((radius[0], angle[0])))[0, 1])) < 0.08


def test_offset_is_about_the_start() -> None:
    theta = torch.tensor([[1.0, 2.0, 0.0, 0.5]])
    start, goal = drawn("ant_random_start", "offset", theta)
    way = goal - start[..., :2]
    uniform(way.norm(dim=2)[0], 1.0, 2.0)
    uniform(torch.atan2(way[..., 1], way[..., 0])[0], -0.25, 0.25)
    assert float(start[..., 0].std()) > 3


def test_box() -> None:
    start, goal = drawn("reacher", "box", torch.tensor([[0.1, -0.05, -0.05, 0.1], [0.0, 0.0, 0.2, 0.0]]))
    uniform(goal[0, :, 0], 0.05, 0.15)
    uniform(goal[0, :, 1], -0.15, 0.05)
    assert (goal[1, :, 1] == 0).all() and (goal[..., 2] - 0.01).abs().max() < 1e-6  # the height is the task's
    uniform(goal[1, :, 0], -0.2, 0.2)
    start, goal = drawn("reacher", "box", torch.tensor([[1.0, 0.5, 0.5, 0.2]]), role="start")
    uniform(start[0, :, 0], 0.5, 1.5)
    uniform(start[0, :, 1], 0.3, 0.7)
    assert start[0, :, 2:].abs().max() <= 0.005
    assert float(goal[0, :, :2].norm(dim=1).mean()) == pytest.approx(0.1, abs=0.005)


def test_box_of_one_number() -> None:
    _, goal = drawn("cheetah", "box", torch.tensor([[3.0, 1.5]]))
    uniform(goal[0, :, 0], 1.5, 4.5)
    with pytest.raises(ValueError, match="circle needs two numbers, cheetah has one"):
        ShapeSpace(make_goal_task("cheetah"), "circle")


def test_cells() -> None:
    """Frequencies against softmax: chi square, of 6 degrees of freedom."""
    space = ShapeSpace(make_goal_task("simple_u_maze"), "cells")
    assert space.names == [f"goal cell {i},{j}" for i, j in ((1, 1), (1, 2), (1, 3), (2, 3), (3, 1), (3, 2), (3, 3))]
    assert space.own.tolist() == [-2.0, 0, 0, 0, 0, 0, 0]  # R has no goal
    logits = torch.tensor([[0.0, 1.0, -1.0, 2.0, 0.5, -3.0, 0.0], [0.0, 0, 0, 0, 0, 0, 30.0]])
    _, goal = drawn("simple_u_maze", "cells", logits)
    p = logits[0].softmax(0)
    chi = 0.0
    for probability, name in zip(p.tolist(), space.names):
        centre = torch.tensor([float(k) for k in name.split()[-1].split(",")]) * CELL
        count = int((goal[0] == centre).all(1).sum())
        chi += (count - N * probability) ** 2 / (N * probability)
    assert chi < 22.5  # a chance of 0.001
    assert (goal[1] == torch.tensor([3.0, 3.0]) * CELL).all()


def test_point_and_walls() -> None:
    """What would lie in a wall lies in the nearest free cell, starts off its edge."""
    inside = torch.tensor([[4.0, 4.0], [7.9, 4.0], [100.0, 100.0]])
    _, goal = drawn("simple_u_maze", "point", inside)
    assert goal[:, 0].tolist() == [[4.0, 4.0], [6.0, 4.0], [14.0, 14.0]]
    start, _ = drawn("simple_u_maze", "point", inside, role="start")
    assert start[:, 0, :2].tolist() == [[4.0, 4.0], [5.0, 4.0], [13.0, 13.0]] and (start[..., 2:] == 0).all()
    for family in ("box", "circle", "offset"):
        start, goal = drawn("simple_big_maze", family, torch.tensor([[10.0, 8.0, 15.0, 10.0]]), role="start")
        maze = make_goal_task("simple_big_maze").maze
        assert not maze.in_wall(*start[0, :, :2].unbind(1)).any() and float(start[0, :, 0].std()) > 3


@pytest.mark.parametrize("name", sorted(set(GOAL_TASKS) - {n for n in GOAL_TASKS if n.startswith("point_")}))
def test_the_search_begins_near_the_tasks_own(name: str) -> None:
    """u = 0 lies where the task's own goals and starts lie, for every family that a task can have."""
    task = make_goal_task(name)
    members = torch.zeros(500, dtype=torch.int64)
    own_start, own_goal = samples(task, members, seed=11)
    n = min(2, task.goal_size)
    spread = float((own_goal[:, :n] - own_goal[:, :n].mean(0)).norm(dim=1).max())
    fitting = 0
    for family in FAMILIES:
        try:
            space = ShapeSpace(task, family * task.goals_shaped, family)
        except ValueError as e:
            assert "maze" in str(e) or "one; expected box" in str(e)
            continue
        fitting += 1
        theta = space.theta(torch.zeros(1, len(space.names)))
        start, goal = samples(Shaped(space, theta), members, seed=12)
        assert start.shape == own_start.shape and goal.isfinite().all() and start.isfinite().all()
        away = (goal[:, :n] - own_goal[:, :n].mean(0)).norm(dim=1).max()
        assert float(away) <= 3.3 * spread + 0.3, family
        others = [i for i in range(start.shape[1]) if i not in task.start_indices[:n]]
        assert float((start[:, others].mean(0) - own_start[:, others].mean(0)).abs().max()) < 0.5
        plain = Shaped(space, theta + 7, torch.tensor([True]))
        assert torch.equal(samples(plain, members, seed=11)[1], own_goal)
    assert fitting >= 2


def test_the_arc_of_angles() -> None:
    for angles, middle, width in (
        ([0.1, 0.9, 0.3], 0.5, 0.8),
        ([3.0, -3.0], math.pi, 2 * (math.pi - 3)),
        ([-1.0, 2.5, 0.0, 1.0], 0.75, 3.5),
        ([0.4, 0.4], 0.4, 0.0),
    ):
        found = arc(torch.tensor(angles))
        assert math.cos(found[0] - middle) == pytest.approx(1, abs=1e-6) and found[1] == pytest.approx(width, abs=1e-5)
    assert arc(torch.arange(0, 6.28, 0.25)) == (0.0, 2 * math.pi)


@pytest.mark.parametrize("family", ["circle", "offset", "cells"])
def test_goals_of_ant_push_lie_where_its_own_lie(family: str) -> None:
    """Most of them in the two cells g, and none in a wall; its room is a maze whose R is the world's origin."""
    space = ShapeSpace(make_goal_task("ant_push"), family)
    start, goal = drawn("ant_push", family, space.own[None])
    free = torch.tensor([(0.0, 0.0), (0, 8), (8, 0), (8, 8), (8, 16), (16, 8)])
    inside = (goal[0, :, None] - free).abs().amax(2) < 4.001  # of each cell, [N, 6]
    assert inside.any(1).all()
    share = inside[:, 4:].double().mean(0).tolist()
    assert sum(share) >= 0.6 and min(share) > 0.2
    if family == "cells":
        assert space.names == [f"goal cell {i},{j}" for i, j in ((1, 1), (1, 2), (2, 1), (2, 2), (2, 3), (3, 2))]


def test_evaluation_is_the_tasks_own() -> None:
    """Training episodes follow each member's parameters, those of evaluations do not; nor do the starts' random
    numbers depend on who else is there."""
    section = CRLSection(h_dim=8, repr_dim=4, batch_size=8, num_envs=4, unroll_length=5, max_replay_size=20)
    task = make_goal_task("simple_u_maze")
    keys = torch.tensor([1, 2])

    def training(shaped: bool) -> GoalTraining:
        space = ShapeSpace(task, "cells", "point")
        theta = space.own.repeat(2, 1)
        theta[0, 6], theta[1, 1] = 50.0, 50.0
        theta[:, 7:] = torch.tensor([[12.0, 4.0], [4.0, 12.0]])
        return GoalTraining(
            task,
            task,
            section,
            keys,
            episode_length=10,
            num_eval_envs=50,
            beginnings=Shaped(space, theta) if shaped else None,
        )

    a, b = training(True), training(False)
    assert (a.episodes.goal[0] == 12.0).all() and (a.episodes.goal[1] == torch.tensor([4.0, 8.0])).all()
    assert torch.equal(a.episodes.features[:, 0, :2], torch.tensor([[12.0, 4.0], [4.0, 12.0]]))
    assert len(b.episodes.goal.view(-1, 2).unique(dim=0)) > 2
    first, second = a.evaluate(), b.evaluate()
    assert torch.equal(a.eval_episodes.goal, b.eval_episodes.goal) and torch.equal(first.distance, second.distance)
    assert len(a.eval_episodes.goal[0].unique(dim=0)) == 6


def test_what_is_wrong_is_said() -> None:
    task = make_goal_task("reacher")
    with pytest.raises(ValueError, match="found 'circel', expected one of circle, .*nearest: 'circle'"):
        ShapeSpace(task, "circel")
    with pytest.raises(ValueError, match="cells: reacher has no maze"):
        ShapeSpace(task, "cells")
    with pytest.raises(ValueError, match="arm_grasp's goals follow from its starts; expected a start family alone"):
        ShapeSpace(make_goal_task("arm_grasp"), "box", "box")
    with pytest.raises(ValueError, match="expected a family"):
        ShapeSpace(task)
    with pytest.raises(ValueError, match="found 3 parameters, expected 4"):
        Shaped(ShapeSpace(task, "circle"), torch.zeros(2, 3))
