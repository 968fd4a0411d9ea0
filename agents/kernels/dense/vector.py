"""What loops over float32 need to be vectorised. libm's exponential is a call for every number. Python's ``max`` and
conditional expressions become stores under a mask where one of their branches leaves memory as it is, which took five
times as long on a processor of AMD without AVX-512.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from llvmlite import binding, ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from envolve.agents.kernels import JIT

F4 = np.float32
MAXIMUM = 17  # LLVM before this has no code for llvm.maximum on x86, and aborts the process
LOG2E = F4(1 / math.log(2))
# log 2 in two parts, the first with zeros at its end, so that n times it is exact (Cody and Waite 1980)
LN2_HIGH = F4(0.693359375)
LN2_LOW = F4(math.log(2) - 0.693359375)
LOW, HIGH, HALF, ONE, TWO = F4(-87.0), F4(88.0), F4(0.5), F4(1), F4(2)
# exp(r) for |r| <= log(2) / 2: the Taylor series to r^7, which is off by 6e-9 of it there
C3, C4, C5, C6, C7 = (F4(1 / math.factorial(n)) for n in range(3, 8))
D3, D5, D7, D9, D11, D13, D15 = (F4(1 / n) for n in range(3, 16, 2))
IN_ORDER = {**JIT, "fastmath": {"contract", "nsz"}}  # reordered, n times the sum of the two parts would be taken off


@intrinsic
def _power_of_two(typing, n):
    """2^n, n: int32 from -126 to 127: the number whose bits are n + 127 in the exponent, nothing else."""

    def emit(context: Any, b: Any, signature: Any, arguments: Any) -> Any:
        (n,) = arguments
        i32 = ir.IntType(32)
        return b.bitcast(b.shl(b.add(n, i32(127)), i32(23)), ir.FloatType())

    return types.float32(types.int32), emit


@intrinsic
def larger(typing, a, b):
    """The larger of two float32, NaN if one is."""

    def emit(context: Any, b: Any, signature: Any, arguments: Any) -> Any:
        if binding.llvm_version_info[0] < MAXIMUM:
            first, second = arguments
            ordered = b.select(b.fcmp_ordered(">", first, second), first, second)  # the second, if that is NaN
            return b.select(b.fcmp_unordered("uno", first, first), first, ordered)
        number = ir.FloatType()
        kind = ir.FunctionType(number, [number, number])
        return b.call(cgutils.get_or_insert_function(b.module, kind, "llvm.maximum.f32"), arguments)

    return types.float32(types.float32, types.float32), emit


@intrinsic
def choose(typing, condition, a, b):
    """``a if condition else b`` of two float32, both computed. What is in place is multiplied by it, ``x[i] *=
    choose(c, ONE, y)``: of ``x[i] = choose(c, x[i], y * x[i])`` LLVM makes a store under a mask again."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.select(*arguments)

    return types.float32(types.boolean, types.float32, types.float32), emit


@njit(**IN_ORDER)
def exp(x):
    """float32, relative error below 2e-7; 1.6e-38 from -87 down, 1.7e38 from 88 up; NaN of NaN."""
    bounded = min(max(x, LOW), HIGH)
    n = np.floor(bounded * LOG2E + HALF)
    r = (bounded - n * LN2_HIGH) - n * LN2_LOW
    series = ONE + r * (ONE + r * (HALF + r * (C3 + r * (C4 + r * (C5 + r * (C6 + r * C7))))))
    scaled = series * _power_of_two(np.int32(n))
    return scaled if x == x else x


@njit(**JIT)
def log_one_plus(x):
    """log(1 + x) for a float32 in [0, 1], relative error below 3e-7: twice the artanh of x / (2 + x)."""
    s = x / (TWO + x)
    q = s * s
    series = ONE + q * (D3 + q * (D5 + q * (D7 + q * (D9 + q * (D11 + q * (D13 + q * D15))))))
    return TWO * s * series
