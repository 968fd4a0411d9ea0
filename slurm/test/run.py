#!/usr/bin/env python3
"""Masters and workers under a real SLURM of one machine, killed while they run: make slurm-test (a few minutes).

Installs SLURM from Debian packages if it is missing (as root), starts it in a temporary folder, and runs there

  plain   two runs of GTN_master.py on CartPole with three workers each, through slurm/submit.py. Workers and a master
          are cancelled, submit.py is killed and started again, a master and a worker get the signal of the time limit.
  study   the same with a search over configurations (experiments/optimize_params.py).
  node    slurm/single_node.sh with a time limit that is too short, and requeued once from outside.

Each must end with the same bytes as the same run without SLURM and without disturbance. All daemons are stopped at the
end, also after a failure or Ctrl-C. Exit code 0: equal, 1: not."""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path[0] = str(Path(__file__).resolve().parents[2])

from envolve.slurm import batch  # noqa: E402
from envolve.slurm.commands import MASTER, ROOT, WORKER, exit_file, read_exit  # noqa: E402
from envolve.slurm.fleet import Fleet  # noqa: E402
from envolve.slurm.test.cluster import ClusterError, install, one_machine  # noqa: E402

MASTERS, WORKERS = 2, 3
PLAIN = [str(ROOT / "default_config_cartpole_syn_env.yaml"), "--set"] + [
    f"agents.gtn.{value}"
    for value in ("max_iterations=30", "num_workers=6", "chunk_size=2", "num_orig_evals=4", "comparison_agents=4",
                  "quit_when_solved=false")
]  # fmt: skip
STUDY = ROOT / "slurm" / "test" / "study.yaml"
STUDY_FILES = ("configs.json", "best.yaml")
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

    def __init__(self, run_dir: Path, words: Sequence[str]) -> None:
        self.run_dir, self.words = run_dir, list(words)
        self.log = run_dir.with_suffix(".submit.log")
        self.expected: list[tuple[str, int, str]] = []  # tasks and the jobs that were cancelled
        self.requeued: list[tuple[str, str]] = []  # jobs that got the signal of the time limit
        self.process = self._start(
            "--masters", str(MASTERS), "--workers", str(WORKERS), "--time=00:30:00", "--lead=60", "--", *self.words
        )

    def _start(self, *arguments: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, str(ROOT / "slurm" / "submit.py"), "--run-dir", str(self.run_dir), "--poll=1"]
        with open(self.log, "ab") as output:
            return subprocess.Popen(
                [*command, *arguments], stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )

    def running(self, role: str, index: int) -> str:
        """Job of this task, "" if it does not run."""
        name = self.fleet().job_name(role)
        return next((e.job for e in batch.queue([name]) if e.index == index and e.state == "RUNNING"), "")

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
            jobs = {p.stem.split("_")[1] for p in self._logs(f"{role}_*_{index}")}
            if len(jobs) < 2 or self.fleet().task(role, index).sent < 2:
                raise TestError(f"{role} {index} was cancelled as job {job}, and did not come back")
        for role, job in self.requeued:
            text = self._logs(f"{role}_{job}")[0].read_text()
            if f"scontrol requeue {job}: done" not in text or f"job {job}, start 2: " not in text:
                raise TestError(f"{role} (job {job}) got SIGUSR1, and was not requeued and started again:\n{text}")
        say(f"{len(self.expected)} cancelled tasks came back, {len(self.requeued)} were requeued at their time limit")
        names = [self.fleet().job_name(role) for role in (MASTER, WORKER)]
        if left := batch.queue(names):
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


# ---------------------------------------------------------------------------------------------------- plain runs


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


def plain(folder: Path) -> None:
    undisturbed = [reference(folder, b) for b in range(MASTERS)]
    say(f"the same {MASTERS} runs with {WORKERS} workers each, through sbatch")
    run = Submitted(folder / "plain", [*PLAIN, "--seed", "{BOHB_ID}"])
    first, second = (run.run_dir / f"master_{b}" for b in range(MASTERS))
    try:
        until(lambda: min(generations(first), generations(second)) >= 1, "each master has a generation", run.process)
        run.cancel((WORKER, 0), (WORKER, 4))
        until(lambda: generations(second) >= 3, "master 1 has three generations", run.process)
        run.cancel((MASTER, 1))
        run.kill_submit()
        run.time_limit((WORKER, 2), (MASTER, 0))
        say(f"generations finished by then: {generations(first)} and {generations(second)} of 30")
        run.finish()
        for b, results in enumerate((first, second)):
            for name in PLAIN_FILES:
                same(undisturbed[b] / name, only_run(results) / name)
    except BaseException:
        run.show()
        raise
    finally:
        run.close()
    say(f"plain: {' and '.join(PLAIN_FILES)} of both masters are the same bytes")


