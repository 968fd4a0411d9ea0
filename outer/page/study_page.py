"""The page of a search over hyperparameters: ``envolve tune``, or a folder of hpbandster."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Any


from envolve.core.cleaning import one_line
from envolve.outer.hpo.axes import Axis, axes_of, short_names, value_text
from envolve.outer.hpo.importance import FANOVA, importance_of
from envolve.outer.hpo.pictures import LossScale, number_ticks
from envolve.outer.hpo.report import finished, last_line, loss_name, name_of, title_of
from envolve.outer.hpo.standings import agreements, ranked, rungs, succeeded
from envolve.outer.hpo.trial import Record
from envolve.outer.hpo.trial_log import TrialLog
from envolve.outer.page.charts import PALETTE, Dots, Line, axis, dots, lines, numbers, robust
from envolve.outer.page.common import closing, configuration, label
from envolve.outer.page.parts import COMPLETE, Chart, Code, Curve, Fact, Page, Parallel, Part, Prose, Table
from envolve.outer.page.reading import Folder, header
from envolve.outer.reporting.report import duration, precise

MOST_SLICES = 12
MOST_AXES = 14  # of the parallel coordinates; the most important ones
MOST_LINES = 2_000
ENOUGH = 8  # trials, with which a budget is shown first
BEST = 15


def fits(folder: Folder) -> bool:
    return folder.has("results.json") and folder.has("configs.json") or folder.has("study.yaml")


def read(folder: Folder) -> Page:
    study: Any = None
    if folder.has("study.yaml"):
        study = folder.attempt("study.yaml", lambda: _study(folder))
    log = TrialLog(folder.path)
    records = folder.attempt("results.json", lambda: log.read(repair=False)) or []
    text = folder.text("study.yaml")
    config = folder.yaml("study.yaml")
    page = Page(folder.path, "Search over hyperparameters", title(config, study), config=config)
    done = study is not None and finished(study, records)
    page.state = COMPLETE if done or study is None else folder.state("done")
    axes = axes_of(study.space.config_space if study is not None else None, records)
    loss = loss_name(study)
    unit = study.budget.unit if study is not None else ""
    page.verdict = verdict(records, loss, unit)
    page.facts = _facts(records, unit)
    found = importance_of(records, axes)
    order = [*found.shares, *(a.name for a in axes if a.name not in found.shares)]
    axes = sorted(axes, key=lambda a: order.index(a.name))
    names = short_names([a.name for a in axes])
    budgets = sorted({r.trial.budget for r in records})
    page.curve = _best_curve(records, loss)
    if records:
        page.add("All configurations", _parallel(records, axes, names, budgets, loss, unit),
                 lead="One line is one configuration at one budget. Losses of different budgets are not comparable, so "
                      "that one budget is shown at a time.")  # fmt: skip
        page.add("Over time", _time(records, budgets, loss, unit), _budgets(records, budgets, loss, unit))
        page.add("Each parameter", *_slices(records, axes, names, budgets, loss, unit))
        page.add("Importance", _importance(found, names), Prose("\n".join(found.lines()), mono=True))
        page.add("The best", _best(records, axes, names, loss), _standings(records, unit))
        page.add("Failures", _failures(records))
    best = folder.text("best.yaml")
    page.add("Configuration", Code("best.yaml, the best configuration", best, "yaml") if best else None,
             *configuration(folder, "study.yaml", text, header(text)))  # fmt: skip
    closing(page, folder)
    return page


def title(config: dict[str, Any], study: Any) -> str:
    """What is tuned for which task; a folder of hpbandster does not say."""
    base = config.get("config")
    base = base if isinstance(base, dict) else {}
    run, agents = base.get("run"), base.get("agents")
    gtn = agents.get("gtn") if isinstance(agents, dict) else None
    task = base.get("env_name") or (run.get("env_name") if isinstance(run, dict) else None)
    agent = gtn.get("agent_name") if isinstance(gtn, dict) else run.get("agent") if isinstance(run, dict) else None
    if not task:
        return "Hyperparameters" if study is None else one_line(title_of(study), 200)
    what = {"nes": "the evolution with", "goal": "the learner"}.get(str(config.get("evaluate")), "agents of")
    return one_line(f"{task}: hyperparameters of {what} {agent or 'unknown kind'}", 200)


def _study(folder: Folder) -> Any:
    from envolve.outer.hpo.study import read_study  # needs ConfigSpace, which folders of hpbandster do without

    return read_study(folder.path / "study.yaml")


def verdict(records: Sequence[Record], loss: str, unit: str) -> str:
    best = next(iter(ranked(records)), None)
    if best is None:
        return "No trial has succeeded." if records else "No trial has finished."
    n = len({r.trial.config_id for r in records})
    at = sum(1 for r in ranked(records))
    how = "proposed by the model" if best.trial.model_based else "drawn at random"
    return (
        f"The lowest {loss} at {best.trial.budget:g} {unit} is {precise(best.result.loss)}, of configuration "
        f"{name_of(best.trial.config_id)}, {how}. It is the best of {at} at this budget, and of {n} in all; the lowest "
        "of many noisy losses flatters, so test it with fresh seeds."
    )


def _facts(records: Sequence[Record], unit: str) -> list[Fact]:
    if not records:
        return []
    failed = sum(not succeeded(r) for r in records)
    first = {r.trial.config_id: r.trial for r in reversed(records)}
    seconds = max(r.finished for r in records) - min(r.submitted for r in records)
    best = next(iter(ranked(records)), None)
    facts = [Fact("Lowest loss", precise(best.result.loss), f"at {best.trial.budget:g} {unit}")] if best else []
    facts += [
        Fact("Trials", f"{len(records):,}", f"{failed} failed"),
        Fact("Configurations", f"{len(first):,}", f"{sum(t.model_based for t in first.values())} proposed by the model"),
        Fact("Price", f"{sum(r.trial.budget for r in records):,.6g}", f"{unit or 'budget'} in all"),
        Fact("Time", duration(max(0.0, seconds)), "from the first to the last trial"),
    ]
    return facts


def _best_curve(records: Sequence[Record], loss: str) -> Curve | None:
    top = max((r.trial.budget for r in records if succeeded(r)), default=math.nan)
    x, y, best, spent = [], [], math.inf, 0.0
    for r in records:
        spent += r.trial.budget
        if r.trial.budget == top and r.result.loss < best:
            best = r.result.loss
            x.append(spent)
            y.append(best)
    return Curve(x, y, "budget spent", f"lowest {loss}") if x else None


def _ticks(a: Axis) -> list[tuple[float, str]]:
    if a.choices:
        return [(a.place(c), value_text(c)[:14]) for c in a.choices[:16]]
    return [(p, t) for p, t in number_ticks(a.low, a.high, a.log, a.whole)]


def _parallel(
    records: Sequence[Record], axes: Sequence[Axis], names: dict[str, str], budgets: Sequence[float], loss: str, unit: str
) -> Parallel:  # fmt: skip
    shown, lines_, groups = list(axes[:MOST_AXES]), [], {}
    count = {b: sum(r.trial.budget == b for r in records) for b in budgets}
    first = next((b for b in reversed(budgets) if count[b] >= ENOUGH), max(budgets, key=lambda b: count[b]))
    for budget in [first, *(b for b in reversed(budgets) if b != first)]:
        here = [r for r in records if r.trial.budget == budget][-MOST_LINES:]
        scale = LossScale([r.result.loss for r in here])
        groups[f"{budget:g} {unit}".strip()] = range(len(lines_), len(lines_) + len(here))
        for r in here:
            place = min(1.0, max(0.0, scale.place(r.result.loss))) if succeeded(r) else None
            values = [r.trial.values.get(a.name) for a in shown]
            said = "; ".join(f"{names[a.name]} {value_text(v)}" for a, v in zip(shown, values) if v is not None)
            result = f"{loss} {precise(r.result.loss)}" if succeeded(r) else f"failed: {last_line(r.result.error)}"
            lines_.append({
                "label": f"configuration {name_of(r.trial.config_id)}, trial {r.trial.id}", "text": f"{result}; {said}",
                "places": [None if v is None else _place(a, v) for a, v in zip(shown, values)] + [place],
                "shade": None if place is None else 1 - place,
            })  # fmt: skip
    every = [r.result.loss for r in records if succeeded(r)]
    ends = [(0.0, "best"), (1.0, "worst")] if every else []
    given = [{"name": names[a.name], "ticks": _ticks(a)} for a in shown] + [{"name": "loss", "ticks": ends}]
    left = f" The {len(shown)} most important of {len(axes)} parameters are shown." if len(axes) > len(shown) else ""
    note = f"Strong lines have low losses; dashed ones failed. The last axis is the {loss} within this budget.{left}"
    return Parallel(given, lines_, {k: list(v) for k, v in groups.items()}, note)


def _place(a: Axis, value: Any) -> float:
    return round(min(1.0, max(0.0, a.place(value))), 4)


def _colour(budgets: Sequence[float], budget: float) -> str:
    return PALETTE[list(budgets).index(budget) % len(PALETTE)]


def _name(budget: float, unit: str) -> str:
    return f"{budget:g} {unit}".strip()


def _time(records: Sequence[Record], budgets: Sequence[float], loss: str, unit: str) -> Chart:
    begin = min(r.submitted for r in records)
    groups = []
    for budget in budgets:
        here = [r for r in records if r.trial.budget == budget and succeeded(r)]
        texts = [f"trial {r.trial.id}, configuration {name_of(r.trial.config_id)}<br>{label(loss)} {precise(r.result.loss)}"
                 for r in here]  # fmt: skip
        groups.append(Dots(_name(budget, unit), [(r.finished - begin) / 60 for r in here], [r.result.loss for r in here],
                           _colour(budgets, budget), size=7, texts=texts))  # fmt: skip
    values = [r.result.loss for r in records if succeeded(r)]
    said = datetime.fromtimestamp(begin, timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    return dots("Time line", groups, "minutes since the first trial", loss, f"One colour per budget. Begun {said}.",
                limits=robust(values))  # fmt: skip


def _budgets(records: Sequence[Record], budgets: Sequence[float], loss: str, unit: str) -> Chart:
    """Lines join the trials of one configuration: do small budgets foretell large ones?"""
    by: dict[Any, list[Record]] = {}
    for r in records:
        if succeeded(r):
            by.setdefault(r.trial.config_id, []).append(r)
    data = []
    for config, own in by.items():
        if len(own) > 1:
            own = sorted(own, key=lambda r: r.trial.budget)
            data.append(Line(f"configuration {name_of(config)}", [r.trial.budget for r in own],
                             [r.result.loss for r in own], "muted", width=1, marks=True))  # fmt: skip
    told = "; ".join(f"{a.low:g} and {a.high:g}: {a.rho:.2f} over {a.configurations}" for a in agreements(records)
                     if a.rho == a.rho)  # fmt: skip
    note = f"Rank correlation of neighbouring budgets: {told} configurations." if told else "Few configurations have two budgets."
    log = len(budgets) > 1 and budgets[-1] > 4 * budgets[0]
    chart = lines("Do small budgets foretell large ones?", data, f"budget, {unit}", loss, note,
                  limits=robust([r.result.loss for r in records if succeeded(r)]),
                  xaxis={"type": "log", "tickvals": list(budgets)} if log else {})  # fmt: skip
    return Chart(chart.title, chart.data, {**chart.layout, "showlegend": False}, chart.note, chart.about, chart.height)


def _slices(
    records: Sequence[Record], axes: Sequence[Axis], names: dict[str, str], budgets: Sequence[float], loss: str, unit: str
) -> list[Part | None]:  # fmt: skip
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
            groups.append(Dots(_name(budget, unit), x, [r.result.loss for r in here], _colour(budgets, budget), size=6,
                               texts=texts))  # fmt: skip
        own: dict[str, Any] = {"type": "log"} if a.log else {}
        if a.choices:
            own = {"tickvals": list(range(len(a.choices))), "ticktext": [label(value_text(c)) for c in a.choices]}
        out.append(dots(names[a.name], groups, names[a.name], loss, limits=limits, height=270, xaxis=own))
    return out


def _importance(found: Any, names: dict[str, str]) -> Chart | None:
    if not found.shares:
        return None
    items = list(found.shares.items())[:30]
    rest = 1 - sum(s.share for s in found.shares.values())
    bars = [(label(names.get(n, n)), s.share, PALETTE[0]) for n, s in items]
    if found.method == FANOVA and rest > 0:
        bars.append(("interactions", rest, "muted"))
    data = [{
        "type": "bar", "orientation": "h", "x": numbers([100 * b[1] for b in bars]), "y": [b[0] for b in bars],
        "marker": {"color": [b[2] for b in bars]}, "showlegend": False, "hovertemplate": "%{y}: %{x:.1f} %<extra></extra>",
    }]  # fmt: skip
    what = "share of the variance of the loss, %" if found.method == FANOVA else "share of what sets the best apart, %"
    layout = {"xaxis": axis(what, rangemode="tozero"), "margin": {"l": 10},
              "yaxis": {"autorange": "reversed", "automargin": True, "type": "category", "ticklabelstandoff": 8}}  # fmt: skip
    note = f"{found.method}, {found.trials} trials at budget {found.budget:g}."
    return Chart("Which parameters matter", data, layout, note, "Importance of parameters", 110 + 30 * len(bars))


def _best(records: Sequence[Record], axes: Sequence[Axis], names: dict[str, str], loss: str) -> Table | None:
    order = ranked(records)[:BEST]
    if not order:
        return None
    rows = [(name_of(r.trial.config_id), r.result.loss, "model" if r.trial.model_based else "random",
             *(value_text(r.trial.values[a.name]) if a.name in r.trial.values else "-" for a in axes)) for r in order]  # fmt: skip
    head = ("configuration", loss, "proposed", *(names[a.name] for a in axes))
    return Table(head, rows, f"The best at a budget of {order[0].trial.budget:g}")


def _standings(records: Sequence[Record], unit: str) -> Table:
    rows = [(f"{rung.budget:g}", rung.trials, rung.failed, rung.best, rung.median) for rung in rungs(records)]
    return Table((f"budget, {unit}" if unit else "budget", "trials", "failed", "lowest loss", "median"), rows, "Trials by budget")


def _failures(records: Sequence[Record]) -> Table | None:
    lost = [r for r in records if not succeeded(r)]
    if not lost:
        return None
    return Table(("trial", "configuration", "budget", "reason"),
                 [(r.trial.id, name_of(r.trial.config_id), r.trial.budget, last_line(r.result.error)) for r in lost])  # fmt: skip
