"""Reports of a goal-conditioned run: live table, TensorBoard, picture, summary."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console, RenderableType

from envolve.agents.goal.crl import METRICS
from envolve.outer.goals.log import Point, Score, points_of
from envolve.outer.names import CONFIG_FILE, SCORES
from envolve.outer.reporting.board import Board
from envolve.outer.reporting.display import LiveDisplay, bar, columns
from envolve.outer.reporting.report import duration, number
from envolve.outer.reporting.style import BLUE, COLOURS, GREY, clear_legend, new_figure, thousands

if TYPE_CHECKING:
    from envolve.outer.goals.arguments import GoalPlan

SHOWN = {"categorical_accuracy": "accuracy", "reward": "reward"}  # metric that the table shows -> its column
FILES = (
    ("policy.pt", "actors and encoders or critics of all members, at the last evaluation"),
    (CONFIG_FILE, "every value, with versions and git hash"),
    (SCORES, "every member at every evaluation"),
    ("learning_curve.png", "the picture of it"),
)


def interval(middle: float, ends: tuple[float, float]) -> str:
    """Formats 0.94 [0.89, 0.97]; without brackets if there is no interval."""
    if math.isnan(middle):
        return "-"
    if math.isnan(ends[0]):
        return f"{middle:.{2 if middle <= 2 else 0}f}"
    digits = 2 if ends[1] <= 2 else 0
    return f"{middle:.{digits}f} [{ends[0]:.{digits}f}, {ends[1]:.{digits}f}]"


class GoalTable(LiveDisplay):
    """Live table of a run: a row per evaluation. ETA is the time until the last one."""

    ROWS = 12

    def __init__(
        self, total: int, title: str, console: Console | None = None, metrics: Sequence[str] = METRICS
    ) -> None:
        """metrics: names of the learner's metrics, one of which is shown."""
        super().__init__(title, console)
        self.total, self.steps, self.first = total, 0, -1
        self.metrics = metrics
        self.shown = next(name for name in SHOWN if name in metrics)
        self.rows: list[tuple[Point, float, float]] = []  # with the metric and environment steps per second
        self.last = self.began

    def evaluated(self, scores: Sequence[Score], seconds: float, steps: int) -> None:
        """Adds a row. scores: of the newest evaluation; seconds and steps (of all members): of training since the one
        before."""
        point = points_of(list(scores))[0]
        accuracy = [s.learning[self.metrics.index(self.shown)] for s in scores]
        accuracy = [a for a in accuracy if math.isfinite(a)]
        mean = sum(accuracy) / len(accuracy) if accuracy else math.nan
        speed = steps / seconds if seconds > 0 and steps else math.nan
        with self.lock:
            self.rows.append((point, mean, speed))
            self.steps = point.steps
        self._show(
            f"steps {point.steps:>10,}  updates {point.updates:>7,}  success {self._success(point)}  "
            f"near {interval(point.near, point.near_interval)}  {SHOWN[self.shown]} {number(mean)}  "
            f"{number(speed)} steps/s  ETA {self._eta()}" + (f"  {point.failed} diverged" if point.failed else "")
        )

    def progress(self, steps: int) -> None:
        with self.lock:
            if self.first < 0:
                self.first, self.began = steps, time.monotonic()
            self.steps = steps

    @staticmethod
    def _success(point: Point) -> str:
        return interval(point.success, point.success_interval)

    def _eta(self) -> str:
        done = self.steps - self.first
        if self.first < 0 or done <= 0:
            return "-"
        return duration(max(0, self.total - self.steps) * (time.monotonic() - self.began) / done)

    def _parts(self) -> list[RenderableType]:
        top = bar(self.steps, self.total, f"{self.steps:,} of {self.total:,} steps", f"ETA {self._eta()}")
        shown = SHOWN[self.shown]
        table = columns(("steps", "updates", "success", "time near the goal", shown, "steps/s", "diverged"), left=0)
        for point, accuracy, speed in self.rows[-self.ROWS :]:
            table.add_row(
                f"{point.steps:,}",
                f"{point.updates:,}",
                self._success(point),
                interval(point.near, point.near_interval),
                number(accuracy),
                number(speed),
                str(point.failed or ""),
            )
        return [top, table]


