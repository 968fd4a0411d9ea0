"""Several runs side by side: their figures, their curves, and where their configurations differ."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from envolve.core.cleaning import one_line
from envolve.outer.page.charts import MUTED, PALETTE, Line, lines, robust
from envolve.outer.page.common import label
from envolve.outer.page.parts import Chart, Curve, Fact, Page, Part, Prose, Table

MOST_ROWS = 400
LONGEST = 80  # characters of a value
ABSENT = "(absent)"


def names_of(pages: Sequence[Page]) -> list[str]:
    """What tells the runs apart: A, B, ..., as in the table at the top."""
    return [chr(ord("A") + i) if i < 26 else f"R{i + 1}" for i in range(len(pages))]


def compare(pages: Sequence[Page]) -> Page:
    names = names_of(pages)
    page = Page(Path(), "Comparison", f"{len(pages)} runs side by side")
    page.add(
        "Runs",
        Table(
            ("", "kind", "run", "folder", "state"),
            [(n, p.kind, p.title, str(p.folder), p.state) for n, p in zip(names, pages)],
        ),
    )
    page.add("Figures", _facts(pages, names))
    page.add("Curves", *_curves(pages, names))
    page.add("Configurations", *_differences(pages, names))
    return page


def _facts(pages: Sequence[Page], names: Sequence[str]) -> Table | None:
    titles = list(dict.fromkeys(fact.name for p in pages for fact in p.facts))
    rows = [["What came out", *(p.verdict for p in pages)]] if any(p.verdict for p in pages) else []
    for title in titles:
        row: list[str] = [title]
        for p in pages:
            fact = next((f for f in p.facts if f.name == title), None)
            row.append("" if fact is None else _said(fact))
        rows.append(row)
    return Table(("", *names), rows) if rows else None


def _said(fact: Fact) -> str:
    """200.0 [198.8, 200.0] after 1,500 steps; 75, at most 200."""
    between = " " if not fact.note or fact.note[0] in "[(" else ", "
    return f"{fact.value}{between}{fact.note}".strip()


def _curves(pages: Sequence[Page], names: Sequence[str]) -> list[Part | None]:
    """Curves with the same axes share a chart."""
    titles = {p.title for p in pages}
    groups: dict[tuple[str, str], list[tuple[str, Curve, str]]] = {}
    for name, p, colour in zip(names, pages, [*PALETTE, *[MUTED] * len(pages)]):
        if p.curve is not None and len(p.curve.x):
            key = p.curve.x_title, p.curve.y_title
            told = f"{name}: {label(p.title)}" if len(titles) > 1 else name
            groups.setdefault(key, []).append((told, p.curve, colour))
    out: list[Part | None] = []
    for (x, y), found in groups.items():
        drawn = [Line(name, c.x, c.y, colour, marks=len(c.x) < 20) for name, c, colour in found]
        values = [v for _, c, _ in found for v in c.y if math.isfinite(v)]
        chart: Chart = lines(
            y[:1].upper() + y[1:],
            drawn,
            x,
            y,
            "One run each: the difference between two runs may be chance.",
            limits=robust(values),
            height=380,
        )
        out.append(chart)
    return out


def flat(value: Any, before: str = "") -> dict[str, str]:
    """Nested keys as dotted ones."""
    if isinstance(value, Mapping):
        out: dict[str, str] = {}
        for key, inner in value.items():
            out |= flat(inner, f"{before}.{key}" if before else str(key))
        return out or ({before: "{}"} if before else {})
    return {before: one_line(str(value), LONGEST)}


def differences(configs: Sequence[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """Rows of key and each configuration's value, for the keys that are not the same in all."""
    flats = [flat(config) for config in configs]
    keys = list(dict.fromkeys(key for f in flats for key in f))
    rows = [(key, *(f.get(key, ABSENT) for f in flats)) for key in keys]
    return [row for row in rows if len(set(row[1:])) > 1]


def _differences(pages: Sequence[Page], names: Sequence[str]) -> list[Part | None]:
    rows = differences([p.config for p in pages])
    if not rows:
        return [Prose("The configurations are the same.")]
    more = Prose(f"{len(rows) - MOST_ROWS:,} more keys differ.") if len(rows) > MOST_ROWS else None
    caption = "1 key differs" if len(rows) == 1 else f"{len(rows):,} keys differ"
    return [Table(("key", *names), rows[:MOST_ROWS], caption), more]
