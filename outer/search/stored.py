"""Values of a search's state as a checkpoint holds them. Each is checked before it is used, wherever the file is from.

All raise ValueError with the key, what was found and what was expected.
"""

from __future__ import annotations

import math
from typing import Any, Mapping

import torch
from torch import Tensor


def vector(state: Mapping[str, Any], key: str, length: int) -> Tensor:
    """A tensor, float64 [length], finite."""
    value = state.get(key)
    if type(value) is not Tensor:
        raise ValueError(f"{key}: found {type(value).__name__}, expected a tensor float64 [{length}]")
    if value.dtype != torch.float64 or list(value.shape) != [length] or not bool(value.isfinite().all()):
        found = f"{str(value.dtype)[len('torch.') :]} {list(value.shape)}"
        raise ValueError(f"{key}: found {found}, expected float64 [{length}] of finite numbers")
    return value


def number(state: Mapping[str, Any], key: str, least: float = 0.0) -> float:
    """A finite number, at least ``least``."""
    value: Any = state.get(key)
    if type(value) not in (int, float) or not math.isfinite(value) or value < least:
        raise ValueError(f"{key}: found {value!r:.40}, expected a number of at least {least:g}")
    return value


def count(state: Mapping[str, Any], key: str) -> int:
    """An integer, at least 0."""
    value = number(state, key)
    if type(value) is not int:
        raise ValueError(f"{key}: found {value!r:.40}, expected an integer")
    return value
