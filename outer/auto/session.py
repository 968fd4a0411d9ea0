"""A run of ``envolve evolve`` in its folder: evolution, then report. Each goes on where it was stopped.

Beside the files of a run the folder holds ``plan.yaml`` (what ``envolve run`` takes), ``auto.json`` (the plan of the
report), ``unseen.jsonl`` (finished agents), and in the end ``report.json`` and ``report.txt``.
"""

from __future__ import annotations

import contextlib
import json
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

from envolve.agents import peers
from envolve.core.files import TEXT_BYTES, read_plain
from envolve.envs.worlds.file import read_world, write_atomic
from envolve.outer.auto import report
from envolve.outer.auto.plan import stored
from envolve.outer.auto.prepare import Prepared
from envolve.outer.auto.report_plan import ReportPlan
from envolve.outer.auto.sentence import Findings, helper, share, verdict
from envolve.outer.checkpoint import RunError, locked
from envolve.outer.config.load import Config, ConfigError, environment_info, load_config, store_config
from envolve.outer.config.problem import gtn_section
from envolve.outer.exchange.machine import OWN_SYNC
from envolve.outer.launch import conduct, forget_unused, new_run_dir
from envolve.outer.names import CONFIG_FILE, SCORES
from envolve.outer.reporting.display import wide_console
from envolve.outer.reporting.names import return_range
from envolve.outer.reporting.report import duration
from envolve.outer.search.turns import inner_learners

PLAN, AUTO_FILE = "plan.yaml", "auto.json"
SESSION = "session"  # key of rows that say how long one took
LIBRARY = "Stable-Baselines3's, with its default hyperparameters"
OWN = "this project's own, of other kinds, with default hyperparameters, because Stable-Baselines3 is not installed"
KEYS = {"env", "world", "learner", "search", "report", "measuring_steps", "workers"}


@dataclass
class Session:
    """One run, new or resumed."""

    run_dir: Path
    config: Config
    env: str
    world: str
    learner: str
    search: str
    plan: ReportPlan
    measuring_steps: int
    workers: int
    began: float = field(default_factory=time.monotonic)

    @contextlib.contextmanager
    def clock(self) -> Iterator[None]:
        """Within it, time counts, over several sessions."""
        try:
            yield
        finally:
            report.append(self.run_dir / report.FILE, {"key": SESSION, "seconds": time.monotonic() - self.began})

    def seconds(self) -> float:
        """Time that all sessions took, s."""
        before = sum(r["seconds"] for r in report.finished(self.run_dir / report.FILE) if r["key"] == SESSION)
        return float(before + time.monotonic() - self.began)

    def evolve(self, workers: int) -> None:
        """The search, from its checkpoint if there is one. Raises RunError, ExchangeError."""
        if (self.run_dir / "summary.txt").exists():
            return
        resume = (self.run_dir / SCORES).exists()  # a run that stopped in its first generation has no checkpoint yet
        sync_dir = str(self.run_dir / OWN_SYNC)
        conduct(self.config, self.run_dir, resume=resume, workers=workers, sync_dir=sync_dir)

    def report(self, workers: int) -> SessionReport:
        """Unseen agents, those that are missing. Raises RunError, WorldFileError."""
        world = read_world(str(self.run_dir / "model.pt"))
        jobs = report.jobs_of(self.run_dir, self.plan, self.config.data["seed"])
        with locked(self.run_dir):
            rows = report.train_all(jobs, self.run_dir / report.FILE, workers, Console())
        bounds = return_range(self.config.data)
        inner = inner_learners(gtn_section(self.config.data))
        found = report.findings(rows, self.plan.learners, world.evolution_steps, bounds, inner)
        return SessionReport(
            self, found, report.real_steps(rows, self.measuring_steps, world.evolution_steps), self.seconds()
        )


