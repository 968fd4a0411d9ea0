"""What pages of all kinds have: the configuration, the files of the folder, texts for charts."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping
from typing import Any

from envolve.core.cleaning import one_line
from envolve.core.statistics import within
from envolve.outer.page.parts import Code, Page, Part, Table
from envolve.outer.page.reading import Folder, shell
from envolve.outer.reporting.report import precise

LONGEST_LABEL = 48
VERSIONS = ("python", "torch", "numpy", "numba", "gymnasium", "mujoco", "git")
MOST_FILES = 60


def label(text: object) -> str:
    """A foreign text for a chart. Plotly reads a few tags in texts, so that these are escaped."""
    return html.escape(one_line(str(text), LONGEST_LABEL), quote=False)


def span(ends: Any) -> tuple[float | None, float | None]:
    """[low, high] of JSON, or nothing."""
    if isinstance(ends, (list, tuple)) and len(ends) == 2 and all(isinstance(e, (int, float)) for e in ends):
        return float(ends[0]), float(ends[1])
    return None, None


def score_range(unit: str) -> tuple[float, float] | None:
    """Worst and best possible score of a shaped task, by its unit; None: not known."""
    return (0.0, 1.0) if unit.startswith("share of ") else None


def with_unit(value: str, unit: str) -> str:
    """A score and its unit, which stands in brackets if it is words: 1.2 m/s, 0.9 (share of the time limit)."""
    return f"{value} ({unit})" if " " in unit else f"{value} {unit}".strip()


def possible(ends: Any, unit: str) -> tuple[float | None, float | None]:
    """The part of an interval of scores [low, high] that can be, as ``core.statistics.within`` has it."""
    low, high = span(ends)
    return (low, high) if low is None or high is None else within(low, high, score_range(unit))


def beside(best: Mapping[str, Any], human: Mapping[str, Any], unit: str) -> str:
    """The best's score against the human's, both with ``score`` and ``interval``: "more than the human's shapers (1.9
    [1.7, 2.1]); their intervals overlap". Equal scores and overlapping intervals are said to be such."""
    b, h = finite(best.get("score")), finite(human.get("score"))
    how = "as much as" if b == h else "more than" if b > h else "less than"
    upper, lower = (best, human) if b > h else (human, best)
    low, high = span(upper.get("interval"))[0], span(lower.get("interval"))[1]
    close = b != h and low is not None and high is not None and low <= high
    tail = "; their intervals overlap" if close else ""
    return f"{how} the human's shapers ({score_text(human, unit)}){tail}"


def score_text(candidate: Mapping[str, Any], unit: str = "") -> str:
    """``score`` and ``interval``: 0.9 [0.7, 0.95]."""
    low, high = possible(candidate.get("interval"), unit)
    middle = precise(finite(candidate.get("score")))
    return middle if low is None or high is None else f"{middle} [{precise(low)}, {precise(high)}]"


def finite(value: Any) -> float:
    """A number of JSON; NaN for null and whatever else."""
    good = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if good else math.nan


def configuration(folder: Folder, name: str, text: str, said: Mapping[str, str]) -> list[Part | None]:
    """The command, the versions and the whole file. said: what the head of the file says."""
    versions = [(key, said[key]) for key in VERSIONS if said.get(key)]
    return [
        shell(said["command"], "Command") if said.get("command") else None,
        Code(f"{name}, complete", text, "yaml") if text else None,
        Table(("made with", "version"), versions) if versions else None,
    ]


def closing(page: Page, folder: Folder) -> None:
    """The last section: what is in the folder. Problems of reading go onto the page."""
    files = sorted(p for p in folder.path.iterdir() if p.is_file())
    rows = [(p.name, size(p.stat().st_size)) for p in files[:MOST_FILES]]
    if len(files) > MOST_FILES:
        rows.append((f"and {len(files) - MOST_FILES:,} more", ""))
    page.add("Files", Table(("file", "size"), rows))
    page.problems = list(dict.fromkeys(folder.problems))


def size(count: float) -> str:
    for unit in ("bytes", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"
