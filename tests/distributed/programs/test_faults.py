"""Real processes, really killed."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from pathlib import Path

import pytest

from envolve.distributed.files.params_file import freeze
from envolve.distributed.files.run_folder import REPLAY, RunSettings, keep_settings
from envolve.distributed.memory.replay_log import ReplayLog
from envolve.distributed.programs.cpus import deal
from envolve.distributed.programs.evaluator import EVALUATIONS
from envolve.distributed.programs.launch import roles_of
from envolve.distributed.programs.learner import CHECKPOINT
from envolve.distributed.programs.supervisor import DONE, Supervisor
from tests.distributed.toy import SMALL, Run, results, small

ROOT = Path(__file__).parents[3]
PARAMS = """
from tests.distributed.toy import StepsParams

class TrainParams(StepsParams):
    def env_ctor(self, seed, *args, **kwargs):
        env = super().env_ctor(seed, *args, **kwargs)
        env.pause = self.env_config.get("pause", 0.0)
        return env
"""


def prepare(folder: Path, settings: RunSettings, pause: float = 0.0, **values: object) -> None:
    """The run's folder, as the command makes it."""
    params = folder.with_suffix(".py")
    params.write_text(PARAMS)
    config = folder.with_suffix(".json")
    config.write_text(json.dumps({"pause": pause}))
    freeze(folder, params, config, {**SMALL, "hidden": [8, 8], **values})
    keep_settings(folder, settings)


def begin(folder: Path, settings: RunSettings, pause: float = 0.0, **values: object) -> Supervisor:
    prepare(folder, settings, pause, **values)
    return Supervisor(
        roles_of(folder, settings.num_collectors, deal(settings.num_collectors, environ={})),
        folder / "logs",
        quick_seconds=0.0,
        stop_seconds=10.0,
    )


class Rounds:
    """Rounds in which every role is killed once, at any moment of its life and of the others'. A round begins when the
    run has made progress since the last."""

    def __init__(self, supervisor: Supervisor, folder: Path, names: list[str], rounds: int) -> None:
        self.supervisor, self.folder, self.names, self.left = supervisor, folder, names, rounds
        self.victims: list[str] = []
        self.random, self.seen, self.next = random.Random(0), 0, 0.0

    def progress(self) -> int:
        """Of the learner and of the memory: both have written something new."""
        path = self.folder / CHECKPOINT
        return path.stat().st_mtime_ns if path.exists() else 0

    def __call__(self) -> None:
        now = self.progress()
        if not self.victims and self.left and now > self.seen:
            self.victims, self.left = self.random.sample(self.names, len(self.names)), self.left - 1
        if self.victims and time.monotonic() > self.next:
            pid = self.supervisor.pids().get(self.victims[0])
            if pid is not None:
                os.kill(pid, signal.SIGKILL)
                self.victims.pop(0)
                self.seen, self.next = time.time_ns(), time.monotonic() + self.random.uniform(0, 1.5)


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["SAC", "CRL"])
def test_each_role_is_killed_and_lockstep_gives_the_same_bytes(tmp_path: Path, algorithm: str) -> None:
    """The learner goes back to its checkpoint and the replay to its log; the evaluator begins its evaluation again. (A
    collector that dies loses an episode, so that other experience comes.)"""
    supervisor = begin(tmp_path / "run", RunSettings(3, 2), num_iter=60, algorithm=algorithm)
    names, rounds = ["learner", "replay", "evaluator"], 5
    killer = Rounds(supervisor, tmp_path / "run", names, rounds)
    assert supervisor.run(killer) == DONE
    assert not killer.left and not killer.victims, "the run was over before"
    assert {n: d for n, d in supervisor.deaths().items() if d} == dict.fromkeys(names, rounds)
    Run(small(num_iter=60, algorithm=algorithm), tmp_path / "embedded", 2).finish()
    assert results(tmp_path / "run") == results(tmp_path / "embedded")


def complete(folder: Path, iterations: int) -> None:
    lines = (folder / EVALUATIONS).read_text().splitlines()
    last = iterations * SMALL["num_steps_per_iter"]
    wanted = list(range(0, last + 1, SMALL["eval_period"] * SMALL["num_steps_per_iter"]))
    assert [int(line.split(",")[0]) for line in lines[1:]] == wanted


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["async", "lockstep"])
def test_each_role_is_killed_twenty_times_and_the_run_finishes(tmp_path: Path, mode: str) -> None:
    folder, names = tmp_path / "run", ["learner", "replay", "evaluator", "collector_0", "collector_1"]
    supervisor = begin(folder, RunSettings(3, 2, mode), 0.02, num_iter=600)
    killer = Rounds(supervisor, folder, names, 20)
    assert supervisor.run(killer) == DONE
    assert not killer.left and not killer.victims, "the run was over before"
    assert supervisor.deaths() == dict.fromkeys(names, 20)
    complete(folder, 600)
    log = ReplayLog(folder / REPLAY, 1, 14, 1)
    assert [*log.read()] and not list((folder / REPLAY).glob("*.tmp"))
