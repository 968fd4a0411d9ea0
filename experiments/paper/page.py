"""Pages of the paper's experiments: data files of one experiment, and worlds evolved by the dozen."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from envolve.core.cleaning import one_line
from envolve.core.statistics import summary
from envolve.experiments.paper.common.data import PER_EPISODE, PER_RUN, Data, load
from envolve.experiments.paper.common.proxies import INDEX, MODES
from envolve.experiments.paper.common.series import series_name
from envolve.outer.page.charts import MUTED, PALETTE, Dots, Line, dots, intervals, jitter, lines, robust
from envolve.outer.page.common import closing, finite, label
from envolve.outer.page.parts import Chart, Code, Curve, Fact, Film, Page, Part, Prose, Table
from envolve.outer.page.reading import Folder
from envolve.outer.reporting.names import return_range
from envolve.outer.reporting.report import duration, number, precise

MOST_FILES = 40  # data files of one page
MOST_LINES = 12  # of one chart
MOST_PICTURES = 30
POINTS = 300
WORDS = {"return": "return on the task", "train_steps": "training steps"}


def fits(folder: Folder) -> bool:
    """A folder of one experiment's data, the folder ``paper`` of all, or that of figures."""
    return bool(_files(folder.path))


def fits_worlds(folder: Folder) -> bool:
    return folder.has(INDEX) and isinstance(folder.json(INDEX), dict)


def _files(path: Path) -> list[Path]:
    """Data files: JSON files in ``paper`` or in a folder of it."""
    if path.name == "paper":
        return sorted(path.glob("*/*.json"))[:MOST_FILES]
    return sorted(path.glob("*.json"))[:MOST_FILES] if path.parent.name == "paper" else []


# ---------------------------------------------------------------------------------------------------------------- data


def read(folder: Folder) -> Page:
    found = {}
    for path in _files(folder.path):
        name = str(path.relative_to(folder.path))
        data = folder.attempt(name, partial(load, path))
        if data is not None:
            found[name] = data
    experiments = sorted({d.experiment for d in found.values()})
    tasks = sorted({d.task for d in found.values()})
    page = Page(
        folder.path,
        "Experiments of the paper",
        one_line(f"{', '.join(experiments).replace('_', ' ') or 'no data'}: {', '.join(tasks)}", 200),
        config={name: d.settings for name, d in found.items()},
    )
    quick = sum(d.quick for d in found.values())
    series = sum(len(d.series) for d in found.values())
    small = f"; {quick} of them from a quick look, too small to conclude from" if quick else ""
    page.verdict = f"{len(found)} data file{'s' * (len(found) != 1)} with {series} series{small}."
    page.facts = [
        Fact("Experiments", str(len(experiments)), ", ".join(experiments)),
        Fact("Series", str(series), ""),
        Fact("Time", duration(sum(d.seconds for d in found.values())), "wall time of all commands"),
    ]
    for name, data in found.items():
        quick_said = " (quick look)" if data.quick else ""
        page.add(
            one_line(f"{data.experiment.replace('_', ' ')}, {data.task}{quick_said}", 120), *_parts(data), lead=name
        )
    where = folder.path / "figures"
    pictures = sorted(where.glob("*.png")) if where.is_dir() else []
    page.add("Figures", *(Film(p, p.stem.replace("_", " ")) for p in pictures[:MOST_PICTURES]))
    page.add(
        "Settings", *(Code(name, yaml.safe_dump(d.settings, sort_keys=False), "yaml") for name, d in found.items())
    )
    closing(page, folder)
    return page


def _parts(data: Data) -> list[Part | None]:
    out: list[Part | None] = []
    for quantity in PER_RUN:
        out.append(_per_run(data, quantity))
    out.append(_over_episodes(data))
    known = {*PER_RUN, *PER_EPISODE, "failed"}
    others = dict.fromkeys(name for q in data.series.values() for name in q if name not in known)
    out += [_by_series(data, name) for name in others]
    out.append(_table(data))
    return out


