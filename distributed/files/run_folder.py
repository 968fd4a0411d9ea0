"""Folder of a run. ``params_file`` keeps the user's two files there; beside them:

run.json        how it was begun: seed, collectors, mode; a resume has to say the same
learner.pt      checkpoint; policies/checkpoints/: greedy policies; replay/: all transitions that still count
session         how often a learner was started
train/, eval/, learner/   TensorBoard;  evaluations.csv: the returns of the greedy policy
done            the run is complete
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from envolve.core.files import read_text
from envolve.envs.worlds.file import write_atomic
from envolve.outer.checkpoint import RunError

RUN_FILE, SESSION, DONE, REPLAY = "run.json", "session", "done", "replay"
MODES = ("lockstep", "async")


@dataclass(frozen=True)
class RunSettings:
    """Settings that decide the result besides the user's two files."""

    seed: int = 0
    num_collectors: int = 1
    mode: str = "lockstep"

    @property
    def lockstep(self) -> bool:
        return self.mode == "lockstep"

    def keys(self, members: int = 1) -> Tensor:
        """Random keys of the members, int64 [P]."""
        return torch.arange(members) + self.seed


def keep_settings(folder: Path, settings: RunSettings) -> None:
    """Stores the settings. Raises RunError if the run started with other ones, OSError."""
    path = folder / RUN_FILE
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        write_atomic(str(path), (json.dumps(asdict(settings), indent=2) + "\n").encode())
        return
    begun = read_settings(folder)
    for name, value in asdict(settings).items():
        if getattr(begun, name) != value:
            expected = f"{getattr(begun, name)!r}, with which this run was begun"
            raise RunError(f"{path}: {name}: found {value!r} on the command line, expected {expected}")


def read_settings(folder: Path) -> RunSettings:
    """Reads the settings. Raises RunError."""
    path = folder / RUN_FILE
    try:
        found: Any = json.loads(read_text(path))
        settings = RunSettings(**found)
    except OSError as e:
        raise RunError(f"{path}: found no run there ({e.strerror})") from None
    except (ValueError, TypeError) as e:
        raise RunError(f"{path}: found no settings of a run ({e})") from None
    counts = type(settings.seed) is type(settings.num_collectors) is int and settings.num_collectors >= 1
    if not counts or settings.mode not in MODES:
        raise RunError(f"{path}: found {found}, expected seed, num_collectors >= 1 and a mode of {', '.join(MODES)}")
    return settings


def next_session(folder: Path) -> int:
    """Number of this learner start, from 0. Raises RunError, OSError."""
    path = folder / SESSION
    text = read_text(path).strip() if path.exists() else "-1"
    if not re.fullmatch(r"-1|\d{1,9}", text, re.ASCII):
        words = "expected how often a learner was started; write a number there that is not smaller"
        raise RunError(f"{path}: found {text[:40]!r}, {words}")
    number = int(text) + 1
    write_atomic(str(path), f"{number}\n".encode())
    return number


def is_done(folder: Path) -> bool:
    return (folder / DONE).exists()
