"""Charts of a search over hyperparameters."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Any

from envolve.outer.hpo.axes import Axis, value_text
from envolve.outer.hpo.importance import FANOVA, INTERVAL
from envolve.outer.hpo.pictures import LossScale, number_ticks
from envolve.outer.hpo.report import last_line, name_of
from envolve.outer.hpo.standings import agreements, succeeded
from envolve.outer.hpo.trial import Record
from envolve.outer.page.charts import PALETTE, Dots, Line, axis, dots, lines, log_axis, numbers, robust
from envolve.outer.page.common import label
from envolve.outer.page.parts import Chart, Parallel, Part
from envolve.outer.reporting.report import precise

MOST_SLICES = 12
MOST_AXES = 14  # of the parallel coordinates; the most important ones
MOST_LINES = 2_000
ENOUGH = 8  # trials, with which a budget is shown first


def _ticks(a: Axis) -> list[tuple[float, str]]:
    if a.choices:
        return [(a.place(c), value_text(c)[:14]) for c in a.choices[:16]]
    return [(p, t) for p, t in number_ticks(a.low, a.high, a.log, a.whole)]


def parallel(
    records: Sequence[Record],
    axes: Sequence[Axis],
    names: dict[str, str],
    budgets: Sequence[float],
    loss: str,
    unit: str,
) -> Parallel:
    shown, groups = list(axes[:MOST_AXES]), list[tuple[str, Sequence[int]]]()
    lines_: list[dict[str, Any]] = []
    count = {b: sum(r.trial.budget == b for r in records) for b in budgets}
    first = next((b for b in reversed(budgets) if count[b] >= ENOUGH), max(budgets, key=lambda b: count[b]))
    for budget in [first, *(b for b in reversed(budgets) if b != first)]:
        here = [r for r in records if r.trial.budget == budget][-MOST_LINES:]
        scale = LossScale([r.result.loss for r in here])
        groups.append((_name(budget, unit), list(range(len(lines_), len(lines_) + len(here)))))
        for r in here:
            place = min(1.0, max(0.0, scale.place(r.result.loss))) if succeeded(r) else None
            values = [r.trial.values.get(a.name) for a in shown]
            said = "; ".join(f"{names[a.name]} {value_text(v)}" for a, v in zip(shown, values) if v is not None)
            result = f"{loss} {precise(r.result.loss)}" if succeeded(r) else f"failed: {last_line(r.result.error)}"
            lines_.append(
                {
                    "label": f"configuration {name_of(r.trial.config_id)}, trial {r.trial.id}",
                    "text": f"{result}; {said}",
                    "places": [None if v is None else _place(a, v) for a, v in zip(shown, values)] + [place],
                    "shade": None if place is None else 1 - place,
                }
            )
    every = any(succeeded(r) for r in records)
    ends = [(0.0, "best"), (1.0, "worst")] if every else []
    given = [{"name": names[a.name], "ticks": _ticks(a)} for a in shown] + [{"name": "loss", "ticks": ends}]
    left = f" The {len(shown)} most important of {len(axes)} parameters are shown." if len(axes) > len(shown) else ""
    note = f"Strong lines have low losses; dashed ones failed. The last axis is the {loss} within this budget.{left}"
    return Parallel(given, lines_, groups, note)


def _place(a: Axis, value: Any) -> float:
    return round(min(1.0, max(0.0, a.place(value))), 4)


def _colour(budgets: Sequence[float], budget: float) -> str:
    return PALETTE[list(budgets).index(budget) % len(PALETTE)]


def _name(budget: float, unit: str) -> str:
    return f"{budget:g} {unit}" if unit else f"budget {budget:g}"


def time_line(records: Sequence[Record], budgets: Sequence[float], loss: str, unit: str) -> Chart:
    begin = min(r.submitted for r in records)
    groups = []
    for budget in budgets:
        here = [r for r in records if r.trial.budget == budget and succeeded(r)]
        texts = [
            f"trial {r.trial.id}, configuration {name_of(r.trial.config_id)}<br>{label(loss)} {precise(r.result.loss)}"
            for r in here
        ]
        groups.append(
            Dots(
                _name(budget, unit),
                [(r.finished - begin) / 60 for r in here],
                [r.result.loss for r in here],
                _colour(budgets, budget),
                size=7,
                texts=texts,
            )
        )
    values = [r.result.loss for r in records if succeeded(r)]
    said = datetime.fromtimestamp(begin, timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    return dots(
        "Time line",
        groups,
        "minutes since the first trial",
        loss,
        f"One colour per budget. Begun {said}.",
        limits=robust(values),
    )


def across_budgets(records: Sequence[Record], budgets: Sequence[float], loss: str, unit: str) -> Chart | None:
    """Lines join the trials of one configuration: do small budgets foretell large ones?"""
    if len(budgets) < 2:
        return None
    by: dict[Any, list[Record]] = {}
    for r in records:
        if succeeded(r):
            by.setdefault(r.trial.config_id, []).append(r)
    data = []
    for config, own in by.items():
        if len(own) > 1:
            own = sorted(own, key=lambda r: r.trial.budget)
            data.append(
                Line(
                    f"configuration {name_of(config)}",
                    [r.trial.budget for r in own],
                    [r.result.loss for r in own],
                    "muted",
                    width=1,
                    marks=True,
                )
            )
    if not data:
        return None
    told = "; ".join(
        f"{a.low:g} and {a.high:g}: {a.rho:.2f} over {a.configurations}" for a in agreements(records) if a.rho == a.rho
    )
    note = (
        f"Rank correlation of neighbouring budgets: {told} configurations."
        if told
        else "Few configurations have two budgets."
    )
    log = len(budgets) > 1 and budgets[-1] > 4 * budgets[0]
    chart = lines(
        "Do small budgets foretell large ones?",
        data,
        f"budget, {unit}",
        loss,
        note,
        limits=robust([r.result.loss for r in records if succeeded(r)]),
        xaxis={"type": "log", "tickvals": list(budgets)} if log else {},
    )
    return Chart(chart.title, chart.data, {**chart.layout, "showlegend": False}, chart.note, chart.about, chart.height)


def slices(
    records: Sequence[Record],
    axes: Sequence[Axis],
    names: dict[str, str],
    budgets: Sequence[float],
    loss: str,
    unit: str,
) -> list[Part | None]:
    limits = robust([r.result.loss for r in records if succeeded(r)])
    out: list[Part | None] = []
    for a in axes[:MOST_SLICES]:
        groups = []
        for budget in budgets:
            here = [r for r in records if r.trial.budget == budget and succeeded(r) and a.name in r.trial.values]
            if not here:
                continue
            values = [r.trial.values[a.name] for r in here]
            x: list[Any] = [float(a.position(v)) for v in values] if a.choices else [float(v) for v in values]
            texts = [f"{label(value_text(v))}<br>{label(loss)} {precise(r.result.loss)}" for v, r in zip(values, here)]
            groups.append(
                Dots(
                    _name(budget, unit), x, [r.result.loss for r in here], _colour(budgets, budget), size=6, texts=texts
                )
            )
        drawn = [x for g in groups for x in g.x]
        own: dict[str, Any] = (log_axis(drawn, 1.0) or {"type": "log"}) if a.log and not a.choices else {}
        if a.choices:
            own = {"tickvals": list(range(len(a.choices))), "ticktext": [label(value_text(c)) for c in a.choices]}
        out.append(dots(names[a.name], groups, names[a.name], loss, limits=limits, height=270, xaxis=own))
    return out


def importance(found: Any, names: dict[str, str]) -> Chart | None:
    if not found.shares:
        return None
    items = list(found.shares.items())[:30]
    rest = 1 - sum(s.share for s in found.shares.values())
    bars = [(label(names.get(n, n)), s.share, PALETTE[0]) for n, s in items]
    if found.method == FANOVA and rest > 0:
        bars.append(("interactions", rest, "muted"))
    data = [
        {
            "type": "bar",
            "orientation": "h",
            "x": numbers([100 * b[1] for b in bars]),
            "y": [b[0] for b in bars],
            "marker": {"color": [b[2] for b in bars]},
            "showlegend": False,
            "hovertemplate": "%{y}: %{x:.1f} %<extra></extra>",
        }
    ]
    what = "share of the variance, %" if found.method == FANOVA else "share, %"
    layout = {
        "xaxis": axis(what, rangemode="tozero"),
        "margin": {"l": 10},
        "yaxis": {"autorange": "reversed", "automargin": True, "type": "category", "ticklabelstandoff": 8},
    }
    ends = [s.interval for _, s in items]
    if any(e is not None for e in ends):
        rest_of = [None] * (len(bars) - len(items))
        sides = [[100 * abs(e[k] - s.share) if e else None for (_, s), e in zip(items, ends)] for k in (1, 0)]
        data[0]["error_x"] = {
            "type": "data",
            "symmetric": False,
            "array": [*sides[0], *rest_of],
            "arrayminus": [*sides[1], *rest_of],
            "color": "muted",
            "thickness": 1.2,
            "width": 4,
        }
    note = f"{found.method}, {found.trials} trials at budget {found.budget:g}."
    note += f" {INTERVAL.replace('In brackets', 'Whiskers')}" if "error_x" in data[0] else ""
    return Chart("Which parameters matter", data, layout, note, "Importance of parameters", 110 + 30 * len(bars))