def _per_run(data: Data, quantity: str) -> Chart | None:
    rows = []
    for (name, quantities), colour in zip(data.series.items(), [*PALETTE, *[MUTED] * len(data.series)]):
        values = [finite(v) for v in quantities.get(quantity, [])]
        fine = [v for v in values if math.isfinite(v)]
        if fine:
            s = summary(fine)
            ends = s["iqm_interval"] or [None, None]
            rows.append((f"{label(series_name(name))} ({len(fine)})", s["iqm"], ends[0], ends[1], colour))
    if not rows:
        return None
    return intervals(
        WORDS[quantity].capitalize(),
        rows,
        WORDS[quantity],
        "Interquartile mean and 95 % interval over runs (their number in brackets); equal values have none.",
        bounds=return_range({"env_name": data.task}) if quantity == "return" else None,
    )


def _over_episodes(data: Data) -> Chart | None:
    drawn = []
    for (name, quantities), colour in list(zip(data.series.items(), PALETTE * 2))[:MOST_LINES]:
        runs = [[finite(v) for v in run] for run in quantities.get("episode_return", [])]
        length = max(map(len, runs), default=0)
        if not length:
            continue
        x = sorted({round(k) for k in np.linspace(0, length - 1, min(length, POINTS))})
        middle, low, high = [], [], []
        for k in x:  # an agent that has finished keeps its last return
            at = [run[min(k, len(run) - 1)] for run in runs if run]
            at = [v for v in at if math.isfinite(v)]
            q = np.quantile(at, [0.25, 0.5, 0.75]) if at else [math.nan] * 3
            low.append(float(q[0]))
            middle.append(float(q[1]))
            high.append(float(q[2]))
        drawn.append(Line(f"{label(series_name(name))} ({len(runs)})", [k + 1 for k in x], middle, colour, low, high))
    if not drawn:
        return None
    values = [v for line in drawn for part in (line.y, line.low or [], line.high or []) for v in part]
    return lines(
        "Learning",
        drawn,
        "training episode",
        "test return on the task",
        "Medians and quartiles over agents (their number in brackets); one that has finished keeps its last return.",
        limits=robust(values, keep=[v for line in drawn for v in line.y]),
        height=400,
    )


def _by_series(data: Data, name: str) -> Chart | None:
    """Any other list of numbers: a dot each, the series beside each other."""
    groups, ticks = [], []
    for k, (series, quantities) in enumerate(data.series.items()):
        flat = [v for v in (finite(x) for x in _flat(quantities.get(name, []))) if math.isfinite(v)]
        if flat:
            groups.append(Dots("", [k + 0.5 * jitter(i) for i in range(len(flat))], flat, PALETTE[k % len(PALETTE)]))
            ticks.append((k, label(series_name(series))))
    if not groups:
        return None
    chart = dots(
        name.replace("_", " ").capitalize(),
        groups,
        "",
        name.replace("_", " "),
        height=280,
        limits=robust([v for g in groups for v in g.y]),
        xaxis={"tickvals": [k for k, _ in ticks], "ticktext": [text for _, text in ticks]},
    )
    return Chart(chart.title, chart.data, {**chart.layout, "showlegend": False}, chart.note, chart.about, chart.height)


def _flat(values: Any) -> list[Any]:
    return [x for v in values for x in _flat(v)] if isinstance(values, list) else [values]


def _table(data: Data) -> Table:
    rows = []
    for name, quantities in data.series.items():
        row: list[Any] = [name]
        for quantity in PER_RUN:
            values = [v for v in (finite(x) for x in quantities.get(quantity, [])) if math.isfinite(v)]
            row.append(precise(float(np.mean(values))) if values else "")
        failed = [reason for reason in quantities.get("failed", []) if reason]
        row += [max((len(v) for v in quantities.values()), default=0), len(failed), failed[0] if failed else ""]
        rows.append(row)
    return Table(("series", "mean return", "mean training steps", "runs", "failed", "first reason"), rows)


