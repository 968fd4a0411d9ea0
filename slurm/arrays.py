"""Job arrays: tasks in the order of urgency, no array larger than the cluster allows, and for a new run all arrays or
none."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

from envolve.slurm import batch
from envolve.slurm.commands import MASTER, ROOT, WORKER, exit_file
from envolve.slurm.fleet import Actions, Fleet


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


def send(fleet: Fleet, run_dir: Path, role: str, first: int, indices: Sequence[int]) -> str:
    """Submits these indices of the array that begins with ``first``. Raises BatchError."""
    settings = fleet.settings
    log = str(run_dir / "slurm" / "log" / f"{role}_%A_%a.log").replace(str(run_dir), str(run_dir).replace("%", "%%"))
    array = ranges([index - first for index in indices])
    array += f"%{settings['max_running']}" if role == WORKER and settings["max_running"] else ""
    options = [f"--job-name={fleet.job_name(role, first)}", f"--array={array}", f"--output={log}", "--open-mode=append"]
    environ = os.environ | {
        "ENVOLVE_ROOT": str(ROOT),
        "ENVOLVE_RUN_DIR": str(run_dir),
        "ENVOLVE_MASTERS": str(fleet.masters),
        "ENVOLVE_WORKERS_PER_MASTER": str(fleet.workers_per_master),
        "ENVOLVE_WORKERS_PER_TASK": str(fleet.workers_per_task),
        "ENVOLVE_FIRST_BOHB_ID": "0",
        "ENVOLVE_FIRST_INDEX": str(first),
        "ENVOLVE_PYTHON": settings["python"],
        "ENVOLVE_SETUP": settings["setup"],
        "ENVOLVE_KILL_AFTER": str(max(1, settings["lead"] // 2)),
    }
    script = str(ROOT / "slurm" / f"{role}s.sh")
    return batch.submit([*options, *settings[role]], script, settings["words"], environ)


def ranges(indices: Sequence[int]) -> str:
    """Index ranges for sbatch --array: [0, 1, 2, 5] -> "0-2,5"."""
    parts: list[list[int]] = []
    for i in sorted(indices):
        if parts and parts[-1][1] == i - 1:
            parts[-1][1] = i
        else:
            parts.append([i, i])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)


def act(fleet: Fleet, run_dir: Path, actions: Actions, path: Path, together: bool) -> int | None:
    """Submits tasks; together: all or nothing. Raises BatchError."""
    # the masters first: on a full cluster workers alone would wait for nothing
    todo = [
        (role, first, indices)
        for role in (MASTER, WORKER)
        for first, indices in fleet.arrays(role, actions.send.get(role, [])).items()
    ]
    jobs: list[str] = []
    for at, (role, first, indices) in enumerate(todo):
        for index in indices:  # what lies there from now on is of this submit
            exit_file(run_dir, role, index).unlink(missing_ok=True)
        try:
            jobs.append(send(fleet, run_dir, role, first, indices))
        except batch.BatchError as e:
            for later_role, _, later in todo if together else todo[at:]:
                fleet.unsent(later_role, later)
            fleet.save(path)
            if together and jobs:
                raise batch.BatchError(f"{e}; {taken_back(jobs)}") from None
            raise
        say(f"submitted {role} {ranges(indices)} as job {jobs[-1]}")
    return actions.code


def taken_back(jobs: Sequence[str]) -> str:
    """Cancels these jobs of a run that cannot be submitted as a whole -> message about the result."""
    try:
        batch.cancel(jobs)
    except batch.BatchError as e:
        return f"what was submitted before could not be cancelled ({e}): scancel {' '.join(jobs)}"
    return f"cancelled what was submitted before: job {', '.join(jobs)}"
