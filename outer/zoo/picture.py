"""A picture of a bandit: where its contexts lie, and which action it pays most for."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from envolve.outer.reporting.style import new_figure
from envolve.worlds.file import World

CONTEXTS, ACTIONS = 2000, 31


def best_actions(world: World, contexts: np.ndarray, part: np.ndarray) -> np.ndarray:
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


def draw(world: World, name: str, path: Path) -> None:
    """Writes a PNG: the two features that vary most, coloured by the best action; beside it the rewards.
    Raises OSError."""
    u = np.random.default_rng(0).random((CONTEXTS, world.bandit.features))
    contexts, part = world.bandit.contexts(u)
    seen = contexts * world.scale + world.mean
    spread = contexts.std(0)
    x, y = np.argsort(spread)[::-1][:2] if len(spread) > 1 else (0, 0)
    best = best_actions(world, contexts, part)
    figure, (left, right) = new_figure(10, 4.2, 2)
    dots = left.scatter(seen[:, x], seen[:, y], c=best, s=6, cmap="viridis")
    left.set(xlabel=f"observation {x}", ylabel=f"observation {y}", title="contexts, by the action paid most")
    figure.colorbar(dots, ax=left, label="action" if world.action.n else "first number of the action")
    if world.action.n:
        paid = [world.bandit.pay(part, np.full(CONTEXTS, a)) for a in range(world.action.n)]
        right.violinplot(paid, range(world.action.n), showmeans=True)
        right.set(xlabel="action", ylabel="reward", title="rewards of each action")
    else:
        values = np.linspace(-1, 1, ACTIONS, dtype=np.float32)
        others = np.zeros((ACTIONS, world.action.inputs), np.float32)
        others[:, 0] = values
        for i in range(12):
            right.plot(values, world.bandit.pay(np.repeat(part[i : i + 1], ACTIONS, 0), others))
        right.set(xlabel="first number of the action, others 0", ylabel="reward", title="rewards in twelve contexts")
    figure.suptitle(name)
    figure.savefig(path, format="png")