# -------------------------------------------------------------------------------------------------------------- worlds


def read_worlds(folder: Folder) -> Page:
    """``envolve paper train-proxy``: runs with one configuration and other seeds."""
    content = folder.json(INDEX)
    content = content if isinstance(content, dict) else {}
    known = content.get("runs")
    runs: list[Mapping[str, Any]] = [r for r in known if isinstance(r, dict)] if isinstance(known, list) else []
    mode = content.get("mode")
    what = "synthetic environments" if mode is None else f"reward networks, {MODES.get(mode, f'mode {mode}')}"
    page = Page(
        folder.path,
        "Worlds evolved with many seeds",
        one_line(f"{content.get('task', '?')}: {len(runs)} {what}", 200),
        config={k: v for k, v in content.items() if k != "runs"},
    )
    scores = [finite(r.get("score")) for r in runs]
    fine = [s for s in scores if math.isfinite(s)]
    solved = sum(bool(r.get("solved")) for r in runs)
    if fine:
        s = summary(fine)
        ends = s["iqm_interval"]
        told = "" if ends is None else f" [{precise(ends[0])}, {precise(ends[1])}]"
        page.verdict = (
            f"{solved} of {len(runs)} worlds are solved; score, interquartile mean over worlds: "
            f"{precise(s['iqm'])}{told}."
        )
    else:
        page.verdict = "No run has finished."
    price = sum(finite(r.get("real_steps")) for r in runs if math.isfinite(finite(r.get("real_steps"))))
    page.facts = [
        Fact("Worlds", str(len(runs)), f"{solved} solved"),
        Fact("Best score", number(max(fine, default=math.nan)), str(content.get("objective", ""))),
        Fact("Price", f"{price:,.0f}", "real steps spent on evolving, all worlds"),
        Fact("Failed", str(sum(bool(r.get("error")) for r in runs)), "runs"),
    ]
    columns = (
        ("seed", "seed"),
        ("score", "score"),
        ("mean return", "mean_return"),
        ("generations", "generations"),
        ("best generation", "best_generation"),
        ("real steps", "real_steps"),
    )
    rows = [
        (*(r.get(key) for _, key in columns), "yes" if r.get("solved") else "no", str(r.get("error") or ""))
        for r in runs
    ]
    page.add(
        "Worlds",
        dots(
            "Score and price",
            [Dots("", [finite(r.get("real_steps")) for r in runs], scores, size=9)],
            "real steps spent on evolving",
            "score",
        ),
        dots(
            "Generations",
            [Dots("", [finite(r.get("generations")) for r in runs], scores, size=9)],
            "generations",
            "score",
        ),
        Table((*(title for title, _ in columns), "solved", "error"), rows),
    )
    page.add("Evolution", *_curves(folder, runs))
    page.add("Next", Prose("Each folder seed<N> is a run of its own: envolve report opens it."))
    closing(page, folder)
    page.curve = Curve([float(k + 1) for k in range(len(fine))], sorted(fine), "worlds, sorted", "score")
    return page


def _curves(folder: Folder, runs: Sequence[Mapping[str, Any]]) -> list[Part | None]:
    from envolve.outer.reporting.scores import read_curve

    drawn = []
    for r, colour in zip(runs, [*PALETTE, *[MUTED] * len(runs)]):
        path = folder.path / f"seed{r.get('seed')}" / "scores.csv"
        name = f"{path.parent.name}/{path.name}"
        points = folder.attempt(name, partial(read_curve, path)) if path.is_file() else None
        if points:
            drawn.append(
                Line(f"seed {r.get('seed')}", [p.generation for p in points], [p.mean for p in points], colour)
            )
    if not drawn:
        return []
    return [
        lines(
            "Mean score of the unperturbed world",
            drawn,
            "generation",
            "score",
            limits=robust([v for line in drawn for v in line.y]),
            height=400,
        )
    ]
