"""Trains samples in child processes, a limited number at a time, each locked and limited in time and memory.

A process that raises, hangs, dies or eats memory is the failure of its sample, with a text that a model can act on.
What the processes write is data from strangers: plain files only, of bounded size, JSON of known shape.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from envolve.core.descendants import session_cpu_time
from envolve.core.locks import lock
from envolve.core.places import IMPORTS
from envolve.envs.worlds.file import write_atomic
from envolve.llm.gym.sections import GymConfig, algo_params
from envolve.llm.vetting.jail import locks as jail

MAX_JSON, MAX_MODEL, MAX_LOG = 16_000_000, 1_000_000_000, 64_000
POLL = 0.1  # s
LOOK = 5.0  # s between looks at a training's CPU time
AWAKE = 0.1  # CPU seconds; a training that uses fewer in a whole IDLE does nothing, however busy the machine is
IDLE = 600.0  # s
FAR = 4  # times the limit of one process, for all of them together
LINGER = 10.0  # s in which what an earlier session left behind must have ended


class RunStopped(Exception):
    """Raised if training cannot continue: the environment violates its documentation, this machine cannot jail, or
    another training writes to the same place."""


@dataclass(frozen=True)
class Limits:
    """Limits of one training. seconds: CPU time of each of its processes, and ``FAR`` times as many of all of them; a
    training that does nothing for as long, or for ``IDLE``, is over too. No clock decides for one that works. memory:
    bytes beyond what Python and PyTorch themselves need. file_bytes: the largest file it may write."""

    seconds: float = 6 * 3600.0
    memory: int = 4 * 2**30
    file_bytes: int = 2**30
    allow_unprotected: bool = False


@dataclass
class JobOutcome:
    """Outcome of a job. error: text for the model, None if it went well. kind: "reward" (the model's fault), "user"
    (the environment's), "jail" (this machine's), "killed" (time, memory or a crash). curves: {name: values at the
    evaluations}, ``timesteps`` and ``fitness_score`` among them; final: means of the final policy."""

    error: str | None = None
    kind: str = ""
    final: dict[str, float] = field(default_factory=dict)
    curves: dict[str, list[float | None]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    timesteps: int = 0
    seconds: float = 0.0
    spaces: dict[str, str] = field(default_factory=dict)

    @property
    def fitness(self) -> float:
        """Fitness; NaN if there is none."""
        return self.final.get("fitness_score", math.nan) if self.error is None else math.nan


@dataclass(frozen=True)
class TrainingJob:
    """One training process. folder: its own, made here. env_folder None: the benchmark. mode: "check", "train" or
    "film". tests: random seed of the test episodes; None: the configuration's."""

    folder: Path
    mode: str
    config: GymConfig
    seed: int
    env_folder: Path | None = None
    code: str | None = None
    warm_start: Path | None = None
    tests: int | None = None

    def prepare(self, limits: Limits) -> None:
        """Writes job.json, and removes the files of an interrupted training."""
        environment = self.config.environment
        benchmark = self.env_folder is None
        read = [str(self.env_folder)] if self.env_folder else []
        rl = self.config.rl.model_dump(exclude={"algo_params"})
        if self.tests is not None:
            rl["training"]["eval"]["seed"] = self.tests
        values = {
            "mode": self.mode,
            "env_file": None if self.env_folder is None else str(self.env_folder / "env_code" / "env.py"),
            "env_id": environment.benchmark if benchmark else None,
            "class_name": environment.class_name,
            "kwargs": environment.kwargs,
            "max_episode_steps": environment.max_episode_steps,
            "code": self.code,
            "rl": rl,
            "algo_params": algo_params(self.config),
            "seed": self.seed,
            "warm_start": str(self.warm_start) if self.warm_start else None,
            "read": read + ([str(self.warm_start)] if self.warm_start else []),
            "limits": {
                "memory": limits.memory,
                "cpu_seconds": math.ceil(limits.seconds) + 5,
                "file_bytes": limits.file_bytes,
            },
            "allow_unprotected": limits.allow_unprotected,
        }
        shutil.rmtree(self.folder / "out", ignore_errors=True)
        (self.folder / "out").mkdir(exist_ok=True)
        write_atomic(str(self.folder / "job.json"), json.dumps(values, indent=1).encode())


def read_if_plain(path: Path, limit: int) -> bytes | None:
    """Bytes of a plain file of at most ``limit`` bytes; None for anything else. Links are not followed."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    with os.fdopen(fd, "rb") as file:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode) or status.st_size > limit:
            return None
        return file.read(limit)


def _json(path: Path) -> dict[str, Any]:
    data = read_if_plain(path, MAX_JSON)
    try:
        value = json.loads(data) if data else {}
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _number(value: Any) -> bool:
    if isinstance(value, int) and not isinstance(value, bool):
        return abs(value) < 2**63
    return isinstance(value, float) and math.isfinite(value)


def _text(value: Any, most: int) -> str:
    """Cleans text for terminals and prompts: no control characters."""
    return "".join(c if c.isprintable() or c in "\n\t" else "?" for c in str(value)[:most])


def _means(value: Any) -> dict[str, float]:
    items = value.items() if isinstance(value, dict) else ()
    return {_text(k, 64): float(v) for k, v in list(items)[:200] if _number(v)}


def _curves(value: dict[str, Any]) -> dict[str, list[float | None]]:
    found = {}
    for name, values in list(value.items())[:200]:
        if isinstance(values, list) and len(values) <= 100_000 and all(v is None or _number(v) for v in values):
            found[_text(name, 64)] = [None if v is None else float(v) for v in values]
    return found


def _texts(value: Any) -> list[str]:
    return [_text(v, 500) for v in value[:50]] if isinstance(value, list) else []


@dataclass
class _Running:
    job: TrainingJob
    process: subprocess.Popen[bytes]
    started: float
    looked: float = 0.0  # when its CPU time was last read
    used: float = 0.0  # CPU seconds then
    woke: float = 0.0  # when it was last seen working

    def too_long(self, limits: Limits) -> str:
        """Why it has to end; "": it may go on."""
        now = time.monotonic()
        if now - self.looked < min(LOOK, limits.seconds / 4):
            return ""
        used = session_cpu_time(self.process.pid)
        if used - self.used >= AWAKE or used < self.used:  # less: a process that was not waited for has ended
            self.used, self.woke = used, now
        self.looked = now
        if used > FAR * limits.seconds:
            return f"it used more than {FAR * limits.seconds:g} s of CPU time: it takes too long"
        idle = min(limits.seconds, IDLE)
        return f"it did nothing for {idle:g} s: it takes too long" if now - self.woke > idle else ""


def _lock(folder: Path) -> int:
    """Locked descriptor that the processes of a training inherit: until the last of them has ended, no other training
    can write there. Raises RunStopped, OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    file = os.open(folder / "lock", os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)  # nothing to write to
    end = time.monotonic() + LINGER
    while True:
        try:
            lock(file, folder)
        except BlockingIOError:
            if time.monotonic() < end:
                time.sleep(POLL)
                continue
            os.close(file)
            raise RunStopped(f"{folder}: another training is still running there; end it first") from None
        except OSError:
            os.close(file)
            raise
        return file


def _start(job: TrainingJob, limits: Limits) -> _Running:
    """Raises RunStopped, OSError."""
    file = _lock(job.folder)
    try:
        job.prepare(limits)
        now = time.monotonic()
        return _Running(job, _process(job, file), now, now, 0.0, now)
    finally:
        os.close(file)


def _process(job: TrainingJob, lock: int) -> subprocess.Popen[bytes]:
    out = job.folder / "out"
    environment = jail.scrubbed(
        PYTHONPATH=str(IMPORTS),
        PYTHONHASHSEED="0",
        PYTHONUNBUFFERED="1",
        MPLCONFIGDIR=str(out),
        TMPDIR=str(out),
        SDL_VIDEODRIVER="dummy",
        SDL_AUDIODRIVER="dummy",
        PYGAME_HIDE_SUPPORT_PROMPT="1",
        CUBLAS_WORKSPACE_CONFIG=":4096:8",
    )
    with open(job.folder / "log.txt", "wb") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "envolve.llm.gym.guard", str(job.folder), str(os.getpid())],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=job.folder,  # on sys.path, and not among what it may write
            env=environment,
            start_new_session=True,  # its forked environments end with it
            pass_fds=[lock],
        )


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Ends the training through its guardian, including other sessions, and then any remaining processes."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.terminate()
        process.wait(2)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def run_jobs(
    jobs: Sequence[TrainingJob], parallel: int, limits: Limits, started: Callable[[TrainingJob], None] | None = None
) -> Iterator[tuple[TrainingJob, JobOutcome]]:
    """Run them all, at most ``parallel`` at once -> (job, outcome) in the order in which they end.

    Whatever happens to the caller (Ctrl-C, SIGKILL, or it stops listening), no process is left behind. Raises
    RunStopped, OSError.
    """
    waiting, running = list(reversed(jobs)), []  # type: tuple[list[TrainingJob], list[_Running]]
    try:
        while waiting or running:
            while waiting and len(running) < parallel:
                running.append(_start(waiting.pop(), limits))
                if started:
                    started(running[-1].job)
            ended = [r for r in running if r.process.poll() is not None]
            late = {r.job.folder: why for r in running if r not in ended and (why := r.too_long(limits))}
            for one in ended + [r for r in running if r.job.folder in late]:
                _stop(one.process)
                running.remove(one)
                yield one.job, _outcome(one, limits, late.get(one.job.folder, ""))
            if not ended and not late:
                time.sleep(POLL)
    finally:
        for one in running:
            _stop(one.process)


