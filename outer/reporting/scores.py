"""scores.csv: the scores of all members of all generations, and the learning curve from it."""

from __future__ import annotations

import contextlib
import csv
import io
import logging
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from envolve.core.files import TABLE_BYTES, read_plain, read_text

log = logging.getLogger("envolve")


@dataclass
class ScoreRow:
    """One member of one generation, as scores.csv keeps it."""

    member: int
    role: str  # orig, plus, minus, confirm
    score: float  # NaN where the member failed
    mean_return: float
    train_steps: float
    episodes: float
    reason: str = ""  # why it failed


class ScoresCSV:
    """scores.csv: one row per member per generation, no wall times, so that a resumed run ends with the same bytes.

    path: the file. resume_generation: None begins a new file (FileExistsError if there is one); g keeps every row of
    the generations before g and cuts off the rest: a torn last line, and what is about to be computed again.
    """

    COLUMNS = ("generation", *(f.name for f in fields(ScoreRow)))

    def __init__(self, path: str | os.PathLike[str], resume_generation: int | None = None) -> None:
        self.path = Path(path)
        if resume_generation is None:
            self._file = open(self.path, "xb")
        else:
            keep = self._keep(resume_generation)
            self._file = open(self.path, "ab")
            self._file.truncate(keep)
            self._file.seek(keep)
        if self._file.tell() == 0:
            try:
                self._append([self.COLUMNS])
            except BaseException:
                self.close()
                raise

    def write(self, generation: int, rows: Iterable[ScoreRow]) -> None:
        """Appends one generation and syncs it to disk; call this before writing that generation's checkpoint."""
        self._append([str(generation), *(_cell(v) for v in vars(row).values())] for row in rows)

    def close(self) -> None:
        with contextlib.suppress(OSError):  # what could not be written was said by _append; close tries it once more
            self._file.close()

    def __enter__(self) -> ScoresCSV:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _append(self, rows: Iterable[Sequence[str]]) -> None:
        text = io.StringIO(newline="")
        csv.writer(text, lineterminator="\n").writerows(rows)
        try:
            self._file.write(text.getvalue().encode())
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as e:  # a full disk: the error alone would not say which file
            raise OSError(e.errno, e.strerror, str(self.path)) from e

    def _keep(self, generation: int) -> int:
        """Length in bytes of everything before the generation. One record is one line: _cell lets no line break
        through."""
        try:
            lines = read_plain(self.path, TABLE_BYTES).splitlines(keepends=True)
        except FileNotFoundError:
            lines = []
        keep, last = 0, 0
        header = ",".join(self.COLUMNS).encode() + b"\n"
        for i, line in enumerate(lines):
            if not line.endswith(b"\n"):  # torn
                break
            if i == 0:
                if line != header:
                    raise ValueError(f"{self.path}: first line is {line!r}, expected {header!r}")
            else:
                first = line.split(b",", 1)[0]
                if not first.isdigit():
                    raise ValueError(f"{self.path}, line {i + 1}: expected a generation, found {first!r}")
                if int(first) >= generation:
                    break
                last = int(first)
            keep += len(line)
        if last < generation - 1:
            log.warning("%s ends at generation %d, the run resumes at %d", self.path, last, generation)
        return keep


def _cell(value: Any) -> str:
    """Shortest text that reads back as the same value; np.float32(0.1) is written as its double."""
    if isinstance(value, str):
        return " ".join(value.split())
    value = float(value)
    return str(int(value)) if value.is_integer() and abs(value) < 2**53 and math.copysign(1, value) > 0 else repr(value)


@dataclass
class CurvePoint:
    """One generation of the learning curve. NaN: no such member, or all of them failed."""

    generation: int
    mean: float  # of the unperturbed world (role orig)
    low: float  # 10 % of the population (plus, minus) lie below
    high: float  # 10 % above
    failed: int  # members that failed; they have no score and are in none of the figures above
    agents: int = 0  # that the mean is of
    members: int = 0  # of the population that low and high are of


def read_curve(path: str | os.PathLike[str], column: str = "score") -> list[CurvePoint]:
    """Learning curve of a finished or running run. column: score or mean_return."""
    return curve_of(csv.DictReader(io.StringIO(read_text(path, TABLE_BYTES), newline="")), column)


def curve_of(rows: Iterable[Mapping[str, str]], column: str = "score") -> list[CurvePoint]:
    """Learning curve from the rows of scores.csv. Raises ValueError for a row of something else."""
    generations: dict[int, dict[str, list[float]]] = {}
    for row in rows:
        roles = generations.setdefault(int(row["generation"]), {})
        roles.setdefault(row["role"], []).append(float(row[column]))
    points = []
    for generation, roles in sorted(generations.items()):
        population = np.array(roles.get("plus", []) + roles.get("minus", []))
        original = np.array(roles.get("orig", []))
        failed = sum(int((~np.isfinite(x)).sum()) for x in (population, original))
        population, original = population[np.isfinite(population)], original[np.isfinite(original)]
        mean = float(original.mean()) if original.size else math.nan
        low, high = np.quantile(population, [0.1, 0.9]) if population.size else (math.nan, math.nan)
        points.append(
            CurvePoint(generation, mean, float(low), float(high), failed, int(original.size), int(population.size))
        )
    return points
