"""Parts of the page of ``envolve write``: the lineage and its charts."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence

from envolve.core.cleaning import one_line
from envolve.llm import json_lines
from envolve.llm.reporting.films import FOLDER
from envolve.llm.reporting.lineage import families, name_of
from envolve.llm.search.archive import Archive
from envolve.llm.search.individual import HUMAN, SCORE, Individual, best_of, ranking
from envolve.llm.search.reflection import points
from envolve.outer.page.charts import PALETTE, Line, lines, number, numbers, robust
from envolve.outer.page.common import finite, label
from envolve.outer.page.parts import Chart, Film, Lineage, Part
from envolve.outer.page.reading import Folder

POINTS = 60  # of a curve; longer ones are thinned out


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


def state_of(i: Individual) -> str:
    if i.operator == HUMAN:
        return "human"
    return "rejected" if i.rejection is not None else "trained" if i.ok else "failed" if i.failure else "not trained"


def best_so_far(written: Sequence[Individual]) -> list[tuple[float, float]]:
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


def lineage(
    everyone: Sequence[Individual],
    calls: Mapping[int, tuple[int, float | None]],
    unit: str,
    tested: int | None = None,
    folder: Folder | None = None,
) -> Lineage:
    """tested: the best of the last test, which is chosen at first; else the best of the selection. folder: the run's,
    for films."""
    top = best_of(everyone)
    best = tested if tested is not None else None if top is None else top.id
    rows = rows_of(everyone)
    nodes, details = [], {}
    for i in everyone:
        tokens, usd = paid(i, calls)
        low, high = i.interval if i.interval is not None else (math.nan, math.nan)
        why = i.rejection[1] if i.rejection is not None else i.failure or ""
        nodes.append(
            {
                "id": i.id,
                "name": name_of(i),
                "iteration": i.iteration,
                "parents": list(i.parents),
                "operator": i.operator,
                "island": i.island,
                "model": i.model,
                "state": state_of(i),
                "stage": i.rejection[0] if i.rejection else "",
                "why": why,
                "score": number(i.score),
                "low": number(low),
                "high": number(high),
                "steps": i.steps,
                "tokens": tokens,
                "usd": usd,
                "tuned": i.tuned is not None,
                "row": rows.get(i.id, 0.0),
            }
        )
        details[str(i.id)] = {
            "code": i.code,
            "reply": i.reply if i.reply.strip() != i.code.strip() else "",
            "notes": list(i.notes),
            "tuned": i.tuned,
            "curves": {name: numbers(points(values, POINTS)) for name, values in _ordered(i.curves)},
        }
    return Lineage(nodes, details, unit, best, {} if folder is None else node_films(folder, everyone))


def paid(i: Individual, calls: Mapping[int, tuple[int, float | None]]) -> tuple[int | None, float | None]:
    """Tokens and USD of a candidate with all its repairs; None where no call, or no price, is known."""
    known = [calls[number] for number in i.calls if number in calls]
    prices = [usd for _, usd in known if usd is not None]
    return (sum(tokens for tokens, _ in known) if known else None), (sum(prices) if prices else None)


def node_films(folder: Folder, everyone: Sequence[Individual]) -> dict[str, Film]:
    """Films of candidates, by id: with tuned numbers, if there is such a one, else as written."""
    found = {film.path.stem: film for film in folder.films(below=FOLDER)}
    out = {}
    for i in everyone:
        own, tuned = found.get(name_of(i)), found.get(f"{name_of(i)}_tuned")
        if (film := tuned or own) is not None:
            words = f"{name_of(i)}{', with tuned numbers' * (tuned is not None)}: a fresh agent of the last test"
            out[str(i.id)] = Film(film.path, words)
    return out


def _ordered(curves: Mapping[str, Sequence[float]]) -> list[tuple[str, Sequence[float]]]:
    return sorted(curves.items(), key=lambda item: (item[0] != SCORE, item[0] != "reward"))


def progress(written: Sequence[Individual], human: Individual | None, unit: str) -> Chart | None:
    running = best_so_far(written)
    if not running:
        return None
    order = sorted(written, key=lambda i: i.id)
    place = {i.id: k for k, i in enumerate(order, 1)}
    good = ranking(written)
    values = [i.score for i in good]
    best = Line(
        "best so far",
        [*(x for x, _ in running), float(len(order))],
        [*(y for _, y in running), running[-1][1]],
        PALETTE[0],
        step=True,
        width=2.5,
    )
    levels = [(human.score, "human")] if human is not None and human.ok else []
    chart = lines(
        "Scores in the order of writing",
        [best],
        "candidates written",
        f"score, {unit}",
        levels=levels,
        limits=robust(values, keep=[y for _, y in running]),
    )
    dot = {
        "x": [place[i.id] for i in good],
        "y": numbers(values),
        "mode": "markers",
        "name": "trained candidates",
        "text": [name_of(i) for i in good],
        "hovertemplate": "%{text}: %{y}<extra></extra>",
        "marker": {"size": 7, "color": PALETTE[1], "opacity": 0.75},
    }
    return Chart(chart.title, [*chart.data, dot], chart.layout, chart.note, chart.about, chart.height)


def verdicts(written: Sequence[Individual]) -> Chart | None:
    """What became of the candidates, by iteration."""
    if not written:
        return None
    iterations = sorted({i.iteration for i in written})
    stages = Counter(i.rejection[0] for i in written if i.rejection is not None)
    groups = [("trained", PALETTE[2]), ("failed in training", PALETTE[1])]
    groups += [
        (f"refused: {stage}", colour)
        for (stage, _), colour in zip(
            stages.most_common(), (PALETTE[5], PALETTE[3], PALETTE[4], PALETTE[6], "muted", "faint") * 4
        )
    ]

    def of(i: Individual) -> str:
        if i.rejection is not None:
            return f"refused: {i.rejection[0]}"
        return "trained" if i.ok else "failed in training"

    data = []
    for name, colour in groups:
        counts = [sum(of(i) == name and i.iteration == it for i in written) for it in iterations]
        if any(counts):
            data.append(
                {
                    "type": "bar",
                    "x": [it + 1 for it in iterations],
                    "y": counts,
                    "name": label(name),
                    "marker": {"color": colour},
                }
            )
    layout = {
        "barmode": "stack",
        "xaxis": {"title": {"text": "iteration"}, "dtick": 1 if len(iterations) < 20 else None},
        "yaxis": {"title": {"text": "candidates"}},
    }
    return Chart("What became of them", data, layout, "", "Candidates by iteration and verdict")


def tunings(folder: Folder) -> list[Part | None]:
    """Mean and best score of each generation, for the candidates whose numbers were tuned."""
    out: list[Part | None] = []
    for path in sorted(folder.path.glob("tune_*.jsonl"))[:6]:
        rows = folder.attempt(path.name, lambda p=path: [c for _, c in json_lines.read(p)]) or []  # type: ignore[misc]
        found = [s if isinstance(s := row.get("scores"), list) else [] for row in rows]
        scores = [[x for x in map(finite, row) if math.isfinite(x)] for row in found]
        x = [float(k) for k in range(1, len(rows) + 1)]
        if any(scores):
            means = [sum(row) / len(row) if row else math.nan for row in scores]
            best = [max(row, default=math.nan) for row in scores]
            drawn = [Line("mean", x, means, PALETTE[0]), Line("best", x, best, PALETTE[1])]
            out.append(lines(f"Candidate {path.stem.removeprefix('tune_')}", drawn, "generation", "score"))
    return out


def price(written: Sequence[Individual], calls: Mapping[int, tuple[int, float | None]]) -> Chart | None:
    """Score against the money spent until then; nothing where all was free."""
    spent, x, y, best = 0.0, [], [], -math.inf
    for i in sorted(written, key=lambda i: i.id):
        spent += paid(i, calls)[1] or 0.0
        if i.ok:
            best = max(best, i.score)
            x.append(spent)
            y.append(best)
    if not spent or not x:
        return None
    return lines(
        "Best score against money spent", [Line("best so far", x, y, step=True)], "USD spent on models", "score"
    )
