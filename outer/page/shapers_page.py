"""The page of a ranking of shapers: ``envolve shape``."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from envolve.core.cleaning import one_line
from envolve.outer.names import CONFIG_FILE, HUMAN
from envolve.outer.page.charts import INK, MUTED, PALETTE, Line, intervals, lines, robust
from envolve.outer.page.common import (
    beside,
    closing,
    configuration,
    finite,
    label,
    possible,
    score_range,
    score_text,
    span,
    with_unit,
)
from envolve.outer.page.parts import COMPLETE, STOPPED, Chart, Code, Curve, Fact, Page, Part, Prose, Table
from envolve.outer.page.reading import Folder
from envolve.outer.reporting.report import precise

MOST_COMPONENTS = 6  # candidates whose components are drawn
MOST_ROWS = 40  # candidates in the picture of intervals


def fits(folder: Folder) -> bool:
    return folder.has("candidates.json")


def read(folder: Folder) -> Page:
    content = folder.keys_of("candidates.json", candidates=list, settings=dict)
    task, unit = (one_line(str(content.get(key, "")), 200) for key in ("task", "score_unit"))
    known = content.get("candidates")
    found: list[dict[str, Any]] = [c for c in known if isinstance(c, dict)] if isinstance(known, list) else []
    settings = content.get("settings")
    settings = settings if isinstance(settings, dict) else {}
    learner = str(settings.get("learner", "")).upper()
    page = Page(
        folder.path,
        "Ranking of shapers",
        f"{task}: {len(found)} candidates, trained with {learner}",
        config={"settings": settings, "hyperparameters": content.get("hyperparameters", {})},
        state=COMPLETE if content.get("complete") else STOPPED,
    )
    scored = [c for c in found if math.isfinite(finite(c.get("score")))]
    failed = [c for c in found if c.get("failed")]
    page.verdict = verdict(scored, failed, unit)
    page.facts = _facts(found, scored, failed, settings, unit)
    best = next((c for c in scored if c.get("name") != HUMAN), None)
    if best is not None:
        curve = _curve(best)
        page.curve = Curve(curve[0], curve[1], "environment steps per agent", f"score in training, {unit}")
    page.add("Ranking", _ranking(scored, settings, unit), _table(found, unit))
    page.add("Training", _curves(found, unit))
    page.add(
        "Components of the rewards", *_components(found), lead="Mean over all environments and steps of an iteration."
    )
    page.add("Films", *folder.films())
    page.add("Failures", *_failures(failed))
    text = folder.text("ranking.txt")
    page.add("Summary", Prose(text, mono=True) if text else None)
    versions = content.get("versions")
    page.add("Configuration", *configuration(folder, CONFIG_FILE, folder.text(CONFIG_FILE), _texts(versions)))
    closing(page, folder)
    return page


def _texts(versions: Any) -> dict[str, str]:
    return {str(k): str(v) for k, v in versions.items()} if isinstance(versions, dict) else {}


def verdict(scored: Sequence[Mapping[str, Any]], failed: Sequence[Mapping[str, Any]], unit: str) -> str:
    """One sentence: the best candidate beside the human's shapers, and the price."""
    own = [c for c in scored if c.get("name") != HUMAN]
    human = next((c for c in scored if c.get("name") == HUMAN), None)
    lost = f"; {len(failed)} failed" if failed else ""
    if not own:
        return f"No candidate has a score{lost}."
    best = max(own, key=lambda c: finite(c.get("score")))
    equal = [c for c in own if c.get("score") == best.get("score")]
    name = f"{len(equal)} candidates share the highest score,"
    if len(equal) == 1:
        name = f"Candidate {best.get('name')} scores"
    said = f"{name} {with_unit(score_text(best, unit), unit)}"
    steps = max((s for c in scored for s in _curve(c)[0]), default=math.nan)
    lost += f"; price: {steps:,.0f} environment steps per agent" if steps == steps else ""
    return f"{said}{'' if human is None else ', ' + beside(best, human, unit)}{lost}."


def _facts(
    found: Sequence[Any], scored: Sequence[Any], failed: Sequence[Any], settings: Mapping[str, Any], unit: str
) -> list[Fact]:
    facts = []
    own = [c for c in scored if c.get("name") != HUMAN]
    if own:
        best = max(own, key=lambda c: finite(c.get("score")))
        value, _, ends = score_text(best, unit).partition(" ")
        facts.append(Fact("Best candidate", value, f"{ends} {best.get('name')}, {unit}".strip()))
    human = next((c for c in scored if c.get("name") == HUMAN), None)
    if human is not None:
        facts.append(
            Fact("Human's shapers", score_text(human).split(" ")[0], score_text(human, unit).partition(" ")[2] or unit)
        )
    facts.append(Fact("Candidates", str(len(found)), f"{len(failed)} failed"))
    steps = max((s for c in found for s in _curve(c)[0]), default=math.nan)
    facts.append(Fact("Training", f"{steps:,.0f}" if steps == steps else "-", "environment steps of each agent"))
    n = f"{settings.get('seeds', '?')} agents, {settings.get('num_envs_per_shaper', '?')} episodes each"
    facts.append(
        Fact("Test", n.split(" ")[0], f"agents per candidate, {settings.get('num_envs_per_shaper', '?')} episodes each")
    )
    return facts


