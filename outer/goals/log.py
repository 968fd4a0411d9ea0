"""scores.csv of a goal-conditioned run: one line per member and evaluation, without times of day and durations, so that
a resumed run leaves the same bytes as an uninterrupted one."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from envolve.agents.goal.crl_train import CRLEvaluation
from envolve.core.statistics import interval

LEVEL = 1.959964  # standard deviations either way of a 95 % interval


@dataclass(frozen=True)
class Score:
    """Scores of one member at one evaluation, with 95 % intervals. NaN: it has diverged."""

    evaluation: int
    steps: int
    updates: int
    member: int
    episodes: int
    success: float  # share of episodes that came near the goal at least once
    success_low: float  # Wilson's interval
    success_high: float
    near: float  # mean decisions of an episode near the goal
    near_low: float  # over episodes (core/statistics.py)
    near_high: float
    distance: float  # m, mean, at the end
    length: float  # mean decisions of an episode
    learning: tuple[float, ...]  # what the learner's metrics name, of the last update


def header(metrics: Sequence[str]) -> tuple[str, ...]:
    """Header line. metrics: the learner's."""
    return (*(f.name for f in fields(Score)[:-1]), *metrics)


def wilson(share: float, n: int) -> tuple[float, float]:
    """95 % interval of a share of n (Wilson 1927, https://doi.org/10.1080/01621459.1927.10502953)."""
    z2 = LEVEL**2
    middle = (share + z2 / (2 * n)) / (1 + z2 / n)
    half = LEVEL / (1 + z2 / n) * math.sqrt(share * (1 - share) / n + z2 / (4 * n * n))
    return 0.0 if share == 0 else middle - half, 1.0 if share == 1 else middle + half  # exactly, without rounding


def scores_of(number: int, e: CRLEvaluation) -> list[Score]:
    """Scores of each member. number: of the evaluation, from 0."""
    out, n = [], e.near.shape[1]
    for i in range(len(e.near)):
        near, success = e.near[i].numpy(), float(e.success[i].mean())
        healthy = math.isfinite(success)
        low, high = wilson(success, n) if healthy else (math.nan, math.nan)
        bounds = (0.0, max(float(e.length[i].max()), near.max()))
        near_low, near_high = interval(near, bounds=bounds) if healthy else (math.nan, math.nan)
        means = (float(near.mean()), near_low, near_high, float(e.distance[i].mean()), float(e.length[i].mean()))
        out.append(Score(number, e.steps, e.updates, i, n, success, low, high, *means, tuple(e.learning[i].tolist())))
    return out


def to_csv(scores: list[Score]) -> str:
    """Lines without the header."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for s in scores:
        values = [getattr(s, f.name) for f in fields(Score)]
        writer.writerow([f"{v:.6g}" if isinstance(v, float) else v for v in (*values[:-1], *values[-1])])
    return text.getvalue()


def from_csv(text: str) -> list[Score]:
    """Reads what ``to_csv`` wrote, to the digits it kept."""
    out = []
    for line in csv.reader(io.StringIO(text)):
        number, steps, updates, member, episodes = (int(v) for v in line[:5])
        success, low, high, near, near_low, near_high, distance, length, *rest = (float(v) for v in line[5:])
        out.append(
            Score(
                number,
                steps,
                updates,
                member,
                episodes,
                success,
                low,
                high,
                near,
                near_low,
                near_high,
                distance,
                length,
                tuple(rest),
            )
        )
    return out


@dataclass(frozen=True)
class Point:
    """Means over all members at one evaluation; intervals over members, or of the only member."""

    steps: int
    updates: int
    success: float
    success_interval: tuple[float, float]
    near: float
    near_interval: tuple[float, float]
    failed: int  # members that have diverged; the rest is of the others


def points_of(scores: list[Score]) -> list[Point]:
    """Learning curve."""
    out = []
    for number in sorted({s.evaluation for s in scores}):
        members = [s for s in scores if s.evaluation == number]
        ok = [s for s in members if math.isfinite(s.success)]
        steps, updates, failed = members[0].steps, members[0].updates, len(members) - len(ok)
        if not ok:
            nothing = (math.nan, math.nan)
            out.append(Point(steps, updates, math.nan, nothing, math.nan, nothing, failed))
            continue
        success, near = [s.success for s in ok], [s.near for s in ok]
        if len(ok) > 1:
            intervals = interval(success, bounds=(0.0, 1.0)), interval(near)
        else:
            intervals = (ok[0].success_low, ok[0].success_high), (ok[0].near_low, ok[0].near_high)
        means = float(np.mean(success)), float(np.mean(near))
        out.append(Point(steps, updates, means[0], intervals[0], means[1], intervals[1], failed))
    return out
