"""A picture of a bandit: where its contexts lie, and which action it pays most for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from envolve.outer.reporting import names
from envolve.outer.reporting.style import BLUE, COLOURS, GREY, clear_legend, new_figure, title_of_panel
from envolve.worlds.file import ZooWorld

CONTEXTS, ACTIONS, DRAWN = 2000, 31, 12


def best_actions(world: ZooWorld, contexts: np.ndarray, part: np.ndarray) -> np.ndarray:
    """The action with the highest reward in each context [n]: an index, or the first number of a Box in [-1, 1].
    contexts: [n, F]; part: their share of the reward network's first layer [n, H]."""
    n, own = len(contexts), world.action
    if own.n:
        paid = [world.bandit.pay(part, np.full(n, a)) for a in range(own.n)]
        return np.argmax(paid, 0)
    rng = np.random.default_rng(0)
    values = np.linspace(-1, 1, ACTIONS, dtype=np.float32)
    others = rng.uniform(-1, 1, (ACTIONS, own.inputs)).astype(np.float32)
    others[:, 0] = values
    paid = [world.bandit.pay(part, np.tile(a, (n, 1))) for a in others]
    return values[np.argmax(paid, 0)]


def _are_states(seen: np.ndarray) -> bool:
    """True if every context [n, F] names one of F states: a one there, zeros elsewhere."""
    return bool(np.isclose(seen, seen.round()).all() and (seen.round().sum(1) == 1).all() and (seen > -0.5).all())


def _by_state(figure: Any, ax: Any, world: ZooWorld, seen: np.ndarray, part: np.ndarray) -> None:
    """What each action is paid in each state; a dot marks the action paid most."""
    n, states = world.action.n, seen.argmax(1)
    first = [np.flatnonzero(states == s)[:1] for s in range(seen.shape[1])]
    paid = np.full((n, seen.shape[1]), np.nan)
    for s, rows in enumerate(first):
        for a in range(n):
            paid[a, s] = world.bandit.pay(part[rows], np.full(1, a))[0] if len(rows) else np.nan
    image = ax.imshow(paid, cmap="cividis", aspect="auto")
    known = [s for s in range(seen.shape[1]) if len(first[s])]
    ax.plot(
        known, [int(np.argmax(paid[:, s])) for s in known], "o", color="white", markeredgecolor="black", markersize=5
    )
    ax.grid(visible=False)
    ax.set_yticks(range(n), [names.action(world.task, a) for a in range(n)])
    ax.set(xlabel="state", ylabel="action")
    title_of_panel(ax, "what each action is paid; dots: the action paid most")
    figure.colorbar(image, ax=ax, label="reward of one step")


def draw(world: ZooWorld, name: str, path: Path) -> None:
    """Writes a PNG: the two features that vary most, coloured by the best action; beside it the rewards.
    Raises OSError."""
    u = np.random.default_rng(0).random((CONTEXTS, world.bandit.uniforms))
    contexts, part = world.bandit.contexts(u)
    seen = contexts * world.scale + world.mean
    spread = contexts.std(0)
    x, y = np.argsort(spread)[::-1][:2] if len(spread) > 1 else (0, 0)
    best = best_actions(world, contexts, part)
    figure, (left, right) = new_figure(10, 4.2, 2)
    left.set(xlabel=names.feature(world.task, x), ylabel=names.feature(world.task, y))
    title_of_panel(left, f"{CONTEXTS:,} contexts, by the action paid most")
    if world.action.n and _are_states(seen):
        _by_state(figure, left, world, seen, part)
    elif world.action.n:
        for a in range(world.action.n):
            here, colour = best == a, COLOURS[a % len(COLOURS)]
            label = f"{names.action(world.task, a)} ({100 * here.mean():.0f} %)"
            left.scatter(seen[here, x], seen[here, y], color=colour, s=6, alpha=0.6, label=label)
        clear_legend(left, 4)
    else:
        dots = left.scatter(seen[:, x], seen[:, y], c=best, s=6, cmap="cividis")
        figure.colorbar(dots, ax=left, label="first number of the action")
    if world.action.n:
        paid = [world.bandit.pay(part, np.full(CONTEXTS, a)) for a in range(world.action.n)]
        shapes: Any = right.violinplot(paid, range(world.action.n), showmeans=True)
        for a, body in enumerate(shapes["bodies"]):
            body.set_color(COLOURS[a % len(COLOURS)])
        for line in ("cmeans", "cbars", "cmins", "cmaxes"):
            shapes[line].set_color(GREY)
        right.set_xticks(range(world.action.n), [names.action(world.task, a) for a in range(world.action.n)])
        right.set(xlabel="action", ylabel="reward of one step")
        title_of_panel(right, "rewards of each action; lines: mean and extremes")
    else:
        values = np.linspace(-1, 1, ACTIONS, dtype=np.float32)
        others = np.zeros((ACTIONS, world.action.inputs), np.float32)
        others[:, 0] = values
        for i in range(DRAWN):
            right.plot(values, world.bandit.pay(np.repeat(part[i : i + 1], ACTIONS, 0), others), color=BLUE, alpha=0.6)
        right.set(xlabel="first number of the action, others 0", ylabel="reward of one step")
        title_of_panel(right, f"rewards in {DRAWN} contexts")
    figure.suptitle(name)
    figure.savefig(path, format="png")
