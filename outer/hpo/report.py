"""Report of a study: summary.txt, best.yaml, importance.json and the pictures."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from envolve.core import commands
from envolve.envs.worlds.file import write_atomic
from envolve.outer.config.load import dump_config
from envolve.outer.config.yaml_lines import ConfigError
from envolve.outer.hpo import pictures
from envolve.outer.hpo.axes import Axis, axes_of, shown, value_text
from envolve.outer.hpo.importance import importance_of
from envolve.outer.hpo.standings import Agreement, agreements, ranked, rungs, succeeded
from envolve.outer.hpo.trial import ConfigID, Record
from envolve.outer.reporting.report import duration, precise

if TYPE_CHECKING:
    from envolve.outer.hpo.study import Study

BEST = 10  # columns of the table
REASONS, REASON = 8, 160  # most kinds of failure to name, and most characters of each
FILES = (  # what a study leaves in its folder, in the order the summary names it
    ("best.yaml", "the best configuration, complete"),
    ("results.json", "every trial; hpbandster reads it"),
    ("configs.json", "every configuration"),
    ("parallel_coordinates.png", "all configurations, a line each"),
    ("budget_loss.png", "do small budgets foretell large ones, and the best over time"),
    ("importance.png", "which parameters matter"),
    ("importance.json", "the same as numbers"),
    ("runs", "the runs behind the trials"),
)


def write_report(folder: Path, study: Study | None, records: Sequence[Record], run_dir: Path | None = None) -> str:
    """Writes all files of the report into the folder and returns the text of summary.txt. study: None for a folder of
    hpbandster, which has no best.yaml. run_dir: the study's folder, if it is another one. Raises OSError."""
    run_dir = run_dir if run_dir is not None else folder
    axes = axes_of(study.space.config_space if study is not None else None, records)
    importance = importance_of(records, axes)
    _write(folder / "importance.json", json.dumps(importance.as_json(), indent=1) + "\n")
    problem = _write_best(folder / "best.yaml", study, records)
    title = title_of(study) if study is not None else run_dir.resolve().name
    heading = f"{study.env_name}: {study.backend}, seed {study.seed}" if study is not None else "Configurations"
    if records:
        pictures.parallel_coordinates(folder / "parallel_coordinates.png", records, axes, heading, loss_name(study))
        pictures.budget_loss(folder / "budget_loss.png", records, heading, loss_name(study), budget_name(study))
        pictures.importance_bars(folder / "importance.png", importance, heading)
    lines = [*_searched(title, study, axes), *_trials(study, records), *_failures(records)]
    lines += [*_best(study, records, axes), "", *importance.lines()]
    lines += [*_files(folder, run_dir, problem), *_how_to_go_on(folder, run_dir, study, records, problem)]
    text = "\n".join(lines)
    _write(folder / "summary.txt", text + "\n")
    return text


def _write(path: Path, text: str) -> None:
    write_atomic(str(path), text.encode("utf-8", "backslashreplace"))


def _write_best(path: Path, study: Study | None, records: Sequence[Record]) -> str:
    """Writes best.yaml -> why there is none; empty: there is."""
    if study is None:
        return "the study's YAML is not here"
    best = next(iter(ranked(records)), None)
    if best is None:
        return "no trial succeeded"
    try:
        config = study.member_config(best.trial.values)
    except ConfigError as e:  # of an older version, perhaps; the rest of the report is worth having
        return f"its values do not fit the configuration any more: {e}"
    loss, budget = repr(best.result.loss), f"{best.trial.budget:g} {study.budget.unit}"
    extra = {"study": title_of(study), "trial": best.trial.id, "configuration": name_of(best.trial.config_id)}
    _write(path, dump_config(config, {**extra, f"loss ({study.loss})": loss, "at a budget of": budget}))
    return ""


def title_of(study: Study) -> str:
    """Name of the study; if it was read from the copy study.yaml, the name of its folder."""
    return study.name if study.name != "study" else Path(study.path).resolve().parent.name


