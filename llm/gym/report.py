"""Reports of a run on a user's environment: a table, a picture, prompts and replies as Markdown."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from envolve.envs.worlds.file import write_atomic
from envolve.llm.gym.sample import Sample
from envolve.outer.reporting.report import duration, number
from envolve.outer.reporting.style import BLUE, ORANGE, clear_legend, new_figure


def best_of(samples: Sequence[Sample]) -> Sample | None:
    """Attempt with the highest fitness, the earliest among equals."""
    known = [s for s in samples if s.ok]
    return max(known, key=lambda s: (s.fitness, -s.iteration, -s.number)) if known else None


def table(samples: Sequence[Sample], benchmark: Sample | None, title: str) -> Table:
    """Table with a line per attempt, best first, failures last with their reason."""
    out = Table(title=title, title_justify="left")
    for name, justify in (("attempt", "left"), ("fitness", "right"), ("length", "right"), ("steps", "right"),
                          ("time", "right"), ("", "left")):  # fmt: skip
        out.add_column(name, justify=justify, overflow="fold")  # type: ignore[arg-type]
    rows = [*samples, *([benchmark] if benchmark is not None else [])]
    for s in sorted(rows, key=lambda s: -s.fitness if s.ok else math.inf):
        name = "benchmark" if s is benchmark else s.name
        last = f"{s.stage}: {(s.failure or '').strip().splitlines()[-1][:100]}" if s.failure else ""
        length = s.final.get("episode_length", math.nan)
        out.add_row(name, number(s.fitness), number(length), f"{s.timesteps:,}", duration(s.seconds), last)
    return out


def picture(path: Path, samples: Sequence[Sample], benchmark: Sample | None, title: str) -> None:
    """Writes a PNG: the fitness of every attempt against its iteration, the best so far, the benchmark as a line."""
    from matplotlib.ticker import MaxNLocator

    figure, (axes,) = new_figure(6.4, 4.0)
    good = [s for s in samples if s.ok]
    failed = len(samples) - len(good)
    label = f"attempts ({failed} of {len(samples)} failed)" if failed else "attempts"
    axes.scatter([s.iteration for s in good], [s.fitness for s in good], color=BLUE, alpha=0.45, label=label)
    iterations = sorted({s.iteration for s in samples})
    best = [best_of([s for s in samples if s.iteration <= i]) for i in iterations]
    points = [(i, s.fitness) for i, s in zip(iterations, best) if s is not None]
    if points:
        axes.plot(*zip(*points), color=BLUE, marker="o", markersize=4, label="best so far")
    if benchmark is not None and benchmark.ok:
        axes.axhline(benchmark.fitness, color=ORANGE, linestyle="--", label="benchmark, its own reward")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    axes.set(xlabel="iteration", ylabel="fitness of the final policy", title=title)
    clear_legend(axes, 3)
    figure.savefig(path, format="png")


def write_json(path: Path, content: Any) -> None:
    write_atomic(str(path), (json.dumps(content, indent=1, allow_nan=False) + "\n").encode())


def entry(sample: Sample | None) -> dict[str, Any] | None:
    """Result files' entry of one attempt."""
    if sample is None:
        return None
    names = ("iteration", "number", "stage", "failure", "episodes", "timesteps", "seconds", "final")
    return {"score": sample.fitness if sample.ok else None, **{n: getattr(sample, n) for n in names}}


def markdown(iteration: int, messages: Sequence[tuple[str, str]], samples: Sequence[Sample]) -> str:
    """Markdown of one iteration: prompt, replies, results."""
    parts = [f"# Iteration {iteration}", "## Asked"]
    parts += [f"### {role}\n\n{_quoted(content)}" for role, content in messages]
    for s in samples:
        verdict = f"fitness {s.fitness:.6g}" if s.ok else f"failed ({s.stage})"
        parts.append(f"## Reply {s.number}: {verdict}\n\n{_quoted(s.reply or '(none)')}")
        if s.failure:
            parts.append(f"What was wrong:\n\n{_quoted(s.failure)}")
    return "\n\n".join(parts) + "\n"


def _quoted(text: str) -> str:
    return "\n".join("> " + line if line else ">" for line in text.splitlines())
