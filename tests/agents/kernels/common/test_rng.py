"""core/rng.py and its numba twin: the same bits, and no bias."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit

from envolve.agents.kernels.common import normals
from envolve.agents.kernels.common import rng as compiled
from envolve.core import rng
from tests.examples import examples

INT64 = st.integers(-(2**63), 2**63 - 1)
DRAWS = 20_000


@njit
def draw(keys, counters, stream, n):
    """-> folded keys, bits, uniforms, integers of each (key, counter)."""
    folded, bits = np.empty_like(keys), np.empty_like(keys)
    uniforms, integers = np.empty(len(keys), np.float32), np.empty(len(keys), np.int64)
    for i in range(len(keys)):
        folded[i] = compiled.fold(keys[i], stream)
        bits[i] = compiled.bits(folded[i], counters[i])
        uniforms[i] = compiled.uniform(folded[i], counters[i])
        integers[i] = compiled.integer(folded[i], counters[i], n)
    return folded, bits, uniforms, integers


@njit
def one_by_one(key, first, step, out):
    for i in range(len(out)):
        out[i] = compiled.normal(key, first + np.uint64(i) * step)


@pytest.mark.parametrize("step", [1, 12, 2**63 + 5])
def test_normals_by_the_row(step):
    """Another last bit in fewer than one of ten thousand: libm rounds the same number from the other side."""
    key, first, step = np.uint64(7), np.uint64(2**64 - 1000), np.uint64(step)
    slow, fast = np.empty(200_001, np.float32), np.full(200_003, 5, np.float32)
    one_by_one(key, first, step, slow)
    normals.normals(key, first, step, fast, len(slow))
    assert (fast[len(slow) :] == 5).all()
    assert (fast[: len(slow)] != slow).mean() < 1e-4
    np.testing.assert_allclose(fast[: len(slow)], slow, rtol=1e-6)


@njit
def logarithms_and_cosines(u, turns):
    return np.array([normals._log(x) for x in u]), np.array([normals._cos(x) for x in turns])


def test_logarithm_and_cosine_of_normals():
    """Over the whole range, at its ends, and where the fraction of the logarithm's number begins anew."""
    k = np.unique(
        np.concatenate([np.arange(1, 1000), np.geomspace(1, 2**32, 100_000).astype(np.int64), 2**32 - np.arange(1000)])
    )
    turn = [2**29 * i + d for i in range(8) for d in range(-500, 500)]
    root = [round(2**e * math.sqrt(0.5)) + d for e in range(12, 33) for d in range(-3, 4)]
    u, turns = np.append(k, root) / 2**32, np.array([t for t in turn if t >= 0]) / 2**32
    log, cosine = logarithms_and_cosines(u, turns)
    assert log[u == 1] == 0
    np.testing.assert_allclose(log, np.log(u), rtol=2e-12, atol=1e-300)
    np.testing.assert_allclose(cosine, np.cos(2 * np.pi * turns), rtol=1e-13, atol=1e-15)  # pi of float64 is not exact


@settings(deadline=None, max_examples=examples(200))
@given(st.lists(st.tuples(INT64, INT64), min_size=1, max_size=20), st.integers(0, 100), st.integers(1, 2**31 - 1))
def test_both_back_ends_return_the_same_bits(pairs, stream, n):
    key, counter = torch.tensor(pairs).unbind(1)
    unsigned = [t.contiguous().numpy().view(np.uint64) for t in (key, counter)]
    folded, bits, uniforms, integers = draw(*unsigned, np.uint64(stream), np.uint64(n))
    key = rng.fold(key, stream)
    np.testing.assert_array_equal(key.numpy().view(np.uint64), folded)
    np.testing.assert_array_equal(rng.bits(key, counter).numpy().view(np.uint64), bits)
    np.testing.assert_array_equal(rng.uniform(key, counter).numpy(), uniforms)
    np.testing.assert_array_equal(rng.integer(key, counter, torch.tensor(n)).numpy(), integers)


def test_known_bits():
    """The first outputs of SplitMix64 seeded with 0, as its reference implementation prints them."""
    expected = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    assert rng.bits(torch.zeros(3, dtype=torch.int64), torch.arange(3)).numpy().view(np.uint64).tolist() == expected


