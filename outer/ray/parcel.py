"""Many small messages as one object of bytes. Ray passes bytes on as they are; a list of tuples it serialises item by
item, which takes 5 ms for 64 orders."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

_LENGTH = struct.Struct("<I")
Message = tuple[Sequence[Any], bytes]  # plain values, and data


def frame(head: Any, parts: Iterable[Any]) -> bytes:
    """Plain values in JSON behind their length, then bytes-like parts."""
    text = json.dumps(head, separators=(",", ":")).encode()
    return b"".join([_LENGTH.pack(len(text)), text, *parts])


def head_of(data: bytes) -> tuple[Any, int]:
    """The plain values of a frame, and where its parts begin. Raises struct.error, ValueError."""
    (length,) = _LENGTH.unpack_from(data)
    at = _LENGTH.size + length
    return json.loads(data[_LENGTH.size : at]), at


def wrap(messages: Sequence[Message]) -> bytes:
    return frame([[*values, len(data)] for values, data in messages], (data for _, data in messages))


def unwrap(parcel: bytes) -> Iterator[Message]:
    """Inverse of :func:`wrap`."""
    heads, at = head_of(parcel)
    for *values, size in heads:
        yield values, parcel[at : at + size]
        at += size
