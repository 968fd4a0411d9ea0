"""Assignment of the job's CPUs to the programs.

The variables are those of 0shot-object-insertion: SAC_REVERB_CPUS for the replay buffer, SAC_TRAIN_CPUS for the
learner, SAC_COLLECT_WORKER_CPUS for each of the SAC_NUM_COLLECT_WORKERS collectors. Consecutive CPUs go to the
collectors, then to the learner, then to the replay buffer, as there.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from envolve.distributed.files.params import ParamsError

log = logging.getLogger("envolve")

THREADS, RANK = "OMP_NUM_THREADS", "SLURM_PROCID"
LEARNER_CPUS, REPLAY_CPUS, COLLECTOR_CPUS = "SAC_TRAIN_CPUS", "SAC_REVERB_CPUS", "SAC_COLLECT_WORKER_CPUS"


@dataclass(frozen=True)
class Share:
    """CPUs and environment variables of a process."""

    cpus: frozenset[int]
    threads: int

    def environ(self, collector: int | None = None) -> dict[str, str]:
        """Environment variables of the process; collectors get their number as SLURM_PROCID."""
        threads = str(self.threads)
        own = {THREADS: threads, "MKL_NUM_THREADS": threads, "OPENBLAS_NUM_THREADS": threads}
        return own if collector is None else {**own, RANK: str(collector)}


@dataclass(frozen=True)
class Shares:
    """CPUs of all processes of a run. The evaluator gets the unassigned CPUs or, if there are none, shares those of the
    replay buffer, which is mostly idle."""

    learner: Share
    replay: Share
    evaluator: Share
    collectors: tuple[Share, ...]


def number_per_role(environ: Mapping[str, str] = os.environ) -> tuple[int, int]:
    """CPUs of the learner and of each collector where nothing is dealt out: by the variables, else 1. Raises
    ParamsError."""
    return _count(environ, LEARNER_CPUS) or 1, _count(environ, COLLECTOR_CPUS) or 1


def number_of_threads(environ: Mapping[str, str] = os.environ) -> int:
    """Threads of a process by OMP_NUM_THREADS, whose first number counts; without it 1. Raises ParamsError."""
    outer = environ.get(THREADS, "").partition(",")[0]
    return _count({THREADS: outer}, THREADS) or 1


def number_of_worker(environ: Mapping[str, str] = os.environ) -> int:
    """Number of a collector by SLURM_PROCID; without it 0. Raises ParamsError."""
    text = environ.get(RANK, "").strip() or "0"
    if not text.isdecimal():
        raise ParamsError(f"{RANK}: found {text!r}, expected the number of a collector, or --worker")
    return int(text)


def deal(collectors: int, cpus: Collection[int] | None = None, environ: Mapping[str, str] = os.environ) -> Shares:
    """Assigns CPUs. cpus: default: those that this process may use. Without the variables, each collector and the
    replay buffer get one CPU and the learner the rest; if there are too few, all programs share all CPUs, which is
    logged. Too few CPUs for the variables are an error. Raises ParamsError."""
    available = sorted(os.sched_getaffinity(0) if cpus is None else cpus)
    given = {name: _count(environ, name) for name in (COLLECTOR_CPUS, LEARNER_CPUS, REPLAY_CPUS)}
    each, replay = given[COLLECTOR_CPUS] or 1, given[REPLAY_CPUS] or 1
    rest = len(available) - collectors * each - replay
    learner = given[LEARNER_CPUS] or max(rest, 1)
    needed = collectors * each + learner + replay
    if needed > len(available):
        has = f"{len(available)} CPU{'s' * (len(available) != 1)}"
        if any(given.values()):
            asked = ", ".join(f"{name}={count}" for name, count in given.items() if count)
            raise ParamsError(
                f"found {has}, expected {needed}: {collectors} collectors x {each} + {learner} for the learner + "
                f"{replay} for the replay buffer, by {asked}; without these variables all processes share the CPUs"
            )
        log.warning("%s for %d collectors, a learner and a replay buffer: they share them", has, collectors)
        all_of_them = Share(frozenset(available), 1)
        return Shares(all_of_them, all_of_them, all_of_them, (all_of_them,) * collectors)
    parts, begin = [], 0
    for size in [each] * collectors + [learner, replay]:
        parts.append(Share(frozenset(available[begin : begin + size]), size))
        begin += size
    left = frozenset(available[begin:])
    evaluator = Share(left, len(left)) if left else parts[-1]
    return Shares(parts[-2], parts[-1], evaluator, tuple(parts[:collectors]))


def _count(environ: Mapping[str, str], name: str) -> int | None:
    text = environ.get(name, "").strip()
    if not text:
        return None
    if not text.isdecimal() or int(text) < 1:
        raise ParamsError(f"{name}: found {text!r}, expected a positive integer")
    return int(text)
