"""The last test of a run on a user's environment: finalists trained anew with several random seeds.

The best of many trainings was also a lucky one. Each finalist is trained again with the same few seeds, which the
search has not used, and the mean of these decides.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from envolve.core.statistics import agents_interval, or_none
from envolve.llm.gym.sample import Sample

FINALS = 0xF1A15  # purpose of their random seeds
TESTS = 2**20  # number of the seed of their test episodes, beside the trainings 0, 1, ...


@dataclass(frozen=True)
class Finalist:
    """runs: one per seed, with the sample's code."""

    sample: Sample
    runs: tuple[Sample, ...]

    @property
    def scores(self) -> list[float]:
        return [run.fitness for run in self.runs]

    @property
    def mean(self) -> float:
        """NaN if a training failed: the mean of the others would be too good."""
        return float(np.mean(self.scores)) if all(run.ok for run in self.runs) else math.nan

    def values(self) -> dict[str, Any]:
        """For result.json. interval: 95 %, over the seeds."""
        mean = self.mean
        interval = agents_interval(self.scores, []) if math.isfinite(mean) and len(self.runs) > 1 else None
        return {
            "iteration": self.sample.iteration, "number": self.sample.number,
            "selected_with": self.sample.fitness, "score": or_none(mean),
            "interval": interval and list(interval), "scores": [or_none(s) for s in self.scores],
            "failures": [run.failure for run in self.runs if run.failure],
        }  # fmt: skip


def finalists(samples: Sequence[Sample], count: int, seeds: int, folder: Path) -> list[Finalist]:
    """The best samples, with trainings that are still to be run (or loaded)."""
    ranked = sorted((s for s in samples if s.ok), key=lambda s: (-s.fitness, s.iteration, s.number))
    out = []
    for s in ranked[:count] if seeds else ():
        place = folder / "finals" / f"iteration_{s.iteration}_sample_{s.number}"
        runs = [Sample(s.iteration, s.number, place / f"seed_{k}", s.reply, s.code) for k in range(seeds)]
        out.append(Finalist(s, tuple(runs)))
    return out


def final_seed(seed: int, number: int) -> int:
    """Random seed of a final training: the same for all finalists."""
    return int(np.random.SeedSequence((seed, FINALS, number)).generate_state(1)[0] >> 1)


def best_first(finals: Sequence[Finalist]) -> list[Finalist]:
    """By their means; those with a failed training come last."""
    return sorted(finals, key=lambda f: -f.mean if math.isfinite(f.mean) else math.inf)


def reject_copies(new: Sequence[Sample], earlier: Sequence[Sample]) -> None:
    """A reward that an earlier sample, or one before it, has computed in the same words is not trained again."""
    known = {_meaning(s.code): s for s in reversed(earlier) if s.code and s.stage not in ("call", "extract", "novelty")}
    for s in new:
        if s.failure is not None:
            continue
        meaning = _meaning(s.code)
        other = known.get(meaning)
        if other is None:
            known[meaning] = s
            continue
        became = f", which came to a fitness of {other.fitness:.6g}" if other.ok else ""
        became = f", which failed: {other.failure}" if other.failure else became
        s.fail("novelty", f"it is the reward of {other.name}{became}; write one that is built differently")


class _Bare(ast.NodeTransformer):
    """Code without documentation and type hints."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self.generic_visit(node)
        first = node.body[0]
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
            node.body = node.body[1:] or [ast.Pass()]
        node.returns = None
        return node

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.annotation = None
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        return node if node.value is None else ast.Assign([node.target], node.value)


def _meaning(code: str) -> str:
    """Equal for codes that differ in comments, layout, documentation and type hints alone."""
    try:
        return ast.dump(_Bare().visit(ast.parse(code)))
    except (SyntaxError, ValueError, RecursionError):
        return code
