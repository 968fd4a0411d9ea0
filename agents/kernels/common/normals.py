"""Standard normal numbers by the row. Twin of ``normal`` in ``rng.py``, eight times as fast.

libm's logarithm and cosine are a call for every number, and no loop with a call in it is vectorised. Here both are sums
of powers, more exact than a float32 is.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from envolve.agents.kernels import JIT
from envolve.agents.kernels.common.rng import bits
from envolve.agents.kernels.dense.gemm import out_of_line

U = np.uint64
_LOW, _32, _52 = U(0xFFFFFFFF), U(32), U(52)
_ONE = U(1)
_FRACTION, _EXPONENT = U((1 << 52) - 1), U(1023 << 52)
# added to the bits of u, it makes the exponent grow where the fraction reaches sqrt(2)
_TO_ROOT = U(int(np.array(2.0).view(np.uint64)) - int(np.array(math.sqrt(2)).view(np.uint64)))


@intrinsic
def _bits_of(typing, x):
    """The bits of a float64, uint64."""

    def emit(context: Any, b: Any, signature: Any, arguments: Any) -> Any:
        return b.bitcast(arguments[0], ir.IntType(64))

    return types.uint64(types.float64), emit


@intrinsic
def _of_bits(typing, n):
    def emit(context: Any, b: Any, signature: Any, arguments: Any) -> Any:
        return b.bitcast(arguments[0], ir.DoubleType())

    return types.float64(types.uint64), emit


@njit(inline="always", **JIT)
def _log(u):
    """Logarithm of a float64 in [2^-32, 1], relative error below 2e-12."""
    shifted = _bits_of(u) + _TO_ROOT
    exponent = np.float64(np.int64(shifted >> _52))
    m = _of_bits((shifted & _FRACTION) + _EXPONENT - _TO_ROOT)  # in [sqrt(1/2), sqrt(2)]
    s = (m - 1.0) / (m + 1.0)
    q = s * s
    series = 1.0 + q * (1 / 3 + q * (1 / 5 + q * (1 / 7 + q * (1 / 9 + q * (1 / 11 + q * (1 / 13))))))
    return (exponent - 1023.0) * math.log(2) + 2.0 * s * series


@njit(inline="always", **JIT)
def _cos(turns):
    """cos(2 pi turns) for a float64 in [0, 1), relative error below 1e-13: a sine within a quarter of a turn."""
    x = 2 * math.pi * (abs(turns - 0.5) - 0.25)
    q = x * x
    high = 1 / 39916800 - q * (1 / 6227020800 - q * (1 / 1307674368000 - q * (1 / 355687428096000)))
    return x * (1.0 - q * (1 / 6 - q * (1 / 120 - q * (1 / 5040 - q * (1 / 362880 - q * high)))))


@njit(**JIT)
def normals(key, first, step, out, n):
    """out[i] = normal(key, first + i step) for i < n, float32; first, step: uint64."""
    out_of_line()
    for i in range(n):
        z = bits(key, first + U(i) * step)
        u = np.float64(np.int64((z >> _32) + _ONE)) * 2.0**-32
        out[i] = np.float32(math.sqrt(-2.0 * _log(u)) * _cos(np.float64(np.int64(z & _LOW)) * 2.0**-32))
