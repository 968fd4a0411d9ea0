"""``checkpoint.pt``: the complete state of a run, written after every generation, and the lock that keeps a run to one
process."""

from __future__ import annotations

import contextlib
import hashlib
import io
import math
import os
from collections.abc import Iterator
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from envolve.core.files import TORCH_BYTES, read_plain
from envolve.core.locks import lock
from envolve.core.torch_file import TorchFileError, read_torch
from envolve.envs.worlds.file import write_atomic
from envolve.outer.search.nes import NESState
from envolve.outer.search.search import OwnState

FORMAT = "envolve-checkpoint-1"
UNKNOWN = -1  # what an earlier version did not count


class RunError(Exception):
    """Raised if the run cannot start or continue; the message says why and what to do."""


class BusyError(RunError):
    """Raised if another process works on the run."""


class UnscoredError(RunError):
    """Raised if a run has ended without any score: there is nothing to go on with."""


class CheckpointError(RunError):
    """Raised if the checkpoint cannot be used; the message says which file, what was found and what to do."""


@contextlib.contextmanager
def locked(run_dir: Path) -> Iterator[None]:
    """Locks the run for one process: a second one would write to the same files. Raises BusyError."""
    folder = os.open(run_dir, os.O_RDONLY)
    try:
        try:
            lock(folder, run_dir)
        except BlockingIOError:
            words = "another process is working on this run; wait for it or stop it first"
            raise BusyError(f"{run_dir}: {words}") from None
        yield
    finally:
        os.close(folder)


@dataclass
class Progress:
    """State of the loop besides the search's own state. Plain values and tensors only."""

    best_psi: Tensor  # [D] float32, the world that model.pt holds
    best_score: float = float("-inf")  # its mean score
    best_generation: int = 0
    solved: bool = False
    finished: bool = False  # the search is over; the closing comparison may still be missing
    short_generations: int = 0  # in a row with SE episodes of under 3 steps
    restart_generations: list[int] = field(default_factory=list)
    member_steps: int = 0  # environment steps of all trainings
    member_episodes: int = 0
    real_steps: int = UNKNOWN  # of the task, of all members and confirmations, tests included
    seconds: float = 0.0  # wall time of all sessions so far


def save_checkpoint(path: str | Path, state: NESState | OwnState, progress: Progress, config_sha256: str) -> None:
    """Atomic: after a crash the file holds the previous generation or this one. Raises OSError."""
    buffer = io.BytesIO()
    part = "nes" if isinstance(state, NESState) else "search"
    known = {f.name: getattr(progress, f.name) for f in fields(progress)}
    torch.save({part: dict(vars(state)), "progress": known}, buffer)
    body = buffer.getvalue()
    head = f"{FORMAT} {hashlib.sha256(body).hexdigest()} {config_sha256}\n".encode()
    write_atomic(str(path), head + body)


def load_checkpoint(path: str | Path, config_sha256: str) -> tuple[NESState | OwnState, Progress]:
    """Raises CheckpointError if the file is damaged or belongs to another configuration."""
    try:
        head, _, body = read_plain(path, TORCH_BYTES).partition(b"\n")
    except OSError as e:
        raise CheckpointError(f"{path}: found no checkpoint to resume from ({e.strerror}); start a new run") from None
    parts = head.decode("ascii", "replace").split(" ")
    if len(parts) != 3 or parts[0] != FORMAT or hashlib.sha256(body).hexdigest() != parts[1]:
        raise CheckpointError(f"{path}: damaged or of another version (its checksum does not fit); start a new run")
    if parts[2] != config_sha256:
        raise CheckpointError(
            f"{path}: belongs to another configuration than the config.yaml beside it; undo the change"
        )
    try:  # a checksum that fits can be made for any bytes
        content = read_torch(body)
        if type(content) is not dict or set(content) not in ({"nes", "progress"}, {"search", "progress"}):
            raise TorchFileError("found other parts than nes, or search, and progress")
        progress = Progress(**_checked(content["progress"], Progress, "progress"))
        if "search" in content:
            return OwnState(**_checked(content["search"], OwnState, "search")), progress
        nes = NESState(**_checked(content["nes"], NESState, "nes"))
        if len({len(x) for x in (nes.psi, nes.average, nes.moment1, nes.moment2, progress.best_psi)}) != 1:
            raise TorchFileError("its tensors are of different lengths")
    except TorchFileError as e:
        raise CheckpointError(f"{path}: not what this version writes ({e}); start a new run") from None
    return nes, progress


def _checked(part: Any, kind: type, where: str) -> dict[str, Any]:
    """Fields of a dataclass, each checked: tensors finite and [D], numbers counts. A field with a default may be
    missing, as in files of earlier versions."""
    wanted = {f.name: str(f.type) for f in fields(kind)}
    needed = {f.name for f in fields(kind) if f.default is MISSING and f.default_factory is MISSING}
    if type(part) is not dict or not needed <= set(part) <= set(wanted):
        raise TorchFileError(f"{where} has other fields than {', '.join(wanted)}")
    for name, value in part.items():
        expected = wanted[name]
        if expected == "Tensor":
            dtype = torch.float64 if name.startswith("moment") else torch.float32
            fits = type(value) is Tensor and value.dtype == dtype and value.ndim == 1 and len(value) > 0
            fits = fits and value.is_contiguous() and bool(value.isfinite().all())
        elif expected == "Dict[str, Any]":  # whatever read_torch lets through: the search itself reads it
            fits = type(value) is dict and all(type(x) is str for x in value)
        elif expected == "str":
            fits = type(value) is str
        elif expected == "list[int]":
            fits = type(value) is list and all(type(x) is int and x >= 0 for x in value)
        elif expected == "float":  # the score of nothing yet is minus infinity
            fits = type(value) is float and (math.isfinite(value) or (name == "best_score" and value == -math.inf))
        else:
            least = UNKNOWN if name == "real_steps" else 0
            fits = type(value).__name__ == expected and (expected == "bool" or least <= value < 2**63)
        if not fits:
            raise TorchFileError(f"{where}.{name} is not a valid {expected}")
    return part
