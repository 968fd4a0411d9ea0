"""The look of every picture: colours, panels, legends and the limits of axes.

Colours are Okabe and Ito's (https://jfly.uni-koeln.de/color/), told apart with any colour vision; what has an order (a
budget) is a shade of cividis, which is lighter the smaller it is.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BLUE, ORANGE, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#666666"
COLOURS = (BLUE, ORANGE, GREEN, "#CC79A7", "#56B4E9", "#E69F00", "#F0E442")  # of things that have no order
DPI, SMALL, TEXT = 150, 8, 10  # text: of a panel's title; small: of a legend
FENCE = 3.0  # interquartile ranges from the quartiles to the end of an axis


def grid(width: float, height: float, rows: int = 1, columns: int = 1) -> tuple[Figure, list[Axes]]:
    """A figure (inches) and its panels, row by row; to be saved and not shown."""
    # 0.3 s, and only a run that ends needs it; the Figure itself, not pyplot, leaves the user's matplotlib alone
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    figure = Figure(figsize=(width, height), dpi=DPI, layout=ConstrainedLayoutEngine(w_pad=0.12))
    FigureCanvasAgg(figure)
    axes = list(figure.subplots(rows, columns, squeeze=False).flat)
    for ax in axes:
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(axis="y", color="#dddddd", linewidth=0.6)
        ax.set_axisbelow(True)
    return figure, axes


def new_figure(width: float, height: float, panels: int = 1, upright: bool = False) -> tuple[Figure, list[Axes]]:
    """A figure with panels side by side, upright: above each other."""
    return grid(width, height, *((panels, 1) if upright else (1, panels)))


def title_of_panel(ax: Axes, text: str) -> None:
    ax.set_title(text, fontsize=TEXT)


def clear_legend(ax: Axes, columns: int = 2) -> None:
    """A legend below the panel, where it covers nothing."""
    handles, labels = ax.get_legend_handles_labels()
    if handles:
        columns = min(columns, len(handles))
        ax.legend(fontsize=SMALL, loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=columns, frameon=False)


def legend_above(ax: Axes, columns: int = 3) -> None:
    """The panel's legend above its figure, where it covers nothing and the room below is a caption's."""
    handles, labels = ax.get_legend_handles_labels()
    figure: Any = ax.get_figure()
    figure.legend(handles, labels, loc="outside upper left", ncols=columns, fontsize=SMALL, frameon=False)


def thousands(axis: Any) -> None:
    """Numbers on an axis as 1,000."""
    from matplotlib.ticker import FuncFormatter

    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))


def budget_colours(count: int) -> NDArray[np.float64]:
    """Colours of budgets, the smallest first: [count, 4]."""
    from matplotlib import colormaps

    return np.asarray(colormaps["cividis"](np.linspace(0.85, 0.1, count)))


def lowest_shown(mean: NDArray[np.float64], low: NDArray[np.float64], high: NDArray[np.float64]) -> float | None:
    """Lower end of a picture, so that a few bad members do not flatten the curve; None: show all. The limit lies
    ``FENCE`` interquartile ranges below the lower quartile of all drawn values; the mean is always shown."""
    drawn = np.concatenate([mean, low, high])
    drawn, mean = drawn[np.isfinite(drawn)], mean[np.isfinite(mean)]
    if not len(drawn):
        return None
    q1, q3 = np.quantile(drawn, [0.25, 0.75])
    fence = min(float(q1 - FENCE * (q3 - q1)), float(mean.min()) if len(mean) else math.inf)
    if q3 == q1 or drawn.min() >= fence:
        return None
    return fence - 0.05 * (float(drawn.max()) - fence)
