"""Adam, target networks and the norm of a gradient, on stretches of a flat vector of parameters. Twin of ``adam`` in
``agents/common/population.py``."""

from __future__ import annotations

import math

from numba import njit

from envolve.agents.kernels import JIT
from envolve.agents.kernels.dense.activation import EPSILON, F4, ONE
from envolve.agents.kernels.dense.gemm import out_of_line


@njit(**JIT)
def adam(p, m, v, g, lo, hi, step_size, v_scale, eps=EPSILON, scale=ONE):
    """One Adam step (betas .9 and .999, torch's form) on p[lo:hi] with the gradient scale * g[lo:hi].

    step_size = lr / (1 - .9^u) and v_scale = 1 / sqrt(1 - .999^u) for the u-th update. Scalars are float32.
    """
    out_of_line()
    p, m, v, g = p[lo:hi], m[lo:hi], v[lo:hi], g[lo:hi]  # indices from zero: numba lets others wrap, one by one
    for i in range(hi - lo):
        gi = scale * g[i]
        mi = m[i] + F4(0.1) * (gi - m[i])
        vi = F4(0.999) * v[i] + F4(0.001) * gi * gi
        m[i] = mi
        v[i] = vi
        p[i] -= step_size * mi / (math.sqrt(vi) * v_scale + eps)


@njit(**JIT)
def soft_update(p, target, lo, hi, tau):
    """target <- target + tau (p - target) on [lo, hi); tau: float32."""
    out_of_line()
    p, target = p[lo:hi], target[lo:hi]
    for i in range(hi - lo):
        target[i] += tau * (p[i] - target[i])


@njit(**JIT)
def adam_soft_update(p, target, m, v, g, lo, hi, step_size, v_scale, tau):
    """``adam`` and ``soft_update`` in one pass: every array is read once."""
    out_of_line()
    p, target, m, v, g = p[lo:hi], target[lo:hi], m[lo:hi], v[lo:hi], g[lo:hi]
    for i in range(hi - lo):
        mi = m[i] + F4(0.1) * (g[i] - m[i])
        vi = F4(0.999) * v[i] + F4(0.001) * g[i] * g[i]
        m[i] = mi
        v[i] = vi
        pi = p[i] - step_size * mi / (math.sqrt(vi) * v_scale + EPSILON)
        p[i] = pi
        target[i] += tau * (pi - target[i])


@njit(**JIT)
def norm_squared(g, lo, hi):
    """Sum of g[lo:hi]^2, in float64: for clipping a gradient by its norm."""
    g = g[lo:hi]
    total = 0.0
    for i in range(hi - lo):
        total += float(g[i]) * float(g[i])
    return total
