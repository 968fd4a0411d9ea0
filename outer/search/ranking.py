"""Ranks the candidate files of a task: every file is trained in every round, each round with fresh seeds, on whatever
workers there are. A worker evaluates its chunk in one simulator.

Rounds are the generations of scores.csv, which is all that a resumed ranking needs.
"""

from __future__ import annotations

import csv
import io
import math
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from envolve.core.files import TABLE_BYTES, read_plain, read_text
from envolve.core.statistics import interval
from envolve.envs.physics.task import physics_task
from envolve.envs.shaping.candidate import candidate_name
from envolve.envs.shaping.section import shaper_files
from envolve.outer.checkpoint import RunError
from envolve.outer.config import problem
from envolve.outer.config.load import Config
from envolve.outer.evaluate.members import evaluate_members, mean_of, score_rows
from envolve.outer.evaluate.networks import PROXY
from envolve.outer.exchange.engine import Engine
from envolve.outer.names import SCORES
from envolve.outer.reporting.report import GenerationRow, LiveTable, duration, number
from envolve.outer.reporting.scores import ScoresCSV
from envolve.outer.search.nes import MEMBERS, member_seeds


@dataclass
class Ranked:
    """Results of one candidate over all rounds."""

    name: str
    scores: list[float]  # of the rounds in which it did not fail
    reasons: list[str]  # of those in which it did

    @property
    def mean(self) -> float:
        return float(np.mean(self.scores)) if self.scores else math.nan


class Ranking:
    """Ranking; ``execute()`` does everything and leaves scores.csv and summary.txt in ``run_dir``."""

    def __init__(self, config: Config, run_dir: Path, dispatcher: Engine, resume: bool = False) -> None:
        self.config, self.run_dir, self.dispatcher, self.resume = config, run_dir, dispatcher, resume
        self.gtn = problem.gtn_section(config.data)
        files = shaper_files(problem.shaped_section(config.data), config.data["env_name"])
        self.names = [candidate_name(path) for path in files]

    def execute(self, table: LiveTable) -> str:
        """Runs to the end, or from the last finished round to the end -> the summary. Raises RunError."""
        began, path = time.monotonic(), self.run_dir / SCORES
        first = 1 + (_rounds(path, len(self.names)) if self.resume else 0)
        with ScoresCSV(path, resume_generation=first if self.resume else None) as scores:
            for generation in range(first, self.gtn.max_iterations + 1):
                self._round(generation, scores, table)
        ranked = read_ranking(path)
        if not any(r.scores for r in ranked):
            raise RunError(f"every candidate failed; the reasons are in {path}")
        text = ranking_text(ranked, self.config.data["env_name"], self.gtn.max_iterations, time.monotonic() - began)
        text += f"\n\nWritten to {self.run_dir}:\n  scores.csv          every agent's score"
        (self.run_dir / "summary.txt").write_text(text + "\n")
        return text

    def _round(self, generation: int, scores: ScoresCSV, table: LiveTable) -> None:
        began, count = time.monotonic(), len(self.names)
        # the same seed for all: candidates are compared on the same random numbers
        seed = member_seeds(self.config.data["seed"], MEMBERS, generation, 1)
        worlds = torch.arange(count, dtype=torch.float32)[:, None]
        seeds = torch.from_numpy(np.repeat(seed, count))
        values, reasons = evaluate_members(self.dispatcher, self.config, generation, worlds, seeds, PROXY)
        rows = score_rows(self.names, values, reasons)
        scores.write(generation, rows)
        if generation == 1:
            for row in rows:
                if row.reason:
                    table.note(f"{row.role} is out: {row.reason}")
        finite = values["score"][np.isfinite(values["score"])]
        table.update(
            GenerationRow(
                generation,
                mean_of(values["score"]),
                float(finite.max()) if finite.size else math.nan,
                mean_of(values["mean_return"]),
                float(values["train_steps"].mean()),
                math.nan,
                count - finite.size,
                int(values["train_steps"].sum()),
                time.monotonic() - began,
            )
        )


def read_ranking(path: Path) -> list[Ranked]:
    """Candidates in a scores.csv, the best first. Those that failed at all stand behind the others, the fewer failures
    the further in front: the mean of the rounds in which a candidate did not fail would be too good."""
    found: dict[str, Ranked] = {}
    for row in csv.DictReader(io.StringIO(read_text(path, TABLE_BYTES), newline="")):
        ranked = found.setdefault(row["role"], Ranked(row["role"], [], []))
        score = float(row["score"])
        if math.isfinite(score):
            ranked.scores.append(score)
        else:
            ranked.reasons.append(row["reason"])
    return sorted(found.values(), key=lambda r: (len(r.reasons), -r.mean if r.scores else 0, r.name))


def _rounds(path: Path, count: int) -> int:
    """Number of complete rounds of ``count`` candidates in a scores.csv."""
    if not path.exists():
        return 0
    lines = [line for line in read_plain(path, TABLE_BYTES).splitlines(keepends=True) if line.endswith(b"\n")]
    return max(0, len(lines) - 1) // count


def ranking_text(ranked: list[Ranked], task: str, rounds: int, seconds: float) -> str:
    unit = physics_task(task).score_unit
    width = max(len(r.name) for r in ranked)
    lines = [f"{task}: {len(ranked)} candidates, {rounds} agent{'s' * (rounds != 1)} each, {duration(seconds)}", ""]
    lines.append(f"  {'rank':<5} {'candidate':<{width}}  score ({unit})")
    for rank, r in enumerate(ranked, 1):
        ends = interval(r.scores) if r.scores else (math.nan, math.nan)
        spread = "" if math.isnan(ends[0]) else f" [{number(ends[0])}, {number(ends[1])}]"
        out = f"  failed {len(r.reasons)} of {rounds}: {r.reasons[0]}" if r.reasons else ""
        shown = f"{r.mean:.4g}{spread}" if r.scores else "-"
        lines.append(f"  {rank if r.scores else '-':<5} {r.name:<{width}}  {shown}{out}")
    if rounds > 1:
        lines.append("  mean [95 % interval] over agents; none where all scores are equal")
    return "\n".join(lines)
