"""Ant mazes: walls where the map has them, starts and goals, and an ant that no wall lets through."""

from __future__ import annotations

import math

import mujoco
import numpy as np
import pytest
import torch

from envolve.envs.goal.ant_mazes import CELL, HEIGHT, AntMaze
from envolve.envs.goal.engines import make_episodes
from envolve.envs.goal.mazes import MAZES
from envolve.envs.goal.task import Random, make_goal_task
from envolve.envs.sim.mujoco_model import load_model
from envolve.envs.sim.simulator import MODELS, Scene, SimulatorError, make_simulator
from tests.envs.goal.plain_loop import model_of

NAMES = sorted(f"ant_{m}" for m in MAZES)


def task_of(name: str) -> AntMaze:
    task = make_goal_task(name)
    assert isinstance(task, AntMaze) and task.name == name
    return task


@pytest.mark.parametrize("name", NAMES)
def test_walls_are_the_maps(name: str) -> None:
    """A grid of points, compared with the map: inside of one box exactly where the map has a wall."""
    task = task_of(name)
    model, rows = model_of(task), MAZES[task.maze_name]
    walls = [model.geom(i) for i in range(model.ngeom) if model.geom(i).name.startswith("wall")]
    assert 0 < len(walls) < sum(row.count("#") for row in rows)
    assert all(g.type == mujoco.mjtGeom.mjGEOM_BOX for g in walls)
    for i, row in enumerate(rows):
        for j, c in enumerate(row):
            for dx, dy in ((0, 0), (1.99, 1.99), (-1.99, 1.99), (1.99, -1.99), (-1.99, -1.99)):
                point = np.array([i * 4.0 + dx, j * 4.0 + dy])
                inside = [(np.abs(point - g.pos[:2]) < g.size[:2]).all() for g in walls]
                assert sum(inside) == (c == "#"), (i, j)
    assert all(g.pos[2] - g.size[2] == 0 and g.pos[2] + g.size[2] == 2.0 for g in walls)  # m
    assert (CELL, HEIGHT) == (4.0, 2.0)


@pytest.mark.parametrize("name", NAMES)
def test_starts_and_goals(name: str) -> None:
    task, K = task_of(name), 4000
    zero = torch.zeros(K, dtype=torch.int64)
    start = task.start(Random(zero, torch.arange(K)), zero)
    assert start[:, :2].unique(dim=0).tolist() == [[4.0, 4.0]] and start[:, 2].sub(0.55).abs().max() <= 0.1
    assert start[:, 15:].std().item() == pytest.approx(0.1, rel=0.05)
    goal = task.goal(Random(zero + 1, torch.arange(K)), start, zero)
    cells, counts = (goal / 4.0).unique(dim=0, return_counts=True)
    rows = MAZES[task.maze_name]
    expected = {(float(i), float(j)) for i, row in enumerate(rows) for j, c in enumerate(row) if c == "g"}
    assert {tuple(c) for c in cells.tolist()} == expected
    assert not task.maze.in_wall(*goal.unbind(1)).any()
    each = K / len(expected)
    assert ((counts - each) ** 2 / each).sum() < len(expected) + 4 * math.sqrt(2 * len(expected))


def test_a_wall_stops_an_ant() -> None:
    """Thrown at the wall in front of it at 9 m/s, its middle stays a leg's width away; without walls it passes."""
    task, distances = task_of("ant_u_maze"), []
    scenes: list[Scene | None] = [task.scene(), None]
    for scene in scenes:
        sim = make_simulator("mujoco", task.model, 1, scene=scene)
        start = torch.tensor([[4.0, 4.0, 0.55, 1, 0, 0, 0, 0, 1, 0, -1, 0, -1, 0, 1, -9.0, *[0] * 13]]).double()
        sim.set_state(torch.tensor([0]), *task.place(start, sim))
        nearest = 9.0
        for _ in range(60):
            sim.step(5)
            nearest = min(nearest, float(sim.root_state[0, 0, 0]))
        distances.append(nearest)
        assert not sim.unstable.any()
    assert 2.2 < distances[0] < 3.9 and distances[1] < 1.9  # the wall's face is at x = 2


def test_an_engine_that_cannot_add_walls_says_so() -> None:
    with pytest.raises(SimulatorError, match="choose engine mujoco"):
        make_simulator("isaacgym", "ant.xml", 1, scene=lambda spec: None)
    plain = load_model(MODELS / "ant.xml", False)
    assert load_model(MODELS / "ant.xml", False, lambda spec: None).ngeom == plain.ngeom


def test_evaluations_of_a_training_maze_in_its_far_cells() -> None:
    near, far = (make_episodes(task_of(n), torch.tensor([1]), 30) for n in ("ant_big_maze", "ant_big_maze_eval"))
    at_start = (near.features[0, :, :2] - 4.0).abs().max()
    assert at_start < 1e-6 and near.goal.sub(4.0).norm(dim=-1).min() < far.goal.sub(4.0).norm(dim=-1).min()
