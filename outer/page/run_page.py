"""The page of a run of the outer loop: ``envolve run``, and ``envolve evolve`` with its report."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from envolve.core.cleaning import one_line
from envolve.core.statistics import AgentRuns, summary
from envolve.outer.names import CONFIG_FILE, SCORES, VARY_SUFFIX
from envolve.outer.page.charts import MOST_WHOLE, PALETTE, Dots, Line, dots, intervals, jitter, lines, log_axis, robust
from envolve.outer.page.common import closing, configuration, label
from envolve.outer.page.parts import Chart, Curve, Fact, Page, Part, Prose, Table
from envolve.outer.page.reading import Folder, header
from envolve.outer.page.unseen_parts import unseen
from envolve.outer.page.world_parts import world_parts
from envolve.outer.reporting.names import learners_said, objective, return_range
from envolve.outer.reporting.report import number, precise
from envolve.outer.reporting.scores import CurvePoint, curve_of

KINDS = {"se": "Synthetic environment", "rn": "Reward network", "cb": "Contextual bandit", "shaper": "Shaper"}
ROLES = {
    "orig": ("unperturbed world", PALETTE[0]),
    "plus": ("perturbed, +", PALETTE[4]),
    "minus": ("perturbed, -", PALETTE[5]),
    "confirm": ("confirming agents", PALETTE[2]),
}
COLUMNS = ("generation", "member", "role", "score", "train_steps", "reason")  # of scores.csv, which the page shows
Row = tuple[str, float, float | None, float | None, str]


def fits(folder: Folder) -> bool:
    return (
        folder.has(CONFIG_FILE)
        and (folder.has(SCORES) or folder.has("report.json"))
        and ("env_name:" in folder.text(CONFIG_FILE) and "gtn:" in folder.text(CONFIG_FILE))
    )


def read(folder: Folder) -> Page:
    text, config = folder.text(CONFIG_FILE), folder.yaml(CONFIG_FILE)
    gtn = config.get("agents", {}).get("gtn", {}) if isinstance(config.get("agents"), dict) else {}
    gtn = gtn if isinstance(gtn, dict) else {}
    kind, task = (
        kind_of(config, gtn),
        one_line(str(config.get("env_name", "unknown task")).removeprefix("gymnasium:"), 200),
    )
    found = folder.text("summary.txt")
    page = Page(
        folder.path,
        KINDS[kind],
        f"{task}: {_learner(str(gtn.get('agent_name', 'agents')))} in an evolved {_thing(kind)}",
        config=config,
        state=folder.state("summary.txt"),
    )
    members = folder.rows(SCORES, COLUMNS)
    points = folder.attempt(SCORES, lambda: curve_of(members)) or []
    score_title = _score_title(kind, gtn)
    mark = _mark(found)
    report = folder.keys_of("report.json", verdict=str, unseen=dict, real_steps_of=dict) or None
    page.verdict = verdict(found, report, points, gtn, page.state)
    page.facts = _facts(points, members, found, gtn)
    share = report.get("share") if isinstance(report, dict) else None
    if isinstance(share, (int, float)):
        page.facts.insert(0, Fact("Of the way", f"{100 * share:.0f} %", "from random actions to the best real learner"))
    page.curve = Curve([p.generation for p in points], [p.mean for p in points], "generation", score_title)
    if isinstance(report, dict):
        page.add("Agents that never saw the world", *unseen(report))
    page.add("Agents trained in the world, and on the task", *_comparison(folder, found, mark, return_range(config)))
    page.add("Evolution", *_evolution(points, members, score_title, mark))
    if folder.has("model.pt"):
        parts = folder.attempt("model.pt", lambda: world_parts(folder.path / "model.pt"))
        films = folder.films()
        hint = f"A film of agents in it is not there yet: envolve report {folder.path} --film"
        page.add("What the world contains", *films, *(parts or []), lead="" if films or kind == "shaper" else hint)
    else:
        page.add("Films", *folder.films())
    page.add("Failures", _failures(members))
    page.add("Summary", Prose(found, mono=True) if found else None)
    page.add("Configuration", *configuration(folder, CONFIG_FILE, text, header(text)))
    closing(page, folder)
    return page


def kind_of(config: Mapping[str, Any], gtn: Mapping[str, Any]) -> str:
    """A key of KINDS."""
    if gtn.get("synthetic_env_type") == 1:
        return "rn"
    envs = config.get("envs")
    section = envs.get(config.get("env_name")) if isinstance(envs, dict) else None
    if gtn.get("synthetic_env_type") == 2 or "shaped" in config:
        return "shaper"
    return "cb" if isinstance(section, dict) and section.get("contextual_bandit") else "se"


def _learner(name: str) -> str:
    """DDQN of DDQN_vary, as a configuration names a learner whose hyperparameters vary."""
    return one_line(name.removesuffix(VARY_SUFFIX), 60).replace("_", " ")


def _thing(kind: str) -> str:
    return KINDS[kind].lower()


def _score_title(kind: str, gtn: Mapping[str, Any]) -> str:
    if kind == "rn" and gtn.get("rn_objective") != "mean_return":
        return objective(str(gtn.get("rn_objective", "objective")))
    return "score" if kind == "shaper" else "test return on the task"


def _mark(summary_text: str) -> float | None:
    """The return that solves the task, from the first line of summary.txt."""
    match = re.search(r"of at least ([-\d.,]+)\)", summary_text.split("\n", 1)[0])
    return float(match[1].replace(",", "")) if match else None


def verdict(found: str, report: Any, points: list[CurvePoint], gtn: Mapping[str, Any], state: str) -> str:
    """What came out, in the words of the run's own report."""
    if isinstance(report, dict) and isinstance(report.get("verdict"), str):
        return learners_said(str(report["verdict"]))
    if not found:
        best = max((p.mean for p in points if math.isfinite(p.mean)), default=math.nan)
        of = f" of {gtn['max_iterations']}" if isinstance(gtn.get("max_iterations"), int) else ""
        return f"{len(points)}{of} generations so far; best mean score {number(best)}." if points else "Nothing yet."
    first = found.split("\n", 1)[0].partition(": ")[2]
    first = f"{first[:1].upper()}{first[1:].lower() if first[:1].isupper() else first[1:]}"
    lines = [line.strip() for line in found.splitlines()]
    world, real = _cells(found, "in the evolved world"), _cells(found, "in the real task")
    spent = re.search(r"evolution: ([\d,]+) real steps[^;]*(?:; this (.*))?\.", found)
    if world is None or spent is None:
        kept = ("An agent needs", "No comparison", "Price with the evolution")
        return _one_sentence([first, *(line for line in lines if line.startswith(kept))])
    said = f"{first}: agents trained in the world return {_value_of(world[1])} on the task after {world[0]} steps each"
    if real is not None:
        said += f", agents trained on the task {_value_of(real[1])} after {real[0]}"
    pays = f", which {spent[2].replace('has paid', 'pays')}" if spent[2] else ""
    said += f"; evolving took {spent[1]} real steps{pays}"
    return _one_sentence([said, *(line for line in lines if line.startswith("No comparison"))])


