"""What became of an attempt, in words and figures that a model can act on.

After Eureka's reward reflection (Ma et al. 2023, https://arxiv.org/abs/2310.12931, section 3.3): every component of the
reward and the score at ten points of the training, with maximum, mean and minimum. Added to that: where the human's
reward ends up in the same training, and what the figures say of single components.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from envolve.llm.search.individual import REWARD, SCORE, Individual
from envolve.llm.vetting.literals import as_written

POINTS = 10
REFLECTION_LIMIT = 6_000  # characters
MAX_COMPONENTS, NAME_LIMIT, MESSAGE_LIMIT = 20, 60, 4_000
FLAT = 0.02  # a component that moves by less than this share of its size is near-constant
DOMINANT = 0.9  # share of the sum of all components' mean sizes
CONTRARY = -0.6  # correlation of a component with the score over training


def reflect(individual: Individual, human: Individual | None, unit: str = "", advice: bool = True) -> str:
    """At most REFLECTION_LIMIT characters. human: the task's own shapers in the same training. unit: of the score."""
    notes = notes_text(individual)
    if individual.rejection is not None:
        stage, message = individual.rejection
        return f"It was refused before training, at the stage {stage}:\n{shortened(message, MESSAGE_LIMIT)}{notes}"
    if individual.failure is not None:
        return f"It failed in training:\n{shortened(individual.failure, MESSAGE_LIMIT)}{notes}"
    parts = [_verdict(individual, human, unit) + _numbers(individual) + notes]
    if individual.curves:
        parts.append(_curves(individual, human))
    parts += _advice(individual) if advice else []
    return shortened("\n\n".join(parts), REFLECTION_LIMIT)


def _numbers(individual: Individual) -> str:
    """Numbers that evolution tunes, as they are now, with the signs of the code."""
    written = {} if individual.graph_file is None else as_written(individual.graph_file)
    numbers = list((individual.tuned or written).items())[:MAX_COMPONENTS]
    shown = ", ".join(f"{shortened(name, NAME_LIMIT)} = {_figure(value)}" for name, value in numbers)
    how = "as evolution has tuned them" if individual.tuned else "that evolution can tune, by their names"
    return f"\nNumbers {how}: {shown}." if shown else ""


def notes_text(individual: Individual) -> str:
    """What was missing in the reply, and what was left out of it, on lines of its own; "" if nothing was."""
    return "".join(f"\nNote: {note}." for note in individual.notes)


def shortened(text: str, limit: int) -> str:
    """At most ``limit`` characters: of a longer text the beginning and, more of it, the end, where a traceback has its
    cause."""
    mark = "\n[... cut ...]\n"
    if len(text) <= limit:
        return text
    if limit <= len(mark):
        return text[:limit]
    head = (limit - len(mark)) // 3
    return text[:head] + mark + text[len(text) - (limit - len(mark) - head) :]


def points(curve: Sequence[float], count: int = POINTS) -> list[float]:
    """Values at ``count`` evenly spaced iterations, the first and the last among them; all, if there are no more."""
    if len(curve) <= count:
        return list(curve)
    return [curve[round(k * (len(curve) - 1) / (count - 1))] for k in range(count)]


def curve_line(name: str, curve: Sequence[float]) -> str:
    """The name, ten points, maximum, mean and minimum over what is finite."""
    values = np.asarray([v for v in curve if math.isfinite(v)])
    shown = ", ".join(_figure(v) for v in points(curve))
    if not len(values):
        return f"{shortened(name, NAME_LIMIT)}: nothing recorded"
    extremes = f"max {_figure(values.max())}, mean {_figure(values.mean())}, min {_figure(values.min())}"
    return f"{shortened(name, NAME_LIMIT)}: [{shown}], {extremes}"


def _figure(x: float) -> str:
    return f"{x + 0.0:.3g}" if math.isfinite(x) else "-"  # + 0.0: no -0