def name_of(config_id: ConfigID) -> str:
    """Bracket and number within it, as in the folder names of runs."""
    return f"{config_id[0]}_{config_id[2]}"


def loss_name(study: Study | None) -> str:
    return f"loss ({study.loss})" if study is not None else "loss"


def budget_name(study: Study | None) -> str:
    return f"budget ({study.budget.unit})" if study is not None else "budget"


def _files(folder: Path, run_dir: Path, no_best: str) -> list[str]:
    """no_best: why there is no best.yaml; one of an earlier report does not count."""
    there = [(folder / name if (folder / name).exists() else run_dir / name, what) for name, what in FILES]
    rows = [[str(path), what] for path, what in there if path.exists() and not (no_best and path.name == "best.yaml")]
    return ["", "Files:", *table(rows)]


def _how_to_go_on(
    folder: Path, run_dir: Path, study: Study | None, records: Sequence[Record], no_best: str
) -> list[str]:
    lines = []
    if study is not None and not finished(study, records):
        lines += ["", "The search has not ended. Unless it runs, continue it:"]
        lines += [f"  {' '.join(commands.typed('optimize_params.py'))} --resume {run_dir}"]
    if no_best:
        return [*lines, "", f"There is no best.yaml: {no_best}."]
    lines += ["", "A run with the best configuration, at its full length:"]
    if study is not None and study.evaluate == "goal":
        put = f"  mkdir results/best && cp {folder / 'best.yaml'} results/best/config.yaml"
        return [*lines, put, f"  {' '.join(commands.typed('train_goal.py'))} --resume results/best"]
    return [*lines, f"  {' '.join(commands.typed('GTN_master.py'))} {folder / 'best.yaml'} --single"]


def finished(study: Study, records: Sequence[Record]) -> bool:
    """True if one of the study's limits is reached."""
    if study.trials is not None and len(records) >= study.trials:
        return True
    spent = sum(r.trial.budget for r in records)
    return study.full_evaluations is not None and spent >= study.full_evaluations * study.budget.most * (1 - 1e-9)


def _searched(title: str, study: Study | None, axes: Sequence[Axis]) -> list[str]:
    if study is None:
        return [f"{title}: {len(axes)} parameters, with the ranges of the trials: the study's YAML is not here."]
    what = f"runs of the outer loop, {study.loss}" if study.evaluate == "nes" else f"agents alone, {study.loss}"
    if study.evaluate == "nes" and study.repeats > 1:
        what += f", mean of {study.repeats} runs"
    if study.evaluate == "goal":
        what = f"{study.loss} of {plural(study.agents, 'agent')} in {study.env_name}"
    if study.evaluate == "agent":
        what += f", trained in {'the task itself' if not study.worlds else plural(len(study.worlds), 'world')}"
    b = study.budget
    lines = [f"{title}: {len(axes)} parameters of {study.config.path}", f"  judged by  {what}; lower is better"]
    brackets = "" if study.backend == "random" else f" brackets {study.bracket},"
    lines += [f"  search     {study.backend},{brackets} seed {study.seed}, {study.parallel} at a time"]
    return [*lines, f"  budget     {b.unit}, {b.least:g} to {b.most:g}, eta {b.eta:g}"]


def _trials(study: Study | None, records: Sequence[Record]) -> list[str]:
    if not records:
        return ["", "No trial has finished."]
    first = {r.trial.config_id: r.trial for r in reversed(records)}
    model = sum(t.model_based for t in first.values())
    bad = sum(not succeeded(r) for r in records)
    seconds = max(r.finished for r in records) - min(r.submitted for r in records)
    count = f"{plural(len(records), 'trial')} of {plural(len(first), 'configuration')}"
    lines = ["", f"{count}: {model} of the model, {len(first) - model} at random; {bad} failed."]
    took = f"From the first to the last {duration(max(0.0, seconds))}"
    if study is not None:
        full = sum(r.trial.budget for r in records) / study.budget.most
        limit = f" of {study.full_evaluations:g}" if study.full_evaluations is not None else ""
        took += f"; the budgets add up to {full:.4g}{limit} full evaluations"
    lines += [took + ".", ""]
    rows = [["budget", "trials", "failed", "best", "median"]]
    for rung in rungs(records):
        rows.append([f"{rung.budget:g}", str(rung.trials), str(rung.failed), precise(rung.best), precise(rung.median)])
    lines += table(rows, right=range(5))
    return lines + [agreement_text(a) for a in agreements(records)]


