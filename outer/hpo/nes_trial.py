"""Evaluates a configuration by whole runs of the outer loop, which resume from their checkpoints on promotion."""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from rich.console import Console

from envolve.core.files import TEXT_BYTES, read_plain
from envolve.envs.task import NEVER_SOLVED
from envolve.envs.worlds.file import FIRST, MODEL, write_atomic
from envolve.outer.checkpoint import CheckpointError, RunError, load_checkpoint, locked
from envolve.outer.config.load import Config, ConfigError, load_config, store_config
from envolve.outer.exchange.engine import Engine
from envolve.outer.hpo.study import Study
from envolve.outer.hpo.trial import Trial, TrialResult
from envolve.outer.names import CHECKPOINT, CONFIG_FILE, SCORES
from envolve.outer.reporting.report import LiveTable
from envolve.outer.run import Run, config_digest

MEASURED = "measured.json"
# what a run goes on from
KEPT = (CHECKPOINT, SCORES, MODEL, FIRST, "params.yaml", MEASURED, CONFIG_FILE)

SPENT: dict[str, Callable[[Run], float]] = {  # in the units of a budget
    "generations": lambda run: run.strategy.state.generation,
    "steps": lambda run: run.progress.member_steps,
    "episodes": lambda run: run.progress.member_episodes,
}


class NESTrials:
    """Evaluates trials with the workers of one ``dispatcher``. The runs of a configuration lie in
    ``<folder>/<bracket>_<number>/run_<r>``, r from 0 to ``repeats`` - 1; run r has the base's seed + r, the same for
    every configuration."""

    def __init__(self, study: Study, folder: Path, dispatcher: Engine) -> None:
        self.study, self.folder, self.dispatcher = study, folder, dispatcher

    def __call__(self, trial: Trial) -> TrialResult:
        """Evaluates one trial. Raises ConfigError, RunError, ExchangeError, OSError."""
        study = self.study
        base = study.member_config(trial.values)
        bracket, _, number = trial.config_id
        rows: list[dict[str, float]] = []
        for r in range(study.repeats):
            data = {**base.data, "seed": base.data["seed"] + r}
            config = Config(data, base.warnings, base.path)
            name = self.folder / f"{bracket}_{number}" / f"run_{r}"
            with run_folder(name, config, trial.budget) as run_dir:
                known = measured(run_dir)
                if trial.budget not in known:  # else an earlier process measured it and could not say so any more
                    run = self._go_on(config, run_dir, trial)
                    if run.progress.best_generation == 0:
                        return TrialResult(math.inf, error=f"run {r}: {run.no_score()}")
                    known[trial.budget] = {"loss": loss_of(run, study.loss), **figures(run)}
                    write_atomic(str(run_dir / MEASURED), json.dumps(known).encode())
                rows.append(known[trial.budget])
        mean = {key: sum(row[key] for row in rows) / len(rows) for key in rows[0]}
        return TrialResult(mean.pop("loss"), mean)

    def _go_on(self, config: Config, run_dir: Path, trial: Trial) -> Run:
        run = Run(config, run_dir, self.dispatcher, resume=(run_dir / SCORES).exists())
        title = f"configuration {trial.config_id[0]}_{trial.config_id[2]}, budget {trial.budget:g}: {run_dir}"
        spent = SPENT[self.study.budget.unit]
        with LiveTable(run.gtn.max_iterations, title, Console(), ends_early=True) as table:
            run.search(table, lambda run: spent(run) >= trial.budget)
        return run


def loss_of(run: Run, loss: str) -> float:
    """Loss of a run:

    generations  generations g until it was solved; if it was not: g (1 + d / (1 + d)), where d is the relative
                 shortfall of its best score from solved_reward
    score        minus the best score
    """
    p, goal = run.progress, run.target.solved_reward
    if loss == "score":
        return -p.best_score
    if p.solved:
        return float(run.strategy.state.generation)
    return run.strategy.state.generation * (1 + shortfall(p.best_score, goal))


def shortfall(score: float, goal: float) -> float:
    """Shortfall d / (1 + d) in [0, 1), d = max(0, goal - score) / |goal|. A task without a mark counts with 1e9."""
    goal = min(goal, NEVER_SOLVED)
    d = max(0.0, goal - score) / max(abs(goal), 1e-9)
    return d / (1 + d) if math.isfinite(d) else 1.0


def figures(run: Run) -> dict[str, float]:
    p = run.progress
    return {
        "best_score": p.best_score, "best_generation": float(p.best_generation), "solved": float(p.solved),
        "generations": float(run.strategy.state.generation), "steps": float(p.member_steps),
        "episodes": float(p.member_episodes), "restarts": float(len(p.restart_generations)),
    }  # fmt: skip


@contextlib.contextmanager
def run_folder(name: Path, config: Config, budget: float) -> Iterator[Path]:
    """The folder of a run, locked, with config.yaml in it and the checkpoint to resume from, if there is one.

    Where another process still holds it (one that was thought dead, and may come back) a copy is made beside it. A run
    that has had more than ``budget`` (a log of results was removed) or is damaged is begun anew, beside it too.
    """
    for number in range(1, 1000):
        folder = name if number == 1 else name.with_name(f"{name.name}_{number}")
        folder.mkdir(parents=True, exist_ok=True)
        with contextlib.ExitStack() as stack:
            try:
                stack.enter_context(locked(folder))
            except RunError:
                continue
            if number > 1 and not (folder / CHECKPOINT).exists():
                _copy(name, folder, config, budget)
            if not _usable(folder, config, budget):
                continue
            if not (folder / CONFIG_FILE).exists():
                store_config(folder, config)
            yield folder
            return
    raise RunError(f"{name}: a thousand processes hold copies of this run")


def _copy(source: Path, target: Path, config: Config, budget: float) -> None:
    """Copies the files needed to resume, the checkpoint last and only if it is complete."""
    if not _usable(source, config, budget):
        return
    for file in reversed(KEPT):
        with contextlib.suppress(FileNotFoundError, CheckpointError):
            shutil.copyfile(source / file, target / f".{file}.copy")
            if file == CHECKPOINT:
                load_checkpoint(target / f".{file}.copy", config_digest(config))
            os.replace(target / f".{file}.copy", target / file)


def _usable(folder: Path, config: Config, budget: float) -> bool:
    """True if a run of this configuration can begin or resume there."""
    stored, checkpoint = folder / CONFIG_FILE, folder / CHECKPOINT
    try:
        if stored.exists() and load_config(stored).data != config.data:
            return False
        if checkpoint.exists():
            load_checkpoint(checkpoint, config_digest(config))
        return max(measured(folder), default=0.0) <= budget
    except (CheckpointError, ConfigError, ValueError):
        return False


def measured(folder: Path) -> dict[float, dict[str, float]]:
    """Measurements by budget: ``loss`` and the figures. Raises ValueError if the file is damaged."""
    try:
        content = json.loads(read_plain(folder / MEASURED, TEXT_BYTES))
    except FileNotFoundError:
        return {}
    return {float(budget): {name: float(value) for name, value in row.items()} for budget, row in content.items()}
