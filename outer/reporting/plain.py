"""Conversion of values for JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np


class DataError(Exception):
    """Raised for a file without data of an experiment. The message names the file and the key."""


def plain(value: Any, where: str) -> Any:
    """Converts arrays and paths for JSON; float32 with its own digits, NaN as None. Raises DataError."""
    if isinstance(value, np.ndarray):
        digits = ".7g" if value.dtype == np.float32 else ""
        value = value.tolist()
        return plain(_rounded(value) if digits else value, where)
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, Mapping):
        return {str(k): plain(v, f"{where}.{k}") for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v, where) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        if math.isnan(value):
            return None
        raise DataError(f"{where}: found {value}, expected a finite number or NaN")
    if isinstance(value, Path):
        return str(value)
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    raise DataError(f"{where}: found a value of type {type(value).__name__}, expected plain values")


def _rounded(value: Any) -> Any:
    return [_rounded(v) for v in value] if isinstance(value, list) else float(f"{value:.7g}")
