"""Activations of the dense layers, and the numbers that the kernels share. Twin of
``envolve.envs.nets.networks.activate_``."""

from __future__ import annotations

import numpy as np
from numba import njit

from envolve.agents.kernels import JIT
from envolve.agents.kernels.dense.gemm import out_of_line
from envolve.agents.kernels.dense.vector import choose, larger

F4, I8 = np.float32, np.int64
# numba compiles a function once more for every literal among its arguments; a number of numpy is no literal.
NONE, NIL, UNIT, NO, YES = I8(-1), I8(0), I8(1), np.bool_(False), np.bool_(True)
TANH, RELU, LEAKYRELU, PRELU, IDENTITY = I8(0), I8(1), I8(2), I8(3), I8(4)  # indices of envs.nets.networks.ACTIVATIONS
ZERO, ONE, LEAKY_SLOPE, EPSILON = F4(0), F4(1), F4(0.01), F4(1e-8)

# tanh(x) ~ x P(x^2) / Q(x^2), clamped: the rational approximation of Eigen (MathFunctionsImpl.h), absolute error below
# 4e-7. Unlike libm's tanh it vectorises without SVML, and it cannot overflow.
_P = [
    F4(c)
    for c in (
        4.89352455891786e-03,
        6.37261928875436e-04,
        1.48572235717979e-05,
        5.12229709037114e-08,
        -8.60467152213735e-11,
        2.00018790482477e-13,
        -2.76076847742355e-16,
    )
]
P1, P3, P5, P7, P9, P11, P13 = _P
Q0, Q2, Q4, Q6 = (
    F4(c) for c in (4.89352518554385e-03, 2.26843463243900e-03, 1.18534705686654e-04, 1.19825839466702e-06)
)
CLAMP = F4(7.90531110763549805)


@njit(inline="always", **JIT)
def _numerator(z, y):
    return z * (P1 + y * (P3 + y * (P5 + y * (P7 + y * (P9 + y * (P11 + y * P13))))))


@njit(inline="always", **JIT)
def _denominator(y):
    return Q0 + y * (Q2 + y * (Q4 + y * Q6))


@njit(inline="always", **JIT)
def tanh(z):
    z = min(max(z, -CLAMP), CLAMP)
    y = z * z
    return _numerator(z, y) / _denominator(y)


@njit(**JIT)
def activate(x, n, act, slope):
    """In place on x[:n]."""
    out_of_line()
    if act == TANH:
        for i in range(n):
            x[i] = tanh(x[i])
    elif act == RELU:
        for i in range(n):
            x[i] = larger(x[i], ZERO)
    elif act == LEAKYRELU:
        for i in range(n):
            x[i] *= choose(x[i] > ZERO, ONE, LEAKY_SLOPE)
    elif act == PRELU:
        for i in range(n):
            x[i] *= choose(x[i] > ZERO, ONE, slope)


@njit(**JIT)
def prelu_gradient(z, d, n, slope):
    """d[:n]: the derivative by the activation -> that by z, in place. Returns the derivative by the slope."""
    out_of_line()
    by_slope = ZERO
    for i in range(n):
        below = z[i] <= ZERO
        by_slope += choose(below, d[i] * z[i], ZERO)
        d[i] *= choose(below, slope, ONE)
    return by_slope
