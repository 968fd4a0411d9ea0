"""Messages between a driver and its workers: whatever is sent comes out, and whatever does not fit is rejected."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from envolve.outer.exchange.machine import Rejected
from envolve.outer.exchange.messages import DTYPES, ChunkResult
from envolve.outer.ray.codec import _weights, answer, answer_of, checksum, join, part, work, work_of
from tests.examples import examples
from tests.outer.virtual import chunks_of

SHAPES = st.lists(st.integers(0, 4), max_size=3)
ARRAYS = st.lists(st.tuples(st.sampled_from(DTYPES), SHAPES), max_size=6)


@settings(max_examples=examples(200), deadline=None)
@given(ARRAYS, st.dictionaries(st.text(max_size=5).filter(lambda k: k != "arrays"), st.integers() | st.text()))
def test_arrays_of_any_shape_and_type(kinds, header):
    arrays = [(torch.rand(shape) * 250).to(dtype) for dtype, shape in kinds]
    head, found = part(join(header, arrays))
    assert head == header and len(found) == len(arrays)
    for a, b in zip(arrays, found):
        assert a.dtype == b.dtype and a.shape == b.shape and torch.equal(a, b)
        assert b.untyped_storage().nbytes() == b.numel() * b.element_size()


@settings(max_examples=examples(200), deadline=None)
@given(st.binary(max_size=60), st.integers(0, 200), st.integers(0, 255))
def test_damaged_bytes_are_rejected_or_read(junk, at, value):
    """Nothing but Rejected is raised, whatever the bytes are."""
    whole = bytearray(work(chunks_of(1)[0], "key"))
    whole[at % len(whole)] = value
    for data in (junk, bytes(whole), bytes(whole[:at]), bytes(whole) + junk):
        try:
            part(data)
        except Rejected:
            pass


def test_a_chunk_and_its_answer():
    (chunk,) = chunks_of(1)
    got = work_of(work(chunk, "key"), {"key": chunk.config})
    assert (got.run_id, got.label, got.config) == (chunk.run_id, chunk.label, chunk.config)
    assert torch.equal(got.worlds, chunk.worlds) and torch.equal(got.seeds, chunk.seeds)
    values = {"score": torch.tensor([1.0, float("nan"), 3.0], dtype=torch.float64), "train_steps": torch.arange(3)}
    result = answer_of(answer(ChunkResult("run", 1, 2, 3, "", values, ["", "no\nlines", ""])))
    assert (result.generation, result.chunk_id, result.attempt, result.error) == (1, 2, 3, "")
    assert result.reasons[1].isprintable() and torch.equal(result.values["train_steps"], torch.arange(3))
    assert result.values["score"].isnan().tolist() == [False, True, False]


def test_views_and_rows_that_lie_apart():
    (chunk,) = chunks_of(1)
    chunk.worlds = torch.arange(60.0).reshape(6, 10)[::2, ::2]
    assert torch.equal(work_of(work(chunk, "k"), {"k": {}}).worlds, chunk.worlds)


@pytest.mark.parametrize("spoil, words", [
    (lambda v: v.pop("score"), "score is missing"),
    (lambda v: v.update(score=v["score"].float()), "score is missing or not float64"),
    (lambda v: v.update(more=torch.zeros(2)), "does not have the 3 members"),
])  # fmt: skip
def test_an_answer_that_does_not_fit_is_rejected(spoil, words):
    values = {"score": torch.zeros(3, dtype=torch.float64)}
    spoil(values)
    with pytest.raises(Rejected, match=words):
        answer_of(answer(ChunkResult("run", 1, 2, 3, "", values, [""] * 3)))


def test_an_unknown_configuration_is_rejected():
    with pytest.raises(Rejected, match="configuration key is unknown"):
        work_of(work(chunks_of(1)[0], "key"), {})


@pytest.mark.parametrize("shape", [(1, 1), (2, 3), (3, 3), (4, 2247)])
def test_a_checksum_sees_every_bit_and_no_stride(shape):
    worlds = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    found, bits = checksum(worlds), worlds.view(torch.int32).view(-1)
    assert found == checksum(worlds.T.contiguous().T), "whatever its strides"
    padded = np.append(worlds.numpy().ravel(), np.zeros(worlds.numel() % 2, np.float32)).view(np.uint64).tolist()
    assert found == sum(map(int.__mul__, padded, _weights(len(padded)).tolist())) % 2**64, "its slow twin"
    for at in {0, 1 % len(bits), len(bits) // 2, len(bits) - 1}:
        for bit in (0, 1, 22, 30, 31):
            change = -(2**31) if bit == 31 else 2**bit
            bits[at] ^= change
            assert checksum(worlds) != found
            bits[at] ^= change
    if shape[0] > 1:
        assert checksum(worlds.flip(0)) != found, "their order"
