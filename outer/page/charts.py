"""Figures as Plotly takes them. Colours are names, which the page replaces by those of its light or dark look."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from envolve.outer.page.parts import Chart

# c0 to c6 are those of Okabe and Ito (https://jfly.uni-koeln.de/color/), told apart with any colour vision
PALETTE = ("c0", "c1", "c2", "c3", "c4", "c5", "c6")
INK, MUTED, FAINT = "ink", "muted", "faint"
MOST_POINTS = 6_000  # of one swarm; more make a page slow, and nobody can see them
DIGITS = 6


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
    return {"title": {"text": title}, **more}


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
    title: str, given: Sequence[Line], x: str, y: str, note: str = "", about: str = "", limits: list[float] | None = None,
    levels: Sequence[tuple[float, str]] = (), marks: Sequence[tuple[float, str]] = (), height: int = 340, **axes: Any,
) -> Chart:  # fmt: skip
    """Lines with their bands. levels: horizontal lines with a name; marks: vertical ones. axes: xaxis, yaxis."""
    data: list[dict[str, Any]] = []
    for line in given:
        if line.low is not None and line.high is not None:
            edge = {"x": numbers(line.x), "mode": "lines", "line": {"width": 0}, "hoverinfo": "skip"}
            data.append({**edge, "y": numbers(line.low), "showlegend": False})
            data.append({**edge, "y": numbers(line.high), "fill": "tonexty", "fillcolor": f"{line.colour}/0.2",
                         "name": line.band or "band", "showlegend": bool(line.band)})  # fmt: skip
        shape = "hv" if line.step else "linear"
        data.append({
            "x": numbers(line.x), "y": numbers(line.y), "name": line.name, "connectgaps": False,
            "mode": "lines+markers" if line.marks or len(line.x) < 3 else "lines",
            "line": {"color": line.colour, "width": line.width, "dash": line.dash, "shape": shape},
            "marker": {"size": 6, "color": line.colour},
        })  # fmt: skip
    layout = {
        "xaxis": {**axis(x), **axes.get("xaxis", {})}, "yaxis": {**axis(y), **axes.get("yaxis", {})},
        "shapes": [], "annotations": [],
    }  # fmt: skip
    if limits is not None:
        layout["yaxis"]["range"] = limits
    for value, name in levels:
        layout["shapes"].append(_rule(y=value))
        layout["annotations"].append({
            "xref": "paper", "x": 1, "xanchor": "right", "y": value, "yanchor": "bottom", "text": name,
            "showarrow": False, "font": {"color": MUTED, "size": 11},
        })  # fmt: skip
    for value, name in marks:
        layout["shapes"].append(_rule(x=value))
        layout["annotations"].append({
            "yref": "paper", "y": 1, "yanchor": "bottom", "x": value, "text": name, "showarrow": False,
            "font": {"color": MUTED, "size": 11},
        })  # fmt: skip
    return Chart(title, data, layout, note, about or f"{y} against {x}", height)


def _rule(x: float | None = None, y: float | None = None) -> dict[str, Any]:
    ends = (
        {"xref": "paper", "x0": 0, "x1": 1, "y0": y, "y1": y}
        if y is not None
        else {"yref": "paper", "y0": 0, "y1": 1, "x0": x, "x1": x}
    )
    return {"type": "line", **ends, "line": {"color": MUTED, "width": 1, "dash": "dash"}}


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
    title: str, given: Sequence[Dots], x: str, y: str, note: str = "", about: str = "",
    levels: Sequence[tuple[float, str]] = (), limits: list[float] | None = None, shade: str = "", height: int = 340,
    **axes: Any,
) -> Chart:  # fmt: skip
    """Points. Of more than MOST_POINTS every n-th is drawn, and the note says so. shade: title of the colour bar."""
    total = sum(len(d.x) for d in given)
    every = max(1, math.ceil(total / MOST_POINTS))
    data = []
    for d in given:
        marker: dict[str, Any] = {"size": d.size, "opacity": d.opacity, "symbol": d.symbol, "color": d.colour}
        if d.shade is not None:
            marker |= {"color": numbers(d.shade[::every]), "colorscale": "ramp", "showscale": bool(shade),
                       "colorbar": {"title": {"text": shade, "side": "right"}, "thickness": 12}}  # fmt: skip
        trace: dict[str, Any] = {
            "x": numbers(d.x[::every]), "y": numbers(d.y[::every]), "mode": "markers", "name": d.name, "marker": marker,
        }  # fmt: skip
        if d.texts is not None:
            trace |= {"text": list(d.texts[::every]), "hovertemplate": "%{text}<extra></extra>"}
        data.append(trace)
    if every > 1:
        note = f"{note} {total:,} points, of which every {every}th is drawn.".strip()
    base = lines(title, [], x, y, note, about, limits, levels, height=height, **axes)
    return Chart(title, data, base.layout, note, base.about, height)


def jitter(index: int) -> float:
    """Shift in -0.5..0.5 of the index-th dot of a column, always the same."""
    return (index * 0.618034) % 1 - 0.5


def intervals(
    title: str, rows: Sequence[tuple[str, float, float | None, float | None, str]], x: str, note: str = "",
    about: str = "", levels: Sequence[tuple[float, str]] = (), limits: list[float] | None = None,
) -> Chart:  # fmt: skip
    """Estimates with their intervals, the first row at the top. rows: name, middle, low, high, colour."""
    data = []
    for colour in dict.fromkeys(row[4] for row in rows):
        own = [row for row in rows if row[4] == colour]
        up = [0 if high is None else max(0.0, high - m) for _, m, _, high, _ in own]
        down = [0 if low is None else max(0.0, m - low) for _, m, low, _, _ in own]
        data.append({
            "x": numbers([row[1] for row in own]), "y": [row[0] for row in own], "mode": "markers", "type": "scatter",
            "marker": {"size": 9, "color": colour}, "showlegend": False, "name": x,
            "error_x": {"type": "data", "array": numbers(up), "arrayminus": numbers(down), "color": colour,
                        "thickness": 2, "width": 4},
        })  # fmt: skip
    layout = {
        "xaxis": axis(x), "margin": {"l": 10},
        "yaxis": {"automargin": True, "autorange": "reversed", "categoryorder": "array",
                  "categoryarray": [row[0] for row in rows], "type": "category", "ticklabelstandoff": 8},
        "shapes": [_rule(x=value) for value, _ in levels],
        "annotations": [{"yref": "paper", "y": 1, "yanchor": "bottom", "x": value, "text": name, "showarrow": False,
                         "font": {"color": MUTED, "size": 11}} for value, name in levels],
    }  # fmt: skip
    if limits is not None:
        layout["xaxis"]["range"] = limits
    return Chart(title, data, layout, note, about or f"{x}, with intervals", 110 + 30 * len(rows))


def heat(
    title: str, z: Sequence[Sequence[float]] | np.ndarray, x: Sequence[float], y: Sequence[float], x_title: str,
    y_title: str, z_title: str, note: str = "", about: str = "", middle: float | None = None, height: int = 340,
    **axes: Any,
) -> Chart:  # fmt: skip
    """A map of numbers [y, x]. middle: colours go both ways from there."""
    trace: dict[str, Any] = {
        "type": "heatmap", "z": [numbers(row) for row in z], "x": numbers(x), "y": numbers(y),
        "colorscale": "ramp" if middle is None else "both", "hoverongaps": False,
        "colorbar": {"title": {"text": z_title, "side": "right"}, "thickness": 12},
        "hovertemplate": f"{x_title} %{{x}}<br>{y_title} %{{y}}<br>{z_title} %{{z:.4g}}<extra></extra>",
    }  # fmt: skip
    if middle is not None:
        trace["zmid"] = middle
    layout = {"xaxis": {**axis(x_title), **axes.get("xaxis", {})}, "yaxis": {**axis(y_title), **axes.get("yaxis", {})}}
    return Chart(title, [trace], layout, note, about or f"{z_title} over {x_title} and {y_title}", height)
