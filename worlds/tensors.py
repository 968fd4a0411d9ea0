"""Files of named tensors, read and written with NumPy alone.

The format is safetensors (https://github.com/huggingface/safetensors): the length of a header (uint64, little endian),
the header as JSON, then the numbers. Here: float32 only, in the header's order, nothing between them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from envolve.core.files import UnfitFileError, read_plain

MOST_BYTES = 2**20  # a world of the zoo has 20 kB
METADATA = "__metadata__"


class TensorFileError(Exception):
    """The file is not what it should be. One line with the path, what was found and what was expected."""


def tensor_bytes(tensors: Mapping[str, np.ndarray], metadata: Mapping[str, str]) -> bytes:
    """A whole file. The same content gives the same bytes. tensors: float32 each."""
    header: dict[str, Any] = {METADATA: dict(sorted(metadata.items()))}
    body = b""
    for name in sorted(tensors):
        data = np.ascontiguousarray(tensors[name], "<f4").tobytes()
        header[name] = {
            "dtype": "F32",
            "shape": list(tensors[name].shape),
            "data_offsets": [len(body), len(body) + len(data)],
        }
        body += data
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # the numbers begin at a multiple of 8
    return len(text).to_bytes(8, "little") + text + body


def read_tensors(path: Path) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Tensors by name, float32 and finite, and the metadata. Raises TensorFileError, whatever the file holds."""
    try:
        data = read_plain(path, MOST_BYTES)
    except OSError as e:
        reason = e.strerror if isinstance(e, UnfitFileError) or e.strerror else str(e)
        raise TensorFileError(f"{path}: cannot be read: {reason}") from None
    size = int.from_bytes(data[:8], "little")
    if len(data) < 8 or size > len(data) - 8:
        raise TensorFileError(f"{path}: found {len(data):,} bytes, expected a header of {size:,} bytes and its numbers")
    try:
        header = json.loads(data[8 : 8 + size])
    except (ValueError, RecursionError):
        raise TensorFileError(f"{path}: found no JSON header, expected a safetensors file") from None
    if not isinstance(header, dict) or not _is_text(header.get(METADATA, {})):
        raise TensorFileError(f"{path}: found a header that is no mapping of tensors, expected a safetensors file")
    metadata = header.pop(METADATA, {})
    body, at, out = data[8 + size :], 0, {}
    for name, entry in sorted(header.items(), key=lambda item: _begin(item[1])):
        shape = _shape(entry)
        if shape is None:
            raise TensorFileError(f"{path}: tensor {name!r:.80}: found {str(entry):.80}, expected F32 and a shape")
        end = at + 4 * math.prod(shape)
        if entry.get("data_offsets") != [at, end] or end > len(body):
            found = f"{str(entry.get('data_offsets')):.80} of {len(body):,}"
            raise TensorFileError(f"{path}: tensor {name!r:.80}: found data_offsets {found}, expected [{at}, {end}]")
        out[name] = np.frombuffer(body[at:end], "<f4").reshape(shape).astype(np.float32)
        if not np.isfinite(out[name]).all():
            raise TensorFileError(f"{path}: tensor {name!r:.80}: found numbers that are not finite")
        at = end
    if at != len(body):
        raise TensorFileError(f"{path}: found {len(body) - at:,} bytes behind the last tensor, expected none")
    return out, metadata


def _is_text(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(x, str) for x in value.values())


def _begin(entry: Any) -> int:
    """Where the numbers of an entry begin, as far as it says so."""
    offsets = entry.get("data_offsets") if isinstance(entry, dict) else None
    first = offsets[0] if isinstance(offsets, list) and offsets else 0
    return first if type(first) is int else 0


def _shape(entry: Any) -> tuple[int, ...] | None:
    """The shape of an entry; None: it is not one of a float32 tensor."""
    shape = entry.get("shape") if isinstance(entry, dict) and entry.get("dtype") == "F32" else None
    fits = isinstance(shape, list) and len(shape) <= 4 and all(type(n) is int and 0 < n <= MOST_BYTES for n in shape)
    return tuple(shape) if fits and shape is not None else None
