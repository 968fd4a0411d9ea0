"""Gridworlds: transitions written out by hand, and the shortest ways."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from envolve.envs.task import make_task

RIGHT, LEFT, DOWN, UP = range(4)
ROOMS = tuple("EmptyRoom22 EmptyRoom23 EmptyRoom33 WallRoom HoleRoom HoleRoomLarge HoleRoomLargeShifted Cliff".split())


def move(task, cell, action):
    state, reward, done = task.step(torch.tensor([[[cell]]]), torch.tensor([[action]]))
    return state.item(), round(reward.item(), 4), done.item()


@pytest.mark.parametrize(
    ("name", "cell", "action", "expected"),
    [
        ("EmptyRoom22", 0, RIGHT, (1, -0.01, False)),
        ("EmptyRoom22", 0, LEFT, (0, -0.01, False)),  # border
        ("EmptyRoom22", 1, DOWN, (3, 1.0, True)),  # goal
        ("EmptyRoom23", 2, DOWN, (5, 1.0, True)),
        ("EmptyRoom33", 4, UP, (1, -0.01, False)),
        ("WallRoom", 1, RIGHT, (1, -0.01, False)),  # wall at (0, 2)
        ("WallRoom", 11, RIGHT, (12, -0.01, False)),  # the gap in row 2
        ("WallRoom", 12, UP, (12, -0.01, False)),  # wall above the gap
        ("HoleRoom", 1, RIGHT, (2, -1.0, True)),  # hole
        ("HoleRoom", 12, DOWN, (17, -1.0, True)),
        ("HoleRoomLarge", 17, DOWN, (24, -0.01, False)),
        ("HoleRoomLarge", 3, RIGHT, (4, -1.0, True)),
        ("HoleRoomLargeShifted", 29, RIGHT, (30, -0.01, False)),  # row 4 is open at column 2
        ("HoleRoomLargeShifted", 3, RIGHT, (4, -0.01, False)),  # row 0 is open at column 4
        ("HoleRoomLargeShifted", 31, RIGHT, (32, -1.0, True)),
        ("Cliff", 36, UP, (24, -1.0, False)),
        ("Cliff", 36, RIGHT, (37, -100.0, True)),
        ("Cliff", 35, DOWN, (47, 0.0, True)),
        ("Cliff", 35, RIGHT, (35, -1.0, False)),
    ],
)
def test_moves(name, cell, action, expected):
    assert move(make_task(name), cell, action) == expected


@pytest.mark.parametrize(
    ("name", "best", "solved", "max_steps"),
    [
        ("EmptyRoom22", 0.99, 0.8, 10),
        ("EmptyRoom23", 0.98, 0.8, 15),
        ("EmptyRoom33", 0.97, 0.8, 20),
        ("WallRoom", 0.93, 0.8, 30),
        ("HoleRoom", 0.93, 0.8, 30),
        ("HoleRoomLarge", 0.91, 0.8, 30),
        ("HoleRoomLargeShifted", 0.83, 0.8, 30),
        ("Cliff", -12.0, -20.0, 50),
    ],
)
def test_best_return_by_value_iteration(name, best, solved, max_steps):
    task = make_task(name)
    value = np.zeros(task.num_states)
    for _ in range(task.num_states):
        value = (task.reward + np.where(task.done, 0.0, value[task.next_state])).max(1)
    assert value[task.start_state] == pytest.approx(best, abs=1e-5)
    assert (task.solved_reward, task.max_steps) == (solved, max_steps)


@pytest.mark.parametrize("name", ROOMS)
def test_tables_and_one_hot(name):
    task = make_task(name)
    assert task.next_state.dtype == np.int32 and task.reward.dtype == np.float32 and task.done.dtype == np.bool_
    assert task.num_states == task.observation_size == task.next_state.shape[0]
    state = task.reset(torch.empty(2, 3, 0))
    assert state.shape == (2, 3, 1) and state.dtype == torch.int64
    obs = task.observe(state)
    assert obs.shape == (2, 3, task.num_states) and obs.dtype == torch.float32
    assert (obs.argmax(-1) == task.start_state).all() and (obs.sum(-1) == 1).all()
