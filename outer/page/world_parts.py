"""What an evolved world contains, as charts: what it pays, and where."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from envolve.envs.classic.gridworld import GridWorld
from envolve.envs.task import Task
from envolve.envs.worlds.file import WorldFile, read_world
from envolve.envs.worlds.world import RealTask, World, tables
from envolve.outer.page.charts import PALETTE, Dots, dots, heat, numbers
from envolve.outer.page.parts import Chart, Part, Prose
from envolve.outer.reporting import names

STATES, ROLLOUT = 1500, 30  # states to look at; steps of a random walk from which they are taken
MOVES = ("right", "left", "down", "up")
MOST_ACTIONS = 12


def world_parts(path: Path) -> list[Part]:
    """Charts of a model.pt. Raises WorldFileError."""
    file = read_world(str(path))
    task, world = file.task(), file.world()
    if task.num_states is not None:
        return finite_parts(file, task, world)
    if task.num_actions:
        return discrete_parts(file, task, world)
    return continuous_parts(file, task, world)


def action(task: Task, i: int) -> str:
    return MOVES[i] if isinstance(task, GridWorld) and i < len(MOVES) else names.action(task.name, i)


# ------------------------------------------------------------------------------------------------------ finite worlds


def finite_parts(file: WorldFile, task: Task, world: World) -> list[Part]:
    """The reward of every cell's best action in the world, and on the task."""
    learned = tables(world)[1][0].numpy()
    true = tables(RealTask(task, 1, for_learning=False))[1][0].numpy()
    if not isinstance(task, GridWorld):
        return [_by_state("Reward of every state and action in the world", learned, task)]
    of = "reward" if file.kind == "rn" else "synthetic reward"
    return [
        _grid(f"In the world: the {of} of the best action", learned, task),
        _grid("On the task: the reward of the best action", true, task),
    ]


def _grid(title: str, reward: np.ndarray, task: GridWorld) -> Chart:
    rows, columns = len(task.layout), len(task.layout[0])
    best = np.where(np.isfinite(reward), reward, -np.inf).max(1).reshape(rows, columns).astype(float)
    walls = np.array([[cell in "#GO" for cell in row] for row in task.layout])  # nothing is done there
    best[walls | ~np.isfinite(best)] = np.nan
    arrows = np.array(["→", "←", "↓", "↑"])[np.nan_to_num(reward, nan=-np.inf).argmax(1)].reshape(rows, columns)
    signs = {"S": "start", "G": "goal", "O": "hole", "#": ""}
    notes = [
        {
            "x": c,
            "y": r,
            "text": signs.get(task.layout[r][c]) or arrows[r][c] * (task.layout[r][c] != "#"),
            "showarrow": False,
            "font": {"size": 11, "color": "#fff"},
            "bgcolor": "rgba(0,0,0,0.35)",
        }
        for r in range(rows)
        for c in range(columns)
        if task.layout[r][c] in ".SGO"
    ]
    chart = heat(
        title,
        best,
        range(columns),
        range(rows),
        "column",
        "row",
        "reward",
        "An arrow is the action that pays most at once; an agent looks further ahead.",
        yaxis={"autorange": "reversed", "dtick": 1},
        xaxis={"dtick": 1},
        height=110 + 46 * max(rows, 4),
    )
    return Chart(chart.title, chart.data, {**chart.layout, "annotations": notes}, chart.note, chart.about, chart.height)


def _by_state(title: str, reward: np.ndarray, task: Task) -> Chart:
    return heat(
        title, reward.T, range(reward.shape[0]), range(reward.shape[1]), "state", "action", "reward", height=260
    )


# --------------------------------------------------------------------------------------------------- other worlds


def visited(task: Task, world: World) -> torch.Tensor:
    """States of the world [1, STATES, ...]: of a bandit its contexts, else those of walks with random actions."""
    rng = np.random.default_rng(0)
    walks = STATES if world_is_bandit(world) else STATES // ROLLOUT
    state = world.reset(torch.from_numpy(rng.random((1, walks, world.reset_uniforms), dtype=np.float32)))
    if world_is_bandit(world):
        return state
    kept = [state]
    for _ in range(ROLLOUT - 1):
        state, _, done, failed = world.step(state, _random(task, rng, walks))
        fresh = world.reset(torch.from_numpy(rng.random((1, walks, world.reset_uniforms), dtype=np.float32)))
        over = ((done > 0.5) | failed).reshape(1, walks, *[1] * (state.dim() - 2))
        state = torch.where(over, fresh, state)
        kept.append(state)
    return torch.cat(kept, dim=1)


