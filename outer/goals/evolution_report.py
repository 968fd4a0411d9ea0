"""Report of an evolution of starts and goals: its picture and its closing summary."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from envolve.core.statistics import interval as interval_of
from envolve.envs.goal.shapers import Shaped, ShapeSpace, maze_of, samples
from envolve.outer.goals.evolution import GoalEvolution
from envolve.outer.goals.evolve_sections import EvolveSection
from envolve.outer.goals.keeper import GENERATIONS, GoalRow
from envolve.outer.goals.report import interval
from envolve.outer.reporting.style import BLUE, GREY, ORANGE, clear_legend, new_figure

PICTURE = "evolution.png"
DRAWN = 400  # episodes in the picture


def difference(evolved: Sequence[float], plain: Sequence[float]) -> tuple[float, tuple[float, float]]:
    """Mean of evolved minus plain over pairs with the same random seed, and its 95 % interval; pairs with a diverged
    agent are left out. NaN: no pair, or no spread to estimate an interval from."""
    gap = np.asarray(evolved) - np.asarray(plain)
    gap = gap[np.isfinite(gap)]
    if not len(gap):
        return math.nan, (math.nan, math.nan)
    return float(gap.mean()), interval_of(gap)


def picture(path: Path, space: ShapeSpace, evolution: GoalEvolution, title: str) -> None:
    """Writes a PNG: scores against generations, and starts and goals of the task and of the last generation."""
    from matplotlib.ticker import MaxNLocator

    history: list[GoalRow] = evolution.history
    figure, (left, right) = new_figure(11.2, 4.4, 2)
    figure.suptitle(title, fontsize=12)
    numbers = [g.generation for g in history]
    own = f"mean of {evolution.evolve.num_orig_evals}"
    lines = (("perturbed", "all perturbations, mean", ORANGE, "^", ":"),
             ("plain", f"the task's own, {own}, same seeds", GREY, "s", "--"),
             ("score", f"evolved starts and goals, {own}", BLUE, "o", "-"))  # fmt: skip
    for name, label, colour, mark, dash in lines:
        left.plot(
            numbers,
            [getattr(g, name) for g in history],
            color=colour,
            linewidth=1.5,
            marker=mark,
            markersize=5,
            linestyle=dash,
            label=label,
        )
    left.set_xlabel("generation")
    left.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    left.set_ylabel(f"{evolution.evolve.score}, evaluated on the task's own")
    clear_legend(left, 1)
    members, n = torch.zeros(DRAWN, dtype=torch.int64), space.n
    shaped = Shaped(space, space.theta(evolution.u[None]))
    for beginnings, colour, who in ((space.task, GREY, "the task's"), (shaped, BLUE, "evolved")):
        start, goal = samples(beginnings, members)
        begins = start[:, list(space.task.start_indices[:n])]
        for role, places, mark in (("goals", goal[:, :n], "o"), ("starts", begins, "x")):
            y = places[:, 1] if n == 2 else torch.rand(DRAWN) * 0.5 + (0.5 if who == "evolved" else 0)
            x = places[:, 0].numpy()
            open_ = who == "the task's" and mark == "o"  # a ring, in which what evolved can be seen
            look: dict[str, Any] = {"color": colour, "s": 14}
            if open_:
                look = {"facecolors": "none", "edgecolors": colour, "s": 46}
            size: dict[str, Any] = {} if mark == "o" else {"s": 60 if who == "the task's" else 22}
            right.scatter(x, y.numpy(), marker=mark, alpha=0.7, label=f"{who} {role}", **{**look, **size})
    maze = maze_of(space.task)
    if maze is not None:
        right.imshow(
            maze.wall.cpu().T.float().numpy(),
            cmap="Greys",
            alpha=0.35,
            origin="lower",
            zorder=0,
            extent=(
                -maze.cell / 2,
                (len(maze.wall) - 0.5) * maze.cell,
                -maze.cell / 2,
                (maze.wall.shape[1] - 0.5) * maze.cell,
            ),
        )
    right.grid(visible=False)
    right.set_aspect("equal" if n == 2 else "auto")
    right.set_xlabel("x, m")
    if n == 2:
        right.set_ylabel("y, m")
    else:
        right.set_yticks([0.25, 0.75], ["the task's", "evolved"])
    clear_legend(right, 4)
    figure.savefig(path, format="png")


def summary(task: str, families: str, evolve: EvolveSection, evolution: GoalEvolution, folder: Path) -> str:
    evolved, plain = evolution.comparison
    gap, ends = difference(evolved, plain)
    brackets = "(all alike)" if math.isnan(ends[0]) else f"[{ends[0]:+.3f}, {ends[1]:+.3f}]"
    out = [
        f"{task}, {families}, {len(evolution.history)} generations; score: {evolve.score}, evaluated with the task's "
        "own starts and goals",
        f"{len(evolved)} fresh agents each   evolved {interval(*_interval(evolved))}   "
        f"plain {interval(*_interval(plain))}   difference {gap:+.3f} {brackets}",
        f"95 % intervals over agents; the same {len(evolved)} seeds, which the search has not seen",
    ]
    theta = evolution.nes.state.psi
    out += ["", "parameter          u"]
    out += [f"{name:<18} {value:+.3f}" for name, value in zip(evolution.names, theta.tolist())]
    out += ["", *(str(folder / name) for name in (GENERATIONS, PICTURE) if (folder / name).exists())]
    return "\n".join(out) + "\n"


def _interval(scores: Sequence[float]) -> tuple[float, tuple[float, float]]:
    ok = [s for s in scores if math.isfinite(s)]
    if not ok:
        return math.nan, (math.nan, math.nan)
    return float(np.mean(ok)), interval_of(ok)
