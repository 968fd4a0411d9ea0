"""The page of a distributed run: ``envolve distributed``. It reads tables and TensorBoard's events, no code."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from envolve.core.cleaning import one_line
from envolve.core.files import leads_out
from envolve.core.statistics import interval
from envolve.outer.page.charts import MUTED, PALETTE, Line, Look, lines, robust
from envolve.outer.page.common import closing, configuration, label
from envolve.outer.page.parts import Chart, Code, Curve, Fact, Page, Part
from envolve.outer.page.reading import Folder
from envolve.outer.reporting.report import number

SHOWN = ("mean_return", "staleness", "environment_steps_per_s", "gradient_steps_per_s")
STEPS = "environment_steps"  # of the collectors, all together
MOST_METRICS = 12


def fits(folder: Folder) -> bool:
    return folder.has("run.json") and (folder.has("params.py") or folder.has("evaluations.csv"))


def read(folder: Folder) -> Page:
    config, settings = folder.keys_of("config.json"), folder.keys_of("run.json")
    env = config.get("env")
    name = env.get("name") if isinstance(env, dict) else env or config.get("env_name") or "environment of params.py"
    page = Page(
        folder.path,
        "Distributed training",
        one_line(f"{name}: one agent, {_collectors(settings)}", 200),
        config={"settings": settings, **config},
        state=folder.state("done"),
    )
    rows = folder.rows("evaluations.csv")
    members = sorted({row.get("member", "0") for row in rows}, key=lambda m: (len(m), m))
    ends = [row for row in rows if row.get("step") == rows[-1].get("step")] if rows else []
    scalars = _scalars(folder)
    spent = scalars.get(STEPS, ([], []))[1]
    page.verdict = verdict(ends, spent[-1] if spent else math.nan)
    episodes = rows[-1].get("episodes", "?") if rows else "?"
    page.facts = [
        Fact("Return at the end", number(_mean(ends, "mean_return")), _count(str(episodes), "greedy episode")),
        Fact("Success at the end", number(_mean(ends, "success")), "share of episodes")
        if _known(rows, "success")
        else Fact("Episode length", number(_mean(ends, "mean_length")), "steps"),
        Fact("Gradient steps", f"{_number(rows[-1], 'step'):,.0f}" if rows else "-", ""),
        Fact("Collectors", str(settings.get("num_collectors", "?")), str(settings.get("mode", ""))),
    ]
    if rows:
        x = [_number(row, "step") for row in rows if row.get("member") == members[0]]
        page.curve = Curve(
            x,
            [_number(row, "mean_return") for row in rows if row.get("member") == members[0]],
            "gradient steps",
            "return of the greedy policy",
        )
    page.add(
        "Evaluations",
        *(
            _evaluations(rows, members, key, title)
            for key, title in (
                ("mean_return", "return of the greedy policy"),
                ("success", "success rate"),
                ("mean_length", "episode length, steps"),
            )
        ),
    )
    page.add("Training", *_events(scalars))
    page.add("Films", *folder.films())
    params = folder.text("params.py")
    page.add(
        "Configuration",
        Code("params.py", params, "python") if params else None,
        *configuration(folder, "config.json", folder.text("config.json"), {}),
    )
    closing(page, folder)
    return page


def _collectors(settings: Mapping[str, Any]) -> str:
    n = settings.get("num_collectors", "?")
    return f"{n} collector{'s' * (n != 1)}, {settings.get('mode', 'mode unknown')}"


def _number(row: Mapping[str, str], key: str) -> float:
    try:
        return float(row.get(key) or "nan")
    except ValueError:
        return math.nan


def _known(rows: Sequence[Mapping[str, str]], key: str) -> bool:
    return any(math.isfinite(_number(row, key)) for row in rows)


def _mean(rows: Sequence[Mapping[str, str]], key: str) -> float:
    values = [v for v in (_number(row, key) for row in rows) if math.isfinite(v)]
    return sum(values) / len(values) if values else math.nan


def verdict(ends: Sequence[Mapping[str, str]], spent: float = math.nan) -> str:
    """spent: environment steps of all collectors."""
    if not ends:
        return "No evaluation yet."
    values = [v for v in (_number(row, "mean_return") for row in ends) if math.isfinite(v)]
    low, high = interval(values) if len(values) > 1 else (math.nan, math.nan)
    told = "" if math.isnan(low) else f" [{number(low)}, {number(high)}], 95 % interval over {len(values)} members"
    spread = _mean(ends, "std_return")
    of = (
        f", standard deviation {number(spread)} over {_count(str(ends[0].get('episodes', '?')), 'episode')}"
        if math.isfinite(spread)
        else ""
    )
    steps, mean = f"{_number(ends[0], 'step'):,.0f}", number(_mean(ends, "mean_return"))
    price = "" if math.isnan(spent) else f" and {spent:,.0f} environment steps"
    return f"After {steps} gradient steps{price} the greedy policy returns {mean}{told}{of}."


def _count(n: str, what: str) -> str:
    return f"{n} {what}{'s' * (n != '1')}"


def _evaluations(rows: Sequence[Mapping[str, str]], members: Sequence[str], key: str, title: str) -> Chart | None:
    if not _known(rows, key):
        return None
    drawn = []
    for member, colour in zip(members, [*PALETTE, *[MUTED] * len(members)]):
        own = [row for row in rows if row.get("member") == member]
        x, y = [_number(r, "step") for r in own], [_number(r, key) for r in own]
        low = high = None
        if key == "mean_return" and len(members) == 1:
            spread = [_number(r, "std_return") for r in own]
            low, high = [a - s for a, s in zip(y, spread)], [a + s for a, s in zip(y, spread)]
        drawn.append(
            Line(
                f"member {label(member)}" if len(members) > 1 else "greedy policy",
                x,
                y,
                colour,
                low,
                high,
                "standard deviation over episodes" if low else "",
                marks=True,
            )
        )
    unit: Look = {"range": [-0.02, 1.02]} if key == "success" else None
    return lines(title[:1].upper() + title[1:], drawn, "gradient steps", title, yaxis=unit)


def _scalars(folder: Folder) -> dict[str, tuple[list[float], list[float]]]:
    """What the learner wrote for TensorBoard."""
    where = folder.path / "learner"
    if not where.is_dir() or leads_out(where, folder.path):
        return {}
    found = folder.attempt("learner", lambda: read_scalars(where)) or {}
    if not found and folder.has("done"):
        folder.problem("learner: found no figures in its TensorBoard events")
    return found


def _events(scalars: Mapping[str, tuple[list[float], list[float]]]) -> list[Part | None]:
    order = [name for name in SHOWN if name in scalars] + [name for name in scalars if name not in SHOWN]
    out: list[Part | None] = []
    for name in order[:MOST_METRICS]:
        x, y = scalars[name]
        words = name.replace("_", " ")
        out.append(lines(words, [Line(label(words), x, y)], "gradient steps", words, limits=robust(y), height=230))
    return out


def read_scalars(folder: Path) -> dict[str, tuple[list[float], list[float]]]:
    """Scalars of TensorBoard's events: name -> steps and values."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # type: ignore[import-untyped]

    found = EventAccumulator(str(folder), size_guidance={"scalars": 2000})
    found.Reload()
    out = {}
    for tag in found.Tags()["scalars"]:
        events = found.Scalars(tag)
        out[tag] = ([float(e.step) for e in events], [float(e.value) for e in events])
    return out