def agreement_text(a: Agreement) -> str:
    both = f"over {plural(a.configurations, 'configuration')} with both"
    known = f"{a.rho:.2f}" if a.rho == a.rho else "unknown"
    return f"  rank correlation of budgets {a.low:g} and {a.high:g}: {known}, {both}"


def _failures(records: Sequence[Record]) -> list[str]:
    """Reasons of failures; those that differ only in numbers count as one."""
    kinds: dict[str, list[Record]] = {}
    for r in records:
        if not succeeded(r):
            kinds.setdefault(re.sub(r"\d+", "#", last_line(r.result.error)), []).append(r)
    if not kinds:
        return []
    lines = ["", "Failed:"]
    grouped = sorted(kinds.values(), key=lambda rs: (-len(rs), rs[0].trial.id))
    for members in grouped[:REASONS]:
        reason = shown(last_line(members[0].result.error), REASON)
        ids = ", ".join(str(r.trial.id) for r in members[:8]) + ", ..." * (len(members) > 8)
        lines.append(f"  {len(members)} x {reason} (trial{'s' * (len(members) > 1)} {ids})")
    if len(grouped) > REASONS:
        lines.append(f"  and {plural(len(grouped) - REASONS, 'other reason')}, in results.json")
    return lines


def _best(study: Study | None, records: Sequence[Record], axes: Sequence[Axis]) -> list[str]:
    """Table with parameters as rows, because there may be many."""
    order = ranked(records)
    if not order:
        return ["", "All trials failed: there is no best configuration."] if records else []
    top, unit = order[0].trial.budget, f" {study.budget.unit}" if study is not None else ""
    columns = order[:BEST]
    lines = ["", f"The best of {len(order)} at a budget of {top:g}{unit} (columns: configuration as bracket_number):"]
    most = max(r.trial.budget for r in records)
    if top < most:
        lines[-1:] = [f"No trial at a budget of {most:g} succeeded.", lines[-1]]
    rows = [["", *(name_of(r.trial.config_id) for r in columns)], ["loss", *(precise(r.result.loss) for r in columns)]]
    rows += [["proposed", *("model" if r.trial.model_based else "random" for r in columns)]]
    for axis in axes:
        values = [r.trial.values.get(axis.name) for r in columns]
        rows.append([shown(axis.name, 80), *("-" if v is None else value_text(v) for v in values)])
    lines += table(rows, right=range(1, len(columns) + 1))
    if any("-" in row[1:] for row in rows[3:]):
        lines.append("  -: this parameter does not apply there")
    if order[0].result.info:
        measured = ", ".join(f"{shown(name)} {precise(x)}" for name, x in order[0].result.info.items())
        lines.append(f"  measured besides, of the best: {measured}")
    return lines


def last_line(error: str) -> str:
    """Last line of a traceback."""
    return (error.strip().splitlines() or ["no reason given"])[-1]


def table(rows: Sequence[Sequence[str]], right: Sequence[int] | range = ()) -> list[str]:
    """Aligns columns to their widest entries. right: columns to flush right."""
    widths = [max(map(len, column)) for column in zip(*rows)]
    return [
        "  " + "  ".join(c.rjust(w) if i in right else c.ljust(w) for i, (c, w) in enumerate(zip(row, widths))).rstrip()
        for row in rows
    ]


def plural(count: int, word: str) -> str:
    return f"{count} {word}{'s' * (count != 1)}"
