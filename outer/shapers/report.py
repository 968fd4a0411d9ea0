"""Reports of an evaluation of shapers: live table, ranking and JSON file."""

from __future__ import annotations

import json
import math
import time
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

import numpy as np
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from envolve.agents.shaped.training import Metrics
from envolve.core.statistics import agents_interval, or_none
from envolve.envs.shaping.candidate import Candidate, Failure
from envolve.outer.names import HUMAN
from envolve.outer.reporting.display import LiveDisplay, bar, columns
from envolve.outer.reporting.report import duration, number, precise


@dataclass
class Outcome:
    """Result of one candidate, over its K agents with N evaluation episodes each. Lists over I iterations; NaN: it had
    failed."""

    candidate: Candidate
    file: Optional[str]  # None: the task's own shapers
    agent_scores: List[float]  # [K], empty: not evaluated
    episode_scores: List[float]  # [K N]
    failure: Optional[Failure]
    failed_agents: int
    steps: List[int]  # environment steps that each agent was trained for
    score_curve: List[float]  # true score per training step, mean over agents
    reward_curve: List[float]
    components: Dict[str, List[float]]  # of the reward
    observation_size: Optional[int]
    action_size: Optional[int]

    @property
    def name(self) -> str:
        return self.candidate.name

    @property
    def score(self) -> float:
        """Mean score; NaN if any agent failed, because the mean of the others would be too good."""
        return float(np.mean(self.agent_scores)) if self.agent_scores and self.failure is None else math.nan

    @property
    def interval(self) -> Optional[Tuple[float, float]]:
        """Interval of the score, see ``agents_interval``; None without a score."""
        if math.isnan(self.score):
            return None
        return agents_interval(self.agent_scores, self.episode_scores)

    @property
    def reason(self) -> str:
        if self.failure is None:
            return ""
        agents = max(1, len(self.agent_scores))
        some = f"{self.failed_agents} of {agents} agents: " if self.failed_agents < agents else ""
        return some + str(self.failure)

    def as_json(self, rank: Optional[int]) -> Dict[str, Any]:
        failure, interval = self.failure, self.interval
        return {
            "name": self.name,
            "rank": rank,
            "score": or_none(self.score),
            "interval": interval and list(interval),
            "failed": failure is not None,
            "reason": self.reason or None,
            "kind": failure and failure.kind,
            "traceback": (failure and failure.traceback) or None,
            "step": failure and failure.step,
            "file": self.file,
            "shapers": list(self.candidate.shapers),
            "observation_size": self.observation_size,
            "action_size": self.action_size,
            "agent_scores": [or_none(x) for x in self.agent_scores],
            "episode_scores": [or_none(x) for x in self.episode_scores],
            "reward_end": or_none(self.reward_curve[-1]) if self.reward_curve else None,
            "curve": {
                "steps": self.steps,
                "score": [_short(x) for x in self.score_curve],
                "reward": [_short(x) for x in self.reward_curve],
            },
            "components": {name: [_short(x) for x in values] for name, values in self.components.items()},
        }


def _short(x: float) -> Optional[float]:
    return float(f"{x:.6g}") if math.isfinite(x) else None


def outcomes(
    candidates: Sequence[Tuple[Candidate, Optional[str]]],
    K: int,
    curve: Sequence[Metrics],
    failures: Mapping[int, Failure],
    episode_score: Optional[np.ndarray] = None,
    sizes: Optional[Tuple[Sequence[int], Sequence[int]]] = None,
) -> List[Outcome]:
    """The ranking, best first and failed last. candidates: with their files; agent k of candidate c is number c K + k
    in what follows. episode_score: [P, N], None: the run did not come that far. sizes: of observations, of actions."""
    out = []
    for c, (candidate, file) in enumerate(candidates):
        agents = range(c * K, (c + 1) * K)
        failed = [failures[i] for i in agents if i in failures]
        names = list(dict.fromkeys(name for p in curve for i in agents for name in p.components[i]))
        own = None if episode_score is None else episode_score[agents.start : agents.stop]
        out.append(
            Outcome(
                candidate,
                file,
                agent_scores=[] if own is None else own.mean(1).tolist(),
                episode_scores=[] if own is None else own.ravel().tolist(),
                failure=failed[0] if failed else None,
                failed_agents=len(failed),
                steps=[p.steps for p in curve],
                score_curve=[float(p.score[agents.start : agents.stop].mean()) for p in curve],
                reward_curve=[float(p.reward[agents.start : agents.stop].mean()) for p in curve],
                components={
                    name: [float(np.mean([p.components[i].get(name, math.nan) for i in agents])) for p in curve]
                    for name in names
                },
                observation_size=None if sizes is None else sizes[0][agents.start],
                action_size=None if sizes is None else sizes[1][agents.start],
            )
        )

    def order(o: Outcome) -> Tuple[bool, float, str]:
        best = o.score if not math.isnan(o.score) else _last(o.score_curve)
        return o.failure is not None, -best if math.isfinite(best) else math.inf, o.name

    return sorted(out, key=order)


def json_text(content: Dict[str, Any], ranking: Sequence[Outcome]) -> str:
    """One line per candidate, because curves are long. Ranks count from 1, for candidates with a score."""
    rows = [o.as_json(None if math.isnan(o.score) else r) for r, o in enumerate(ranking, 1)]
    head = json.dumps(content, indent=1)[: -len("\n}")]
    return head + ',\n "candidates": [\n' + ",\n".join("  " + json.dumps(row) for row in rows) + "\n ]\n}\n"


