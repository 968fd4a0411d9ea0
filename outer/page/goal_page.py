"""Pages of goal-conditioned runs: ``envolve goal``, and ``envolve evolve-goals``."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from envolve.core.cleaning import one_line
from envolve.core.files import TABLE_BYTES, read_text
from envolve.core.statistics import within
from envolve.outer.goals.log import Point, Score, from_csv, points_of
from envolve.outer.goals.report import interval
from envolve.outer.names import CONFIG_FILE, SCORES
from envolve.outer.page.charts import INK, MUTED, PALETTE, Line, Look, intervals, lines
from envolve.outer.page.common import closing, configuration, label
from envolve.outer.page.parts import Chart, Curve, Fact, Page, Part, Prose, Table
from envolve.outer.page.reading import Folder, header
from envolve.outer.reporting.report import number, precise

MOST_NAMED = 7  # members with a colour of their own
MEASURES = {"success": "success rate", "near": "decisions near the goal, per episode", "distance": "last distance, m"}


RANGES = {"success": (0.0, 1.0), "near": (0.0, math.inf)}  # of measures


def fits(folder: Folder) -> bool:
    """Recognises a goal run by its configuration alone: a run that has just begun has no scores yet."""
    text = folder.text(CONFIG_FILE) if folder.has(CONFIG_FILE) else ""
    return "\nlearner:" in text and "\nper_member:" in text


def fits_evolution(folder: Folder) -> bool:
    return folder.has("generations.csv")


# -------------------------------------------------------------------------------------------------------- envolve goal


def _scores(folder: Folder) -> tuple[list[str], list[Score]]:
    """Names of the learner's metrics, and the rows. Of an incomplete last line nothing."""
    text = read_text(folder.path / SCORES, TABLE_BYTES)
    head, _, rest = text[: text.rfind("\n") + 1].partition("\n")
    return head.split(",")[13:], from_csv(rest)


def read(folder: Folder) -> Page:
    text, config = folder.text(CONFIG_FILE), folder.yaml(CONFIG_FILE)
    run, learner = (_dict(config.get(key)) for key in ("run", "learner"))
    task, agent = (one_line(str(run.get(key, "?")), 100) for key in ("env_name", "agent"))
    page = Page(
        folder.path,
        "Goal-conditioned agents",
        f"{task}: {_agent(agent, learner)}",
        config=config,
        state=folder.state("summary.txt"),
    )
    found_scores = folder.attempt(SCORES, lambda: _scores(folder)) if folder.has(SCORES) else None
    metrics, scores = found_scores or ([], [])
    points = points_of(scores) if scores else []
    own = _dict(config.get("per_member"))
    if points:
        page.verdict = verdict(points, scores)
        page.facts = _facts(points, scores, run)
        page.curve = Curve(
            [p.steps for p in points], [p.success for p in points], "environment steps of a member", "success rate"
        )
        page.add("Learning", *(_learning(scores, points, own, name) for name in ("success", "near")))
        page.add("Members at the end", *_members(scores, own))
        page.add("What the learner reports", *_metrics(scores, metrics))
    page.add(
        "Films",
        *folder.films({"video": "The best member, greedy. The green ball marks the goal, and what counts as near."}),
    )
    found = folder.text("summary.txt")
    page.add("Summary", Prose(found, mono=True) if found else None)
    page.add("Configuration", *configuration(folder, CONFIG_FILE, text, header(text)))
    closing(page, folder)
    return page


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _agent(agent: str, learner: Mapping[str, Any]) -> str:
    name = {"crl": "contrastive RL", "sac": "SAC", "td3": "TD3", "ppo": "PPO"}.get(agent, agent)
    return f"{name} with hindsight" if learner.get("use_her") else name


def verdict(points: Sequence[Point], scores: Sequence[Score]) -> str:
    last, members = points[-1], len({s.member for s in scores})
    over = f"over {members} members" if members > 1 else f"over {scores[-1].episodes} episodes of one agent"
    lost = f"; {last.failed} of {members} diverged and are left out" if last.failed else ""
    first = points[0]
    return (
        f"After {last.steps:,} steps of each member, {interval(last.success, last.success_interval)} of the episodes "
        f"come near the goal, and {interval(last.near, last.near_interval)} decisions of an episode are near it; "
        f"before training it was {interval(first.success, first.success_interval)} "
        f"(brackets: 95 % intervals {over}){lost}."
    )