def chi_square(counts: np.ndarray) -> float:
    """Standardised: about normal(0, 1) where all cells are equally likely."""
    expected = counts.sum() / counts.size
    freedom = counts.size - 1
    return float((((counts - expected) ** 2 / expected).sum() - freedom) / np.sqrt(2 * freedom))


@pytest.mark.parametrize("by", ["counter", "key", "stream"])
@pytest.mark.parametrize("cells", [2, 3, 4, 7, 100])
def test_draws_are_uniform(by, cells):
    """Along each of the three things a draw depends on: neighbouring counters, keys and streams."""
    zero, ramp = torch.full((DRAWS,), 5), torch.arange(DRAWS)
    if by == "stream":
        key = torch.cat([rng.fold(torch.tensor([9]), s) for s in range(DRAWS // 10)]).repeat(10)
        counter = torch.arange(10).repeat_interleave(DRAWS // 10)
    else:
        key, counter = (rng.fold(zero, rng.EXPLORE), ramp) if by == "counter" else (rng.fold(ramp, rng.EXPLORE), zero)
    integers = rng.integer(key, counter, torch.tensor(cells))
    uniforms = rng.uniform(key, counter)
    assert 0 <= int(integers.min()) and int(integers.max()) < cells
    assert 0 <= float(uniforms.min()) and float(uniforms.max()) < 1
    for cell in (integers, (uniforms * cells).long()):
        assert abs(chi_square(np.bincount(cell.numpy(), minlength=cells))) < 5


def test_consecutive_draws_are_independent():
    """Pairs (counter 2d, counter 2d + 1), as a decision uses them, fill a 10 x 10 table evenly."""
    key = rng.fold(torch.tensor([3]), rng.EXPLORE).expand(DRAWS)
    first, second = (rng.integer(key, 2 * torch.arange(DRAWS) + i, torch.tensor(10)) for i in (0, 1))
    assert abs(chi_square(np.bincount((10 * first + second).numpy(), minlength=100))) < 5


@njit
def many(key, counters, normals, gumbels):
    for i in range(len(counters)):
        normals[i] = compiled.normal(key, counters[i])
        gumbels[i] = compiled.gumbel(key, counters[i])


@pytest.fixture(scope="module")
def twins() -> dict[str, np.ndarray]:
    """Numbers of the readable side, which the compiled ones equal to the last bits of log and cos."""
    key, counter = rng.fold(torch.tensor([11]), rng.UPDATE), torch.arange(200_000)
    theirs = np.empty((2, len(counter)), np.float32)
    many(key.numpy().view(np.uint64)[0], counter.numpy().view(np.uint64), *theirs)
    found = {}
    for draw_, other in ((rng.normal, theirs[0]), (rng.gumbel, theirs[1])):
        found[draw_.__name__] = ours = draw_(key, counter).double().numpy()
        np.testing.assert_allclose(ours, other, rtol=1e-6, atol=1e-7)
    return found


def test_normals(twins):
    """Moments and tails are those of N(0, 1)."""
    ours = twins["normal"]
    n = len(ours)
    assert abs(ours.mean()) < 4 / n**0.5 and abs((ours**2).mean() - 1) < 4 * (2 / n) ** 0.5
    assert abs((ours**4).mean() - 3) < 4 * (96 / n) ** 0.5
    assert abs((np.abs(ours) > 2).mean() - 0.0455) < 4 * (0.0455 / n) ** 0.5
    assert abs((ours[1:] * ours[:-1]).mean()) < 4 / n**0.5


def test_gumbels(twins):
    """All are finite, and P(g < x) = exp(-exp(-x))."""
    ours = twins["gumbel"]
    n = len(ours)
    assert np.isfinite(ours).all() and abs(ours.mean() - 0.5772157) < 4 * (np.pi**2 / 6 / n) ** 0.5
    assert abs(chi_square(np.histogram(np.exp(-np.exp(-ours)), 50, (0, 1))[0])) < 5


def test_no_two_streams_of_a_member_share_a_number():
    """One that is taken twice would show an agent's test what its training has seen."""
    streams = {name: value for name, value in vars(rng).items() if name.isupper() and isinstance(value, int)}
    assert len(streams) > 15 and len(set(streams.values())) == len(streams), streams
