"""Goal tasks in plain torch: walls, the arm's dynamics, where episodes begin, and that members do not meet."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from envolve.envs.goal import reacher
from envolve.envs.goal.episodes import Episodes
from envolve.envs.goal.mazes import MAZES, Maze
from envolve.envs.goal.point import CELL, PointMaze
from envolve.envs.goal.task import GOAL_TASKS, Beginnings, Random, make_goal_task
from tests.examples import some_slow

TASKS = sorted({make_goal_task(name).name for name in ("reacher", *(f"simple_{m}" for m in MAZES))})


@pytest.mark.parametrize("name", TASKS)
def test_sizes_and_the_same_episode_whoever_else_is_there(name: str) -> None:
    task, keys = make_goal_task(name), torch.tensor([3, 4, 5])
    together, alone = Episodes(task, keys, 4, episode_length=6), Episodes(task, keys[1:2], 4, episode_length=6)
    assert together.features.shape == (3, 4, task.state_size) and together.goal.shape == (3, 4, task.goal_size)
    generator = torch.Generator().manual_seed(0)
    overs = []
    for _ in range(15):
        action = 2 * torch.rand(3, 4, task.action_size, generator=generator) - 1
        a, b = together.step(action), alone.step(action[1:2])
        torch.testing.assert_close(a.features[1:2], b.features, atol=1e-5, rtol=0)
        assert torch.equal(together.goal[1:2], alone.goal)
        overs.append(a.over.all().item())
        assert a.over.any().item() == overs[-1]
        distance = (a.features[..., list(task.goal_indices)] - together.goal).norm(dim=-1)
        assert overs[-1] or torch.equal(a.success, distance < task.threshold)
    assert overs == [i % 6 == 5 for i in range(15)]
    assert together.episode.unique().tolist() == [2]


def test_goals_are_drawn_at_every_reset_or_as_published_once() -> None:
    task, keys = make_goal_task("reacher"), torch.tensor([3])
    for resample, distinct in (("reset", 15), ("fixed", 5)):
        episodes, goals = Episodes(task, keys, 5, resample, episode_length=2), []
        for _ in range(3):
            goals.append(episodes.goal[0].clone())
            episodes.step(torch.zeros(1, 5, 2)), episodes.step(torch.zeros(1, 5, 2))
        assert len(torch.cat(goals).unique(dim=0)) == distinct
    with pytest.raises(ValueError, match="resample"):
        Episodes(task, keys, 5, "never")


def test_beginnings_of_someone_else_know_the_member() -> None:
    class Shaped(Beginnings):
        def start(self, random: Random, members: torch.Tensor) -> torch.Tensor:
            return torch.zeros(len(members), 4) + 0.1 * members[:, None]

        def goal(self, random: Random, start: torch.Tensor, members: torch.Tensor) -> torch.Tensor:
            return members[:, None].float().expand(-1, 3)

    episodes = Episodes(make_goal_task("reacher"), torch.tensor([1, 2]), 3, beginnings=Shaped())
    assert episodes.goal[0].eq(0).all() and episodes.goal[1].eq(1).all() and episodes.state[1].eq(0.1).all()


def test_one_whose_actions_are_no_numbers_harms_no_other() -> None:
    for name in TASKS:
        episodes = Episodes(make_goal_task(name), torch.tensor([1, 2]), 3)
        action = torch.zeros(2, 3, episodes.task.action_size)
        action[0] = math.nan
        for _ in range(5):
            episodes.step(action)
        assert torch.isfinite(episodes.features).all()


def test_names() -> None:
    with pytest.raises(ValueError, match="nearest: 'reacher'"):
        make_goal_task("reachr")
    assert make_goal_task("point_u_maze").name == "simple_u_maze" and "simple_hardest_maze" in GOAL_TASKS


# ------------------------------------------------------------------------------------------------------------- mazes


@pytest.mark.parametrize("name", sorted(MAZES))
def test_mazes_are_closed_and_their_goals_can_be_reached(name: str) -> None:
    rows = MAZES[name]
    assert len({len(row) for row in rows}) == 1 and sum(row.count("R") for row in rows) == 1
    assert set(rows[0] + rows[-1]) | {row[0] for row in rows} | {row[-1] for row in rows} == {"#"}
    at = next((i, row.index("R")) for i, row in enumerate(rows) if "R" in row)
    seen, todo = {at}, [at]
    while todo:
        i, j = todo.pop()
        for cell in ((i + 1, j), (i - 1, j), (i, j + 1), (i, j - 1)):
            if rows[cell[0]][cell[1]] != "#" and cell not in seen:
                seen.add(cell)
                todo.append(cell)
    assert {(i, j) for i, row in enumerate(rows) for j, c in enumerate(row) if c == "g"} <= seen


@pytest.mark.parametrize("name", some_slow(sorted(MAZES), [m for m in MAZES if not m.endswith("_eval")]))
def test_no_point_enters_a_wall(name: str) -> None:
    """400 points, pushed at full force in directions that seldom change: corners and faces are all hit."""
    task = make_goal_task(f"simple_{name}")
    assert isinstance(task, PointMaze)
    episodes = Episodes(task, torch.tensor([1, 2]), 200, episode_length=10_000)
    generator = torch.Generator().manual_seed(1)
    reached = []
    for t in range(400):
        if t % 20 == 0:
            action = 4 * torch.rand(2, 200, 2, generator=generator) - 2
        x, y = episodes.step(action).features[..., :2].unbind(-1)
        assert not task.maze.in_wall(x, y).any()
        reached.append(torch.stack((x / CELL, y / CELL)).round().flatten(1))
    assert torch.cat(reached, 1).unique(dim=1).shape[1] >= 5  # and they do move through the maze


def test_a_wall_stops_and_lets_slide() -> None:
    task = make_goal_task("simple_u_maze")
    state = torch.tensor([[4.0, 4.0, 0.0, 0.0]])  # the cell R: walls at x < 2 and y < 2, and at x > 6
    for _ in range(200):
        state = task.dynamics(state, torch.tensor([[-1.0, 0.3]]))
    assert state[0, 0].item() == pytest.approx(2.001, abs=1e-5) and state[0, 2] == 0
    assert state[0, 1].item() == pytest.approx(13.999, abs=1e-5)  # slid along to the end of the corridor, y < 14
    # free flight: v -> FORCE a / DRAG = 5 m/s
    state = torch.tensor([[4.0, 4.0, 0.0, 0.0]])
    for t in range(30):
        state = task.dynamics(state, torch.tensor([[0.0, 1.0]]))
        assert state[0, 3].item() == pytest.approx(5 * (1 - 0.9 ** (t + 1)), rel=1e-4)


def test_goals_are_uniform_over_cells() -> None:
    task, K = make_goal_task("simple_big_maze"), 20_000
    zero = torch.zeros(K, dtype=torch.int64)
    goal = task.goal(Random(zero, torch.arange(K)), torch.zeros(K, 4), zero)
    cells, counts = (goal / CELL).unique(dim=0, return_counts=True)
    g = Maze("big_maze", 1.0).goals
    assert {tuple(c) for c in cells.tolist()} == {tuple(c) for c in g.tolist()}
    expected = K / len(g)
    assert ((counts - expected) ** 2 / expected).sum() < len(g) + 4 * math.sqrt(2 * len(g))


# ----------------------------------------------------------------------------------------------------------- reacher


def test_reacher_step_written_out_in_float64() -> None:
    """Lagrange's equations of two rods with balls, masses and inertias integrated numerically."""
    r, L, rho = 0.01, 0.1, 1000.0
    z = (np.arange(200_000) + 0.5) / 200_000 * (L + 2 * r) - r  # along a capsule, slice by slice
    radius2 = np.where(z < 0, r**2 - z**2, np.where(z > L, r**2 - (z - L) ** 2, r**2))
    dm = rho * math.pi * radius2 * (L + 2 * r) / 200_000
    about_end = (dm * (z**2 + radius2 / 4)).sum()  # of a thin disc: r^2 / 4 across
    ball = rho * 4 / 3 * math.pi * r**3
    m2, s2 = dm.sum() + ball, (dm * z).sum() + ball * 0.11
    j2 = about_end + ball * (0.4 * r**2 + 0.11**2)
    assert reacher.SHOULDER_INERTIA == pytest.approx(about_end, rel=1e-6)
    assert (reacher.FOREARM, reacher.FOREARM_MOMENT, reacher.ELBOW_INERTIA) == pytest.approx((m2, s2, j2), rel=1e-6)

    task, q, v, a = reacher.Reacher(), np.array([0.3, -1.1]), np.array([4.0, -7.0]), np.array([0.4, -0.9])
    state = torch.tensor([*q, *v], dtype=torch.float64)
    got = task.dynamics(state, torch.tensor(a)).numpy()
    for _ in range(2):
        c, s = math.cos(q[1]), math.sin(q[1])
        M = np.array([[about_end + j2 + m2 * 0.01 + 2 * 0.1 * s2 * c, j2 + 0.1 * s2 * c], [j2 + 0.1 * s2 * c, j2]])
        M += np.eye(2)  # the motors
        coriolis = 0.1 * s2 * s * np.array([-(2 * v[0] + v[1]) * v[1], v[0] ** 2])
        v = v + 0.01 * np.linalg.solve(M + 0.01 * np.eye(2), 200 * a - coriolis - v)
        q = q + 0.01 * v
    np.testing.assert_allclose(got, [*q, *v], rtol=1e-6)


