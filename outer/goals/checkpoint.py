"""Checkpoints of goal-conditioned trainings: replaced whole, read with a limit computed from the training itself."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from envolve.agents.goal.crl_train import GoalTraining
from envolve.core.files import MIB, read_plain
from envolve.core.torch_file import read_torch
from envolve.envs.worlds.file import write_atomic

REST = 64 * MIB  # beside the tensors: their names, the archive, the lines of scores.csv


def read_training(path: Path, training: GoalTraining) -> Any:
    """Reads a checkpoint of a training like this one, at most as large as with a full replay buffer. Raises
    TorchFileError, OSError."""
    replay = training.replay
    full = sum(map(_bytes, [*replay.fields.values(), replay.number]))
    return read_torch(read_plain(path, full + _bytes(training.state_dict()) + REST))


def write_torch(path: Path, content: dict[str, Any]) -> None:
    """Replaces the file whole. Raises OSError."""
    buffer = io.BytesIO()
    torch.save(content, buffer)
    write_atomic(str(path), buffer.getvalue())


def _bytes(value: Any) -> int:
    """Size of all tensors in a tree, in bytes."""
    if isinstance(value, Tensor):
        return value.numel() * value.element_size()
    return sum(map(_bytes, value.values())) if isinstance(value, dict) else 0
