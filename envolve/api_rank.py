"""``envolve.rank``: which of some shapers makes the best agents."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

from envolve.outer.config.yaml_lines import ConfigError
from envolve.outer.reporting.folders import claimed
from envolve.outer.shapers.arguments import Args
from envolve.outer.shapers.plan import make_plan, run_folder
from envolve.outer.shapers.run import ShaperRun


@dataclass(frozen=True)
class Rank:
    """One candidate, the best first; ``human`` are the task's own shapers."""

    name: str
    score: float  # the task's true score, a mean over its agents; NaN: it is out
    file: Path | None
    failure: str  # why it is out, "" if it is not
    agent_scores: list[float] = field(repr=False)


def rank(
    shapers: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    task: str = "Cartpole",
    *,
    iterations: int = 500,
    environments: int = 256,
    agents: int = 1,
    seed: int = 0,
    human: bool = True,
    learner: str = "ppo",
    overrides: Mapping[str, Any] | None = None,
    threads: int = 0,
    results_dir: str | os.PathLike[str] = "results",
    progress: bool = True,
) -> list[Rank]:
    """Train an agent on each shaper file, all of them in one simulator, and rank the files by the task's true score.

    shapers: a folder, a file, or files of one folder (docs/shapers.md says what is in them); they are executed. task:
    of the physics engine, e.g. Anymal, Ant, Cartpole. iterations: of collecting and learning. environments: of each
    agent, and episodes that judge it. agents: per candidate. human: the task's own shapers take part. overrides:
    hyperparameters of the learner, ``{"lr": 1e-3}``. The files of the comparison go to a new folder of results_dir.

    Raises ConfigError, SimulatorError.
    """
    folder, names = _files(shapers)
    args = Args(
        task=task,
        shapers=folder,
        candidates=names,
        human=human,
        num_envs_per_shaper=environments,
        iterations=iterations,
        seeds=agents,
        seed=seed,
        learner=learner,  # type: ignore[arg-type]
        set=[f"{k}={v}" for k, v in (overrides or {}).items()],
        threads=threads,
    )
    plan = make_plan(args)
    if args.learner not in ("ppo", "sac", "td3"):
        raise ConfigError([f"learner: found {learner!r}, expected one of ppo, sac, td3"])
    with claimed(run_folder(Path(results_dir), "shapers", plan.task, seed)) as folder:
        run = ShaperRun(plan._replace(out=folder))
        run.execute(Console() if progress else Console(quiet=True))
        ranking = run.write(None)
    return [
        Rank(
            o.name,
            o.score,
            Path(o.file) if o.file else None,
            "" if o.failure is None else str(o.failure.reason),
            o.agent_scores,
        )
        for o in ranking
    ]


def _files(shapers: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> tuple[Path, list[str]]:
    """The folder, and the names of those files of it that count; none: all."""
    if isinstance(shapers, (str, os.PathLike)):
        return Path(shapers), []
    paths = [Path(p) for p in shapers]
    folders = {p.parent for p in paths}
    if len(folders) != 1:
        raise ConfigError([f"shapers: found files of {len(folders)} folders, expected some of one folder"])
    return folders.pop(), [p.name for p in paths]
