"""NES master of a search: receives trials through the exchange, as a worker receives chunks, and has its own workers
for the members of every trial's populations.

The search is the master of the folder ``<run_dir>/trials``, where NES master b is worker b; for its own workers it is
the master with BOHB-ID b in ``<run_dir>/sync``.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from envolve.outer.config.problem import executes_own_code
from envolve.outer.exchange.dispatch import Dispatcher
from envolve.outer.exchange.engine import Engine
from envolve.outer.exchange.local_workers import LocalWorkers, start_some
from envolve.outer.exchange.machine import ExchangeError, Files, Host
from envolve.outer.exchange.messages import Chunk
from envolve.outer.exchange.worker import Worker
from envolve.outer.hpo.agent_trial import AgentTrials
from envolve.outer.hpo.goal_trial import GoalTrials
from envolve.outer.hpo.nes_trial import NESTrials
from envolve.outer.hpo.study import Study
from envolve.outer.hpo.trial import Trial, TrialResult

log = logging.getLogger("envolve")

TRIALS, SYNC, RUNS, LOGS = "trials", "sync", "runs", "logs"  # folders of a search
DONE = "done"  # a file: the search is complete
MODE = "trial"


class Broken(BaseException):
    """Raised if this master cannot continue for reasons unrelated to the trial, which goes to another master."""


def trial_chunk(run_id: str, digest: str, trial: Trial) -> Chunk:
    """Encodes a trial as a chunk for NES masters."""
    content = {
        "study": digest, "id": trial.id, "config_id": list(trial.config_id), "values": dict(trial.values),
        "budget": trial.budget, "rung": trial.rung, "model_based": trial.model_based,
    }  # fmt: skip
    seeds = torch.tensor([trial.id])
    return Chunk(run_id, trial.id + 1, 0, 0, MODE, content, torch.zeros(1, 1), seeds)


def trial_of(content: dict[str, Any], digest: str) -> Trial:
    """Decodes a trial. Raises ValueError for a trial of another study."""
    if content.get("study") != digest:
        raise ValueError("the search has another study, or the same with other values; start all with one file")
    bracket, zero, number = content["config_id"]
    return Trial(
        content["id"],
        (bracket, zero, number),
        content["values"],
        content["budget"],
        content["rung"],
        content["model_based"],
    )


def values_of(result: TrialResult) -> dict[str, Any]:
    """Encodes a result for ``envolve.outer.exchange.messages``: the score is minus the loss."""
    score = -result.loss if math.isfinite(result.loss) else math.nan
    return {"score": [score], **{name: [float(x)] for name, x in result.info.items()}, "reason": [result.error]}


def result_of(values: dict[str, Tensor], reason: str, error: str) -> TrialResult:
    """Decodes a result."""
    score = float(values["score"][0])
    if error or not math.isfinite(score):
        return TrialResult(math.inf, error=error or reason or "no loss")
    return TrialResult(-score, {name: float(value[0]) for name, value in values.items() if name != "score"})


def evaluation_of(study: Study, runs: Path, engine: Engine) -> Callable[..., dict[str, Any]]:
    """What evaluates a trial, as a worker evaluates a chunk. runs: folder of all runs; engine: of the trial's members.
    Raises WorldFileError; the evaluation raises Broken."""
    kind = NESTrials if study.evaluate == "nes" else AgentTrials
    trials = GoalTrials(study, runs) if study.evaluate == "goal" else kind(study, runs, engine)

    def evaluate(content: dict[str, Any], worlds: Tensor, seeds: Tensor, mode: str, threads: int) -> dict[str, Any]:
        try:
            trial = trial_of(content, study.digest)
        except ValueError as e:
            raise Broken(str(e)) from e
        log.info("trial %d: configuration %s at budget %g", trial.id, trial.config_id, trial.budget)
        try:
            result = trials(trial)
        except (ExchangeError, OSError) as e:  # a full disk is not the configuration's fault
            raise Broken(f"trial {trial.id} is left to another: {e}") from e
        log.info("trial %d: loss %g %s", trial.id, result.loss, result.error)
        return values_of(result)

    return evaluate


class NESMaster:
    """NES master. ``bohb_id``: its id; ``num_workers``: workers that it starts itself, 0: none. ``on_beat`` is called
    once a second."""

    def __init__(
        self,
        study: Study,
        run_dir: Path,
        bohb_id: int,
        num_workers: int = 0,
        on_beat: Callable[[], None] | None = None,
    ) -> None:
        """Raises ExchangeError."""
        self.study, self.run_dir, self.bohb_id, self.num_workers = study, run_dir, bohb_id, num_workers
        self._also = on_beat
        self._stack = contextlib.ExitStack()
        files = Files(os.fspath(run_dir / TRIALS))
        self.worker = Worker(0, bohb_id, files, Host(), self._load, on_beat=self._on_beat)

    def run(self) -> None:
        """Works until the search says quit or has ended. Raises SecondWorkerError, ExchangeError, Broken,
        WorldFileError."""
        with self._stack:
            self.worker.run()
            self.dispatcher.close(quit_workers=True)

    def _load(self) -> Callable[..., dict[str, Any]]:
        """Opens the exchange with the workers, after the slot was claimed."""
        name = f"{self.run_dir.resolve().name}/{self.bohb_id}"
        sync = os.fspath(self.run_dir / SYNC)
        trains = self.study.evaluate == "goal"  # its agents in this process, without workers
        own = self.run_dir if not trains and executes_own_code(self.study.config.data) else None
        advice = partial(start_some, self.bohb_id, sync, own)
        self.dispatcher = self._stack.enter_context(Dispatcher(sync, self.bohb_id, name, advice=advice))
        if self.num_workers and not trains:
            logs = self.run_dir / LOGS / f"nes_master_{self.bohb_id}"
            workers = self._stack.enter_context(LocalWorkers(self.num_workers, sync, self.bohb_id, logs, plugins=own))
            self.dispatcher.on_wait = workers.poll
        return evaluation_of(self.study, self.run_dir / RUNS, self.dispatcher)

    def _on_beat(self) -> None:
        if (self.run_dir / DONE).exists():  # the word to quit may have come before this process started
            self.worker.quit = True
        if self._also is not None:
            self._also()
