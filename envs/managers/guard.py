"""States before a simulation diverged: kept in memory, stored as a file of tensors, shown by ``envolve
replay``."""

from __future__ import annotations

import io
from pathlib import Path
from typing import List, NamedTuple

import numpy as np
import torch
from torch import Tensor

from envolve.core.files import TORCH_BYTES, read_plain
from envolve.core.torch_file import read_torch

KEPT = 50  # control steps before a divergence
NAME = "diverged_{}.pt"
ARRAYS = ("steps", "qpos", "qvel", "action")


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
        """The file: tensors and facts, as torch stores them."""
        parts = {name: torch.from_numpy(np.asarray(getattr(self, name))) for name in ARRAYS}
        facts = {name: getattr(self, name) for name in ("task", "candidate", "environment", "evaluation")}
        file = io.BytesIO()
        torch.save({"envolve_diverged": 1, **facts, **parts}, file)
        return file.getvalue()

    def file_name(self) -> str:
        plain = "".join(c if c.isalnum() or c in "-_" else "_" for c in self.candidate)
        return NAME.format(plain)


def read_dump(path: Path) -> Dump:
    """Raises OSError, and ValueError for a file that is none."""
    try:
        data = read_torch(read_plain(path, TORCH_BYTES))
        if data["envolve_diverged"] != 1:
            raise ValueError("another version")
        arrays = {name: data[name].numpy() for name in ARRAYS}
        dump = Dump(
            str(data["task"]), str(data["candidate"]), int(data["environment"]), bool(data["evaluation"]), **arrays
        )
    except OSError:
        raise
    except Exception as e:  # the file may hold anything
        first = (str(e).splitlines() or [""])[0]
        raise ValueError(f"{path}: not a dump of a diverged simulation ({type(e).__name__}: {first})") from None
    T = len(dump.steps)
    if not T or any(x.ndim != 2 or len(x) != T or x.dtype.kind != "f" for x in (dump.qpos, dump.qvel, dump.action)):
        raise ValueError(f"{path}: not a dump of a diverged simulation (shapes of its arrays)")
    return dump
