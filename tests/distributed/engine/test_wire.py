from __future__ import annotations

import struct
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from envolve.distributed.engine.wire import WireError, pack, unpack
from envolve.distributed.memory.rows import Chunk, Counters, Handout


def same(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and a.shape == b.shape and torch.equal(a, b)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if hasattr(a, "__dict__"):
        return type(a) is type(b) and all(same(v, vars(b)[k]) for k, v in vars(a).items())
    return bool(a == b)


@pytest.mark.parametrize(
    "value",
    [
        None, True, 3, -(2**62), 0.1, "text", [], [1, [None, torch.ones(2, 3)]],
        Handout(1, -1, torch.randn(2, 7)), Counters(1, 2, 0.5, 0.25, 3, 4),
        [torch.zeros(0, 2), Chunk(1, 2, 3, 2**61, torch.randn(1, 4, 9), torch.randn(2, 2)), torch.randn(3)],
    ],
)  # fmt: skip
def test_what_goes_in_comes_out(value: Any) -> None:
    assert same(value, unpack(pack(value)))


def test_a_part_of_a_tensor_and_a_transposed_one() -> None:
    x = torch.randn(4, 5)
    assert torch.equal(unpack(pack(x.T)), x.T) and torch.equal(unpack(pack(x[1:3, 2:])), x[1:3, 2:])


def head(text: str, numbers: bytes = b"") -> bytes:
    return struct.pack("<I", len(text)) + text.encode() + numbers


@pytest.mark.parametrize(
    "data",
    [
        b"", b"\0", head("{"), head("[1]", b"1234"), head("[1]", b"123"), head('{"kind": "Path", "a": 1}'),
        head('{"a": 1}'), head('{"kind": "Tensor", "shape": [2]}', bytes(4)), head('{"kind": "Tensor", "shape": [-1]}'),
        head('{"kind": "Handout", "session": 1}'), head("[" * 10**5), b"\xff\xff\xff\xff[1]",
        head('{"kind": "Tensor", "shape": [99999999999, 99999999999, 0.5]}'),
    ],
)  # fmt: skip
def test_what_is_no_message_is_refused(data: bytes) -> None:
    with pytest.raises(WireError):
        unpack(data)


@given(st.binary(max_size=60), st.integers(0, 40))
def test_damage_is_a_wire_error_or_a_value(noise: bytes, at: int) -> None:
    data = pack([Chunk(1, 2, 3, 4, torch.ones(1, 2, 3), torch.zeros(0, 2)), 5])
    try:
        unpack(data[:at] + noise + data[at + len(noise) :])
    except WireError:
        pass