def _curve(candidate: Mapping[str, Any], what: str = "score") -> tuple[list[float], list[float]]:
    curve = candidate.get("curve")
    if not isinstance(curve, dict) or not all(isinstance(curve.get(k), list) for k in ("steps", what)):
        return [], []
    pairs = [(finite(s), finite(v)) for s, v in zip(curve["steps"], curve[what])]
    return [s for s, _ in pairs], [v for _, v in pairs]


def _colours(found: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """By name: the human's is black, the best seven have colours, the others are grey."""
    out, free = {HUMAN: INK}, list(PALETTE)
    for c in found:
        name = str(c.get("name"))
        if name != HUMAN:
            out[name] = free.pop(0) if free and not c.get("failed") else MUTED
    return out


def _ranking(scored: Sequence[Mapping[str, Any]], settings: Mapping[str, Any], unit: str) -> Chart | None:
    if not scored:
        return None
    rows = [
        (
            label(c.get("name")),
            finite(c.get("score")),
            *span(c.get("interval")),
            INK if c.get("name") == HUMAN else PALETTE[0],
        )
        for c in scored[:MOST_ROWS]
    ]
    over = "agents" if settings.get("seeds", 1) != 1 else f"{settings.get('num_envs_per_shaper')} episodes of one agent"
    return intervals(
        "True score of the final policies",
        rows,
        f"score, {unit}",
        f"95 % intervals over {over}; equal values have none.",
        bounds=score_range(unit),
    )


def _table(found: Sequence[Mapping[str, Any]], unit: str) -> Table:
    rows = []
    for c in found:
        low, high = possible(c.get("interval"), unit)
        rank = c.get("rank") if isinstance(c.get("rank"), int) else None
        score = finite(c.get("score"))
        rows.append(
            (
                rank,
                str(c.get("name")),
                None if math.isnan(score) else score,
                "" if low is None or high is None else f"{precise(low)} to {precise(high)}",
                ", ".join(map(str, c.get("shapers") or [])) or "none, the task's own",
            )
        )
    return Table(("", "candidate", f"score, {unit}", "95 % interval", "replaces"), rows)


def _curves(found: Sequence[Mapping[str, Any]], unit: str) -> Chart | None:
    colours, drawn, values = _colours(found), [], []
    for c in found:
        x, y = _curve(c)
        name = str(c.get("name"))
        values += y
        drawn.append(
            Line(
                label(name) + (", failed" if c.get("failed") else ""),
                x,
                y,
                colours[name],
                dash="dash" if name == HUMAN else "solid",
                width=1 if colours[name] == MUTED else 2.5 if name == HUMAN else 1.8,
            )
        )
    drawn = [line for line in drawn if len(line.x)]
    if not drawn:
        return None
    return lines(
        "True score during training",
        drawn,
        "environment steps per agent",
        f"score per step, {unit}",
        "Per step, by policies that still explore, with the candidate's own starts and ends. The test judges neither.",
        limits=robust(values),
        height=420,
    )


def _components(found: Sequence[Mapping[str, Any]]) -> list[Part | None]:
    out: list[Part | None] = []
    for c in found:
        parts = c.get("components")
        if not isinstance(parts, dict) or not parts or len(out) == MOST_COMPONENTS:
            continue
        x, reward = _curve(c, "reward")
        drawn = [Line("reward", x, reward, INK, width=2)]
        for (name, values), colour in zip(parts.items(), PALETTE):
            if isinstance(values, list):
                drawn.append(Line(label(name), x, [finite(v) for v in values], colour))
        out.append(lines(str(c.get("name")), drawn, "environment steps per agent", "per step", height=280))
    return out


def _failures(failed: Sequence[Mapping[str, Any]]) -> list[Part | None]:
    if not failed:
        return []
    table = Table(("candidate", "reason"), [(str(c.get("name")), str(c.get("reason") or "")) for c in failed])
    traces = [Code(f"Traceback of {c.get('name')}", str(c["traceback"])) for c in failed if c.get("traceback")]
    return [table, *traces[:10]]
