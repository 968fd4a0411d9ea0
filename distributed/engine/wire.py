"""Wire format between programs: a tree of plain values as JSON, followed by its tensors as raw numbers.

Nothing that arrives is executed, and only plain values, float32 tensors and the dataclasses of KINDS are built.
Message: length of the JSON (uint32), JSON, numbers. Little-endian.
"""

from __future__ import annotations

import dataclasses
import json
import math
import struct
from typing import Any

import numpy as np
import torch
from torch import Tensor

from envolve.distributed.memory.rows import Chunk, Counters, Handout

KINDS: dict[str, type] = {kind.__name__: kind for kind in (Chunk, Handout, Counters)}
LENGTH = struct.Struct("<I")
MOST_HEAD = 2**16  # bytes of JSON: all numbers that are many lie behind it
KIND = "kind"  # key of what is no plain value


class WireError(Exception):
    """Raised for bytes that are not a message."""


def pack(value: Any) -> bytes:
    """Encodes a value: None, numbers, texts, lists, tensors (float32), objects of KINDS."""
    tensors: list[bytes] = []
    head = json.dumps(_plain(value, tensors)).encode()
    return b"".join([LENGTH.pack(len(head)), head, *tensors])


def unpack(data: bytes) -> Any:
    """Decodes a message. Raises WireError."""
    try:
        size = LENGTH.unpack_from(data)[0]
        if size > MOST_HEAD:
            raise WireError(f"{size} bytes of JSON, expected at most {MOST_HEAD}")
        end = LENGTH.size + size
        numbers = np.frombuffer(data, "<f4", offset=end)
        value, used = _built(json.loads(data[LENGTH.size : end]), numbers, 0)
        if used != len(numbers):
            raise WireError(f"{len(numbers) - used} numbers too many")
    except (struct.error, ValueError, TypeError, KeyError, AttributeError, RecursionError) as e:
        raise WireError(f"{type(e).__name__}: {e}") from None
    return value


def _plain(value: Any, tensors: list[bytes]) -> Any:
    if isinstance(value, Tensor):
        tensors.append(value.numpy().astype("<f4", order="C", copy=False).tobytes())
        return {KIND: "Tensor", "shape": list(value.shape)}
    if dataclasses.is_dataclass(value):
        fields = {f.name: _plain(getattr(value, f.name), tensors) for f in dataclasses.fields(value)}
        return {KIND: type(value).__name__, **fields}
    return [_plain(v, tensors) for v in value] if isinstance(value, (list, tuple)) else value


def _built(plain: Any, numbers: np.ndarray, at: int) -> tuple[Any, int]:
    """Decodes one value -> value, and how many of the numbers it used."""
    if isinstance(plain, list):
        values = []
        for item in plain:
            value, at = _built(item, numbers, at)
            values.append(value)
        return values, at
    if not isinstance(plain, dict):
        return plain, at
    kind = plain.pop(KIND)
    if kind == "Tensor":
        shape = plain["shape"]
        if not all(type(n) is int and n >= 0 for n in shape):
            raise WireError(f"a tensor of shape {shape}")
        size = math.prod(shape)
        if at + size > len(numbers):
            raise WireError(f"a tensor of {size} numbers, where {len(numbers) - at} are left")
        return torch.from_numpy(numbers[at : at + size].astype(np.float32)).view(shape), at + size
    fields = {}
    for name, item in plain.items():
        fields[name], at = _built(item, numbers, at)
    return KINDS[kind](**fields), at
