"""States before a simulation diverged: kept in memory, stored as a file of plain arrays, shown by ``envolve
replay``."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import List, NamedTuple

import numpy as np
from torch import Tensor

KEPT = 50  # control steps before a divergence
NAME = "diverged_{}.npz"


class Moment(NamedTuple):
    """State of all environments after one control step."""

    step: int  # control steps into the run
    qpos: Tensor  # [R, q]
    qvel: Tensor  # [R, v]
    action: Tensor  # [R, A]


class Dump(NamedTuple):
    """The last states of one environment. Axes: T moments, the last one diverged."""

    task: str
    candidate: str
    environment: int
    evaluation: bool
    steps: np.ndarray  # int64 [T]
    qpos: np.ndarray  # float32 [T, q]
    qvel: np.ndarray  # float32 [T, v]
    action: np.ndarray  # float32 [T, A]

    @classmethod
    def of(cls, task: str, candidate: str, environment: int, past: List[Moment], evaluation: bool) -> Dump:
        fields = ("qpos", "qvel", "action")
        parts = [np.stack([getattr(m, name)[environment].cpu().numpy() for m in past]) for name in fields]
        return cls(task, candidate, environment, evaluation, np.array([m.step for m in past]), *parts)

    def content(self) -> bytes:
        """The file: arrays without objects, and the facts as JSON."""
        facts = json.dumps({
            "envolve_diverged": 1, "task": self.task, "candidate": self.candidate, "environment": self.environment,
            "evaluation": self.evaluation,
        })  # fmt: skip
        file = io.BytesIO()
        np.savez_compressed(
            file, facts=np.frombuffer(facts.encode(), np.uint8), steps=self.steps, qpos=self.qpos, qvel=self.qvel,
            action=self.action,
        )  # fmt: skip
        return file.getvalue()

    def file_name(self) -> str:
        plain = "".join(c if c.isalnum() or c in "-_" else "_" for c in self.candidate)
        return NAME.format(plain)


def read_dump(path: Path) -> Dump:
    """Raises OSError, and ValueError for a file that is none."""
    from envolve.core.files import read_plain

    content = read_plain(path, 2**28)
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as file:
            parts = {name: file[name] for name in ("facts", "steps", "qpos", "qvel", "action")}
        facts = json.loads(parts.pop("facts").tobytes().decode())
        if facts.pop("envolve_diverged") != 1:
            raise ValueError("another version")
        dump = Dump(
            str(facts["task"]), str(facts["candidate"]), int(facts["environment"]), bool(facts["evaluation"]), **parts
        )
    except Exception as e:  # a zip file, numpy's headers and JSON have many ways to be wrong
        raise ValueError(f"{path}: not a dump of a diverged simulation ({type(e).__name__}: {e})") from None
    T = len(dump.steps)
    if not T or any(x.ndim != 2 or len(x) != T or x.dtype.kind != "f" for x in (dump.qpos, dump.qvel, dump.action)):
        raise ValueError(f"{path}: not a dump of a diverged simulation (shapes of its arrays)")
    return dump