def world_is_bandit(world: World) -> bool:
    return type(world).__name__ == "ContextualBandit"


def _random(task: Task, rng: np.random.Generator, n: int) -> torch.Tensor:
    if task.num_actions:
        return torch.from_numpy(rng.integers(task.num_actions, size=(1, n)))
    drawn = rng.uniform(-task.max_action, task.max_action, (1, n, task.action_size))
    return torch.from_numpy(drawn.astype(np.float32))


def _two(task: Task, seen: np.ndarray) -> tuple[int, int]:
    """The two features with most spread for their size: they say most in a flat picture."""
    low, high = np.quantile(seen, [0.05, 0.95], axis=0)
    spread = (high - low) / np.maximum(1e-9, np.abs(seen).mean(0))
    if names.plain_name(task.name) == "CartPole":
        return 2, 3
    x, y = np.argsort(spread)[::-1][:2] if seen.shape[1] > 1 else (0, 0)
    return int(x), int(y)


def discrete_parts(file: WorldFile, task: Task, world: World) -> list[Part]:
    state = visited(task, world)
    n = state.shape[1]
    seen = world.observe(state)[0].numpy().astype(float)
    paid = np.stack([_paid(world, state, torch.full((1, n), a)) for a in range(task.num_actions)], 1)
    fine = np.isfinite(paid).all(1) & np.isfinite(seen).all(1)
    if not fine.any():
        return [Prose("The world pays no finite reward in any state that was looked at.")]
    seen, paid = seen[fine], paid[fine]
    best = paid.argmax(1)
    x, y = _two(task, seen)
    where = "contexts of the bandit" if world_is_bandit(world) else "states of walks with random actions"
    chosen = range(min(task.num_actions, MOST_ACTIONS))
    places = [
        Dots(
            f"{action(task, a)} ({(best == a).mean():.0%})",
            seen[best == a, x],
            seen[best == a, y],
            PALETTE[a % len(PALETTE)],
            size=5,
            opacity=0.6,
        )
        for a in chosen
    ]
    violins = [
        {
            "type": "violin",
            "y": numbers(paid[:, a]),
            "name": action(task, a),
            "line": {"color": PALETTE[a % len(PALETTE)]},
            "meanline": {"visible": True},
            "points": False,
            "spanmode": "hard",
        }
        for a in chosen
    ]
    note = f"{len(seen):,} {where}."
    return [
        dots(
            "Which action pays most, and where",
            places,
            names.feature(task.name, x),
            names.feature(task.name, y),
            note,
            "States of the world, coloured by the action with the highest reward",
        ),
        Chart(
            "What each action pays",
            violins,
            {"yaxis": {"title": {"text": "reward of one step"}}, "showlegend": False},
            f"{note} Line: mean.",
            "Distributions of the reward, by action",
        ),
    ]


def _paid(world: World, state: torch.Tensor, act: torch.Tensor) -> np.ndarray:
    _, reward, _, failed = world.step(state, act)
    return torch.where(failed, torch.full_like(reward, float("nan")), reward)[0].numpy().astype(float)


def continuous_parts(file: WorldFile, task: Task, world: World) -> list[Part]:
    rng = np.random.default_rng(1)
    state = visited(task, world)
    act = _random(task, rng, state.shape[1])
    reward = _paid(world, state, act)
    seen = world.observe(state)[0].numpy().astype(float)
    fine = np.isfinite(reward) & np.isfinite(seen).all(1)
    seen, reward, first = seen[fine], reward[fine], act[0, :, 0].numpy()[fine]
    if not len(seen):
        return [Prose("The world pays no finite reward in any state that was looked at.")]
    x, y = _two(task, seen)
    note = f"{len(seen):,} states, one random action in each."
    parts: list[Part] = [
        dots(
            "What the world pays, and where",
            [Dots("", seen[:, x], seen[:, y], shade=reward, size=6)],
            names.feature(task.name, x),
            names.feature(task.name, y),
            note,
            shade="reward of one step",
        ),
    ]
    if file.kind == "rn":
        true = _paid(RealTask(task, 1, for_learning=False), state, act)[fine]
        parts.append(
            dots(
                "The learned reward beside the task's",
                [Dots("", true, reward, size=5, opacity=0.5)],
                "reward of the task",
                "reward of the world",
                note,
            )
        )
    else:
        parts.append(
            dots(
                "Reward and action",
                [Dots("", first, reward, size=5, opacity=0.5)],
                "first number of the action",
                "reward of one step",
                note,
            )
        )
    return parts
