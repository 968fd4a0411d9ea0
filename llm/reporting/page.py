"""The page of a run of ``envolve write``: candidates of language models, and which came from which."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from envolve.core.cleaning import one_line
from envolve.llm.reporting.lineage import name_of
from envolve.llm.reporting.page_parts import (
    best_so_far,
    costs,
    lineage,
    load,
    price,
    progress,
    state_of,
    tunings,
    verdicts,
)
from envolve.llm.search.individual import HUMAN, Individual, best_of
from envolve.outer.names import CONFIG_FILE
from envolve.outer.page.charts import INK, PALETTE, intervals
from envolve.outer.page.common import beside, closing, configuration, finite, score_range, score_text, span, with_unit
from envolve.outer.page.parts import Code, Curve, Fact, Page, Part, Prose, Table
from envolve.outer.page.reading import Folder
from envolve.outer.reporting.report import precise


def fits(folder: Folder) -> bool:
    return folder.has("individuals.jsonl") or folder.has("calls.jsonl") and folder.has("ledger.json")


def read(folder: Folder) -> Page:
    config = folder.yaml(CONFIG_FILE)
    arguments = config.get("arguments")
    arguments = arguments if isinstance(arguments, dict) else {}
    everyone = load(folder)
    human = next((i for i in everyone if i.operator == HUMAN), None)
    written = [i for i in everyone if i.operator != HUMAN]
    result = folder.keys_of("result.json", best=dict, human=dict, finals=list)
    task = one_line(str(result.get("task") or arguments.get("task") or "unknown task"), 100)
    unit = one_line(str(result.get("score_unit") or _unit(task)), 100)
    calls = costs(folder)
    models = ", ".join(dict.fromkeys(_author(str(m)) for m in arguments.get("llm") or [])) or "a language model"
    page = Page(
        folder.path,
        "Shapers written by language models",
        f"{task}: {_shapers(arguments)} by {models}",
        config=config,
        state=folder.state("result.json"),
    )
    ledger = folder.keys_of("ledger.json", total=dict, models=list)
    page.verdict = verdict(result, written, human, unit, _money(ledger))
    page.facts = _facts(result, written, human, calls, ledger, unit)
    running = best_so_far(written)
    page.curve = Curve([x for x, _ in running], [y for _, y in running], "candidates written", f"best score, {unit}")
    page.add(
        "Last test: fresh agents",
        *_finals(result, unit),
        lead="The best of the selection and the human's shapers, each with new agents and equal random seeds.",
    )
    if everyone:
        page.add(
            "Candidates",
            lineage(everyone, calls, unit, _tested(result), folder),
            lead=(
                "Choose a candidate in the picture or in the list to see its code, what changed against its parents, "
                "the components of its reward during training, why it was refused, what it cost, and its film."
            ),
        )
    page.add("Progress", progress(written, human, unit), verdicts(written))
    page.add("Tuning of the numbers", *tunings(folder))
    page.add("Films", *folder.films())
    page.add("Price", _ledger(ledger), price(written, calls))
    best = folder.text("best.py")
    found = folder.text("summary.txt")
    page.add(
        "Summary",
        Code("best.py, the best candidate", best, "python") if best else None,
        Prose(found, mono=True) if found else None,
    )
    versions = config.get("versions")
    said = {str(k): str(v) for k, v in versions.items()} if isinstance(versions, dict) else {}
    page.add("Configuration", *configuration(folder, CONFIG_FILE, folder.text(CONFIG_FILE), said))
    closing(page, folder)
    return page


def _unit(task: str) -> str:
    from envolve.envs.physics.task import physics_task

    try:
        return str(physics_task(task).score_unit)
    except Exception:  # a task of another version, or of the user's own
        return ""


def _author(model: str) -> str:
    """A model's name; of a recording no path."""
    return "a recording" if model.startswith("replay:") else one_line(model, 60)


def _shapers(arguments: Mapping[str, Any]) -> str:
    types = arguments.get("shaper_types")
    words = {
        "compute_reward": "rewards",
        "compute_observation": "observations",
        "compute_torque": "meanings of actions",
        "compute_terminal": "terminations",
        "compute_initial_state": "starts",
        "compute_goal": "goals",
    }
    return ", ".join(words.get(str(t), str(t)) for t in types) if isinstance(types, list) and types else "shapers"


def _money(ledger: Any) -> str:
    total = ledger.get("total") if isinstance(ledger, dict) else None
    usd = finite(total.get("usd")) if isinstance(total, dict) else math.nan
    return "" if math.isnan(usd) else f" and {usd:.4f} USD"


