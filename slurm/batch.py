"""The four SLURM commands that submit.py uses. sacct is not among them, because many clusters have no accounting data
base."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

TIMEOUT = 120.0  # seconds; a busy controller answers late
NOT_FOUND = "not found; is this a node from which SLURM jobs are sent?"


class BatchError(RuntimeError):
    """Raised when a SLURM command fails: the state of the jobs is unknown."""


@dataclass(frozen=True)
class Entry:
    """One array task that is in the queue: waiting, running, or just ending."""

    job: str  # <array job>_<index>
    name: str  # of the job
    index: int
    state: str  # PENDING, RUNNING, COMPLETING, SUSPENDED, ...
    reason: str = ""  # why it waits

    @property
    def order(self) -> tuple[bool, int]:
        """Sort key: of two tasks with the same index the running one comes first, then the older one."""
        return self.state != "RUNNING", int(self.job.split("_")[0])


def _run(command: Sequence[str], environ: Mapping[str, str] | None = None) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, env=environ, check=False)
    except FileNotFoundError:
        raise BatchError(f"{command[0]}: {NOT_FOUND}") from None
    except (OSError, subprocess.TimeoutExpired) as e:
        raise BatchError(f"{command[0]}: {e}") from None
    if done.returncode:
        raise BatchError(f"{command[0]}: {done.stderr.strip() or f'exit code {done.returncode}'}")
    return done.stdout


def check_there() -> None:
    """Raises BatchError where there is no SLURM."""
    for command in ("squeue", "sbatch"):
        if shutil.which(command) is None:
            raise BatchError(f"{command}: {NOT_FOUND}")


def queue(names: Sequence[str]) -> list[Entry]:
    """All tasks of the jobs with these names that have not ended. Raises BatchError."""
    lines = _run(
        ["squeue", "--noheader", "--array", "--name", ",".join(names), "--format", "%F|%K|%T|%j|%r"]
    ).splitlines()
    entries = []
    for line in filter(None, map(str.strip, lines)):
        parts = line.split("|", 4)
        if len(parts) != 5 or not parts[0].isdigit() or not parts[1].isdigit():
            raise BatchError(f"squeue: found the line {line!r}, expected <job>|<index>|<state>|<name>|<reason>")
        entries.append(Entry(f"{parts[0]}_{parts[1]}", parts[3], int(parts[1]), parts[2], parts[4]))
    return entries


def submit(options: Sequence[str], script: str, words: Sequence[str], environ: Mapping[str, str]) -> str:
    """Submits a job -> its id. Raises BatchError."""
    out = _run(["sbatch", "--parsable", "--export=ALL", *options, script, *words], environ)
    return out.strip().splitlines()[-1].split(";")[0] if out.strip() else ""


def most_indices() -> int:
    """MaxArraySize: array indices go from 0 to one less; 0: unknown, so sbatch has to report the limit."""
    try:
        found = re.search(r"^MaxArraySize\s*=\s*(\d+)", _run(["scontrol", "show", "config"]), re.MULTILINE)
    except BatchError:
        return 0
    return int(found[1]) if found else 0


def cancel(jobs: Sequence[str]) -> None:
    """Cancels jobs; jobs that have ended meanwhile are ignored. Raises BatchError."""
    if jobs:
        _run(["scancel", "--quiet", *jobs])


def why(job: str) -> str:
    """SLURM's record of a task that has left the queue (it forgets after MinJobAge); "" if there is none."""
    try:
        text = _run(["scontrol", "--oneliner", "show", "job", job])
    except BatchError:
        return ""
    found = dict(re.findall(r"\b(JobState|Reason|ExitCode|NodeList)=(\S+)", text.splitlines()[-1] if text else ""))
    words = [found.get("JobState", ""), found.get("Reason", "None").replace("None", "")]
    words += [f"exit code {found['ExitCode']}"] if "ExitCode" in found else []
    words += [f"on {found['NodeList']}"] if found.get("NodeList", "(null)") != "(null)" else []
    return " ".join(filter(None, words))
