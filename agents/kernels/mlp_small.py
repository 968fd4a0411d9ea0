"""The backward pass of one hidden layer, four inputs, two outputs (CartPole's agents), fused: the hottest shape.

Same layout and results (up to the order of sums) as ``backward`` in ``mlp.py``. A pass over the batch is bound by loads
and stores, so hidden units go in pairs that share every load of x, and no derivative of a hidden unit is ever stored:
1.5 us at 57 units and a batch of 199, where ``backward`` takes 4.3.
"""

from __future__ import annotations

from numba import njit

from agents.kernels import JIT
from agents.kernels.activation import LEAKY_SLOPE, LEAKYRELU, ONE, RELU, TANH, ZERO
from agents.kernels.gemm import in_line, out_of_line

INPUTS, OUTPUTS = 4, 2


@njit(**JIT)
def _slope(z, act):
    """act'(z) from the activation's value."""
    in_line()
    if act == TANH:
        return ONE - z * z
    if act == RELU:
        return ONE if z > ZERO else ZERO
    if act == LEAKYRELU:
        return ONE if z > ZERO else LEAKY_SLOPE
    return ONE


@njit(**JIT)
def _backward_pair(p, H, m, x, h, dq, L, g, act):
    """Hidden units m and m + 1: the seven gradients of each in one pass."""
    in_line()
    o = 5 * H + 2 * m
    u0, v0, u1, v1 = p[o], p[o + 1], p[o + 2], p[o + 3]
    x0, x1, x2, x3, h0, h1, d0, d1 = x[0], x[1], x[2], x[3], h[m], h[m + 1], dq[0], dq[1]
    s00, s01, s02, s03, s0b, s0u, s0v = ZERO, ZERO, ZERO, ZERO, ZERO, ZERO, ZERO
    s10, s11, s12, s13, s1b, s1u, s1v = ZERO, ZERO, ZERO, ZERO, ZERO, ZERO, ZERO
    for i in range(L):
        e0, e1 = d0[i], d1[i]
        z0, z1 = h0[i], h1[i]
        t0 = (u0 * e0 + v0 * e1) * _slope(z0, act)
        t1 = (u1 * e0 + v1 * e1) * _slope(z1, act)
        s0u += e0 * z0
        s0v += e1 * z0
        s1u += e0 * z1
        s1v += e1 * z1
        s0b += t0
        s1b += t1
        s00 += t0 * x0[i]
        s01 += t0 * x1[i]
        s02 += t0 * x2[i]
        s03 += t0 * x3[i]
        s10 += t1 * x0[i]
        s11 += t1 * x1[i]
        s12 += t1 * x2[i]
        s13 += t1 * x3[i]
    g[m], g[H + m], g[2 * H + m], g[3 * H + m], g[4 * H + m] = s00, s01, s02, s03, s0b
    g[m + 1], g[H + m + 1], g[2 * H + m + 1], g[3 * H + m + 1], g[4 * H + m + 1] = s10, s11, s12, s13, s1b
    g[o], g[o + 1], g[o + 2], g[o + 3] = s0u, s0v, s1u, s1v


@njit(**JIT)
def _backward_one(p, H, m, x, h, dq, L, g, act):
    """The odd unit."""
    in_line()
    o = 5 * H + 2 * m
    u, v = p[o], p[o + 1]
    s0, s1, s2, s3, sb, su, sv = ZERO, ZERO, ZERO, ZERO, ZERO, ZERO, ZERO
    for i in range(L):
        z = h[m, i]
        t = (u * dq[0, i] + v * dq[1, i]) * _slope(z, act)
        su += dq[0, i] * z
        sv += dq[1, i] * z
        sb += t
        s0 += t * x[0, i]
        s1 += t * x[1, i]
        s2 += t * x[2, i]
        s3 += t * x[3, i]
    g[m], g[H + m], g[2 * H + m], g[3 * H + m], g[4 * H + m], g[o], g[o + 1] = s0, s1, s2, s3, sb, su, sv


@njit(**JIT)
def backward_small(p, H, x, h, dq, L, g, act):
    """g <- gradient of the loss whose derivative by the outputs is dq[2, L]."""
    out_of_line()
    for a in range(2):
        s = ZERO
        for i in range(L):
            s += dq[a, i]
        g[7 * H + a] = s
    m = 0
    if act == TANH:
        while m + 2 <= H:
            _backward_pair(p, H, m, x, h, dq, L, g, TANH)
            m += 2
        if m < H:
            _backward_one(p, H, m, x, h, dq, L, g, TANH)
    elif act == RELU:
        while m + 2 <= H:
            _backward_pair(p, H, m, x, h, dq, L, g, RELU)
            m += 2
        if m < H:
            _backward_one(p, H, m, x, h, dq, L, g, RELU)
    else:
        while m + 2 <= H:
            _backward_pair(p, H, m, x, h, dq, L, g, act)
            m += 2
        if m < H:
            _backward_one(p, H, m, x, h, dq, L, g, act)
