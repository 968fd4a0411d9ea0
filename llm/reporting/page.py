"""The page of a run of ``envolve write``: candidates of language models, and who came from whom."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any


from envolve.core.cleaning import one_line
from envolve.llm import json_lines
from envolve.llm.reporting.lineage import families, name_of
from envolve.llm.search.archive import Archive
from envolve.llm.search.individual import HUMAN, SCORE, Individual, best_of, ranking
from envolve.outer.page.charts import INK, PALETTE, Line, intervals, lines, number, numbers, robust
from envolve.outer.page.common import closing, configuration, finite, label, span
from envolve.outer.page.parts import Chart, Code, Curve, Fact, Lineage, Page, Part, Prose, Table
from envolve.outer.page.reading import Folder
from envolve.outer.reporting.report import precise

MOST_ROWS = 25  # candidates in the picture of intervals
POINTS = 60  # of a component's curve; longer ones are thinned out
CONFIG = "config.yaml"


def fits(folder: Folder) -> bool:
    return folder.has("individuals.jsonl") or folder.has("calls.jsonl") and folder.has("ledger.json")


def read(folder: Folder) -> Page:
    config = folder.yaml(CONFIG)
    arguments = config.get("arguments")
    arguments = arguments if isinstance(arguments, dict) else {}
    everyone = load(folder)
    human = next((i for i in everyone if i.operator == HUMAN), None)
    written = [i for i in everyone if i.operator != HUMAN]
    result = folder.json("result.json")
    result = result if isinstance(result, dict) else {}
    task = one_line(str(result.get("task") or arguments.get("task") or "unknown task"), 100)
    unit = one_line(str(result.get("score_unit") or _unit(task)), 100)
    calls = costs(folder)
    models = ", ".join(one_line(str(m), 60) for m in arguments.get("llm") or []) or "a language model"
    page = Page(folder.path, "Shapers written by language models", f"{task}: {_shapers(arguments)} by {models}",
                config=config, state=folder.state("result.json"))  # fmt: skip
    page.verdict = verdict(result, written, human, unit)
    page.facts = _facts(result, written, human, calls, folder.json("ledger.json"), unit)
    running = _best_so_far(written)
    page.curve = Curve([x for x, _ in running], [y for _, y in running], "candidates written", f"best score, {unit}")
    page.add("Last test: fresh agents", *_finals(result, unit),
             lead="The best of the selection and the human's shapers, each with new agents and equal random seeds.")  # fmt: skip
    if everyone:
        page.add("Candidates", lineage(everyone, calls, unit, _tested(result)), lead=(
            "Choose a candidate in the picture or in the list to see its code, what changed against its parents, the "
            "components of its reward during training, why it was refused, and what it cost."))  # fmt: skip
    page.add("Progress", _progress(written, human, unit), _verdicts(written))
    page.add("Tuning of the numbers", *_tunings(folder))
    page.add("Films", *folder.films())
    page.add("Price", _ledger(folder.json("ledger.json")), _price(written, calls))
    best = folder.text("best.py")
    found = folder.text("summary.txt")
    page.add("Summary", Code("best.py, the best candidate", best, "python") if best else None,
             Prose(found, mono=True) if found else None)  # fmt: skip
    versions = config.get("versions")
    said = {str(k): str(v) for k, v in versions.items()} if isinstance(versions, dict) else {}
    page.add("Configuration", *configuration(folder, CONFIG, folder.text(CONFIG), said))
    closing(page, folder)
    return page


def load(folder: Folder) -> list[Individual]:
    """All attempts that can be read; damaged lines are counted as a problem, one by one."""
    path = folder.path / "individuals.jsonl"
    whole = len(folder.problems)
    found = folder.attempt(path.name, lambda: Archive(path).load())
    if found is not None:
        return found
    del folder.problems[whole:]
    out: dict[int, Individual] = {}
    lost: list[str] = []
    for number_, line in enumerate(folder.text(path.name).split("\n"), 1):
        try:
            individual = Individual.from_json(json.loads(line)) if line.strip() else None
        except (ValueError, RecursionError) as e:
            lost.append(f"line {number_} ({one_line(str(e), 80)})")
            continue
        if individual is not None:
            out[individual.id] = individual
    more = f" and {len(lost) - 3} more" if len(lost) > 3 else ""
    folder.problems.append(f"{path.name}: {', '.join(lost[:3])}{more}")
    return [out[i] for i in sorted(out)]


def costs(folder: Folder) -> dict[int, tuple[int, float | None]]:
    """Call -> tokens of prompt and reply together, and USD; None: the price is unknown."""
    def go() -> dict[int, tuple[int, float | None]]:
        out = {}
        for _, content in json_lines.read(folder.path / "calls.jsonl"):
            tokens, index = content.get("tokens"), content.get("index")
            if isinstance(index, int) and isinstance(tokens, list) and all(isinstance(t, int) for t in tokens):
                usd = content.get("usd")
                out[index] = sum(tokens), float(usd) if isinstance(usd, (int, float)) else None
        return out

    return (folder.attempt("calls.jsonl", go) or {}) if folder.has("calls.jsonl") else {}


def _unit(task: str) -> str:
    from envolve.envs.physics import physics_task

    try:
        return str(physics_task(task).score_unit)
    except Exception:  # a task of another version, or of the user's own
        return ""


def _shapers(arguments: Mapping[str, Any]) -> str:
    types = arguments.get("shaper_types")
    words = {"compute_reward": "rewards", "compute_observation": "observations", "compute_torque": "meanings of actions",
             "compute_terminal": "terminations", "compute_initial_state": "starts", "compute_goal": "goals"}  # fmt: skip
    return ", ".join(words.get(str(t), str(t)) for t in types) if isinstance(types, list) and types else "shapers"


def _said(score: float, ends: Any) -> str:
    low, high = span(ends)
    return precise(score) if low is None or high is None else f"{precise(score)} [{precise(low)}, {precise(high)}]"


def verdict(result: Mapping[str, Any], written: Sequence[Individual], human: Individual | None, unit: str) -> str:
    """The best beside the human's in the last test, else in the selection."""
    counts = Counter(_state(i) for i in written)
    parts = [f"{counts['trained']} of {len(written)} candidates were trained"]
    parts += [f"{counts['rejected']} were refused before any training"] * bool(counts["rejected"])
    parts += [f"{counts['failed']} failed in training"] * bool(counts["failed"])
    told = ", ".join(parts) + "."
    best, own = result.get("best"), result.get("human")
    if isinstance(best, dict) and math.isfinite(finite(best.get("score"))):
        n = len(best.get("agent_scores") or [])
        name = f"i{best.get('id', 0):03d}" if isinstance(best.get("id"), int) else "the best"
        said = f"{name} scores {_said(finite(best.get('score')), best.get('interval'))} {unit} with {n} fresh agents"
        if isinstance(own, dict) and math.isfinite(finite(own.get("score"))):
            b, h = finite(best.get("score")), finite(own.get("score"))
            how = "as much as" if b == h else "more than" if b > h else "less than"
            ends = (span(best.get("interval")), span(own.get("interval")))
            low, high = (ends[0][0], ends[1][1]) if b > h else (ends[1][0], ends[0][1])
            close = "; the intervals overlap" if b != h and low is not None and high is not None and low <= high else ""
            said += f", {how} the human's shapers, {_said(h, own.get('interval'))}{close}"
        return f"{said[:1].upper()}{said[1:]}. {told}"
    top = best_of(written)
    if top is None:
        return f"Nothing has a score yet. {told}"
    beside = f"; the human's {precise(human.score)}" if human is not None and human.ok else ""
    return f"Best so far {name_of(top)}, {_said(top.score, top.interval)} {unit} in the selection{beside}. {told}"