def test_reacher_is_mujocos_but_for_the_integrator() -> None:
    import mujoco

    path = Path(reacher.__file__).parents[1] / "models" / "reacher.xml"
    model = mujoco.MjModel.from_xml_path(str(path))
    model.opt.integrator = mujoco.mjtIntegrator.mjINT_EULER
    data, task = mujoco.MjData(model), reacher.Reacher()
    data.qpos[:2], data.qvel[:2] = (0.2, -0.4), (1.0, -2.0)
    state = torch.tensor([*data.qpos[:2], *data.qvel[:2]], dtype=torch.float64)
    generator = np.random.default_rng(0)
    for t in range(40):
        action = generator.uniform(-0.2, 0.2, 2) if t else np.array([1.0, -1.0]) / 40
        data.ctrl[:] = action
        mujoco.mj_step(model, data, 2)
        state = task.dynamics(state, torch.tensor(action))
        assert abs(state[1]) < 2.9
        np.testing.assert_allclose(state[:2], data.qpos[:2], atol=1e-8)
        np.testing.assert_allclose(state[2:], data.qvel[:2], atol=1e-7)
    mujoco.mj_forward(model, data)
    tip = data.body("fingertip")
    features = task.features(state)
    np.testing.assert_allclose(features[4:7], tip.xpos, atol=1e-7)
    velocity = np.zeros(6)
    mujoco.mj_objectVelocity(model, data, mujoco.mjtObj.mjOBJ_BODY, tip.id, velocity, 0)
    np.testing.assert_allclose(features[7:10], velocity[3:], atol=1e-7)
    np.testing.assert_allclose(features[:4], [*np.cos(data.qpos[:2]), *np.sin(data.qpos[:2])], atol=1e-7)


def test_reacher_elbow_stops() -> None:
    task, state = reacher.Reacher(), torch.tensor([[0.0, 0.0, 0.0, 0.0]])
    for _ in range(60):
        state = task.dynamics(state, torch.tensor([[0.0, 1.0]]))
    assert state[0, 1] == 3.0 and state[0, 3].abs() < 5


def test_reacher_begins_and_aims_as_published() -> None:
    task, K = reacher.Reacher(), 20_000
    zero = torch.zeros(K, dtype=torch.int64)
    start = task.start(Random(zero, torch.arange(K)), zero)
    assert start[:, :2].abs().max() <= 0.1 and start[:, :2].std().item() == pytest.approx(0.1 / math.sqrt(3), rel=0.02)
    goal = task.goal(Random(zero + 1, torch.arange(K)), start, zero)
    radius = goal[:, :2].norm(dim=1)
    assert radius.max() < 0.2 and radius.mean().item() == pytest.approx(0.1, rel=0.02)  # r uniform: centre-heavy
    assert (goal[:, 2] - 0.01).abs().max() < 1e-8 and goal[:, :2].mean(0).abs().max() < 0.003
