"""Many small messages as one object of bytes. Ray passes bytes on as they are; a list of tuples it serialises item by
item, which takes 5 ms for 64 orders."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Sequence
from typing import Any

_LENGTH = struct.Struct("<I")
Message = tuple[Sequence[Any], bytes]  # plain values, and data


def wrap(messages: Sequence[Message]) -> bytes:
    head = json.dumps([[*values, len(data)] for values, data in messages], separators=(",", ":")).encode()
    return b"".join([_LENGTH.pack(len(head)), head, *(data for _, data in messages)])


def unwrap(parcel: bytes) -> Iterator[Message]:
    """Inverse of :func:`wrap`."""
    (length,) = _LENGTH.unpack_from(parcel)
    at = _LENGTH.size + length
    for *values, size in json.loads(parcel[_LENGTH.size : at]):
        yield values, parcel[at : at + size]
        at += size