def _state(i: Individual) -> str:
    if i.operator == HUMAN:
        return "human"
    return "rejected" if i.rejection is not None else "trained" if i.ok else "failed" if i.failure else "not trained"


def _facts(
    result: Mapping[str, Any], written: Sequence[Individual], human: Individual | None, calls: Mapping[int, Any],
    ledger: Any, unit: str,
) -> list[Fact]:  # fmt: skip
    facts = []
    best, top = result.get("best"), best_of(written)
    if isinstance(best, dict):
        facts.append(Fact("Best, last test", precise(finite(best.get("score"))), f"{unit}, {len(best.get('agent_scores') or [])} agents"))
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


def _best_so_far(written: Sequence[Individual]) -> list[tuple[float, float]]:
    out, best = [], -math.inf
    for k, i in enumerate(sorted(written, key=lambda i: i.id), 1):
        if i.ok:
            best = max(best, i.score)
            out.append((float(k), best))
    return out


def rows_of(everyone: Sequence[Individual]) -> dict[int, float]:
    """Height of each in the tree: leaves below each other, a parent in the middle of its children. Children belong to
    their first parent. No recursion: a line of descent may be as long as the run."""
    children = families(everyone)
    rows: dict[int, float] = {}
    free = 0
    stack: list[tuple[Individual, bool]] = [(i, False) for i in reversed(children.get(None, []))]
    while stack:
        i, back = stack.pop()
        own = children.get(i.id, [])
        if back:
            rows[i.id] = sum(rows[c.id] for c in own) / len(own)
        elif own:
            stack.append((i, True))
            stack += [(c, False) for c in reversed(own)]
        else:
            rows[i.id] = float(free)
            free += 1
    return rows