@dataclass
class SessionReport:
    """The report."""

    session: Session
    found: Findings
    steps: dict[str, int | None]  # on the real environment, by what they were for
    seconds: float

    def content(self) -> dict[str, Any]:
        """Ready for JSON."""
        s, part = self.session, share(self.found)
        return {
            "env": s.env, "world": s.world, "learner": s.learner, "search": s.search, "seconds": self.seconds,
            "real_steps": sum(v or 0 for v in self.steps.values()), "real_steps_of": self.steps,
            "random": report.plain_figure(self.found.random), "unseen": report.as_json(self.found),
            "kin": sorted(self.found.kin), "share": None if math.isnan(part) else part,
            "helped": helper(self.found) is not None, "verdict": verdict(self.found),
            "library": "stable-baselines3" if s.plan.library else "envolve", "seed": s.config.data["seed"],
            "run_dir": str(s.run_dir), "versions": environment_info(),
        }  # fmt: skip

    def write(self, path: Path) -> None:
        """Raises OSError."""
        write_atomic(str(path), (json.dumps(self.content(), indent=1, allow_nan=False) + "\n").encode())

    def show(self) -> None:
        """The table, what it cost, and the verdict; kept as report.txt too."""
        with open(self.session.run_dir / "report.txt", "w", encoding="utf-8") as file:
            for console in (wide_console(), wide_console(file)):
                console.print()
                console.print(report.table_of(self.found, f"{self.session.env}: mean return, 95 % intervals"))
                for line in self._lines():
                    console.print(line, markup=False, highlight=False, soft_wrap=True)

    def _lines(self) -> list[str]:
        s = self.session
        of = LIBRARY if s.plan.library else OWN
        alone = f" (of {' and '.join(s.plan.alone)} one for ten times the steps)" if s.plan.alone else ""
        names = {
            "measuring": "measuring", "evolution": "evolution", "tests": "tests of the world's agents",
            "baselines": "agents on the environment and their tests",
        }  # fmt: skip
        cost = ", ".join(f"{names[k]} {'unknown' if v is None else format(v, ',')}" for k, v in self.steps.items())
        return [
            f"Agents: {of}; {s.plan.agents} of each kind at each place{alone}, {s.plan.tests} test episodes each; "
            "one world.",
            *([f"*: of the family of {s.learner}; the verdict leaves it out in the world."] if self.found.kin else []),
            f"Real steps: {cost}.",
            f"World: {s.world}, evolved with {s.learner} by {s.search}. Time: {duration(self.seconds)}.",
            "",
            verdict(self.found),
            "",
            f"Written to {s.run_dir}: model.pt, plan.yaml, report.json, report.txt, {report.FILE}",
        ]


def begin(made: Prepared, results: Path, command: str) -> Session:
    """The folder of a new run, with all that it needs to go on. Raises OSError."""
    run_dir = new_run_dir(results, made.config)
    plan = made.plan
    try:
        store_config(run_dir, made.config, {"command": command})
        write_atomic(str(run_dir / PLAN), plan.text().encode())
        values = {
            "env": made.facts.env, **stored(plan), "measuring_steps": made.real_steps, "workers": made.workers,
        }  # fmt: skip
        write_atomic(str(run_dir / AUTO_FILE), json.dumps(values).encode())
    except BaseException:
        for name in (PLAN, AUTO_FILE):
            (run_dir / name).unlink(missing_ok=True)
        forget_unused(run_dir, made.config)
        raise
    return read_session(run_dir)


def read_session(run_dir: Path) -> Session:
    """A run that was begun. Raises ConfigError."""
    path = run_dir / AUTO_FILE
    try:
        values = json.loads(read_plain(path, TEXT_BYTES))
    except OSError as e:
        words = f"found no {AUTO_FILE} in {str(run_dir)!r} ({e.strerror}), expected the folder of envolve evolve"
        raise ConfigError([f"--resume: {words}"]) from None
    except ValueError as e:
        raise ConfigError([f"{path}: found no JSON ({e}), expected what envolve evolve writes"]) from None
    try:
        plan = values["report"]
        kinds = {"agents": int, "steps": list, "tests": int, "library": bool}
        learners = tuple(map(str, plan["learners"]))
        if type(plan["steps"]) is int:  # until 0.2 the same for all
            plan["steps"] = [plan["steps"]] * len(learners)
        if not KEYS <= set(values) or not all(type(plan[k]) is t for k, t in kinds.items()):
            raise KeyError
        if len(plan["steps"]) != len(learners):
            raise KeyError
        ten = plan.get("ten", True)  # until 0.2 always
        steps_of = tuple(map(int, plan["steps"]))
        alone = tuple(map(str, plan.get("alone", ())))  # until 0.2 none
        of = ReportPlan(learners, plan["agents"], steps_of, plan["tests"], plan["library"], bool(ten), alone)
        env, world, learner, search = (str(values[k]) for k in ("env", "world", "learner", "search"))
        steps, workers = int(values["measuring_steps"]), int(values["workers"])
    except (KeyError, TypeError, ValueError):
        raise ConfigError([f"{path}: found other keys than envolve evolve writes there"]) from None
    if not (run_dir / CONFIG_FILE).is_file():
        raise ConfigError([f"--resume: found no {CONFIG_FILE} in {str(run_dir)!r}, expected the folder of a run"])
    config = load_config(run_dir / CONFIG_FILE)
    if of.library and not peers.installed():
        raise RunError("the report was begun with Stable-Baselines3, which is not installed now")
    return Session(run_dir, config, env, world, learner, search, of, steps, workers)
