"""The look of every picture: colours, panels, legends and the limits of axes.

Colours are Okabe and Ito's (https://jfly.uni-koeln.de/color/), told apart with any colour vision. Their yellow is hard
to see on white; wine of Paul Tol's "muted" (https://personal.sron.nl/~pault/) stands in its place. What has an order
(a budget) is a shade of cividis, which is lighter the smaller it is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BLUE, ORANGE, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#666666"
COLOURS = (BLUE, ORANGE, GREEN, "#CC79A7", "#56B4E9", "#E69F00", "#882255")  # of things that have no order
DPI, SMALL, TEXT = 150, 8, 10  # text: of a panel's title; small: of a legend
BELOW = 0.48  # inches from a panel to its legend: room for the ticks and the label
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
        ax.yaxis.set_major_formatter(_grouped())
    return figure, axes


def _grouped() -> Any:
    """Numbers on a linear axis as matplotlib writes them, from a thousand on as 1,000; never as an offset."""
    from matplotlib.ticker import ScalarFormatter

    class Grouped(ScalarFormatter):
        def __call__(self, value: float, position: int | None = None) -> str:
            if abs(value) >= 1000 and value == round(value):
                return self.fix_minus(f"{value:,.0f}")
            return str(super().__call__(value, position))

    out = Grouped(useOffset=False)
    out.set_powerlimits((-4, 9))
    return out


def new_figure(width: float, height: float, panels: int = 1, upright: bool = False) -> tuple[Figure, list[Axes]]:
    """A figure with panels side by side, upright: above each other."""
    return grid(width, height, *((panels, 1) if upright else (1, panels)))


def title_of_panel(ax: Axes, text: str) -> None:
    ax.set_title(text, fontsize=TEXT)


def clear_legend(ax: Axes, columns: int = 2) -> None:
    """A legend below the panel and its label, where it covers nothing."""
    from matplotlib.transforms import ScaledTranslation

    handles, labels = ax.get_legend_handles_labels()
    if handles:
        columns = min(columns, len(handles))
        figure: Any = ax.get_figure()
        below = ax.transAxes + ScaledTranslation(0, -BELOW, figure.dpi_scale_trans)
        options: dict[str, Any] = {"bbox_to_anchor": (0.5, 0), "bbox_transform": below, "ncols": columns}
        ax.legend(fontsize=SMALL, loc="upper center", borderaxespad=0, frameon=False, **options)


def legend_above(ax: Axes, columns: int = 3) -> Any:
    """The panel's legend above its figure, where it covers nothing and the room below is a caption's, in as
    many columns as the figure is wide enough for."""
    handles, labels = ax.get_legend_handles_labels()
    figure: Any = ax.get_figure()
    legend: Any = None
    for n in range(max(1, min(columns, len(handles))), 0, -1):
        if legend is not None:
            legend.remove()
        legend = figure.legend(handles, labels, loc="outside upper left", ncols=n, fontsize=SMALL, frameon=False)
        if legend.get_window_extent(figure.canvas.get_renderer()).width <= figure.bbox.width:
            break
    return legend


def thousands(axis: Any) -> None:
    """Numbers on an axis as 1,000."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    if axis.get_scale() == "linear":
        axis.set_major_locator(MaxNLocator(6))  # such numbers are wide
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))


def budget_colours(count: int) -> NDArray[np.float64]:
    """Colours of budgets, the smallest first: [count, 4]."""
    from matplotlib import colormaps

    return np.asarray(colormaps["cividis"](np.linspace(0.85, 0.1, count)))


def cut_low(ax: Axes, middles: Sequence[NDArray[np.float64]], ends: Sequence[NDArray[np.float64]]) -> str:
    """Ends the panel below where the data become sparse (``FENCE``), so that a few runs far off do not flatten the rest
    -> what it leaves out, in words; "": nothing. middles: curves; ends: of their bands.

    Unlike ``lowest_shown`` it may cut a curve, at no more than a twentieth of its points: a mean over few runs falls
    as far as one of them.
    """
    drawn = np.concatenate([np.ravel(x) for x in (*middles, *ends)])
    curves = np.concatenate([np.ravel(x) for x in middles])
    drawn, curves = drawn[np.isfinite(drawn)], curves[np.isfinite(curves)]
    if not len(drawn) or not len(curves):
        return ""
    q1, q3 = np.quantile(drawn, [0.25, 0.75])
    low, high = min(float(q1 - FENCE * (q3 - q1)), float(np.quantile(curves, 0.05))), float(drawn.max())
    if q3 == q1 or drawn.min() >= low - 0.25 * (high - low):
        return ""
    end_at(ax, low, max(float(curves.max()), min(high, float(np.quantile(drawn, 0.98)))))
    what = "curves and bands" if curves.min() < low else "bands"
    least, most = (f"{x:,.0f}" if abs(x) >= 1000 else f"{x:.4g}" for x in (low, float(drawn.min())))
    return f"Cut at {least}: {what} reach down to {most}."


def end_at(ax: Axes, low: float, highest: float) -> None:
    """Limits of a panel from ``low`` on; above ``highest``, the highest value that is drawn, some room is left."""
    ax.set_ylim(low, highest + 0.05 * ((highest - low) or 1))


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
