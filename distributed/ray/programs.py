"""The programs of a run on Ray, and the CPUs that they ask for."""

from __future__ import annotations

import math
from dataclasses import dataclass

from envolve.distributed.programs.cpus import number_per_role


@dataclass(frozen=True)
class Program:
    """One program of a run. cpus: cores that it asks Ray for, and the number of its threads."""

    role: str
    worker: int
    cpus: int

    @property
    def name(self) -> str:
        return f"collector_{self.worker}" if self.role == "collector" else self.role


def programs_of(collectors: int) -> list[Program]:
    """Programs that Ray places. Raises ParamsError for variables that are no numbers (``programs/cpus.py``)."""
    learner, each = number_per_role()
    return [
        Program("learner", 0, learner),
        Program("evaluator", 0, 1),
        *(Program("collector", i, each) for i in range(collectors)),
    ]


def asked(programs: list[Program], room: list[float]) -> list[float]:
    """CPUs that each program asks Ray for: its own or, where they do not all fit into the nodes, an equal part, so that
    all do. room: CPUs of each node."""
    own = [float(p.cpus) for p in programs]
    left = sorted(map(int, room), reverse=True)
    if not sum(left):
        return own  # an autoscaler makes room
    for cpus in sorted(own, reverse=True):
        at = next((i for i, free in enumerate(left) if free >= cpus), None)
        if at is None:
            part = 1 / math.ceil(len(programs) / sum(map(int, room)))
            return [part] * len(programs)
        left[at] -= int(cpus)
    return own
