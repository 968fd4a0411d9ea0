"""Attempt at a reward for a user's environment: reply, code, result, and its folder on disk."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from envolve.core.files import TABLE_BYTES, read_text
from envolve.core.statistics import or_none
from envolve.envs.worlds.file import write_atomic
from envolve.llm.gym.train import MAX_MODEL, JobOutcome, read_if_plain

OUTCOME, MODEL = "outcome.json", "model.zip"


@dataclass
class Sample:
    """iteration, number: from 0. failure: why it has no fitness, as the model is told; None: it has one.

    stage: where it failed: "call", "extract", "allowlist", or the kind of llm.gym.train.JobOutcome.
    """

    iteration: int
    number: int
    folder: Path
    reply: str = ""
    code: str = ""
    failure: str | None = None
    stage: str = ""
    fitness: float = math.nan
    episodes: int = 0
    final: dict[str, float] = field(default_factory=dict)
    curves: dict[str, list[float | None]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    timesteps: int = 0
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        return self.failure is None and math.isfinite(self.fitness)

    @property
    def name(self) -> str:
        return f"iteration {self.iteration} sample {self.number}"

    @property
    def model(self) -> Path | None:
        """File model.zip of the final policy; None if there is none."""
        path = self.folder / MODEL
        return path if path.is_file() else None

    def fail(self, stage: str, text: str) -> None:
        self.stage, self.failure = stage, text

    def take(self, outcome: JobOutcome, episodes: int) -> None:
        """Stores the outcome of its training; copies model.zip to a folder that the training cannot write."""
        self.curves, self.final = outcome.curves, outcome.final
        self.notes = [*self.notes, *outcome.notes]
        self.timesteps, self.seconds, self.fitness = outcome.timesteps, outcome.seconds, outcome.fitness
        self.episodes = episodes
        if outcome.error is not None:
            self.fail(outcome.kind, outcome.error)
            return
        data = read_if_plain(self.folder / "out" / MODEL, MAX_MODEL)
        if data is None:
            self.notes.append("it left no model.zip")
        else:
            write_atomic(str(self.folder / MODEL), data)

    def values(self) -> dict[str, Any]:
        """Attempt as JSON: without the folder; NaN becomes null."""
        values = {k: v for k, v in asdict(self).items() if k != "folder"}
        values["fitness"] = or_none(self.fitness)
        return values

    def save(self) -> None:
        """Writes its folder: files for people, then outcome.json, which marks it as done for resume."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if self.reply:
            write_atomic(str(self.folder / "reply.md"), self.reply.encode("utf-8", "replace"))
        if self.code:
            write_atomic(str(self.folder / "reward.py"), self.code.encode("utf-8", "replace"))
        if self.curves:
            write_atomic(str(self.folder / "evals.json"), json.dumps(self.curves).encode())
        write_atomic(str(self.folder / OUTCOME), json.dumps(self.values(), indent=1, allow_nan=False).encode())

    def load(self) -> bool:
        """Loads the outcome of the same reply from an earlier session -> whether there is one."""
        try:
            values = json.loads(read_text(self.folder / OUTCOME, TABLE_BYTES))
        except (OSError, ValueError):
            return False
        if (values.get("reply"), values.get("code")) != (self.reply, self.code):
            return False
        for name, value in values.items():
            setattr(self, name, value)
        self.fitness = math.nan if values["fitness"] is None else values["fitness"]
        return True
