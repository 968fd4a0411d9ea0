"""Shared code of the figures of the paper's experiments: panels, captions, and their statistics."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from envolve.core.statistics import IQM, finite, interquartile_mean, interval, intervals, of_worlds
from envolve.envs.worlds.file import write_atomic
from envolve.experiments.paper.common.data import Data, data_path, load
from envolve.outer.reporting.style import grid

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INTERVAL = "interquartile means with 95 % intervals"
POWERS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
TITLE_SIZE, LABEL_SIZE, CAPTION_SIZE = 10, 9, 7.5


# ------------------------------------------------------------------------------------------------- what a figure needs


class Need(Protocol):
    """One source of a figure. ``command``: what makes it, a file of experiments/paper/ and arguments without --quick;
    () where it is there from the start."""

    @property
    def command(self) -> tuple[str, ...]: ...

    def read(self, results_dir: Path) -> Any:
        """None: not there yet. Raises DataError where it cannot be read."""


@dataclass(frozen=True)
class DataFile:
    """A data file of an experiment (experiments/paper/common/data.py)."""

    experiment: str
    task: str
    command: tuple[str, ...]
    what: str = ""

    def path(self, results_dir: Path) -> Path:
        return data_path(results_dir, self.experiment, self.task, self.what)

    def read(self, results_dir: Path) -> Data | None:
        path = self.path(results_dir)
        return load(path) if path.exists() else None


@dataclass
class Drawing:
    figure: Figure
    caption: str


# ------------------------------------------------------------------------------------------------------------- panels


def panels(width: float, height: float, rows: int = 1, columns: int = 1) -> tuple[Figure, list[Axes]]:
    """A figure (inches) and its panels, row by row."""
    figure, axes = grid(width, height, rows, columns)
    for ax in axes:
        ax.tick_params(labelsize=8)
    return figure, axes


def bare(ax: Axes) -> None:
    """A panel for a map: no axes, no grid, cells as high as wide."""
    ax.grid(False)
    ax.set_xticks([])
    ax.set_yticks([])
    ax.spines[:].set_visible(False)
    ax.set_aspect("equal")


def save_drawing(drawing: Drawing, path: Path, quick: bool) -> list[Path]:
    """``path`` with .png, .svg and .txt, the caption, which stands below the picture too. The SVG has no date, so that
    the same data give the same bytes. Raises OSError."""
    from io import BytesIO

    import matplotlib

    figure = drawing.figure
    text = ("Quick look, far smaller than published. " * quick + drawing.caption).strip()
    width = int(figure.get_figwidth() * 72 / (CAPTION_SIZE * 0.56))  # a letter is about half as wide as high
    figure.supxlabel("\n".join(textwrap.wrap(text, width)), x=0.01, ha="left", fontsize=CAPTION_SIZE, color="#333333")
    if quick:
        figure.text(0.995, 0.995, "quick", ha="right", va="top", fontsize=8, color="#999999", style="italic")
    path.parent.mkdir(parents=True, exist_ok=True)
    out = []
    for suffix in (".png", ".svg"):
        buffer = BytesIO()
        with matplotlib.rc_context({"svg.hashsalt": path.name, "svg.fonttype": "none"}):
            figure.savefig(buffer, format=suffix[1:], metadata={"Date": None} if suffix == ".svg" else None)
        out.append(path.with_suffix(suffix))
        write_atomic(str(out[-1]), buffer.getvalue())
    write_atomic(str(path.with_suffix(".txt")), (text + "\n").encode())
    return [*out, path.with_suffix(".txt")]


# ---------------------------------------------------------------------------------------------------------- statistics


def number(x: float) -> str:
    """16,888 and 190.7 and 12.35 and 0.012 and 6.2 · 10⁻⁷."""
    if not math.isfinite(x):
        return "-"
    if 0 < abs(x) < 5e-4:  # three decimals would say 0.000
        digits, _, power = f"{x:.1e}".partition("e")
        return f"{digits} · 10{str(int(power)).translate(POWERS)}"
    decimals = 0 if abs(x) >= 1000 or x == 0 else 1 if abs(x) >= 100 else 2 if abs(x) >= 1 else 3
    return f"{x:,.{decimals}f}"


def mean(values: Sequence[float]) -> float:
    """Mean of the finite values; NaN if there are none."""
    fine = [v for v in values if math.isfinite(v)]
    return sum(fine) / len(fine) if fine else math.nan


def spread(values: Sequence[float], worlds: Sequence[str] = ()) -> tuple[float, float, float]:
    """(interquartile mean, low, high) of what is finite; NaN three times if nothing is. Of several worlds the values
    are their means (``envolve.core.statistics.of_worlds``). Equal values tell nothing of others: both ends are
    these."""
    x = [v for v in of_worlds(values, worlds) if math.isfinite(v)]
    if not x:
        return math.nan, math.nan, math.nan
    middle, (low, high) = float(interquartile_mean(x)), interval(x, IQM)
    return (middle, middle, middle) if math.isnan(low) else (middle, low, high)


def in_words(values: Sequence[float], worlds: Sequence[str] = ()) -> str:
    """12.3 [11.0, 13.1] of the finite values, 12.3 (5 of 5) where these are equal: that is no interval."""
    middle, low, high = spread(values, worlds)
    if low == high:
        n = sum(math.isfinite(v) for v in of_worlds(values, worlds))
        return f"{number(middle)} ({n} of {n})"
    return f"{number(middle)} [{number(low)}, {number(high)}]"


def counted(values: Sequence[float], worlds: Sequence[str] = ()) -> str:
    """100 agents in 10 worlds, 2 failed: those that are not finite."""
    failed, count = sum(not math.isfinite(v) for v in values), len(set(worlds))
    text = f"{len(values)} agent{'s' * (len(values) != 1)}" + f" in {count} world{'s' * (count != 1)}" * bool(count)
    return text + f", {failed} failed" * bool(failed)


def band(values: np.ndarray, worlds: Sequence[str] = ()) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Interquartile mean of the runs at every point, and its 95 % interval; of several worlds, of their mean curves.

    values: finite [runs, points] -> three [points].
    """
    finite(values)  # raises for what is not finite
    if len(set(worlds)) > 1:
        values = np.array([values[[w == name for w in worlds]].mean(0) for name in dict.fromkeys(worlds)])
    middle, (low, high) = interquartile_mean(values, axis=0), intervals(values, IQM)
    return middle, np.where(np.isnan(low), middle, low), np.where(np.isnan(high), middle, high)


def steps_curve(returns: Sequence[float], lengths: Sequence[float], grid: np.ndarray) -> np.ndarray:
    """The return of the episode that step ``grid`` lies in; the last one is held (section 7's step interpolation).

    returns, lengths: of one run's episodes, in order -> [len(grid)].
    """
    ends = np.cumsum(np.asarray(lengths, dtype=np.float64))
    episode = np.minimum(np.searchsorted(ends, grid, side="right"), len(ends) - 1)
    return np.asarray(returns, dtype=np.float64)[episode]
