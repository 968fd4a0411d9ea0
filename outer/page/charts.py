"""Figures as Plotly takes them. Colours are names, which the page replaces by those of its light or dark look."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from envolve.core.statistics import within
from envolve.outer.page.parts import Chart

# c0 to c6 are those of Okabe and Ito (https://jfly.uni-koeln.de/color/), told apart with any colour vision
PALETTE = ("c0", "c1", "c2", "c3", "c4", "c5", "c6")
INK, MUTED = "ink", "muted"
MOST_POINTS = 6_000  # of one swarm; more make a page slow, and nobody can see them
MOST_WHOLE = 8  # of an axis of whole numbers, each of which has its tick
DIGITS = 6
Look = dict[str, Any] | None  # keys of an axis, as Plotly has them


@dataclass(frozen=True)
class Line:
    """One line of a chart. low, high: a band around it; NaN leaves a gap. texts: shown beside the pointer."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    colour: str = PALETTE[0]
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None
    band: str = ""  # what the band is
    dash: str = "solid"
    width: float = 2.0
    marks: bool = False
    step: bool = False


def number(x: float) -> float | None:
    """A number for JSON, with as many digits as a picture can show; None for what is not finite."""
    x = float(x)
    return float(f"{x:.{DIGITS}g}") if math.isfinite(x) else None


def numbers(values: Sequence[float] | np.ndarray) -> list[float | None]:
    return [number(x) for x in values]


def axis(title: str, **more: Any) -> dict[str, Any]:
    """Plotly reads a few tags in titles, so that they are escaped."""
    return {"title": {"text": html.escape(title, quote=False)}, **more}


def robust(values: Sequence[float] | np.ndarray, keep: Sequence[float] = ()) -> list[float] | None:
    """Limits of an axis that a few extreme values do not flatten: three interquartile ranges beyond the quartiles, and
    all of ``keep`` inside. None: everything may be shown."""
    x = np.asarray(values, dtype=float)
    x = x[np.isfinite(x)]
    if len(x) < 4:
        return None
    q1, q3 = np.quantile(x, [0.25, 0.75])
    inside = [v for v in keep if math.isfinite(v)]
    low, high = min([q1 - 3 * (q3 - q1), *inside]), max([q3 + 3 * (q3 - q1), *inside])
    if q1 == q3 or (x.min() >= low and x.max() <= high):
        return None
    low, high = float(x[x >= low].min()), float(x[x <= high].max())
    margin = 0.05 * (high - low)
    return [low - margin, high + margin]


def lines(
    title: str,
    given: Sequence[Line],
    x: str,
    y: str,
    note: str = "",
    about: str = "",
    limits: list[float] | None = None,
    levels: Sequence[tuple[float, str]] = (),
    height: int = 340,
    xaxis: Look = None,
    yaxis: Look = None,
) -> Chart:
    """Lines with their bands. levels: horizontal lines with a name. xaxis, yaxis: more of Plotly's."""
    data: list[dict[str, Any]] = []
    for line in given:
        if line.low is not None and line.high is not None:
            edge = {"x": numbers(line.x), "mode": "lines", "line": {"width": 0}, "hoverinfo": "skip"}
            data.append({**edge, "y": numbers(line.low), "showlegend": False})
            data.append(
                {
                    **edge,
                    "y": numbers(line.high),
                    "fill": "tonexty",
                    "fillcolor": f"{line.colour}/0.2",
                    "name": line.band or "band",
                    "showlegend": bool(line.band),
                }
            )
        shape = "hv" if line.step else "linear"
        data.append(
            {
                "x": numbers(line.x),
                "y": numbers(line.y),
                "name": line.name,
                "connectgaps": False,
                "mode": "lines+markers" if line.marks or len(line.x) < 3 else "lines",
                "line": {"color": line.colour, "width": line.width, "dash": line.dash, "shape": shape},
                "marker": {"size": 6, "color": line.colour},
            }
        )
    layout: dict[str, Any] = {
        "xaxis": {**axis(x), **(xaxis or {})},
        "yaxis": {**axis(y), **(yaxis or {})},
        "shapes": [],
    }
    if limits is not None:
        layout["yaxis"]["range"] = limits
    if _few_whole([v for line in given for v in line.x]):
        layout["xaxis"].setdefault("dtick", 1)
    layout["shapes"] += [_rule(name, y=value) for value, name in levels]
    if levels:
        layout["showlegend"] = True
    return Chart(title, data, layout, note, about or f"{y} against {x}", height)


