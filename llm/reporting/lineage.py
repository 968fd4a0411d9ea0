"""Lineage of an evolution's attempts, as text for terminals and as a picture."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from envolve.llm.search.individual import CROSSOVER, EDIT, HUMAN, IMPROVE, INITIAL, REPAIR, Individual, best_of
from envolve.outer.reporting.report import precise
from envolve.outer.reporting.style import COLOURS, GREY, new_figure

MARKS = {INITIAL: "o", IMPROVE: "s", CROSSOVER: "D", REPAIR: "^", EDIT: "P"}  # of all operators but the human's


def name_of(individual: Individual) -> str:
    """Name in tables, pictures and files: i007, human."""
    return HUMAN if individual.operator == HUMAN else f"i{individual.id:03d}"


def number_name(number: int) -> str:
    """Name of a parent by its id; the human's reward may be one."""
    return HUMAN if number < 0 else f"i{number:03d}"


def score_text(individual: Individual) -> str:
    """Score and its 95 % interval, or the reason why there is none."""
    if individual.rejection is not None:
        return f"rejected: {individual.rejection[0]}"
    if not individual.ok:
        return "failed in training" if individual.failure else "not trained"
    interval = individual.interval
    return precise(individual.score) + ("" if interval is None else f" [{', '.join(map(precise, interval))}]")


def families(individuals: Sequence[Individual]) -> dict[int | None, list[Individual]]:
    """Children by the id of their first parent, in the order of ids; None: individuals without parents. Parents are
    older than their children, so there are no cycles."""
    known = {i.id for i in individuals}
    out: dict[int | None, list[Individual]] = {}
    for i in sorted(individuals, key=lambda i: i.id):
        parents = [p for p in i.parents if p in known and p < i.id]
        out.setdefault(parents[0] if parents else None, []).append(i)
    return out


def ancestors(individual: Individual, individuals: Sequence[Individual]) -> set[int]:
    """Id of an individual and those of all its ancestors."""
    by_id = {i.id: i for i in individuals}
    found: set[int] = set()
    todo = [individual.id]
    while todo:
        current = todo.pop()
        if current in by_id and current not in found:
            found.add(current)
            todo += by_id[current].parents
    return found


def tree_text(individuals: Sequence[Individual]) -> str:
    """One line each, children below their first parent; attempts that were rejected and have no children are counted.

    i000 initial  1.2 [1.1, 1.3]
    ├─ i004 improve  2.1 [2, 2.3]  *
    └─ 2 rejected: allowlist 1, trace 1
    """
    written = [i for i in individuals if i.operator != HUMAN]
    children, best = families(written), best_of(written)
    several = len({i.island for i in written}) > 1
    models = len({i.model for i in written}) > 1

    def line(i: Individual) -> str:
        also = [number_name(p) for p in i.parents[1:]]
        words = [f"{name_of(i)} {i.operator}"]
        words += ["with " + ", ".join(also)] * bool(also)
        words += [f"island {i.island}"] * several + [i.model] * models + [score_text(i)]
        return "  ".join(words + ["*"] * (best is not None and i.id == best.id))

    def below(parent: int | None) -> list[Individual | str]:
        lost = Counter()  # type: Counter[str]
        out: list[Individual | str] = []
        for i in children.get(parent, []):
            if i.rejection is not None and i.id not in children:
                lost[i.rejection[0]] += 1
            else:
                out.append(i)
        if lost:
            out.append(f"{lost.total()} rejected: " + ", ".join(f"{stage} {n}" for stage, n in lost.most_common()))
        return out

    # no recursion: a line of descent may be as long as the evolution
    def lines() -> Iterator[str]:
        stack: list[tuple[str, str, Individual | str]] = [("", "", x) for x in reversed(below(None))]
        while stack:
            first, rest, x = stack.pop()
            yield first + (x if isinstance(x, str) else line(x))
            if not isinstance(x, str):
                under = below(x.id)
                for k, child in reversed(list(enumerate(under))):
                    last = k == len(under) - 1
                    stack.append((rest + ("└─ " if last else "├─ "), rest + ("   " if last else "│  "), child))

    legend = f"\n\n* the best of them, {name_of(best)}" if best is not None else ""
    return "\n".join(lines()) + legend + "\n"