def _tested(result: Mapping[str, Any]) -> int | None:
    """The best of the last test; None: there was none."""
    best = result.get("best")
    return best["id"] if isinstance(best, dict) and isinstance(best.get("id"), int) else None


def lineage(
    everyone: Sequence[Individual], calls: Mapping[int, tuple[int, float | None]], unit: str, tested: int | None = None
) -> Lineage:  # fmt: skip
    """tested: the best of the last test, which is chosen at first; else the best of the selection."""
    top = best_of(everyone)
    best = tested if tested is not None else None if top is None else top.id
    rows = rows_of(everyone)
    nodes, details = [], {}
    for i in everyone:
        tokens, usd = calls.get(i.call, (None, None))
        low, high = i.interval if i.interval is not None else (math.nan, math.nan)
        why = i.rejection[1] if i.rejection is not None else i.failure or ""
        nodes.append({
            "id": i.id, "name": name_of(i), "iteration": i.iteration, "parents": list(i.parents), "operator": i.operator,
            "island": i.island, "model": i.model, "state": _state(i), "stage": i.rejection[0] if i.rejection else "",
            "why": why, "score": number(i.score), "low": number(low), "high": number(high), "steps": i.steps,
            "tokens": tokens, "usd": usd, "tuned": i.tuned is not None, "row": rows.get(i.id, 0.0),
        })  # fmt: skip
        details[str(i.id)] = {
            "code": i.code, "reply": i.reply if i.reply.strip() != i.code.strip() else "", "notes": list(i.notes),
            "tuned": i.tuned, "curves": {name: numbers(thinned(values)) for name, values in _ordered(i.curves)},
        }  # fmt: skip
    return Lineage(nodes, details, unit, best)


def _ordered(curves: Mapping[str, Sequence[float]]) -> list[tuple[str, Sequence[float]]]:
    return sorted(curves.items(), key=lambda item: (item[0] != SCORE, item[0] != "reward"))


def thinned(values: Sequence[float], most: int = POINTS) -> Sequence[float]:
    """At most ``most`` of the values, the first and the last among them."""
    if len(values) <= most:
        return values
    return [values[round(k * (len(values) - 1) / (most - 1))] for k in range(most)]


def _finals(result: Mapping[str, Any], unit: str) -> list[Part | None]:
    finals = result.get("finals")
    if not isinstance(finals, list) or not finals:
        return []
    rows, cells = [], []
    for f in finals:
        if not isinstance(f, dict):
            continue
        name = HUMAN if f.get("operator") == HUMAN else f"i{f.get('id'):03d}" if isinstance(f.get("id"), int) else "?"
        rows.append((name + ", tuned" * bool(f.get("tuned")), finite(f.get("score")), *span(f.get("interval")),
                     INK if name == HUMAN else PALETTE[0]))  # fmt: skip
        cells.append((name, finite(f.get("score")), ", ".join(precise(finite(x)) for x in f.get("agent_scores") or [])))
    n = max((len(f.get("agent_scores") or []) for f in finals if isinstance(f, dict)), default=0)
    return [
        intervals("True score", rows, f"score, {unit}", f"Means and 95 % intervals over {n} fresh agents each; equal values have none."),
        Table(("candidate", f"mean score, {unit}", "agents"), cells),
    ]


