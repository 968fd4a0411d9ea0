"""One hidden layer, four inputs, two outputs (CartPole's agents), fused: the hottest shape gets its own loops.

Same layout and results (up to the order of sums) as ``forward`` and ``backward`` in ``mlp.py``. A pass over the batch
is bound by loads and stores, so hidden units go in pairs or fours that share every load of x and every update of the
outputs, and no derivative of a hidden unit is ever stored.
"""

from __future__ import annotations

from numba import njit

from agents.kernels import JIT
from agents.kernels.activation import LEAKY_SLOPE, LEAKYRELU, ONE, RELU, TANH, ZERO, tanh, tanh4
from agents.kernels.gemm import out_of_line

INPUTS, OUTPUTS = 4, 2


@njit(inline="always", **JIT)
def _forward_quad(p, H, m, x, h, q, L, act):
    """Hidden units m .. m + 3: h <- act(W1 x + b1), q += W2 h."""
    b = 4 * H
    a00, a01, a02, a03, c0 = p[m], p[H + m], p[2 * H + m], p[3 * H + m], p[b + m]
    a10, a11, a12, a13, c1 = p[m + 1], p[H + m + 1], p[2 * H + m + 1], p[3 * H + m + 1], p[b + m + 1]
    a20, a21, a22, a23, c2 = p[m + 2], p[H + m + 2], p[2 * H + m + 2], p[3 * H + m + 2], p[b + m + 2]
    a30, a31, a32, a33, c3 = p[m + 3], p[H + m + 3], p[2 * H + m + 3], p[3 * H + m + 3], p[b + m + 3]
    o = 5 * H + 2 * m
    u0, v0, u1, v1, u2, v2, u3, v3 = p[o], p[o + 1], p[o + 2], p[o + 3], p[o + 4], p[o + 5], p[o + 6], p[o + 7]
    x0, x1, x2, x3 = x[0], x[1], x[2], x[3]
    h0, h1, h2, h3 = h[m], h[m + 1], h[m + 2], h[m + 3]
    q0, q1 = q[0], q[1]
    for i in range(L):
        z0 = c0 + a00 * x0[i] + a01 * x1[i] + a02 * x2[i] + a03 * x3[i]
        z1 = c1 + a10 * x0[i] + a11 * x1[i] + a12 * x2[i] + a13 * x3[i]
        z2 = c2 + a20 * x0[i] + a21 * x1[i] + a22 * x2[i] + a23 * x3[i]
        z3 = c3 + a30 * x0[i] + a31 * x1[i] + a32 * x2[i] + a33 * x3[i]
        if act == TANH:
            z0, z1, z2, z3 = tanh4(z0, z1, z2, z3)
        elif act == RELU:
            z0, z1, z2, z3 = max(z0, ZERO), max(z1, ZERO), max(z2, ZERO), max(z3, ZERO)
        elif act == LEAKYRELU:
            z0, z1 = max(z0, LEAKY_SLOPE * z0), max(z1, LEAKY_SLOPE * z1)
            z2, z3 = max(z2, LEAKY_SLOPE * z2), max(z3, LEAKY_SLOPE * z3)
        h0[i], h1[i], h2[i], h3[i] = z0, z1, z2, z3
        q0[i] += (u0 * z0 + u1 * z1) + (u2 * z2 + u3 * z3)
        q1[i] += (v0 * z0 + v1 * z1) + (v2 * z2 + v3 * z3)


@njit(inline="always", **JIT)
def _forward_one(p, H, m, x, h, q, L, act):
    """The units that are left over after the fours."""
    a0, a1, a2, a3, c = p[m], p[H + m], p[2 * H + m], p[3 * H + m], p[4 * H + m]
    u, v = p[5 * H + 2 * m], p[5 * H + 2 * m + 1]
    for i in range(L):
        z = c + a0 * x[0, i] + a1 * x[1, i] + a2 * x[2, i] + a3 * x[3, i]
        if act == TANH:
            z = tanh(z)
        elif act == RELU:
            z = max(z, ZERO)
        elif act == LEAKYRELU:
            z = max(z, LEAKY_SLOPE * z)
        h[m, i] = z
        q[0, i] += u * z
        q[1, i] += v * z


@njit(**JIT)
def forward_small(p, H, x, h, q, L, act):
    """x[4, L] -> q[2, L]; h[H, L] keeps the hidden activations."""
    out_of_line()
    for a in range(2):
        b = p[7 * H + a]
        for i in range(L):
            q[a, i] = b
    # one loop per activation: the branch must not stand inside the loop over the batch
    m = 0
    if act == TANH:
        while m + 4 <= H:
            _forward_quad(p, H, m, x, h, q, L, TANH)
            m += 4
        while m < H:
            _forward_one(p, H, m, x, h, q, L, TANH)
            m += 1
    elif act == RELU:
        while m + 4 <= H:
            _forward_quad(p, H, m, x, h, q, L, RELU)
            m += 4
        while m < H:
            _forward_one(p, H, m, x, h, q, L, RELU)
            m += 1
    else:
        while m + 4 <= H:
            _forward_quad(p, H, m, x, h, q, L, act)
            m += 4
        while m < H:
            _forward_one(p, H, m, x, h, q, L, act)
            m += 1


@njit(inline="always", **JIT)
def _slope(z, act):
    """act'(z) from the activation's value."""
    if act == TANH:
        return ONE - z * z
    if act == RELU:
        return ONE if z > ZERO else ZERO
    if act == LEAKYRELU:
        return ONE if z > ZERO else LEAKY_SLOPE
    return ONE


@njit(inline="always", **JIT)
def _backward_pair(p, H, m, x, h, dq, L, g, act):
    """Hidden units m and m + 1: the seven gradients of each in one pass."""
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


@njit(inline="always", **JIT)
def _backward_one(p, H, m, x, h, dq, L, g, act):
    """The odd unit."""
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