def _one_sentence(parts: Sequence[str]) -> str:
    """Sentences of a summary, joined by semicolons."""
    first, *others = (part.rstrip(".") for part in parts)
    return "; ".join([first, *(f"{other[:1].lower()}{other[1:]}" for other in others)]) + "."


def _value_of(cell: str) -> str:
    """A cell of the summary's table without how many values are equal: 200.0 of "200.0 (20 of 20)"."""
    return cell.partition(" (")[0]


def _facts(points: list[CurvePoint], members: list[dict[str, str]], found: str, gtn: Mapping[str, Any]) -> list[Fact]:
    facts = []
    means = [(p.mean, p.generation) for p in points if math.isfinite(p.mean)]
    if means:
        best, generation = max(means)
        facts.append(Fact("Best mean score", number(best), f"of the unperturbed world, generation {generation}"))
    facts.append(Fact("Generations", str(len(points)), f"at most {gtn.get('max_iterations', '?')}"))
    for name, pattern in (("In the world", "in the evolved world"), ("On the task", "in the real task")):
        cells = _cells(found, pattern)
        if cells:
            facts.append(
                Fact(f"{name}: return", cells[1].split(" ", 1)[0], f"{_rest(cells[1])} after {cells[0]} steps".strip())
            )
    spent = re.search(r"evolution: ([\d,]+) real steps", found)
    facts.append(Fact("Price", spent[1] if spent else "-", "real steps spent on evolving"))
    lost = sum(1 for row in members if row.get("reason"))
    facts.append(Fact("Members that failed", f"{lost:,}", f"of {len(members):,}"))
    return facts


def _cells(found: str, column: str) -> tuple[str, str] | None:
    """Steps and return of one column of the summary's table."""
    rows = [re.split(r"\s{3,}", line.strip()) for line in found.splitlines() if "   " in line.strip()]
    head = next((row for row in rows if row[0].endswith("agents trained") and column in row), None)
    if head is None:
        return None
    at, values = head.index(column), {row[0]: row for row in rows}
    steps = next((r for n, r in values.items() if n.startswith("training steps")), None)
    returns = next((r for n, r in values.items() if n.startswith("test return") or n.startswith("score")), None)
    if not steps or not returns or len(steps) <= at or len(returns) <= at:
        return None
    return _value_of(steps[at]), returns[at]


def _rest(cell: str) -> str:
    return cell.partition(" ")[2]


# ----------------------------------------------------------------------------------------------------------- sections


