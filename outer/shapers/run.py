"""One evaluation of shapers: training, intermediate results, and files."""

from __future__ import annotations

import importlib.metadata
import io
import math
import time
from pathlib import Path
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Type

import numpy as np
import torch
import yaml
from rich.console import Console

from envolve.agents.common.sections import LearnerSection
from envolve.agents.shaped.training import Metrics, ShapedResult, make_envs, make_learner, train_shaped
from envolve.envs.physics.task import PhysicsTask
from envolve.envs.shaping.candidate import Candidate, Failure
from envolve.envs.shaping.schedule import Schedule
from envolve.envs.worlds.file import write_atomic
from envolve.outer.config.load import environment_info
from envolve.outer.names import CONFIG_FILE, HUMAN
from envolve.outer.reporting.board import Board
from envolve.outer.reporting.report import duration, number
from envolve.outer.search.nes import RETEST, member_seeds
from envolve.outer.shapers.curves import curves
from envolve.outer.shapers.report import LiveRanking, Outcome, failed_text, json_text, outcomes, ranking_table

FILES = {
    "ranking.txt": "the table above, with the tracebacks of what failed",
    "candidates.json": "the same, with curves and every episode's score",
    "curves.png": "score in training against environment steps",
    CONFIG_FILE: "all settings, with versions, git hash and seed",
    "best.pt": "the policy of the best candidate's best agent",
}
FOOTNOTE = {
    False: "One agent per candidate; the interval is over its evaluation episodes (95 %) and does not tell "
    "how another agent would fare: --seeds.",
    True: "Means over agents; the interval is over agents (95 %).",
}


class RankingPlan(NamedTuple):
    """Settings of an evaluation. K agents per candidate: agent k of candidate c is number c K + k."""

    task: Type[PhysicsTask]
    candidates: List[Tuple[Candidate, Optional[str]]]  # with their files; None: the task's own shapers
    skipped: List[str]  # files that define other types than those asked for
    K: int
    N: int  # environments of each agent
    iterations: int
    seed: int
    learner: str
    section: LearnerSection
    schedules: Dict[str, Schedule]
    engine: str
    device: str
    threads: int
    backend: str
    settings: Dict[str, Any]  # as the user gave them
    out: Path