def _verdict(individual: Individual, human: Individual | None, unit: str) -> str:
    unit = f" {unit}" if unit else ""
    if not individual.ok:
        return "It was not scored."
    text = f"With {individual.steps:,} environment steps it came to a score of {individual.score:.4g}{unit}"
    if individual.interval is not None:
        text += f" (95 % interval {individual.interval[0]:.4g} to {individual.interval[1]:.4g})"
    text += "."
    if human is not None and human.ok:
        relation = "better than" if individual.score > human.score else "worse than"
        relation = "the same as" if individual.score == human.score else relation
        text += f" That is {relation} the human's shaping, {human.score:.4g}{unit}."
    return text


def _curves(individual: Individual, human: Individual | None) -> str:
    """A line per curve: the score, the human's, the reward, then the components, the largest of them first."""
    lines = ["Over the training, first to last (means per step; reward and components as your code returned them):"]
    if SCORE in individual.curves:
        lines.append(curve_line("score", individual.curves[SCORE]))
    if human is not None and human.curves.get(SCORE):
        lines.append(curve_line("score with the human's shaping", human.curves[SCORE]))
    if REWARD in individual.curves:
        lines.append(curve_line("total reward", individual.curves[REWARD]))
    sizes = _sizes(individual.components)
    shown = sorted(sizes, key=lambda name: -sizes[name])[:MAX_COMPONENTS]
    lines += [
        curve_line(f"component {name!r}", curve) for name, curve in individual.components.items() if name in shown
    ]
    if len(sizes) > len(shown):
        lines.append(f"({len(sizes) - len(shown)} smaller components are left out)")
    return "\n".join(lines)


# ------------------------------------------------------------------------------------------------------------- advice


def _sizes(components: dict[str, list[float]]) -> dict[str, float]:
    """Mean absolute value of each component over what is finite; 0 if nothing is."""
    out = {}
    for name, curve in components.items():
        values = [abs(v) for v in curve if math.isfinite(v)]
        out[name] = float(np.mean(values)) if values else 0.0
    return out


def _advice(individual: Individual) -> list[str]:
    """What the figures say of single components; nothing if they say nothing."""
    score = individual.curves.get(SCORE, [])
    sizes = _sizes(individual.components)
    total = sum(sizes.values())
    flat, lines = [], []
    for name, curve in individual.components.items():
        values = np.asarray([v for v in curve if math.isfinite(v)])
        label = repr(shortened(name, NAME_LIMIT))
        if len(values) < 3:
            continue
        if values.max() - values.min() <= FLAT * np.abs(values).max():
            flat.append(label)
        elif _correlation(curve, score) <= CONTRARY and values[-1] > values[0]:
            lines.append(
                f"- {label} rose while the score fell: agents learn it at the score's expense. Turn its sign, "
                "bound it, or drop it."
            )
        if len(sizes) > 1 and total > 0 and sizes[name] > DOMINANT * total:
            lines.append(
                f"- {label} makes up {sizes[name] / total:.0%} of the reward's size: the other terms hardly count. "
                "Rescale it, or squash it into a fixed range."
            )
    if flat:
        lines.append(
            f"- {', '.join(flat[:MAX_COMPONENTS])} hardly changed in the whole training, so nothing was learned of it: "
            "change its scale or its temperature, write it differently, or drop it."
        )
    finite = np.asarray([v for v in score if math.isfinite(v)])
    if len(finite) >= 3 and np.ptp(finite) <= FLAT * np.abs(finite).max():
        lines.append("- The score itself hardly moved: the reward as a whole did not lead there. Try another idea.")
    return ["What stands out:\n" + "\n".join(lines)] if lines else []


def _correlation(x: Sequence[float], y: Sequence[float]) -> float:
    """Pearson's, over where both are finite; 0 if one does not vary or there are fewer than three points."""
    pairs = np.asarray([(a, b) for a, b in zip(x, y) if math.isfinite(a) and math.isfinite(b)])
    if len(pairs) < 3:
        return 0.0
    a, b = (pairs - pairs.mean(0)).T
    norm = math.sqrt(float(a @ a) * float(b @ b))
    return float(a @ b) / norm if norm > 0 else 0.0
