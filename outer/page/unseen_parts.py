"""Charts of ``envolve evolve``: agents that never saw the world."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from envolve.outer.page.charts import PALETTE, intervals
from envolve.outer.page.common import label, span
from envolve.outer.page.parts import Part, Table
from envolve.outer.reporting.names import learners_said
from envolve.outer.reporting.report import number

KIN = " *: of the family of a learner that the world evolved with; the verdict leaves it out."
Row = tuple[str, float, float | None, float | None, str]
PLACES = {
    "world": "in the world",
    "real": "on the environment, as many steps",
    "real_10x": "there, ten times the steps",
}


def unseen(report: Mapping[str, Any]) -> list[Part | None]:
    """The figures of ``envolve evolve``: agents of other kinds, in the world and on the environment."""
    agents, kin = report.get("unseen"), report.get("kin") or []
    if not isinstance(agents, dict) or not isinstance(kin, list):
        return []
    rows: list[Row] = []
    cells: list[tuple[Any, ...]] = []
    steps = set()
    for key, places in agents.items():
        agent = learners_said(str(key)) + " *" * (key in kin)
        for (place, words), colour in zip(PLACES.items(), (PALETTE[0], PALETTE[1], PALETTE[5])):
            f = places.get(place) if isinstance(places, dict) else None
            if not isinstance(f, dict) or f.get("mean_return") is None:
                cells.append((label(agent), words, None, None, f.get("agents") if isinstance(f, dict) else None, None))
                continue
            low, high = span(f.get("interval"))
            rows.append((label(agent), float(f["mean_return"]), low, high, colour))
            cells.append(
                (
                    agent,
                    words,
                    float(f["mean_return"]),
                    "" if low is None or high is None else f"{number(low)} to {number(high)}",
                    f.get("agents"),
                    f.get("train_steps"),
                )
            )
            steps.add(f.get("agents"))
    random = report.get("random")
    chance = random.get("mean_return") if isinstance(random, dict) else None
    levels = [] if chance is None else [(float(chance), "random actions")]
    count = ", ".join(str(s) for s in sorted(steps, key=str))
    table = Table(("agent", "trained", "mean return", "95 % interval", "agents", "training steps"), cells)
    parts = report.get("real_steps_of")
    price = None
    if isinstance(parts, dict):
        names = {
            "measuring": "measuring the environment",
            "evolution": "the evolution",
            "tests": "tests of these agents",
            "baselines": "agents on the environment",
        }
        price = Table(("real steps for", "steps"), [(names.get(k, k), v) for k, v in parts.items()], "Price")
    return [
        intervals(
            "Return on the environment",
            rows,
            "mean return",
            f"Means over {count} agents of each kind, with 95 % intervals." + KIN * bool(kin),
            levels=levels,
            legend=dict(zip((PALETTE[0], PALETTE[1], PALETTE[5]), PLACES.values())),
        ),
        table,
        price,
    ]
