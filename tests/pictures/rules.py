"""Properties of every picture, and how the figure that a function saves is found."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

SMALLEST = 6.5  # points, of letters
ROOM = 3.0  # points that a text may lie beyond the canvas, or in another text: boxes of letters are generous
MEASURED = re.compile(r"\b(distance|height|speed|time|duration|angle|position|(?<!angular )velocity)\b", re.IGNORECASE)
UNITS = re.compile(r", (s|ms|µs|m|m/s|rad|rad/s|steps|min|h)\b")
NO_UNIT = re.compile(r"cos |sin |time limit|budgets spent|/ standard")


@contextmanager
def kept() -> Iterator[list[Any]]:
    """Figures that are saved meanwhile; their pixels are not computed."""
    from matplotlib.figure import Figure

    found: list[Any] = []
    inner = Figure.savefig

    def keep(self: Any, path: Any, **options: Any) -> None:
        if self not in found:
            found.append(self)
        if isinstance(path, io.BytesIO):
            path.write(b"-")

    Figure.savefig = keep  # type: ignore[method-assign]
    try:
        yield found
    finally:
        Figure.savefig = inner  # type: ignore[method-assign]


def figure_of(draw: Callable[[Path], Any], path: Path) -> Any:
    """The figure that ``draw(path)`` saves, laid out."""
    with kept() as found:
        draw(path)
    [figure] = found
    figure.draw_without_rendering()
    return figure


def texts(figure: Any) -> list[tuple[str, Any, Any]]:
    """(text, its box in pixels, the artist) of every text that is drawn."""
    from matplotlib.text import Text

    renderer = figure.canvas.get_renderer()
    ticks = {}  # of an axis only those inside of its limits are drawn
    for ax in figure.axes:
        for axis in (ax.xaxis, ax.yaxis):
            drawn = [label for tick in axis._update_ticks() for label in (tick.label1, tick.label2)]
            every = [
                label
                for tick in (*axis.get_major_ticks(), *axis.get_minor_ticks())
                for label in (tick.label1, tick.label2)
            ]
            ticks.update({id(label): label in drawn and ax.axison and ax.get_visible() for label in every})
    hidden = {id(t) for ax in figure.axes if not ax.axison for axis in (ax.xaxis, ax.yaxis) for t in axis.findobj(Text)}
    out = []
    for t in figure.findobj(Text):
        words = t.get_text().strip()
        if words and t.get_visible() and ticks.get(id(t), True) and id(t) not in hidden:
            out.append((words, t.get_window_extent(renderer), t))
    return out


def problems(figure: Any) -> list[str]:
    """What is wrong with it, in words."""
    found = texts(figure)
    return [*_outside(figure, found), *_crowded(figure, found), *_unlabelled(figure), *_covered(figure),
            *_flattened(figure), *_empty(figure), *_words(found)]  # fmt: skip


def _outside(figure: Any, found: list[tuple[str, Any, Any]]) -> list[str]:
    room, canvas = ROOM * figure.dpi / 72, figure.bbox
    return [
        f"outside of the canvas: {words!r}"
        for words, box, _ in found
        if box.x0 < canvas.x0 - room
        or box.y0 < canvas.y0 - room
        or box.x1 > canvas.x1 + room
        or box.y1 > canvas.y1 + room
    ]


def _crowded(figure: Any, found: list[tuple[str, Any, Any]]) -> list[str]:
    """Texts that lie on each other; values written into a panel beside its marks may."""
    from matplotlib.text import Annotation

    room = ROOM * figure.dpi / 72
    straight = [f for f in found if f[2].get_rotation() % 90 == 0 and not isinstance(f[2], Annotation)]
    out = []
    for (a, p, _), (b, q, _) in combinations(straight, 2):
        wide, high = min(p.x1, q.x1) - max(p.x0, q.x0), min(p.y1, q.y1) - max(p.y0, q.y0)
        if wide > room and high > room:
            out.append(f"on each other: {a!r} and {b!r}")
        elif high > room and wide > -2 and _ticks_of_one_axis(figure, a, b):
            out.append(f"no room between {a!r} and {b!r}")
    return out


def _ticks_of_one_axis(figure: Any, a: str, b: str) -> bool:
    return any(
        {a, b} <= {t.get_text() for t in ax.get_xticklabels()} and ax.get_xticklabels()[0].get_rotation() % 90 == 0
        for ax in figure.axes
    )


def _is_map(ax: Any) -> bool:
    return not len(ax.get_xticks()) and not len(ax.get_yticks())


def _names_things(axis: Any) -> bool:
    """Ticks that are words need no label."""
    ticks = [t.get_text() for t in axis.get_ticklabels() if t.get_text()]
    return bool(ticks) and all(re.search(r"[a-zA-Z]{2}", t) for t in ticks)


def _unlabelled(figure: Any) -> list[str]:
    """A panel may have its label on the leftmost of its row, the lowest of its column, or in its title."""
    out, axes = [], [ax for ax in figure.axes if ax.axison and ax.get_visible() and not _is_map(ax)]
    for ax in axes:
        if hasattr(ax, "_colorbar"):
            if not (ax.get_ylabel() or ax.get_xlabel()):
                out.append("a colour bar without a label")
            continue
        box = ax.get_position()
        row = [o for o in axes if abs(o.get_position().y0 - box.y0) < 0.01]
        column = [o for o in axes if abs(o.get_position().x0 - box.x0) < 0.01]
        titled = any(o.get_title() or o.get_title(loc="left") for o in column)
        if len(ax.get_xticks()) and not any(o.get_xlabel() for o in column) and not _names_things(ax.xaxis):
            if len(column) == 1 or not titled:
                out.append(f"no label on the x axis of {ax.get_title() or ax.get_title(loc='left')!r}")
        if len(ax.get_yticks()) and not any(o.get_ylabel() for o in row) and not _names_things(ax.yaxis):
            out.append(f"no label on the y axis of {ax.get_title() or ax.get_title(loc='left')!r}")
    return out


def _points(ax: Any) -> np.ndarray:
    """Marks and ends of lines in pixels [n, 2]."""
    parts = [ax.transData.transform(np.column_stack(line.get_data()).astype(float)) for line in ax.lines
             if line.get_transform() == ax.transData and len(line.get_xdata())]  # fmt: skip
    parts += [c.get_offset_transform().transform(np.asarray(c.get_offsets(), float)) for c in ax.collections
              if len(c.get_offsets()) > 1]  # fmt: skip
    both = np.concatenate([p for p in parts if len(p)]) if any(len(p) for p in parts) else np.zeros((0, 2))
    return both[np.isfinite(both).all(1)]


def _legends(figure: Any) -> list[Any]:
    return [*figure.legends, *(ax.get_legend() for ax in figure.axes if ax.get_legend() is not None)]


def _covered(figure: Any) -> list[str]:
    """A legend inside of a panel that covers more than a fiftieth of its marks, or any label."""
    out, renderer = [], figure.canvas.get_renderer()
    for legend in _legends(figure):
        box = legend.get_window_extent(renderer)
        own = {id(t) for t in (*legend.get_texts(), legend.get_title())}
        for ax in figure.axes:
            points = _points(ax)
            inside = (points > [box.x0, box.y0]).all(1) & (points < [box.x1, box.y1]).all(1)
            if len(points) and inside.mean() > 0.02:
                out.append(f"a legend covers {inside.mean():.0%} of the marks")
        for words, other, artist in texts(figure):
            if id(artist) not in own and box.overlaps(other) and min(box.y1, other.y1) - max(box.y0, other.y0) > 4:
                if min(box.x1, other.x1) - max(box.x0, other.x0) > 4:
                    out.append(f"a legend covers {words!r}")
    return out


def _flattened(figure: Any) -> list[str]:
    """Panels with a linear axis, the middle nine tenths of whose lines have less than a tenth of its height."""
    out = []
    for ax in figure.axes:
        values = [np.asarray(line.get_ydata(), float) for line in ax.lines if len(line.get_ydata()) > 2]
        if ax.get_yscale() != "linear" or not values or hasattr(ax, "_colorbar"):
            continue
        y = np.concatenate(values)
        low, high = np.quantile(y[np.isfinite(y)], [0.05, 0.95])
        bottom, top = sorted(ax.get_ylim())
        if 0 < high - low < 0.1 * (top - bottom):
            out.append(f"flattened: {low:.4g} to {high:.4g} on an axis from {bottom:.4g} to {top:.4g}")
    return out


def _empty(figure: Any) -> list[str]:
    """Panels with a linear axis whose marks have less than a seventh of its height: limits that do not fit."""
    out = []
    for ax in figure.axes:
        points, box = _points(ax), ax.get_window_extent()
        seen = points[(points >= [box.x0 - 1, box.y0 - 1]).all(1) & (points <= [box.x1 + 1, box.y1 + 1]).all(1)]
        if len(points) > 4 and ax.get_yscale() == "linear" and not hasattr(ax, "_colorbar"):
            if len(seen) < 0.6 * len(points):
                out.append(f"{len(seen)} of {len(points)} marks are inside of the panel")
            elif np.ptp(points[:, 1]) > 0 and np.ptp(seen[:, 1]) < box.height / 7:
                out.append(f"marks have {np.ptp(seen[:, 1]) / box.height:.0%} of the panel's height")
    return out


def _words(found: list[tuple[str, Any, Any]]) -> list[str]:
    out = []
    for words, _, artist in found:
        if artist.get_fontsize() < SMALLEST:
            out.append(f"letters of {artist.get_fontsize():.1f} points: {words!r}")
        if re.search(r"(^|\s)/?\w+/\w+/\w+|_seed\d|\d{4}-\d\d-\d\d-\d{6}", words):
            out.append(f"the name of a folder or file: {words!r}")
        if re.search(r"\d\.?\d*e([+]|-0)\d", words):
            out.append(f"a number as computers write it: {words!r}")
        if re.search(r"\b(ddqn|duelingddqn|td3_discrete|td3|ppo|sarsa|ql)\b", words):
            out.append(f"a learner as configurations name it: {words!r}")
    return out


def unit_problems(figure: Any) -> list[str]:
    labels = [label for ax in figure.axes for label in (ax.get_xlabel(), ax.get_ylabel()) if label]
    return [f"no unit: {x!r}" for x in labels if MEASURED.search(x) and not UNITS.search(x) and not NO_UNIT.search(x)]
