#!/usr/bin/env python3
"""What starts and goals of training are worth, before any search: distributions made by hand beside the task's own.

    python3 benchmarks/worlds/goal_starts.py [--seeds 16] [--steps 50000]    train, then the table
    python3 benchmarks/worlds/goal_starts.py --device cuda --together 16      on a GPU
    python3 benchmarks/worlds/goal_starts.py --table                          the table so far

A search over starts and goals can gain no more than the best of them, and it sees no difference that is smaller than
the noise of its agents. Every agent is tested from the task's own starts, for its own goals. "Anywhere" is any free
cell of the maze, all equally likely; "far" the half of the cells with the longest ways from the task's start. An arm
trains an agent per seed, --together side by side, and differences are of agents with the same seed. Contrastive RL
with 64 hidden units.
"""

from __future__ import annotations

import itertools
import math
import sys
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections import deque
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.common import cells  # noqa: E402
from envolve.agents.goal.crl_section import CRLSection  # noqa: E402
from envolve.core.statistics import interval  # noqa: E402
from envolve.envs.goal.mazes import Maze  # noqa: E402
from envolve.envs.goal.shapers import maze_of  # noqa: E402
from envolve.envs.goal.task import make_goal_task  # noqa: E402
from envolve.outer.evaluate.goals import GoalProblem, train  # noqa: E402
from envolve.outer.goals.evolve_sections import EvolveSection, Inner  # noqa: E402

TASKS = ("simple_u_maze", "simple_u_maze_eval", "simple_big_maze", "simple_big_maze_eval", "simple_hardest_maze")
ARMS = {  # where agents begin and what they are sent to, in training; "": as the task says
    "own": ("", ""),
    "goals anywhere": ("", "anywhere"),
    "goals far": ("", "far"),
    "starts anywhere": ("anywhere", ""),
    "starts far": ("far", ""),
    "both anywhere": ("anywhere", "anywhere"),
}
NEVER = -20.0  # logit of a cell that is not drawn
SEEDS = 5_000
POWER = 0.84  # standard errors beyond the half of the interval: such a difference is seen in 80 of 100 experiments


def ways(maze: Maze) -> list[int]:
    """Cells on the shortest way from the start to each free cell, [cells]."""
    (start,) = [(i, j) for i, row in enumerate(maze.rows) for j, c in enumerate(row) if c == "R"]
    free, found, todo = set(maze.free), {start: 0}, deque([start])
    while todo:
        i, j = todo.popleft()
        for cell in ((i + 1, j), (i - 1, j), (i, j + 1), (i, j - 1)):
            if cell in free and cell not in found:
                found[cell] = found[i, j] + 1
                todo.append(cell)
    return [found[cell] for cell in maze.free]


def logits(maze: Maze, where: str) -> Tensor:
    """Logits of a draw among the free cells, float32 [cells]: equal for those "anywhere", or "far", else NEVER."""
    length = torch.tensor(ways(maze), dtype=torch.float32)
    far = length > length.median()
    return torch.where(far | (where == "anywhere"), 0.0, NEVER)


def cell(task: str, arm: str, steps: int, first: int, together: int, device: str) -> dict[str, Any]:
    """Trains ``together`` agents side by side, of the seeds from ``first`` on."""
    start, goal = ARMS[arm]
    own = not start and not goal  # a plain agent, for which the family of the goals counts nothing
    goals, starts = ("cells" if shaped else "" for shaped in (goal or own, start))
    evolve = EvolveSection(goal_family=goals, start_family=starts, score="near")
    learner = CRLSection(h_dim=64, num_envs=32, unroll_length=50)
    problem = GoalProblem(
        Inner(env_name=task, num_timesteps=steps, threads=1, num_eval_envs=64, device=device), evolve, learner
    )
    space, maze = problem.space(), maze_of(make_goal_task(task))
    assert maze is not None, "a task with a maze"
    theta = [logits(maze, where) for where in (goal, start) if where] or [space.own]
    u = (torch.cat(theta) - space.own) / space.scale
    keys = torch.arange(first, first + together) + SEEDS
    training, near = train(problem, u.repeat(together, 1), keys, torch.full((together,), own))
    success = training.evaluate().success.mean(1)
    return {
        "task": task, "arm": arm, "steps": training.steps, "first": first,
        "near": near.tolist(), "success": success.tolist(),
    }  # fmt: skip


def table(out: Path) -> str:
    """Markdown: a row per task and arm, with the difference to the task's own and the least one that a search sees."""
    rows = cells.results(out, {"task": str, "arm": str, "steps": int, "first": int, "near": list, "success": list})
    kinds = sorted({(TASKS.index(r["task"]), r["steps"]) for r in rows})
    lines = ["| task, steps | in training | success | near the goal | difference to the task's own, seen from |"]
    lines.append("|---|---|---|---|---|")
    for (number, steps), arm in itertools.product(kinds, ARMS):
        here = [r for r in rows if (r["task"], r["steps"]) == (TASKS[number], steps)]
        own = {r["first"]: r["near"] for r in here if r["arm"] == "own"}
        mine = [r for r in here if r["arm"] == arm]
        if not mine:
            continue
        near, success = (np.concatenate([r[key] for r in mine]) for key in ("near", "success"))
        pairs = [np.subtract(r["near"], own[r["first"]]) for r in mine if r["first"] in own]  # a stopped run has fewer
        words = "-"
        if arm != "own" and pairs:
            gap = np.concatenate(pairs)
            low, high = interval(gap.tolist())
            least = (high - low) / 2 + POWER * float(np.std(gap, ddof=1)) / math.sqrt(len(gap))
            words = f"{gap.mean():+.3f} [{low:+.3f}, {high:+.3f}], {least:.3f}"
        lines.append(f"| {TASKS[number]}, {steps:,} | {arm} | {success.mean():.2f} | {near.mean():.3f} | {words} |")
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    cells.add_flags(parser, "goal_starts", 16)
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=TASKS)
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS))
    parser.add_argument("--steps", type=int, default=50_000)
    parser.add_argument("--together", type=int, default=8, metavar="N", help="agents side by side (default: 8)")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    args = parser.parse_args(argv)
    cells.check_counts(parser, {f"--{name}": [getattr(args, name)] for name in ("seeds", "steps", "together")}, 10**7)

    def go() -> None:
        names = itertools.product(args.tasks, args.arms, [args.steps], range(0, args.seeds, args.together))
        run = partial(cell, together=args.together, device=args.device)
        cells.work(args.out, names, run, lambda row: f"near {np.mean(row['near']):.3f}")

    return cells.finish("goal_starts", args, go, lambda: table(args.out))


if __name__ == "__main__":
    sys.exit(main())