def finished(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise TestError(f"{' '.join(command)}: exit code {done.returncode}\n{done.stdout}{done.stderr}")


def same(expected: Path, found: Path) -> None:
    if expected.read_bytes() != found.read_bytes():
        raise TestError(f"{found} differs from {expected}, which was not disturbed")


# ---------------------------------------------------------------------------------------------------- a study


def trials(run_dir: Path) -> int:
    results = run_dir / "results.json"
    return len(results.read_text().splitlines()) if results.exists() else 0


def without_times(results: Path) -> list[list[Any]]:
    """Configurations, budgets, losses and other measurements, in the order of the file."""
    lines = [json.loads(line) for line in results.read_text().splitlines()]
    return [[config_id, budget, result, failure] for config_id, budget, _, result, failure in lines]


def study(folder: Path) -> None:
    say("an undisturbed search, without SLURM")
    alone = folder / "study_alone"
    command = [sys.executable, str(ROOT / "experiments" / "optimize_params.py"), str(STUDY)]
    finished([*command, "--run-dir", str(alone), "--workers", "2"])
    say(f"the same search with {MASTERS} NES masters of {WORKERS} workers, through sbatch")
    run = Submitted(folder / "study", [str(STUDY)])
    try:
        until(lambda: trials(run.run_dir) >= 2, "two trials are done", run.process)
        run.cancel((WORKER, 1), (WORKER, 3), (MASTER, 1))
        until(lambda: trials(run.run_dir) >= 6, "six trials are done", run.process)
        run.cancel((MASTER, 0))  # the search itself
        run.kill_submit()
        run.time_limit((WORKER, 5))
        say(f"trials done by then: {trials(run.run_dir)} of {trials(alone)}")
        until(lambda: trials(run.run_dir) >= 9, "nine trials are done", run.process)
        run.time_limit((MASTER, 1))
        run.finish()
        if without_times(alone / "results.json") != without_times(run.run_dir / "results.json"):
            raise TestError(f"{run.run_dir}/results.json differs from that of {alone}, which was not disturbed")
        for name in STUDY_FILES:
            same(alone / name, run.run_dir / name)
    except BaseException:
        run.show()
        raise
    finally:
        run.close()
    say(f"study: the {trials(alone)} trials of results.json, and {' and '.join(STUDY_FILES)}, are the same")


# ---------------------------------------------------------------------------------------------------- one node


def node(folder: Path) -> None:
    began = time.monotonic()
    longer = ["--set", "agents.gtn.max_iterations=80"]
    undisturbed = reference(folder, 7, longer)
    # Early enough that a run of this length meets it, late enough for some generations, however busy the machine is.
    # SLURM looks every 30 s, and tells 30 s too early.
    told_after = 0.4 * (time.monotonic() - began)
    minutes = math.ceil((told_after + 40) / 60)
    lead = round(60 * minutes - 30 - told_after)
    run_dir = folder / "node"
    log = folder / "node.log"
    cores = len(os.sched_getaffinity(0))
    say(f"the same run in one job of {cores} CPUs, a limit of {minutes} min, told {lead} s before")
    options = [f"--time={minutes}", f"--signal=B:USR1@{lead}", f"--cpus-per-task={cores}", f"--output={log}"]
    environ = os.environ | {
        "ENVOLVE_ROOT": str(ROOT),
        "ENVOLVE_RUN_DIR": str(run_dir),
        "ENVOLVE_KILL_AFTER": "8",
        "ENVOLVE_PYTHON": sys.executable,
    }
    job = batch.submit(options, str(ROOT / "slurm" / "single_node.sh"), [*PLAIN, *longer, "--seed", "7"], environ)

    def starts() -> int:
        return log.read_text().count(", start ") if log.exists() else 0

    try:
        until(lambda: generations(run_dir / "master_0") >= 1, "a generation is done")
        subprocess.run(["scontrol", "requeue", job], check=True)
        say(f"requeued from outside, as by a preemption, after {generations(run_dir / 'master_0')} of 80 generations")
        until(lambda: starts() >= 2, "SLURM starts it again")
        done = until(
            lambda: (end := read_exit(exit_file(run_dir, "node", 0))) and end.code == 0 and end, "the job is done"
        )
        if starts() < 3 or f"scontrol requeue {job}: done" not in log.read_text():
            raise TestError(f"the job started {starts()} times and met no time limit; expected one at least")
        say(f"complete after {starts()} starts; SLURM counted {done.restarts} restarts")
        for name in PLAIN_FILES:
            same(undisturbed / name, only_run(run_dir / "master_0") / name)
    except BaseException:
        for path in (log, *sorted((run_dir / "slurm" / "log").glob("*.log"))):
            print(f"--- {path.name}\n{path.read_text(errors='replace')[-2500:]}")
        raise
    finally:
        batch.cancel([job])
    say(f"node: {' and '.join(PLAIN_FILES)} are the same bytes")


PARTS: dict[str, Callable[[Path], None]] = {"plain": plain, "study": study, "node": node}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=PARTS, help="this part alone")
    parser.add_argument("--keep", action="store_true", help="leave the temporary folder, and say where it is")
    args = parser.parse_args()

    def stop(signum: int, frame: Any) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, stop)
    os.environ["OMP_NUM_THREADS"] = "1"
    began = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="envolve-slurm-"))
    try:
        install()
        with one_machine(folder / "cluster", tasks=MASTERS * (1 + WORKERS)):
            version = subprocess.run(["sinfo", "--version"], capture_output=True, text=True, check=False).stdout.strip()
            say(f"{version} runs in {folder}")
            for name in [args.only] if args.only else PARTS:
                PARTS[name](folder)
    except (ClusterError, TestError, batch.BatchError) as e:
        print(f"slurm-test: {e}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("slurm-test: interrupted", file=sys.stderr)
        return 130
    finally:
        if args.keep:
            say(f"kept: {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    say(f"slurm-test: all equal, {time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