def _progress(written: Sequence[Individual], human: Individual | None, unit: str) -> Chart | None:
    running = _best_so_far(written)
    if not running:
        return None
    order = sorted(written, key=lambda i: i.id)
    place = {i.id: k for k, i in enumerate(order, 1)}
    good = ranking(written)
    values = [i.score for i in good]
    best = Line("best so far", [*(x for x, _ in running), float(len(order))], [*(y for _, y in running), running[-1][1]],
                PALETTE[0], step=True, width=2.5)  # fmt: skip
    levels = [(human.score, "human")] if human is not None and human.ok else []
    chart = lines("Scores in the order of writing", [best], "candidates written", f"score, {unit}", levels=levels,
                  limits=robust(values, keep=[y for _, y in running]))  # fmt: skip
    dot = {"x": [place[i.id] for i in good], "y": numbers(values), "mode": "markers", "name": "trained candidates",
           "text": [name_of(i) for i in good], "hovertemplate": "%{text}: %{y}<extra></extra>",
           "marker": {"size": 7, "color": PALETTE[1], "opacity": 0.75}}  # fmt: skip
    return Chart(chart.title, [*chart.data, dot], chart.layout, chart.note, chart.about, chart.height)


def _verdicts(written: Sequence[Individual]) -> Chart | None:
    """What became of the candidates, by iteration."""
    if not written:
        return None
    iterations = sorted({i.iteration for i in written})
    stages = Counter(i.rejection[0] for i in written if i.rejection is not None)
    groups = [("trained", PALETTE[2]), ("failed in training", PALETTE[1])]
    groups += [(f"refused: {stage}", colour) for (stage, _), colour in zip(stages.most_common(), (PALETTE[5], PALETTE[3], PALETTE[4], PALETTE[6], "muted", "faint") * 4)]

    def of(i: Individual) -> str:
        if i.rejection is not None:
            return f"refused: {i.rejection[0]}"
        return "trained" if i.ok else "failed in training"

    data = []
    for name, colour in groups:
        counts = [sum(of(i) == name and i.iteration == it for i in written) for it in iterations]
        if any(counts):
            data.append({"type": "bar", "x": [it + 1 for it in iterations], "y": counts, "name": label(name),
                         "marker": {"color": colour}})  # fmt: skip
    layout = {"barmode": "stack", "xaxis": {"title": {"text": "iteration"}, "dtick": 1 if len(iterations) < 20 else None},
              "yaxis": {"title": {"text": "candidates"}}}  # fmt: skip
    return Chart("What became of them", data, layout, "", "Candidates by iteration and verdict")


def _tunings(folder: Folder) -> list[Part | None]:
    out: list[Part | None] = []
    for path in sorted(folder.path.glob("tune_*.jsonl"))[:6]:
        rows = folder.attempt(path.name, lambda p=path: [c for _, c in json_lines.read(p)]) or []  # type: ignore[misc]
        names = [k for k, v in (rows[0] if rows else {}).items() if isinstance(v, (int, float)) and k not in ("generation", "steps")]
        x = [finite(r.get("generation", k)) for k, r in enumerate(rows)]
        drawn = [Line(label(n), x, [finite(r.get(n)) for r in rows], c) for n, c in zip(names, PALETTE)]
        if drawn:
            out.append(lines(f"Candidate {path.stem.removeprefix('tune_')}", drawn, "generation", "score"))
    return out


def _ledger(ledger: Any) -> Table | None:
    models = ledger.get("models") if isinstance(ledger, dict) else None
    if not isinstance(models, list):
        return None
    rows = [(str(m.get("model")), m.get("calls"), m.get("prompt_tokens"), m.get("completion_tokens"),
             "unknown" if m.get("usd") is None else f"{finite(m.get('usd')):.4f}") for m in models if isinstance(m, dict)]  # fmt: skip
    return Table(("model", "calls", "tokens in", "tokens out", "USD"), rows)


def _price(written: Sequence[Individual], calls: Mapping[int, tuple[int, float | None]]) -> Chart | None:
    """Score against the money spent until then; nothing where all was free."""
    spent, x, y, best = 0.0, [], [], -math.inf
    for i in sorted(written, key=lambda i: i.id):
        spent += calls.get(i.call, (0, 0.0))[1] or 0.0
        if i.ok:
            best = max(best, i.score)
            x.append(spent)
            y.append(best)
    if not spent or not x:
        return None
    return lines("Best score against money spent", [Line("best so far", x, y, step=True)], "USD spent on models", "score")


