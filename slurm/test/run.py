#!/usr/bin/env python3
"""Masters and workers under a real SLURM, killed while they run: make slurm-test (half an hour).

Installs SLURM from Debian packages if it is missing (as root), starts it in a temporary folder with two node daemons on
this machine, and runs there

  plain   two runs of GTN_master.py on CartPole with three workers each, through slurm/submit.py. Workers and a master
          are cancelled, submit.py is killed and started again, a master and a worker get the signal of the time limit.
  study   the same with a search over configurations (experiments/optimize_params.py).
  node    slurm/single_node.sh with a time limit that is too short, and requeued once from outside.
  groups  --workers-per-task; tasks are cancelled, and a node is lost.
  refused workers that SLURM does not take: the masters are cancelled.
  ray     slurm/ray.sbatch on both nodes, each of which is lost once, and the signal of the time limit.

Each must end with the same bytes as the same run without SLURM and without disturbance. All daemons are stopped at the
end, also after a failure or Ctrl-C. Arrays of more than five tasks are split. Exit code 0: equal, 1: not."""

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
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path[0] = str(Path(__file__).resolve().parents[2])

from envolve.slurm import batch  # noqa: E402
from envolve.slurm.commands import MASTER, ROOT, WORKER, exit_file, read_exit  # noqa: E402
from envolve.slurm.test.cluster import ClusterError, Nodes, install, one_machine  # noqa: E402
from envolve.slurm.test.nodes import groups, ray, refused  # noqa: E402
from envolve.slurm.test.runs import (  # noqa: E402
    MASTERS,
    PLAIN,
    PLAIN_FILES,
    WORKERS,
    Submitted,
    TestError,
    finished,
    generations,
    only_run,
    reference,
    same,
    say,
    until,
)

STUDY = ROOT / "slurm" / "test" / "study.yaml"
STUDY_FILES = ("configs.json", "best.yaml")


# ---------------------------------------------------------------------------------------------------- plain runs


def plain(folder: Path, nodes: Nodes) -> None:
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


# ---------------------------------------------------------------------------------------------------- a study


def trials(run_dir: Path) -> int:
    results = run_dir / "results.json"
    return len(results.read_text().splitlines()) if results.exists() else 0


def without_times(results: Path) -> list[list[Any]]:
    """Configurations, budgets, losses and other measurements, in the order of the file."""
    lines = [json.loads(line) for line in results.read_text().splitlines()]
    return [[config_id, budget, result, failure] for config_id, budget, _, result, failure in lines]


def study(folder: Path, nodes: Nodes) -> None:
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


def node(folder: Path, nodes: Nodes) -> None:
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


PARTS: dict[str, Callable[[Path, Nodes], None]] = {
    "plain": plain, "study": study, "node": node, "groups": groups, "refused": refused, "ray": ray,
}  # fmt: skip


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
        with one_machine(folder / "cluster", tasks=16) as nodes:
            version = subprocess.run(["sinfo", "--version"], capture_output=True, text=True, check=False).stdout.strip()
            say(f"{version} runs in {folder}")
            for name in [args.only] if args.only else PARTS:
                PARTS[name](folder, nodes)
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
