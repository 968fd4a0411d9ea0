"""The page of a search over hyperparameters: ``envolve tune``, or a folder of hpbandster."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from envolve.core.cleaning import one_line
from envolve.outer.hpo.axes import Axis, axes_of, short_names, value_text
from envolve.outer.hpo.importance import importance_of
from envolve.outer.hpo.report import finished, last_line, loss_name, name_of, title_of
from envolve.outer.hpo.standings import ranked, rungs, succeeded
from envolve.outer.hpo.trial import Record
from envolve.outer.hpo.trial_log import TrialLog
from envolve.outer.page.common import closing, configuration
from envolve.outer.page.parts import COMPLETE, Code, Curve, Fact, Page, Prose, Table
from envolve.outer.page.reading import Folder, header
from envolve.outer.page.study_charts import across_budgets, importance, parallel, slices, time_line
from envolve.outer.reporting.report import duration, precise

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
        page.add(
            "All configurations",
            parallel(records, axes, names, budgets, loss, unit),
            lead="One line is one configuration at one budget. Losses of different budgets are not comparable, so "
            "that one budget is shown at a time.",
        )
        page.add("Over time", time_line(records, budgets, loss, unit), across_budgets(records, budgets, loss, unit))
        page.add("Each parameter", *slices(records, axes, names, budgets, loss, unit))
        page.add("Importance", importance(found, names), Prose("\n".join(found.lines()), mono=True))
        page.add("The best", _best(records, axes, names, loss), _standings(records, unit))
        page.add("Failures", _failures(records))
    best = folder.text("best.yaml")
    page.add(
        "Configuration",
        Code("best.yaml, the best configuration", best, "yaml") if best else None,
        *configuration(folder, "study.yaml", text, header(text)),
    )
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
    agent = agent or "unknown"
    what = {"nes": f"the evolution with {agent}", "goal": f"the learner {agent}"}
    return one_line(f"{task}: hyperparameters of {what.get(str(config.get('evaluate')), f'{agent} agents')}", 200)


def _study(folder: Folder) -> Any:
    from envolve.outer.hpo.study import read_study  # needs ConfigSpace, which folders of hpbandster do without

    return read_study(folder.path / "study.yaml")


def verdict(records: Sequence[Record], loss: str, unit: str) -> str:
    best = next(iter(ranked(records)), None)
    if best is None:
        return "No trial has succeeded." if records else "No trial has finished."
    n = len({r.trial.config_id for r in records})
    at = sum(1 for r in ranked(records))
    price = f"{sum(r.trial.budget for r in records):,.6g} {unit or 'units of budget'} in all"
    how = "proposed by the model" if best.trial.model_based else "drawn at random"
    return (
        f"The lowest {loss} at {best.trial.budget:g} {unit} is {precise(best.result.loss)}, of configuration "
        f"{name_of(best.trial.config_id)}, {how}, the best of {at} at this budget and of {n} in all (the lowest of "
        f"many noisy losses flatters: test it with fresh seeds); price: {price}."
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
        Fact(
            "Configurations", f"{len(first):,}", f"{sum(t.model_based for t in first.values())} proposed by the model"
        ),
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


def _best(records: Sequence[Record], axes: Sequence[Axis], names: dict[str, str], loss: str) -> Table | None:
    order = ranked(records)[:BEST]
    if not order:
        return None
    rows = [
        (
            name_of(r.trial.config_id),
            r.result.loss,
            "model" if r.trial.model_based else "random",
            *(value_text(r.trial.values[a.name]) if a.name in r.trial.values else "-" for a in axes),
        )
        for r in order
    ]
    head = ("configuration", loss, "proposed", *(names[a.name] for a in axes))
    return Table(head, rows, f"The best at a budget of {order[0].trial.budget:g}")


def _standings(records: Sequence[Record], unit: str) -> Table:
    rows = [(f"{rung.budget:g}", rung.trials, rung.failed, rung.best, rung.median) for rung in rungs(records)]
    return Table(
        (f"budget, {unit}" if unit else "budget", "trials", "failed", "lowest loss", "median"), rows, "Trials by budget"
    )


def _failures(records: Sequence[Record]) -> Table | None:
    lost = [r for r in records if not succeeded(r)]
    if not lost:
        return None
    return Table(
        ("trial", "configuration", "budget", "reason"),
        [(r.trial.id, name_of(r.trial.config_id), r.trial.budget, last_line(r.result.error)) for r in lost],
    )
