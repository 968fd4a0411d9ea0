"""What a goal-conditioned training left behind, read with a limit that the training itself sets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import Tensor

from envolve.agents.goal.crl_train import GoalTraining
from envolve.core.files import MIB, read_plain
from envolve.core.torch_file import read_torch

REST = 64 * MIB  # beside the tensors: their names, the archive, the lines of scores.csv


def read_training(path: Path, training: GoalTraining) -> Any:
    """What ``torch.save`` wrote of a training like this one, at the latest with a full memory. Raises TorchFileError,
    OSError."""
    replay = training.replay
    full = sum(map(_bytes, [*replay.fields.values(), replay.number]))
    return read_torch(read_plain(path, full + _bytes(training.state_dict()) + REST))


def _bytes(value: Any) -> int:
    """Of all tensors in a tree."""
    if isinstance(value, Tensor):
        return value.numel() * value.element_size()
    return sum(map(_bytes, value.values())) if isinstance(value, dict) else 0