def _outcome(one: _Running, limits: Limits, late: str) -> JobOutcome:
    """late: why it had to be stopped; "": it ended."""
    out = one.job.folder / "out"
    result = _json(out / "result.json")
    outcome = JobOutcome(curves=_curves(_json(out / "evals.json")), notes=_texts(result.get("notes")))
    outcome.seconds = time.monotonic() - one.started
    code = one.process.returncode
    if late:
        outcome.error, outcome.kind = late, "killed"
    elif isinstance(result.get("error"), str):
        said = _text(result["error"], 8000)
        outcome.error, outcome.kind = said if said.strip() else "no reason given", _kind(one.job, result)
    elif code != 0 or not result:
        outcome.error, outcome.kind = _how_it_died(one.job.folder, code, limits), "killed"
    else:
        outcome.final, spaces = _means(result.get("final")), result.get("spaces")
        outcome.timesteps = int(result["timesteps"]) if _number(result.get("timesteps")) else 0
        outcome.spaces = (
            {_text(k, 64): _text(v, 500) for k, v in list(spaces.items())[:10]} if isinstance(spaces, dict) else {}
        )
        if one.job.mode != "check" and "fitness_score" not in outcome.final:
            outcome.error, outcome.kind = "the training ended without a fitness", "killed"
    return outcome


def _kind(job: TrainingJob, result: dict[str, Any]) -> str:
    """Whose fault it says it is. A model's code may write anything, so that this machine cannot jail is believed only
    where none has run."""
    kind = _text(result.get("kind"), 20)
    return kind if kind == "user" or (kind == "jail" and (job.code is None or job.mode == "check")) else "reward"


def _how_it_died(folder: Path, code: int | None, limits: Limits) -> str:
    names = {
        -signal.SIGXCPU: f"it used more than {limits.seconds:g} s of CPU time",
        -signal.SIGKILL: "it was killed, perhaps for lack of memory",
        -signal.SIGXFSZ: f"it wrote a file of more than {limits.file_bytes} bytes",
        -signal.SIGABRT: "it aborted, perhaps for lack of memory",
        -signal.SIGSEGV: "it crashed (SIGSEGV)",
    }
    log = read_if_plain(folder / "log.txt", MAX_LOG)
    last = (log or b"").decode(errors="replace").strip().splitlines()[-3:]
    text = names.get(code or 0, f"the process of the training ended with code {code}")
    return text + (f"; it last wrote: {_text(' | '.join(last)[-500:], 500)}" if last else "")