def shown_range(scores: Sequence[float]) -> tuple[float, float]:
    """Limits of an axis that separate the better half of the scores, whatever the worst are."""
    if not len(scores):
        return 0.0, 1.0
    high, middle, low = max(scores), float(np.median(scores)), min(scores)
    low = max(low, middle - 2 * (high - middle)) if high > middle else low
    margin = 0.08 * (high - low) or 0.1 * abs(high) or 0.1
    return low - 2 * margin, high + margin


def lineage_picture(
    path: Path, individuals: Sequence[Individual], human: Individual | None, title: str, unit: str
) -> None:
    """Write a PNG (150 dpi): every attempt at its iteration and score, lines from parents to children, islands as
    colours; the best one's ancestors are marked. Attempts without a score are at the bottom."""
    from matplotlib.lines import Line2D
    from matplotlib.ticker import MaxNLocator

    written = sorted((i for i in individuals if i.operator != HUMAN), key=lambda i: i.id)
    best = best_of(written)
    chain = ancestors(best, written) if best is not None else set()
    references = [human.score] if human is not None and human.ok else []
    low, high = shown_range([i.score for i in written if i.ok] + references)
    size = Counter(i.iteration for i in written)
    seen = Counter()  # type: Counter[int]
    place: dict[int, tuple[float, float]] = {}
    for i in written:  # side by side within its iteration
        x = i.iteration + 1 + 0.7 * ((seen[i.iteration] + 0.5) / size[i.iteration] - 0.5)
        seen[i.iteration] += 1
        place[i.id] = (x, max(i.score, low) if i.ok else low)

    figure, (ax,) = new_figure(8, 4.5)
    for i in written:
        for p in i.parents:
            if p in place and i.ok:
                bold = i.id in chain and p in chain
                ends = list(zip(place[p], place[i.id]))
                colour = "black" if bold else GREY
                ax.plot(*ends, color=colour, linewidth=1.6 if bold else 0.4, alpha=1 if bold else 0.6, zorder=1)
    islands = sorted({i.island for i in written})
    for i in written:
        x, y = place[i.id]
        colour = COLOURS[islands.index(i.island) % len(COLOURS)]
        if i.ok:
            below = i.score < low
            shape, edge = "v" if below else MARKS[i.operator], "black" if i.id in chain else "white"
            ax.plot([x], [y], marker=shape, color=colour, markersize=6, markeredgecolor=edge, markeredgewidth=0.8)
        else:
            ax.plot([x], [y], marker="|" if i.rejection else "x", color=colour, markersize=6, clip_on=False)
    if best is not None:
        where = dict(xytext=(0, 7), textcoords="offset points", ha="center", fontsize=8)
        ax.annotate(name_of(best), place[best.id], **where)  # type: ignore[arg-type]
    ax.set_ylim(low - 0.04 * (high - low), high)  # room for the marks at the bottom
    ax.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    ax.set_xlabel("iteration")
    ax.set_ylabel(f"score, {unit}")
    ax.set_title(title, fontsize=11)

    def mark(shape: str, label: str, colour: str = GREY) -> Line2D:
        return Line2D([], [], color=colour, marker=shape, linestyle="none", markersize=6, label=label)

    used = {i.operator for i in written if i.ok}
    handles = [mark(shape, operator) for operator, shape in MARKS.items() if operator in used]
    handles += [mark("v", "worse than shown")] * any(i.ok and i.score < low for i in written)
    handles += [mark("|", "rejected")] * any(i.rejection is not None for i in written)
    handles += [mark("x", "failed in training")] * any(i.rejection is None and not i.ok for i in written)
    if len(islands) > 1:
        colours = [COLOURS[k % len(COLOURS)] for k in range(len(islands))]
        handles += [mark("o", f"island {island}", colour) for island, colour in zip(islands, colours)]
    if best is not None and len(chain) > 1:
        handles.append(Line2D([], [], color="black", linewidth=1.6, label=f"ancestors of {name_of(best)}"))
    if references and math.isfinite(references[0]):
        handles.append(ax.axhline(references[0], color="black", linestyle="--", linewidth=1, label="human"))
    ax.legend(handles=handles, fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    figure.savefig(path, format="png")
