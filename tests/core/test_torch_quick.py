"""The fast path of files of torch.save: torch reads what it writes, and it reads what torch reads."""

from __future__ import annotations

import io
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from envolve.core import torch_quick
from envolve.core.torch_file import TorchFileError, read_torch
from envolve.core.torch_quick import Encoded, Unfit, encode, read, write
from tests.examples import examples

TEXTS = st.text(st.characters(exclude_categories=("Cs",)), max_size=12)
TENSORS = st.builds(
    lambda shape, dtype: (torch.rand(shape) * 100).to(dtype),
    st.lists(st.integers(0, 3), max_size=3),
    st.sampled_from(list(torch_quick.KINDS)),
)
EDGES = [0, 255, 256, 65535, 65536, 2**31, -(2**31), 2**63]
NUMBERS = st.integers(-(2**70), 2**70) | st.floats() | st.sampled_from(EDGES)
PLAIN = st.none() | st.booleans() | NUMBERS | TEXTS
TREES = st.recursive(
    PLAIN | TENSORS, lambda t: st.lists(t, max_size=4) | st.dictionaries(TEXTS | st.integers(-5, 500), t, max_size=4)
)


DICTS = st.dictionaries(TEXTS, PLAIN | TENSORS, max_size=3)
CHANGES = st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), max_size=4)


def slow(data: bytes):
    """As read_torch without the fast path."""
    quick, torch_quick.read = torch_quick.read, lambda data: None
    try:
        return read_torch(data)
    finally:
        torch_quick.read = quick


def same(a, b) -> bool:
    if type(a) is not type(b):
        return False
    if isinstance(a, torch.Tensor):
        laid_out = a.stride() == b.stride() or not a.numel()
        return a.dtype == b.dtype and a.shape == b.shape and laid_out and torch.equal(a, b)
    if isinstance(a, dict):
        return list(a) == list(b) and [type(k) for k in a] == [type(k) for k in b] and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b or (isinstance(a, float) and math.isnan(a) and math.isnan(b))


@settings(max_examples=examples(300), deadline=None)
@given(TREES)
def test_torch_reads_what_is_written_and_the_fast_path_reads_the_same(tree):
    data = write(tree)
    (quick,) = read(data)
    plain = torch.load(io.BytesIO(data), weights_only=True)
    assert same(quick, tree) and same(plain, tree) and same(slow(data), tree)
    for tensor in [t for t in (quick.values() if isinstance(quick, dict) else [quick]) if isinstance(t, torch.Tensor)]:
        assert tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size()


@settings(max_examples=examples(500), deadline=None)
@given(DICTS, CHANGES, st.integers(0, 10**6), st.sampled_from(["bytes", "cut", "twice", "more"]))
def test_of_damaged_bytes_the_fast_path_reads_nothing_or_what_the_slow_one_reads(tree, changes, at, how):
    data = bytearray(write(tree))
    if how == "bytes":
        for where, value in changes:
            data[where % len(data)] = value
    else:
        end = at % len(data)
        data = {"cut": data[:end], "twice": data[:end] + data, "more": data + data[:end]}[how]
    quick = read(bytes(data))
    try:
        plain = slow(bytes(data))
    except TorchFileError:
        assert quick is None
    else:
        assert quick is None or same(quick[0], plain)


@settings(max_examples=examples(1000), deadline=None)
@given(DICTS, CHANGES, st.sampled_from(["change", "insert", "drop"]))
def test_of_a_changed_program_in_a_sound_archive_too(tree, changes, how):
    parts, tensors = [], []
    torch_quick._put(tree, parts, tensors, 90)
    program = bytearray(b"".join(parts))
    for where, value in changes:
        at = where % len(program)
        program[at : at + (how != "insert")] = bytes([value] * (how != "drop"))
        program = program or bytearray(b"N")
    data = _with_program(bytes(program), tensors)
    quick = read(data)
    try:
        plain = slow(data)
    except TorchFileError:
        assert quick is None
    else:
        assert quick is None or same(quick[0], plain)


@pytest.mark.parametrize("value", [
    (1, 2), {1.5: 1}, {None: 1}, b"x", {"x": torch.zeros(2, dtype=torch.float16)}, torch.zeros(2, requires_grad=True),
    "\ud800", {"\ud800": 1}, 2**3000, torch.zeros(2, dtype=torch.complex64), torch.eye(2).to_sparse(), object(),
], ids=lambda value: type(value).__name__)  # fmt: skip
def test_what_it_does_not_know_is_left_to_torch(value):
    with pytest.raises(Unfit):
        write({"value": value})


def test_depth_is_bounded():
    tree: list = []
    for _ in range(200):
        tree = [tree]
    with pytest.raises(Unfit, match="nested"):
        write(tree)
    nested = b"](" * 5000 + b"]" + b"e" * 5000
    good = write([])
    assert read(good) == ([],) and read(_with_program(nested)) is None


def _with_program(program, tensors=()):
    """An archive that is right in all but its program, which stands without its first and last bytes."""

    def put(value, parts, found, depth):
        parts.append(program)
        found.extend(tensors)

    with pytest.MonkeyPatch.context() as m:
        m.setattr(torch_quick, "_put", put)
        return write(None)


def test_what_torch_itself_wrote_is_for_the_slow_path():
    buffer = io.BytesIO()
    torch.save({"x": torch.arange(3)}, buffer)
    assert read(buffer.getvalue()) is None and read_torch(buffer.getvalue())["x"].tolist() == [0, 1, 2]


def test_an_encoded_value_is_part_of_many_files():
    config = {"a": [1, 2.5, None, {"b": True}], "c": "text"}
    once = encode(config)
    assert isinstance(once, Encoded) and write({"config": once, "n": 1}) == write({"config": config, "n": 1})
    with pytest.raises(Unfit):
        encode({"x": torch.zeros(2)})


def test_views_write_what_they_show():
    whole = torch.arange(1000.0).reshape(100, 10)
    data = write({"row": whole[3], "column": whole[:, 2], "all": whole.T})
    assert len(data) < 6000 and same(
        read(data)[0], {"row": whole[3].clone(), "column": whole[:, 2].clone(), "all": whole.T.contiguous()}
    )


def test_the_same_content_gives_the_same_bytes():
    assert write({"a": torch.ones(3), "b": 1}) == write({"a": torch.ones(3), "b": 1})