# ------------------------------------------------------------------------------------------------------------- tables


def ranking_table(ranking: Sequence[Outcome], title: str, unit: str) -> Table:
    """Candidates that did not fail."""
    table = Table(title=title, title_justify="left")
    interrupted = not any(o.agent_scores for o in ranking)
    table.add_column("")
    table.add_column("candidate", overflow="fold", min_width=max(map(len, (o.name for o in ranking))))
    for heading in (f"score, {unit}", "95 % interval", *["score in training"] * interrupted):
        table.add_column(heading, justify="right", overflow="fold")
    for heading in ("reward at the end", "observation", "action"):
        table.add_column(heading, justify="right")
    for rank, o in enumerate((o for o in ranking if o.failure is None), 1):
        interval = "" if o.interval is None else f"{precise(o.interval[0])} to {precise(o.interval[1])}"
        cells = ["" if math.isnan(o.score) else str(rank), o.name, precise(o.score), interval]
        cells += [precise(_last(o.score_curve))] * interrupted + [precise(_last(o.reward_curve))]
        cells += ["-" if size is None else str(size) for size in (o.observation_size, o.action_size)]
        table.add_row(*map(Text, cells), style="bold" if o.name == HUMAN else "")
    return table


def failed_text(ranking: Sequence[Outcome]) -> Text:
    """Failed candidates, a line each; empty if there are none."""
    failed = [o for o in ranking if o.failure is not None]
    width = max((len(o.name) for o in failed), default=0)
    lines = [Text.assemble(f"  {o.name:<{width}}  ", (o.reason, "red")) for o in failed]
    return Text("\n").join([Text("Failed:"), *lines]) if failed else Text()


def _last(values: Sequence[float]) -> float:
    return values[-1] if values else math.nan


class LiveRanking(LiveDisplay):
    """Live display of the training: a table in a terminal, elsewhere at most LINES plain lines."""

    ROWS, LINES = 12, 50

    def __init__(self, names: Sequence[str], K: int, iterations: int, title: str, unit: str, console: Console) -> None:
        super().__init__(title, console)
        self.names, self.K, self.iterations, self.unit = names, K, iterations, unit
        self.steps_each, self.steps = 0, 0  # environment steps of an agent, and of all that were not out
        self.times: List[Tuple[float, int]] = []  # when each iteration ended, and ``steps`` by then
        self.last: Metrics | None = None

    def _since_first(self) -> Tuple[float, int, int]:
        """Seconds, environment steps of all agents and iterations, without the first, which may compile kernels."""
        began = (self.began, 0) if len(self.times) == 1 else self.times[0]
        (t0, steps0), (t1, steps1) = began, self.times[-1]
        return max(t1 - t0, 1e-9), steps1 - steps0, max(1, len(self.times) - 1)

    @property
    def rate(self) -> float:
        """Environment steps of all agents per second, learning included; NaN before the end of the first iteration."""
        if not self.times:
            return math.nan
        seconds, steps, _ = self._since_first()
        return steps / seconds

    @property
    def seconds_per_iteration(self) -> float:
        seconds, _, iterations = self._since_first()
        return seconds / iterations

    def update(self, p: Metrics) -> None:
        with self.lock:
            self.steps += (p.steps - self.steps_each) * int(np.isfinite(p.score).sum())
            self.steps_each, self.last = p.steps, p
            self.times.append((time.monotonic(), self.steps))
            done, counts = self._counts(p)
        line = None
        if p.iteration == self.iterations or p.iteration % max(1, self.iterations // self.LINES) == 0:
            score, _, order = self._order(p)
            best = f"{self.names[order[0]]} {precise(score[order[0]])} {self.unit}" if order else "none"
            line = f"{done}  {p.steps:,} steps each  best {best}  {counts}"
        self._show(line)

    def _order(self, p: Metrics) -> Tuple[np.ndarray, np.ndarray, List[int]]:
        """Score and reward of the candidates, means over their agents, and those that are not out, best first."""
        score, reward = (x.reshape(-1, self.K).mean(1) for x in (p.score, p.reward))
        return score, reward, [int(i) for i in np.argsort(-score, kind="stable") if math.isfinite(score[i])]

    def _counts(self, p: Metrics) -> Tuple[str, str]:
        score, _, order = self._order(p)
        left = (self.iterations - p.iteration) * self.seconds_per_iteration
        clock = f"elapsed {duration(self.times[-1][0] - self.began)}  ETA {duration(left)}"
        counts = f"failed {len(score) - len(order)}  {number(self.rate)} steps/s  {clock}"
        return f"iteration {p.iteration:>{len(str(self.iterations))}}/{self.iterations}", counts

    def _parts(self) -> List[RenderableType]:
        p = self.last
        if p is None:
            return [Text("first iteration; kernels may have to be compiled, once ...")]
        score, reward, order = self._order(p)
        table = columns(("candidate", f"score in training, {self.unit}", "reward per step"))
        for i in order[: self.ROWS]:
            table.add_row(Text(self.names[i]), precise(score[i]), precise(reward[i]))
        more = len(order) - self.ROWS
        below = [Text(f"... and {more} more")] if more > 0 else []
        below += [Text("judging the final policies ...")] if p.iteration == self.iterations else []
        return [bar(p.iteration, self.iterations, *self._counts(p)), table, *below]
