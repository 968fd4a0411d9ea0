"""Runs under SLURM and without, for the test of slurm/test/run.py."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from envolve.slurm import batch
from envolve.slurm.commands import ROOT, exit_file, read_exit
from envolve.slurm.fleet import Fleet

MASTERS, WORKERS = 2, 3
PLAIN = [str(ROOT / "default_config_cartpole_syn_env.yaml"), "--set"] + [
    f"agents.gtn.{value}"
    for value in ("max_iterations=30", "num_workers=6", "chunk_size=2", "num_orig_evals=4", "comparison_agents=4",
                  "quit_when_solved=false")
]  # fmt: skip
PLAIN_FILES = ("model.pt", "scores.csv")
PATIENCE = 900.0  # seconds for one thing to happen


class TestError(AssertionError):
    """Raised for a result that differs from the expected one."""


def say(text: str) -> None:
    print(f"[{time.strftime('%H:%M:%S')}] {text}", flush=True)


def until(condition: Callable[[], Any], what: str, process: subprocess.Popen[bytes] | None = None) -> Any:
    end = time.monotonic() + PATIENCE
    while not (found := condition()):
        if process is not None and process.poll() is not None:
            raise TestError(f"submit.py ended with exit code {process.returncode} before {what}")
        if time.monotonic() > end:
            raise TestError(f"after {PATIENCE:.0f} s: not {what}")
        time.sleep(0.3)
    return found


class Submitted:
    """Run under SLURM, with the disturbances that the test can cause."""

    def __init__(self, run_dir: Path, words: Sequence[str], *options: str, workers: int = WORKERS) -> None:
        self.run_dir, self.words = run_dir, list(words)
        self.log = run_dir.with_suffix(".submit.log")
        self.expected: list[tuple[str, int, str]] = []  # tasks and the jobs that were cancelled
        self.requeued: list[tuple[str, str]] = []  # jobs that got the signal of the time limit
        self.process = self._start(
            "--masters",
            str(MASTERS),
            "--workers",
            str(workers),
            "--time=00:30:00",
            "--lead=60",
            *options,
            "--",
            *self.words,
        )

    def _start(self, *arguments: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, str(ROOT / "slurm" / "submit.py"), "--run-dir", str(self.run_dir), "--poll=1"]
        with open(self.log, "ab") as output:
            return subprocess.Popen(
                [*command, *arguments], stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )

    def running(self, role: str, index: int) -> str:
        """Job of this task, "" if it does not run."""
        fleet = self.fleet()
        (first,) = fleet.arrays(role, [index])
        entries = batch.queue([fleet.job_name(role, first)])
        return next((e.job for e in entries if first + e.index == index and e.state == "RUNNING"), "")

    def fleet(self) -> Fleet:
        return Fleet.load(self.run_dir / "slurm" / "state.json")

    def wait_running(self, role: str, index: int) -> str:
        return until(lambda: self.running(role, index), f"{role} {index} runs", self.process)

    def cancel(self, *tasks: tuple[str, int]) -> None:
        """Cancels tasks like a user with scancel: submit.py must bring them back as other jobs."""
        jobs = {task: self.wait_running(*task) for task in tasks}
        batch.cancel(list(jobs.values()))
        say("cancelled " + ", ".join(f"{role} {index} (job {job})" for (role, index), job in jobs.items()))
        self.expected += [(role, index, job) for (role, index), job in jobs.items()]

    def time_limit(self, *tasks: tuple[str, int]) -> None:
        """Sends the signal that SLURM sends before the time limit: the same jobs must come back, restarted."""
        for role, index in tasks:
            job = self.wait_running(role, index)
            subprocess.run(["scancel", "--signal=USR1", "--batch", job], check=True)
            say(f"sent SIGUSR1 to {role} {index} (job {job})")
            self.requeued.append((role, job))

    def kill_submit(self) -> None:
        self.process.kill()
        self.process.wait()
        self.process = self._start()
        say("killed submit.py (SIGKILL) and started it again")

    def finish(self) -> None:
        try:
            code = self.process.wait(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            raise TestError(f"submit.py has not ended after {PATIENCE:.0f} s") from None
        if code != 0:
            raise TestError(f"submit.py ended with exit code {code}, expected 0")
        for role, index, job in self.expected:
            task = self.fleet().task(role, index)
            if task.sent < 2 or task.job == job or not self._logs(f"{role}_{task.job}"):
                raise TestError(f"{role} {index} was cancelled as job {job}, and did not come back")
        for role, job in self.requeued:
            text = self._logs(f"{role}_{job}")[0].read_text()
            if f"scontrol requeue {job}: done" not in text or f"job {job}, start 2: " not in text:
                raise TestError(f"{role} (job {job}) got SIGUSR1, and was not requeued and started again:\n{text}")
        say(f"{len(self.expected)} cancelled tasks came back, {len(self.requeued)} were requeued at their time limit")
        if left := batch.queue([*self.fleet().job_names()]):
            raise TestError(f"submit.py left {len(left)} tasks in the queue, expected none: {left}")
        ends = {t.label: read_exit(exit_file(self.run_dir, t.role, t.index)) for t in self.fleet().tasks}
        say("exit codes: " + ", ".join(f"{label}: {end.code if end else '?'}" for label, end in ends.items()))

    def _logs(self, pattern: str) -> list[Path]:
        return sorted((self.run_dir / "slurm" / "log").glob(f"{pattern}.log"))

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait(timeout=30)

    def show(self) -> None:
        for log in [self.log, *self._logs("*")]:
            print(f"--- {log.name}\n{log.read_text(errors='replace')[-2500:]}")


# ------------------------------------------------------------------------------------------- what a run has left


def generations(master: Path) -> int:
    """Number of generations that this master has finished."""
    tables = list(master.glob("*/scores.csv"))
    lines = tables[0].read_text().splitlines()[1:] if tables else []
    return int(lines[-1].split(",")[0]) if lines else 0


def only_run(results: Path) -> Path:
    runs = [path for path in results.iterdir() if path.is_dir() and (path / "config.yaml").exists()]
    if len(runs) != 1:
        raise TestError(f"{results}: found {len(runs)} runs, expected 1: a stopped master must go on, not begin again")
    return runs[0]


def reference(folder: Path, seed: int, more: Sequence[str] = ()) -> Path:
    """Undisturbed run with this seed, without SLURM; made once."""
    results = folder / f"single_{seed}"
    if not results.exists():
        say(f"an undisturbed run with seed {seed}, without SLURM")
        command = [
            sys.executable,
            str(ROOT / "GTN_master.py"),
            *PLAIN,
            *more,
            "--workers",
            "2",
            "--seed",
            str(seed),
        ]
        finished([*command, "--results-dir", str(results)])
    return only_run(results)


def finished(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise TestError(f"{' '.join(command)}: exit code {done.returncode}\n{done.stdout}{done.stderr}")


def same(expected: Path, found: Path) -> None:
    if expected.read_bytes() != found.read_bytes():
        raise TestError(f"{found} differs from {expected}, which was not disturbed")
