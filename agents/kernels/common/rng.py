"""numba twin of ``core/rng.py``: the same bits for the same key and counter."""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from envolve.agents.kernels import JIT

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
MIX1, MIX2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_1, _27, _30, _31, _32, _40 = (np.uint64(n) for n in (1, 27, 30, 31, 32, 40))
_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)
_LOW = np.uint64(0xFFFFFFFF)
_2_24 = np.float32(2.0**-24)


@njit(inline="always", **JIT)
def bits(key, counter):
    """key: uint64, counter: uint64 -> uint64. (Mixing uint64 with signed integers would give float64 in numba.)"""
    z = key + (counter + _1) * GOLDEN
    z = (z ^ (z >> _30)) * MIX1
    z = (z ^ (z >> _27)) * MIX2
    return z ^ (z >> _31)


@njit(inline="always", **JIT)
def fold(key, stream):
    """Key of ``stream`` (uint64) under ``key``; -1 - stream in two's complement is ~stream."""
    return bits(key, _ALL ^ stream)


@njit(inline="always", **JIT)
def uniform(key, counter):
    """float32 in [0, 1)."""
    return np.float32(bits(key, counter) >> _40) * _2_24


@njit(inline="always", **JIT)
def integer(key, counter, n):
    """int64 in [0, n); n: uint64."""
    return np.int64(((bits(key, counter) >> _32) * n) >> _32)


@njit(inline="always", **JIT)
def normal(key, counter):
    """float32, standard normal; equal to the twin up to the last bit of the logarithm and the cosine."""
    z = bits(key, counter)
    u = np.float64((z >> _32) + _1) * 2.0**-32
    v = np.float64(z & _LOW) * (2.0**-31 * math.pi)
    return np.float32(math.sqrt(-2.0 * math.log(u)) * math.cos(v))


@njit(inline="always", **JIT)
def gumbel(key, counter):
    """float32, standard Gumbel; equal to the twin up to the last bit of the logarithms."""
    u = (np.float64(bits(key, counter) >> _32) + 0.5) * 2.0**-32
    return np.float32(-math.log(-math.log(u)))