class ShaperRun:
    """Evaluation: ``execute`` trains and tests; ``write`` stores the results so far, also of an interrupted run."""

    def __init__(self, plan: RankingPlan) -> None:
        self.plan = plan
        self.curve: List[Metrics] = []
        self.envs: Any = None  # ShapedEnvs, or what is known of those of others
        self.complete = False
        self.learner: Any = None
        self.result: Optional[ShapedResult] = None
        self.began, self.seconds, self.rate, self.steps = time.monotonic(), 0.0, math.nan, 0

    def execute(self, console: Console) -> None:
        """Raises SimulatorError, ValueError (settings that contradict each other), KeyboardInterrupt."""
        p = self.plan
        copies = [candidate for candidate, _ in p.candidates for _ in range(p.K)]
        # the same random numbers for every candidate's k-th agent: what differs is the candidates' own
        agent_keys, env_keys = (
            member_seeds(p.seed, RETEST, purpose, p.K).tolist() * len(p.candidates) for purpose in (0, 1)
        )
        self.envs = make_envs(p.task.name, copies, p.N, env_keys, p.engine, p.threads, p.device, p.schedules)
        self.learner = make_learner(p.learner, self.envs, p.section, agent_keys, p.backend, p.threads)
        names = [candidate.name for candidate, _ in p.candidates]
        title = f"{p.task.name}: {len(names)} candidates x {p.K * p.N} environments, {p.learner}, {p.engine}"
        board = Board(p.out)
        try:
            with LiveRanking(names, p.K, p.iterations, title, p.task.score_unit, console) as table:

                def report(progress: Metrics) -> None:
                    self.curve.append(progress)
                    table.update(progress)
                    board.write(progress.steps, curves_of(names, progress))
                    self.rate, self.steps = table.rate, table.steps

                self.result = train_shaped(self.envs, self.learner, p.iterations, report)
                self.complete = True
        finally:
            board.close()
            self.seconds = time.monotonic() - self.began

    @property
    def title(self) -> str:
        p = self.plan
        steps = f"{self.curve[-1].steps:,} steps each" if self.curve else "not trained"
        agents = f", {p.K} agents each" if p.K > 1 else ""
        return f"{p.task.name}: {len(p.candidates)} candidates{agents}, {steps}, seed {p.seed}"

    def ranking(self) -> List[Outcome]:
        p = self.plan
        failures: Mapping[int, Failure]
        if self.envs is not None:
            failures = self.envs.failures
            sizes = self.envs.observation_sizes, self.envs.action_sizes
        else:
            loaded = [c.failure for c, _ in p.candidates for _ in range(p.K)]
            failures, sizes = {i: f for i, f in enumerate(loaded) if f is not None}, None
        score = None if self.result is None else self.result.episode_score
        return outcomes(p.candidates, p.K, self.curve, failures, score, sizes)

    # ------------------------------------------------------------------------------------------------------- files

    def facts(self) -> Dict[str, Any]:
        """Common beginning of config.yaml and candidates.json."""
        p = self.plan
        return {
            "task": p.task.name,
            "score_unit": p.task.score_unit,
            "score_meaning": p.task.score_meaning,
            "complete": self.complete,
            "seed": p.seed,
            "settings": p.settings,
            "hyperparameters": {k: v for k, v in vars(p.section).items()},
            "skipped": p.skipped,
            "schedules": {name: vars_of(s) for name, s in p.schedules.items()},
            "device": p.device,
            "threads": p.threads,
            "versions": {**environment_info(), **engine_version(p.engine)},
            "wall_seconds": round(self.seconds, 3),
            "environment_steps": self.steps,  # of agents that were not out
            # while training, learning included
            "environment_steps_per_second": None if math.isnan(self.rate) else round(self.rate, 1),
        }

    def write(self, copy: Optional[Path]) -> List[Outcome]:
        """Writes all files but the video, the JSON file first; ``copy``: write it there, too. Raises OSError."""
        ranking, facts, out, p = self.ranking(), self.facts(), self.plan.out, self.plan
        out.mkdir(parents=True, exist_ok=True)
        text = json_text(facts, ranking).encode()
        for path in [out / "candidates.json"] + [copy] * (copy is not None):
            write_atomic(str(path), text)
        header = "# What was run, and what it depends on.\n"
        write_atomic(str(out / CONFIG_FILE), (header + yaml.safe_dump(facts, sort_keys=False, width=120)).encode())
        write_atomic(str(out / "ranking.txt"), self._text(ranking).encode())
        for dump in getattr(self.envs, "dumps", []):
            write_atomic(str(out / dump.file_name()), dump.content())
        if self.complete and any(o.score_curve for o in ranking):  # Ctrl-C does not wait for a picture
            curves(out / "curves.png", ranking, self.title, p.task.score_unit)
        best = self.best(ranking)
        if best is not None:
            self._save_policy(out / "best.pt", *best)
        return ranking

    def best(self, ranking: Sequence[Outcome]) -> Optional[Tuple[Outcome, int]]:
        """First candidate of the ranking and the number of its best agent; None: no candidate has a score. Among
        equals, candidates come before the human's shapers."""
        equals = [o for o in ranking if o.score == ranking[0].score] or ranking[:1]  # NaN equals nothing
        first = min(equals, key=lambda o: o.name == HUMAN)
        if self.result is None or not first.agent_scores or first.failure is not None:
            return None
        index = [c for c, _ in self.plan.candidates].index(first.candidate)
        return first, index * self.plan.K + max(range(self.plan.K), key=first.agent_scores.__getitem__)

    def _save_policy(self, path: Path, best: Outcome, i: int) -> None:
        assert self.result is not None
        content = {
            **self.result.policies[i], "task": self.plan.task.name, "candidate": best.name, "file": best.file or "",
            "learner": self.plan.learner, "score": best.score, "steps": self.result.steps,
            "observation_size": self.result.observation_sizes[i], "action_size": self.result.action_sizes[i],
        }  # fmt: skip
        file = io.BytesIO()
        torch.save(content, file)
        write_atomic(str(path), file.getvalue())

    def _text(self, ranking: Sequence[Outcome]) -> str:
        file = io.StringIO()
        self.show(Console(file=file, width=160), ranking)
        for o in ranking:
            if o.failure is not None and o.failure.traceback:
                file.write(f"\n{o.name}\n{o.failure.traceback}")
        return file.getvalue()

    def show(self, console: Console, ranking: Sequence[Outcome]) -> None:
        task, facts = self.plan.task, self.facts()
        console.print(ranking_table(ranking, self.title, task.score_unit))
        if any(o.failure for o in ranking):
            console.print(failed_text(ranking), soft_wrap=True)
        if self.plan.skipped:
            names = ", ".join(self.plan.skipped)
            console.print(
                f"Skipped, because they define none of the requested functions: {names}", markup=False, soft_wrap=True
            )
        console.print(f"Score: {task.score_meaning}.", highlight=False)
        console.print(FOOTNOTE[self.plan.K > 1], highlight=False)
        if any(o.name == HUMAN for o in ranking):
            console.print(f"{HUMAN}: the task's own shapers.", highlight=False)
        if self.curve:
            rate = f"{facts['environment_steps']:,} environment steps of all agents, {number(self.rate)} per second"
            console.print(f"{rate} with learning, {duration(self.seconds)} in all.", highlight=False)

    def files(self) -> str:
        rows = [f"  {name:<17}{what}" for name, what in FILES.items() if (self.plan.out / name).is_file()]
        for dump in getattr(self.envs, "dumps", []):
            rows.append(f"  {dump.file_name()}: the last states before {dump.candidate} diverged (envolve replay FILE)")
        return "\n".join([f"Written to {self.plan.out}:", *rows])


def curves_of(names: Sequence[str], progress: Metrics) -> Dict[str, float]:
    """What TensorBoard shows of an iteration: means over a candidate's agents; no figure of one with a failed agent."""
    out = {}
    for what, values in (("score", progress.score), ("reward", progress.reward)):
        means = np.asarray(values, dtype=float).reshape(len(names), -1).mean(1).tolist()
        out.update({f"{what}/{name}": mean for name, mean in zip(names, means)})
    return out


def vars_of(schedule: Schedule) -> Dict[str, Any]:
    """Schedule in the form that ``schedule_from`` reads."""
    return {"iters": list(schedule.knots), "values": [list(r) for r in schedule.ranges], "mode": schedule.mode}


def engine_version(engine: str) -> Dict[str, str]:
    try:
        return {engine: importlib.metadata.version(engine.replace("_", "-"))}
    except importlib.metadata.PackageNotFoundError:
        return {engine: "unknown"}