def log_axis(values: Sequence[float], least: float = 8.0) -> Look:
    """A logarithmic axis with round numbers at its ticks: 1, 2 and 5 of a decade, or its beginning alone where there
    are more than two. None: not all values are positive, or the largest is not ``least`` times the smallest."""
    known = [float(v) for v in values if math.isfinite(v)]
    if not known or min(known) <= 0 or max(known) <= least * min(known):
        return None
    low, high = math.log10(min(known)), math.log10(max(known))
    parts = (1, 2, 5) if high - low <= 2 else (1,)
    ticks = [m * 10**k for k in range(math.floor(low), math.ceil(high) + 1) for m in parts]
    return {"type": "log", "tickvals": ticks, "ticktext": [_tick(t) for t in ticks]}


def _tick(x: float) -> str:
    """0.001, 20,000; 10 to the power of -5 as 1e-5."""
    return f"{x:,.10g}" if x >= 1e-4 else f"{x:.0e}".replace("e-0", "e-")


def _few_whole(x: Sequence[float]) -> bool:
    """True if ticks between them, such as generation 0.2, would mean nothing."""
    known = [float(v) for v in x if math.isfinite(v)]
    return bool(known) and max(known) - min(known) <= MOST_WHOLE and all(v == int(v) for v in known)


def _rule(name: str, x: float | None = None, y: float | None = None) -> dict[str, Any]:
    """A dashed line across the panel. The legend has its name, which would lie on the data beside the line."""
    ends = (
        {"xref": "paper", "x0": 0, "x1": 1, "y0": y, "y1": y}
        if y is not None
        else {"yref": "paper", "y0": 0, "y1": 1, "x0": x, "x1": x}
    )
    look = {"color": MUTED, "width": 1.5, "dash": "dash"}
    return {"type": "line", **ends, "line": look, "name": name, "showlegend": True}


@dataclass(frozen=True)
class Dots:
    name: str
    x: Sequence[float]
    y: Sequence[float]
    colour: str = PALETTE[0]
    symbol: str = "circle"
    size: float = 6
    opacity: float = 0.7
    texts: Sequence[str] | None = None
    shade: Sequence[float] | None = None  # a number per dot, in place of one colour


def dots(
    title: str,
    given: Sequence[Dots],
    x: str,
    y: str,
    note: str = "",
    about: str = "",
    levels: Sequence[tuple[float, str]] = (),
    limits: list[float] | None = None,
    shade: str = "",
    height: int = 340,
    xaxis: Look = None,
    yaxis: Look = None,
) -> Chart:
    """Points. Of more than MOST_POINTS every n-th is drawn, and the note says so. shade: title of the colour bar."""
    total = sum(len(d.x) for d in given)
    every = max(1, math.ceil(total / MOST_POINTS))
    data = []
    for d in given:
        marker: dict[str, Any] = {"size": d.size, "opacity": d.opacity, "symbol": d.symbol, "color": d.colour}
        if d.shade is not None:
            marker |= {
                "color": numbers(d.shade[::every]),
                "colorscale": "ramp",
                "showscale": bool(shade),
                "colorbar": {"title": {"text": shade, "side": "right"}, "thickness": 12},
            }
            if _few_whole(d.shade):
                marker["colorbar"]["dtick"] = 1
        trace: dict[str, Any] = {
            "x": numbers(d.x[::every]),
            "y": numbers(d.y[::every]),
            "mode": "markers",
            "name": d.name,
            "marker": marker,
        }
        if d.texts is not None:
            trace |= {"text": list(d.texts[::every]), "hovertemplate": "%{text}<extra></extra>"}
        data.append(trace)
    if every > 1:
        note = f"{note} {total:,} points, of which one in {every} is drawn.".strip()
    base = lines(title, [], x, y, note, about, limits, levels, height=height, xaxis=xaxis, yaxis=yaxis)
    return Chart(title, data, base.layout, note, base.about, height)


def jitter(index: int) -> float:
    """Shift in -0.5..0.5 of the index-th dot of a column, always the same."""
    return (index * 0.618034) % 1 - 0.5