def _evolution(
    points: list[CurvePoint], members: list[dict[str, str]], title: str, mark: float | None
) -> list[Part | None]:
    if not points:
        return []
    x = [p.generation for p in points]
    mean, low, high = ([getattr(p, name) for p in points] for name in ("mean", "low", "high"))
    levels = [] if mark is None or "return" not in title else [(mark, f"solved: {mark:g}")]
    limits = robust([*mean, *low, *high], keep=mean)
    cut = " Extreme values lie outside; double-click shows all." if limits else ""
    per = Counter(row.get("role") for row in members if row.get("generation") == str(x[0]))
    n = f"{per['orig']} agents in the unperturbed world, {per['plus'] + per['minus']} perturbed worlds per generation."
    curve = lines(
        "Learning curve",
        [Line("unperturbed world, mean", x, mean, low=low, high=high, band="population, 10 to 90 %")],
        "generation",
        title,
        n + cut,
        limits=limits,
        levels=levels,
    )
    return [curve, _swarm(members, title, levels), _cost(members, title)]


def _value(row: Mapping[str, str], key: str) -> float:
    try:
        return float(row.get(key, "nan"))
    except ValueError:
        return math.nan


def _swarm(members: list[dict[str, str]], title: str, levels: list[tuple[float, str]]) -> Chart | None:
    groups, scores = [], []
    for role, (name, colour) in ROLES.items():
        own = [row for row in members if row.get("role") == role]
        if not own:
            continue
        y = [_value(row, "score") for row in own]
        scores += y
        x = [_value(row, "generation") + 0.7 * jitter(i) for i, row in enumerate(own)]
        texts = [
            f"generation {row['generation']}, member {row['member']}<br>score {precise(s)}, "
            f"{row.get('train_steps', '')} steps"
            for row, s in zip(own, y)
        ]
        groups.append(Dots(name, x, y, colour, size=5, opacity=0.55, texts=texts))
    if not groups:
        return None
    few = len({row.get("generation") for row in members}) <= MOST_WHOLE
    return dots(
        "Every member",
        groups,
        "generation",
        title,
        levels=levels,
        limits=robust(scores),
        xaxis={"dtick": 1} if few else None,
        about="Score of every member of every generation",
    )


def _cost(members: list[dict[str, str]], title: str) -> Chart | None:
    """Training steps against score; nothing where all train equally long."""
    x, y = ([_value(row, key) for row in members] for key in ("train_steps", "score"))
    if len({v for v in x if math.isfinite(v)}) < 3:
        return None
    g = [_value(row, "generation") for row in members]
    return dots(
        "Price of a training",
        [Dots("", x, y, shade=g, size=5, opacity=0.6)],
        "training steps of an agent",
        title,
        limits=robust(y),
        shade="generation",
    )


def _comparison(
    folder: Folder, found: str, mark: float | None, bounds: tuple[float, float] | None
) -> list[Part | None]:
    stored = folder.keys_of("comparison.json")
    if not stored:
        return []

    def charts() -> list[Part | None]:
        runs = {
            name: AgentRuns(*([math.nan if v is None else float(v) for v in side[key]] for key in ("returns", "steps")))
            for name, side in stored.items()
        }
        levels = [] if mark is None else [(mark, f"solved: {mark:g}")]
        groups: list[Dots] = []
        rows: list[Row] = []
        steps: list[Row] = []
        for (name, agents), colour, symbol in zip(runs.items(), PALETTE, ("circle", "square")):
            fine = [(s, r) for s, r in zip(agents.steps, agents.returns) if math.isfinite(r)]
            lost = len(agents.returns) - len(fine)
            tail = f", {lost} failed" if lost else ""
            groups.append(
                Dots(
                    f"{label(name)} ({len(agents.returns)} agents{tail})",
                    [s for s, _ in fine],
                    [r for _, r in fine],
                    colour,
                    symbol,
                    8,
                )
            )
            if fine:
                for values, out in (([r for _, r in fine], rows), ([s for s, _ in fine], steps)):
                    s = summary(values)
                    ends = s["iqm_interval"] or [None, None]
                    out.append((label(name), s["iqm"], ends[0], ends[1], colour))
        wide = [s for g in groups for s in g.x]
        returns = "test return on the task"
        iqm = "Interquartile mean and 95 % interval; equal values have none."
        return [
            dots("Every agent", groups, "training steps", returns, levels=levels, xaxis=log_axis(wide)),
            intervals("Return", rows, returns, iqm, levels=levels, bounds=bounds),
            intervals("Price", steps, "training steps of an agent", iqm, bounds=(0.0, math.inf)),
        ]

    return folder.attempt("comparison.json", charts) or []


def _failures(members: list[dict[str, str]]) -> Table | None:
    """Reasons of failures; those that differ only in numbers count as one."""
    reasons = Counter(re.sub(r"\d+", "#", row["reason"]) for row in members if row.get("reason"))
    if not reasons:
        return None
    return Table(("members", "reason"), [(n, reason) for reason, n in reasons.most_common()])