def _facts(points: Sequence[Point], scores: Sequence[Score], run: Mapping[str, Any]) -> list[Fact]:
    last, best = points[-1], max(points, key=lambda p: -math.inf if math.isnan(p.success) else p.success)
    members = len({s.member for s in scores})

    def split(text: str) -> tuple[str, str]:
        return text.split(" ")[0], text.partition(" ")[2]

    value, ends = split(interval(last.success, last.success_interval))
    top, best_ends = split(interval(best.success, best.success_interval))
    near, near_ends = split(interval(last.near, last.near_interval))
    return [
        Fact("Success at the end", value, ends),
        Fact("Near the goal", near, f"{near_ends} decisions of an episode"),
        Fact("Best success", top, f"{best_ends} after {best.steps:,} steps; the best of {len(points)} flatters"),
        Fact("Price", f"{last.steps * members:,}", f"environment steps of {members} member{'s' * (members != 1)}"),
        Fact("Test", f"{scores[-1].episodes}", "episodes per member and evaluation"),
    ]


def _learning(scores: Sequence[Score], points: Sequence[Point], own: Mapping[str, Any], name: str) -> Chart:
    members = sorted({s.member for s in scores})
    drawn = []
    if own and len(members) <= MOST_NAMED:
        for i, colour in zip(members, PALETTE):
            mine = [s for s in scores if s.member == i]
            values = ", ".join(f"{k} {v[i]:g}" for k, v in own.items() if isinstance(v, list) and i < len(v))
            drawn.append(
                Line(
                    label(values or f"member {i}"),
                    [s.steps for s in mine],
                    [getattr(s, name) for s in mine],
                    colour,
                    [getattr(s, f"{name}_low") for s in mine],
                    [getattr(s, f"{name}_high") for s in mine],
                    marks=True,
                )
            )
        note = "95 % intervals over the episodes of each member."
    else:
        x = [p.steps for p in points]
        known: list[tuple[float, float]] = [getattr(p, f"{name}_interval") for p in points]
        ends = [within(low, high, RANGES[name]) for low, high in known]
        for i in members if len(members) > 1 else ():
            mine = [s for s in scores if s.member == i]
            drawn.append(Line(f"member {i}", [s.steps for s in mine], [getattr(s, name) for s in mine], MUTED, width=1))
        drawn.append(
            Line(
                "mean",
                x,
                [getattr(p, name) for p in points],
                PALETTE[0],
                [e[0] for e in ends],
                [e[1] for e in ends],
                "95 % interval",
                marks=True,
                width=2.5,
            )
        )
        over = f"{len(members)} members" if len(members) > 1 else f"{scores[0].episodes} episodes of the only member"
        note = f"95 % intervals over {over}; deterministic actions, the task's own starts and goals."
    down: Look = {"range": [0, 1.02]} if name == "success" else {"rangemode": "tozero"}
    return lines(
        MEASURES[name][:1].upper() + MEASURES[name][1:],
        drawn,
        "environment steps of a member",
        MEASURES[name],
        note,
        yaxis=down,
    )


def _members(scores: Sequence[Score], own: Mapping[str, Any]) -> list[Part | None]:
    last = [s for s in scores if s.evaluation == scores[-1].evaluation]
    if len(last) < 2:
        return []
    rows = [(f"member {s.member}", s.success, s.success_low, s.success_high, PALETTE[0]) for s in last]
    names = [k for k, v in own.items() if isinstance(v, list)]
    table = [
        (
            s.member,
            s.success,
            s.near,
            s.distance,
            *(own[k][s.member] if s.member < len(own[k]) else None for k in names),
        )
        for s in last
    ]
    return [
        intervals("Success", rows, "success rate", f"Wilson's 95 % intervals over {last[0].episodes} episodes."),
        Table(("member", "success", "near the goal", "distance, m", *names), table),
    ]