def intervals(
    title: str,
    rows: Sequence[tuple[str, float, float | None, float | None, str]],
    x: str,
    note: str = "",
    about: str = "",
    levels: Sequence[tuple[float, str]] = (),
    limits: list[float] | None = None,
    legend: dict[str, str] | None = None,
    bounds: tuple[float, float] | None = None,
) -> Chart:
    """Estimates with their intervals, the first row at the top. rows: name, middle, low, high, colour; rows of the same
    name share a line. legend: what a colour stands for; bounds: what is possible, where intervals end at the latest."""
    if bounds is not None:
        whole = rows
        rows = [(n, m, *(within(a, b, bounds) if a is not None and b is not None else (a, b)), c)
                for n, m, a, b, c in rows]  # fmt: skip
        if rows != list(whole):
            ends = f"Intervals end at the worst and the best possible value, {bounds[0]:g} and {bounds[1]:g}."
            ends = ends if math.isfinite(bounds[1]) else f"Intervals end at {bounds[0]:g}."
            note = f"{note} {ends}".strip()
    data, names = [], list(dict.fromkeys(row[0] for row in rows))
    colours = list(dict.fromkeys(row[4] for row in rows))
    for k, colour in enumerate(colours):
        own = [row for row in rows if row[4] == colour]
        beside = 0.2 * (k - (len(colours) - 1) / 2) if legend else 0.0
        known = (legend or {}).get(colour)
        up = [0 if high is None else max(0.0, high - m) for _, m, _, high, _ in own]
        down = [0 if low is None else max(0.0, m - low) for _, m, low, _, _ in own]
        data.append(
            {
                "x": numbers([row[1] for row in own]),
                "y": numbers([names.index(row[0]) + beside for row in own]),
                "mode": "markers",
                "type": "scatter",
                "text": [row[0] for row in own],
                "hovertemplate": "%{text}: %{x:.4g}<extra></extra>",
                "marker": {"size": 9, "color": colour},
                "showlegend": known is not None,
                "name": known or x,
                "error_x": {
                    "type": "data",
                    "array": numbers(up),
                    "arrayminus": numbers(down),
                    "color": colour,
                    "thickness": 2,
                    "width": 4,
                },
            }
        )
    layout: dict[str, Any] = {
        "xaxis": axis(x),
        "margin": {"l": 10},
        "yaxis": {
            "automargin": True,
            "range": [len(names) - 0.5, -0.5],
            "tickvals": list(range(len(names))),
            "ticktext": names,
            "ticklabelstandoff": 8,
        },
        "shapes": [_rule(name, x=value) for value, name in levels],
    }
    if levels:
        layout["showlegend"] = True
    if limits is not None:
        layout["xaxis"]["range"] = limits
    height = 110 + (30 if legend is None else 46) * len(names) + 24 * (legend is not None)
    return Chart(title, data, layout, note, about or f"{x}, with intervals", height, wide=legend is not None)


def heat(
    title: str,
    z: Sequence[Sequence[float]] | np.ndarray,
    x: Sequence[float],
    y: Sequence[float],
    x_title: str,
    y_title: str,
    z_title: str,
    note: str = "",
    about: str = "",
    height: int = 340,
    xaxis: Look = None,
    yaxis: Look = None,
) -> Chart:
    """A map of numbers [y, x]; a few extreme ones do not flatten the colours."""
    trace: dict[str, Any] = {
        "type": "heatmap",
        "z": [numbers(row) for row in z],
        "x": numbers(x),
        "y": numbers(y),
        "colorscale": "ramp",
        "hoverongaps": False,
        "colorbar": {"title": {"text": z_title, "side": "right"}, "thickness": 12},
        "hovertemplate": f"{x_title} %{{x}}<br>{y_title} %{{y}}<br>{z_title} %{{z:.4g}}<extra></extra>",
    }
    limits = robust(np.ravel(z))
    if limits is not None:
        trace |= {"zmin": limits[0], "zmax": limits[1]}
        note = f"{note} Colours end at {limits[0]:.4g} and {limits[1]:.4g}.".strip()
    layout = {"xaxis": {**axis(x_title), **(xaxis or {})}, "yaxis": {**axis(y_title), **(yaxis or {})}}
    return Chart(title, [trace], layout, note, about or f"{z_title} over {x_title} and {y_title}", height)