class GoalBoard(Board):
    """TensorBoard events of a run."""

    def evaluated(self, scores: Sequence[Score], speed: float, metrics: Sequence[str]) -> None:
        """metrics: names of the learner's metrics."""
        scalars = {"steps_per_second": speed}
        for s in scores:
            prefix = "" if len(scores) == 1 else f"member_{s.member}/"
            values = {"eval/success": s.success, "eval/time_near_goal": s.near, "eval/distance": s.distance}
            values.update({f"training/{name}": value for name, value in zip(metrics, s.learning)})
            scalars.update({prefix + name: value for name, value in values.items()})
        if len(scores) > 1:
            point = points_of(list(scores))[0]
            scalars.update({"eval/success": point.success, "eval/time_near_goal": point.near})
        self.write(scores[0].steps, scalars)


def learning_curve(path: Path, scores: list[Score], title: str, lines: Sequence[str] = ()) -> None:
    """Writes a PNG: success and time near the goal against steps, with 95 % intervals. lines: names of the members if
    they differ in more than their random seeds; then each has its own line."""
    figure, axes = new_figure(11.2, 3.9, 2)
    figure.suptitle(title, fontsize=12)
    for ax, name, label in zip(axes, ("success", "near"), ("success rate", "decisions near the goal, per episode")):
        if lines:
            for i, own in enumerate(lines):
                mine, colour = [s for s in scores if s.member == i], COLOURS[i % len(COLOURS)]
                x = [s.steps for s in mine]
                low, high = ([getattr(s, f"{name}_{end}") for s in mine] for end in ("low", "high"))
                ax.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)
                ax.plot(x, [getattr(s, name) for s in mine], color=colour, linewidth=1.4, marker=".", label=own)
            over = f"95 % intervals over {scores[0].episodes} episodes"
            ax.fill_between([], [], [], color=GREY, alpha=0.25, linewidth=0, label=over)
        else:
            points, members = points_of(scores), sorted({s.member for s in scores})
            x = [p.steps for p in points]
            over = f"{len(members)} members" if len(members) > 1 else f"{scores[0].episodes} episodes"
            ends = [getattr(p, f"{name}_interval") for p in points]
            ax.fill_between(
                x,
                [e[0] for e in ends],
                [e[1] for e in ends],
                color=BLUE,
                alpha=0.25,
                linewidth=0,
                label=f"95 % interval over {over}",
            )
            for i in members if len(members) > 1 else ():
                own_scores = [getattr(s, name) for s in scores if s.member == i]
                ax.plot(x, own_scores, color=GREY, linewidth=0.6, alpha=0.6, label=None if i else "members")
            mean = "mean of members" if len(members) > 1 else "mean"
            ax.plot(x, [getattr(p, name) for p in points], color=BLUE, linewidth=1.6, marker=".", label=mean)
        ax.set_xlabel("environment steps of a member")
        thousands(ax.xaxis)
        ax.set_ylabel(label)
        ax.set_ylim(0, 1.02 if name == "success" else None)
        clear_legend(ax, 3)
    figure.savefig(path, format="png")


def summary(plan: GoalPlan, folder: Path, scores: list[Score], seconds: float) -> str:
    """Closing summary."""
    points, run = points_of(scores), plan.run
    last, best = points[-1], max(points, key=lambda p: (-math.inf if math.isnan(p.success) else p.success, p.near))
    members = f"{run.population} member{'s' * (run.population != 1)}"
    out = [
        f"{run.env_name}, {plan.agent_title}, {members}, {last.steps:,} steps and {last.updates:,} updates each, "
        f"{duration(seconds)}",
        f"at the end   success {interval(last.success, last.success_interval)}, "
        f"near the goal for {interval(last.near, last.near_interval)} decisions of an episode",
        f"best         success {interval(best.success, best.success_interval)} after {best.steps:,} steps",
        f"{scores[-1].episodes} episodes per evaluation and member, deterministic actions; 95 % intervals in brackets, "
        + ("over members" if run.population > 1 else "over episodes"),
    ]
    if last.failed:
        out.append(f"{last.failed} of {members} diverged and are left out")
    if run.population > 1:
        out.append("")
        for s in scores[-run.population :]:
            own = "".join(f"  {name} {values[s.member]:g}" for name, values in plan.own.items())
            out.append(
                f"member {s.member:<3} success {interval(s.success, (s.success_low, s.success_high))}  "
                f"near {interval(s.near, (s.near_low, s.near_high))}{own}"
            )
    out += ["", *(f"{folder / name}  {what}" for name, what in FILES if (folder / name).exists())]
    return "\n".join(out) + "\n"