def _metrics(scores: Sequence[Score], metrics: Sequence[str]) -> list[Part | None]:
    out: list[Part | None] = []
    members = sorted({s.member for s in scores})[:MOST_NAMED]
    for k, name in enumerate(metrics):
        drawn = []
        for i, colour in zip(members, PALETTE):
            mine = [s for s in scores if s.member == i and k < len(s.learning)]
            drawn.append(Line(f"member {i}", [s.steps for s in mine], [s.learning[k] for s in mine], colour))
        if any(math.isfinite(y) for line in drawn for y in line.y):
            out.append(
                lines(
                    name.replace("_", " "), drawn, "environment steps of a member", name.replace("_", " "), height=230
                )
            )
    return out


# ------------------------------------------------------------------------------------------------ envolve evolve-goals


def read_evolution(folder: Folder) -> Page:
    text, config = folder.text(CONFIG_FILE), folder.yaml(CONFIG_FILE)
    inner, evolve = (_dict(config.get(key)) for key in ("inner", "evolve"))
    families = [
        f"{what}: {evolve[key]}"
        for what, key in (("goals", "goal_family"), ("starts", "start_family"))
        if evolve.get(key)
    ]
    agent = _agent(str(inner.get("agent", "?")), {})
    title = f"{inner.get('env_name', '?')}: {', '.join(families) or 'starts and goals'} evolved for {agent}"
    page = Page(
        folder.path, "Evolved starts and goals", one_line(title, 200), config=config, state=folder.state("summary.txt")
    )
    rows = folder.rows("generations.csv")
    score = str(evolve.get("score", "score"))
    found = folder.text("summary.txt")

    def value(row: Mapping[str, str], key: str) -> float:
        try:
            return float(row.get(key, "nan"))
        except ValueError:
            return math.nan

    x = [value(row, "generation") for row in rows]
    page.verdict = _evolution_verdict(found, rows)
    said = MEASURES.get(score, score)
    if rows:
        drawn = [
            Line("evolved starts and goals", x, [value(r, "score") for r in rows], PALETTE[0], marks=True, width=2.5),
            Line("the task's own, same seeds", x, [value(r, "plain") for r in rows], INK, dash="dash", marks=True),
            Line("all perturbations", x, [value(r, "perturbed") for r in rows], PALETTE[1], width=1.2),
        ]
        n = evolve.get("num_orig_evals", "?")
        page.add(
            "Evolution",
            lines(
                f"{said[:1].upper()}{said[1:]}, on the task's own starts and goals",
                drawn,
                "generation",
                said,
                f"Means over {n} agents, {n} plain ones and 2 x {evolve.get('num_workers', '?')} "
                "perturbations of a generation.",
            ),
        )
        names = [key for key in rows[0] if key.startswith("u ")]
        moved = [
            Line(label(name[2:]), x, [value(r, name) for r in rows], colour) for name, colour in zip(names, PALETTE * 4)
        ]
        page.add(
            "What evolved", lines("Parameters", moved, "generation", "u, in units of each parameter") if moved else None
        )
        page.curve = Curve(x, [value(r, "score") for r in rows], "generation", said)
        page.facts = [
            Fact("Generations", str(len(rows)), f"of {evolve.get('generations', '?')}"),
            Fact(
                "Score at the end",
                number(value(rows[-1], "score")),
                f"plain, same seeds: {number(value(rows[-1], 'plain'))}",
            ),
            Fact("Training", f"{inner.get('num_timesteps', math.nan):,}", "environment steps of each member"),
            Fact("Diverged", precise(sum(value(r, "diverged") for r in rows)), "members in all"),
        ]
    page.add("Films", *folder.films())
    page.add("Summary", Prose(found, mono=True) if found else None)
    page.add("Configuration", *configuration(folder, CONFIG_FILE, text, header(text)))
    closing(page, folder)
    return page


def _evolution_verdict(found: str, rows: Sequence[Mapping[str, str]]) -> str:
    line = next((line.strip() for line in found.splitlines() if "fresh agents each" in line), "")
    if line:
        return (
            " ".join(line.replace("   ", "; ").split())
            + " (brackets: 95 % intervals over agents with equal random seeds)."
        )
    return f"{len(rows)} generations so far." if rows else "Nothing yet."
