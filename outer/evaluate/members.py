"""Members of a generation: divided into chunks, sent, collected, and summarised."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from envolve.outer.checkpoint import RunError
from envolve.outer.config import problem
from envolve.outer.config.load import Config
from envolve.outer.exchange.engine import Unfit
from envolve.outer.exchange.messages import PLUGINS, Chunk, ChunkResult
from envolve.outer.reporting.scores import ScoreRow
from envolve.outer.search.recipe import Recipe

Values = dict[str, np.ndarray]
NEEDED = {  # of what a worker returns: the rest is for others
    "score": (torch.float64, torch.Size()), "mean_return": (torch.float64, torch.Size()),
    "train_steps": (torch.int64, torch.Size()), "episodes": (torch.int64, torch.Size()),
    "updates": (torch.int64, torch.Size()), "real_steps": (torch.int64, torch.Size()),
}  # fmt: skip


class Evaluates(Protocol):
    """What is needed of an engine here."""

    run_id: str

    def evaluate(self, chunks: Sequence[Chunk], unfit: Unfit | None = None) -> list[ChunkResult]:
        """As :meth:`envolve.outer.exchange.engine.Engine.evaluate`."""


def evaluate_members(
    dispatcher: Evaluates,
    config: Config,
    generation: int,
    worlds: Tensor,
    seeds: Tensor,
    mode: str,
    configs: Sequence[dict[str, Any]] = (),
    which: np.ndarray | None = None,
    recipe: Recipe | None = None,
) -> tuple[Values, list[str]]:
    """Divides members into chunks of ``chunk_size``, sends and collects them -> values [P, ...] and reasons, in the
    members' order. which: int64 [P], index of each member's configuration in ``configs``, which replaces ``config``;
    all members of a chunk have the same. recipe: how ``worlds`` were drawn.
    """
    size = problem.gtn_section(config.data).chunk_size
    if which is None:
        configs, which = [config.data], np.zeros(len(seeds), np.int64)
    parts = [
        (data, rows[i : i + size])
        for data, rows in zip(configs, (np.flatnonzero(which == k) for k in range(len(configs))))
        for i in range(0, len(rows), size)
    ]
    chunks = [
        Chunk(
            dispatcher.run_id, generation, i, 0, mode, data, worlds[rows], seeds[rows],
            recipe and recipe.part(torch.from_numpy(rows)),
        )
        for i, (data, rows) in enumerate(parts)
    ]  # fmt: skip
    back = np.argsort(np.concatenate([rows for _, rows in parts]))
    results = dispatcher.evaluate(chunks, unfit)
    for result in results:  # else a member's score would depend on the worker that evaluated it
        if result.error.startswith(PLUGINS):
            raise RunError(f"a worker cannot evaluate {chunks[result.chunk_id].label}: {result.error}")
    if all(r.error for r in results):  # no member's fault: the program, the memory, the disk
        raise RunError(f"no worker can evaluate {chunks[0].label}: {results[0].error}")
    shared = set.intersection(*(set(_kinds(r).items()) for r in results))
    values = {name: torch.cat([r.values[name] for r in results]).numpy()[back] for name, _ in sorted(shared, key=str)}
    reasons = [reason for r in results for reason in r.reasons]
    return values, [reasons[i] for i in back]


def unfit(result: ChunkResult) -> str:
    """Missing or wrong values in a worker's result, "" if there are none."""
    kinds = _kinds(result)
    for name, (dtype, shape) in NEEDED.items():
        if name not in kinds:
            return f"it has no {name}; are master and worker of the same version?"
        if kinds[name] != (dtype, shape):
            found = f"{kinds[name][0]} of shape {[len(result.reasons), *kinds[name][1]]}"
            return f"{name}: found {found}, expected {dtype} of shape {[len(result.reasons), *shape]}"
    return ""


def _kinds(result: ChunkResult) -> dict[str, tuple[torch.dtype, torch.Size]]:
    """Type and shape of a member's share of each value."""
    return {name: (value.dtype, value.shape[1:]) for name, value in result.values.items()}


def worst_for_failed(scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Scores float64 [P], where failed members (NaN) get the worst score of the others, and failed bool [P]."""
    scores = np.asarray(scores, np.float64)
    failed = ~np.isfinite(scores)
    worst = scores[~failed].min() if not failed.all() else 0.0
    return np.where(failed, worst, scores), failed


def score_rows(roles: Sequence[str], values: Values, reasons: Sequence[str], first: int = 0) -> list[ScoreRow]:
    """One row per member, numbered from ``first``."""

    def cell(name: str, i: int) -> float:
        return float(values[name][i])

    return [
        ScoreRow(
            member=first + i,
            role=role,
            score=cell("score", i),
            mean_return=cell("mean_return", i),
            train_steps=cell("train_steps", i),
            episodes=cell("episodes", i),
            reason=reasons[i],
        )
        for i, role in enumerate(roles)
    ]


def episode_length(values: Values, mask: np.ndarray) -> float:
    """Mean steps of a training episode over the members where mask is true; NaN if none trained."""
    episodes = float(values["episodes"][mask].sum())
    return float(values["train_steps"][mask].sum()) / episodes if episodes > 0 else math.nan


def lower_bound(x: np.ndarray) -> float:
    """One-sided 95 % confidence bound of the mean (normal approximation); -inf if an entry is not finite."""
    if not np.isfinite(x).all():
        return -math.inf
    return float(x.mean() - 1.645 * x.std(ddof=1) / math.sqrt(len(x))) if len(x) > 1 else float(x.mean())


def mean_of(x: np.ndarray) -> float:
    """Mean of the finite entries, NaN if there is none."""
    x = x[np.isfinite(x)]
    return float(x.mean()) if x.size else math.nan