def verdict(
    result: Mapping[str, Any], written: Sequence[Individual], human: Individual | None, unit: str, money: str = ""
) -> str:
    """One sentence: the best beside the human's in the last test, else in the selection, and the price. money: what
    the models cost."""
    counts = Counter(state_of(i) for i in written)
    steps = sum(i.steps for i in written)
    kinds = {"trained": "trained", "rejected": "refused", "failed": "failed in training"}
    became = ", ".join(f"{counts[key]} {words}" for key, words in kinds.items() if counts[key])
    price = f"price: {steps:,} environment steps{money} for {len(written)} candidates" + f" ({became})" * bool(became)
    best, own = result.get("best"), result.get("human")
    if isinstance(best, dict) and math.isfinite(finite(best.get("score"))):
        n = len(best.get("agent_scores") or [])
        name = f"Candidate i{best['id']:03d}" if isinstance(best.get("id"), int) else "The best candidate"
        said = f"{name} scores {with_unit(score_text(best, unit), unit)} with {n} fresh agents"
        if isinstance(own, dict) and math.isfinite(finite(own.get("score"))):
            said += f", {beside(best, own, unit)}"
        return f"{said}; {price}."
    top = best_of(written)
    if top is None:
        return f"Nothing has a score yet; {price}."
    so_far = score_text({"score": top.score, "interval": top.interval}, unit)
    other = f", the human's {precise(human.score)}" if human is not None and human.ok else ""
    return f"Best so far {name_of(top)}, {with_unit(so_far, unit)} in the selection{other}; {price}."


def _facts(
    result: Mapping[str, Any],
    written: Sequence[Individual],
    human: Individual | None,
    calls: Mapping[int, Any],
    ledger: Any,
    unit: str,
) -> list[Fact]:
    facts = []
    best, top = result.get("best"), best_of(written)
    if isinstance(best, dict):
        facts.append(
            Fact(
                "Best, last test",
                precise(finite(best.get("score"))),
                f"{unit}, {len(best.get('agent_scores') or [])} agents",
            )
        )
    elif top is not None:
        facts.append(Fact("Best so far", precise(top.score), f"{unit}, {name_of(top)}"))
    own = result.get("human")
    if isinstance(own, dict):
        facts.append(Fact("Human's shapers", precise(finite(own.get("score"))), f"{unit}, same test"))
    elif human is not None and human.ok:
        facts.append(Fact("Human's shapers", precise(human.score), unit))
    facts.append(Fact("Candidates", str(len(written)), f"{sum(i.ok for i in written)} trained"))
    steps = sum(i.steps for i in written)
    facts.append(Fact("Training", f"{steps:,}", "environment steps of all candidates"))
    total = ledger.get("total") if isinstance(ledger, dict) else None
    if isinstance(total, dict):
        usd = total.get("usd")
        tokens = sum(t for t in (total.get("prompt_tokens"), total.get("completion_tokens")) if isinstance(t, int))
        money = "unknown" if usd is None else f"{finite(usd):.4f} USD"
        facts.append(Fact("Models", money, f"{total.get('calls', 0)} calls, {tokens:,} tokens"))
    return facts


def _tested(result: Mapping[str, Any]) -> int | None:
    """The best of the last test; None: there was none."""
    best = result.get("best")
    return best["id"] if isinstance(best, dict) and isinstance(best.get("id"), int) else None


def _finals(result: Mapping[str, Any], unit: str) -> list[Part | None]:
    finals = result.get("finals")
    if not isinstance(finals, list) or not finals:
        return []
    rows, cells = [], []
    for f in finals:
        if not isinstance(f, dict):
            continue
        name = HUMAN if f.get("operator") == HUMAN else f"i{f.get('id'):03d}" if isinstance(f.get("id"), int) else "?"
        rows.append(
            (
                name + ", tuned" * bool(f.get("tuned")),
                finite(f.get("score")),
                *span(f.get("interval")),
                INK if name == HUMAN else PALETTE[0],
            )
        )
        cells.append((name, finite(f.get("score")), ", ".join(precise(finite(x)) for x in f.get("agent_scores") or [])))
    n = max((len(f.get("agent_scores") or []) for f in finals if isinstance(f, dict)), default=0)
    return [
        intervals(
            "True score",
            rows,
            f"score, {unit}",
            f"Means and 95 % intervals over {n} fresh agents each; equal values have none.",
            bounds=score_range(unit),
        ),
        Table(("candidate", f"mean score, {unit}", "agents"), cells),
    ]


def _ledger(ledger: Any) -> Table | None:
    models = ledger.get("models") if isinstance(ledger, dict) else None
    if not isinstance(models, list):
        return None
    rows = [
        (
            str(m.get("model")),
            m.get("calls"),
            m.get("prompt_tokens"),
            m.get("completion_tokens"),
            "unknown" if m.get("usd") is None else f"{finite(m.get('usd')):.4f}",
        )
        for m in models
        if isinstance(m, dict)
    ]
    return Table(("model", "calls", "tokens in", "tokens out", "USD"), rows)
