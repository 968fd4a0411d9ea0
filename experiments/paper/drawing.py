"""What the figures of the paper's experiments share: panels, captions, and the statistics that both hold."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from envs.world_file import write_atomic
from experiments.paper.data import Data, data_path, load
from outer.statistics import finite, interquartile_mean, summary

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SAMPLES = 1000  # of the bootstrap along a curve
INTERVAL = "interquartile means with 95 % bootstrap intervals"
TITLE_SIZE, LABEL_SIZE, CAPTION_SIZE = 10, 9, 7.5


# ------------------------------------------------------------------------------------------------- what a figure needs


class Need(Protocol):
    """One source of a figure. ``command``: what makes it, words after python3, without --quick; () where it is there
    from the start."""

    @property
    def command(self) -> tuple[str, ...]: ...

    def read(self, results_dir: Path) -> Any:
        """None: not there yet. Raises DataError where it cannot be read."""


@dataclass(frozen=True)
class DataFile:
    """A data file of an experiment (experiments/paper/data.py)."""

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
    """A figure (inches) and its panels, row by row, as those of outer/plots.py look."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    figure = Figure(figsize=(width, height), dpi=150, layout=ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.08))
    FigureCanvasAgg(figure)
    axes = list(figure.subplots(rows, columns, squeeze=False).flat)
    for ax in axes:
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(axis="y", color="#dddddd", linewidth=0.6)
        ax.set_axisbelow(True)
        ax.tick_params(labelsize=8)
    return figure, axes


def bare(ax: Axes) -> None:
    """A panel for a map: no axes, no grid, cells as high as wide."""
    ax.grid(False)
    ax.set_xticks([])
    ax.set_yticks([])
    ax.spines[:].set_visible(False)
    ax.set_aspect("equal")


def thousands(axis: Any) -> None:
    """Numbers on an axis as 1,000."""
    from matplotlib.ticker import FuncFormatter

    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))


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
    """16,888 and 190.7 and 12.35 and 0.012."""
    if not math.isfinite(x):
        return "-"
    decimals = 0 if abs(x) >= 1000 or x == 0 else 1 if abs(x) >= 100 else 2 if abs(x) >= 1 else 3
    return f"{x:,.{decimals}f}"


def spread(values: Sequence[float], worlds: Sequence[str] = ()) -> tuple[float, float, float]:
    """(interquartile mean, low, high) of what is finite; NaN three times if nothing is. worlds: see :func:`draws`."""
    x = np.asarray(values, dtype=np.float64)
    fine = np.isfinite(x)
    if not fine.any():
        return math.nan, math.nan, math.nan
    kept = [w for w, ok in zip(worlds, fine) if ok]
    if len(set(kept)) < 2:
        s = summary(x[fine])
        return s["iqm"], s["iqm_interval"][0], s["iqm_interval"][1]
    x = x[fine]
    low, high = np.quantile([interquartile_mean(x[i]) for i in draws(len(x), kept, 2 * SAMPLES)], [0.025, 0.975])
    return float(interquartile_mean(x)), float(low), float(high)


def draws(runs: int, worlds: Sequence[str] = (), samples: int = SAMPLES, seed: int = 0) -> list[np.ndarray]:
    """Bootstrap samples, indices of runs. worlds: of each run. Agents of one world are alike, so whole worlds are
    drawn, if there are several; else single runs."""
    rng = np.random.default_rng(seed)
    members = [np.flatnonzero([w == name for w in worlds]) for name in dict.fromkeys(worlds)]
    if len(members) < 2:
        return list(rng.integers(runs, size=(samples, runs)))
    drawn = rng.integers(len(members), size=(samples, len(members)))
    return [np.concatenate([members[i] for i in row]) for row in drawn]


def in_words(values: Sequence[float], worlds: Sequence[str] = ()) -> str:
    """12.3 [11.0, 13.1] of the finite values."""
    middle, low, high = spread(values, worlds)
    return f"{number(middle)} [{number(low)}, {number(high)}]"


def counted(values: Sequence[float], worlds: Sequence[str] = ()) -> str:
    """100 agents in 10 worlds, 2 failed: those that are not finite."""
    failed, count = sum(not math.isfinite(v) for v in values), len(set(worlds))
    text = f"{len(values)} agent{'s' * (len(values) != 1)}" + f" in {count} world{'s' * (count != 1)}" * bool(count)
    return text + f", {failed} failed" * bool(failed)


def band(values: np.ndarray, worlds: Sequence[str] = ()) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Interquartile mean of the runs at every point, and its 95 % interval by bootstrap over whole runs (of worlds: see
    :func:`draws`).

    values: finite [runs, points] -> three [points].
    """
    finite(values)  # raises for what is not finite
    means = [interquartile_mean(values[i], axis=0) for i in draws(len(values), worlds)]
    low, high = np.quantile(means, [0.025, 0.975], axis=0)
    return interquartile_mean(values, axis=0), low, high


def steps_curve(returns: Sequence[float], lengths: Sequence[float], grid: np.ndarray) -> np.ndarray:
    """The return of the episode that step ``grid`` lies in; the last one is held (section 7's step interpolation).

    returns, lengths: of one run's episodes, in order -> [len(grid)].
    """
    ends = np.cumsum(np.asarray(lengths, dtype=np.float64))
    episode = np.minimum(np.searchsorted(ends, grid, side="right"), len(ends) - 1)
    return np.asarray(returns, dtype=np.float64)[episode]
