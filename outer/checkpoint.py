"""``checkpoint.pt``: everything a run needs to go on as if it had never stopped. Written after every generation. And
the lock that keeps a run to one process."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import io
import os
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from envs.world_file import write_atomic
from outer.nes import NESState

FORMAT = "envolve-checkpoint-1"


class RunError(Exception):
    """The run cannot start or go on; the message says why and what to do."""


class CheckpointError(RunError):
    """The checkpoint cannot be used; the message says which file, what was found and what to do."""


@contextlib.contextmanager
def locked(run_dir: Path) -> Iterator[None]:
    """One process per run: a second one would write into the same files. Raises RunError."""
    folder = os.open(run_dir, os.O_RDONLY)
    try:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RunError(f"{run_dir}: another process is working on this run; wait for it or stop it first") from None
        except OSError:
            pass  # a file system without locks
        yield
    finally:
        os.close(folder)


@dataclass
class Progress:
    """What the loop knows beside the search's own state. Plain values and tensors only."""

    best_psi: Tensor  # [D] float32, the world that model.pt holds
    best_score: float = float("-inf")  # its mean score
    best_generation: int = 0
    solved: bool = False
    finished: bool = False  # the search is over; the closing comparison may still be missing
    short_generations: int = 0  # in a row with SE episodes of under 3 steps
    restart_generations: list[int] = field(default_factory=list)
    member_steps: int = 0  # environment steps of all trainings
    member_episodes: int = 0
    seconds: float = 0.0  # wall time of all sessions so far


def save_checkpoint(path: str | Path, nes: NESState, progress: Progress, config_sha256: str) -> None:
    """Atomic: after a crash the file holds the previous generation or this one. Raises OSError."""
    buffer = io.BytesIO()
    torch.save(
        {"nes": nes.to_dict(), "progress": {f.name: getattr(progress, f.name) for f in fields(progress)}}, buffer
    )
    body = buffer.getvalue()
    head = f"{FORMAT} {hashlib.sha256(body).hexdigest()} {config_sha256}\n".encode()
    write_atomic(str(path), head + body)


def load_checkpoint(path: str | Path, config_sha256: str) -> tuple[NESState, Progress]:
    """Raises CheckpointError if the file is damaged or belongs to another configuration."""
    try:
        head, _, body = Path(path).read_bytes().partition(b"\n")
    except OSError as e:
        raise CheckpointError(f"{path}: found no checkpoint to resume from ({e.strerror}); start a new run") from None
    parts = head.decode("ascii", "replace").split(" ")
    if len(parts) != 3 or parts[0] != FORMAT or hashlib.sha256(body).hexdigest() != parts[1]:
        raise CheckpointError(f"{path}: damaged or of another version (its checksum does not fit); start a new run")
    if parts[2] != config_sha256:
        raise CheckpointError(
            f"{path}: belongs to another configuration than the config.yaml beside it; undo the change"
        )
    try:
        content: dict[str, Any] = torch.load(io.BytesIO(body), weights_only=True)
        return NESState(**content["nes"]), Progress(**content["progress"])
    except Exception as e:  # a checksum that fits can be made for any bytes
        reason = str(e).strip().split("\n")[0]
        raise CheckpointError(
            f"{path}: not what this version writes ({type(e).__name__}: {reason}); start a new run"
        ) from None
