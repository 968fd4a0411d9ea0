"""Dense layers, their gradients and Adam for small MLPs, on one core. Twin of ``envs/networks.py``.

Parameters are one flat float32 vector, an agent's nets behind each other; a net at offset o holds per layer the weights
input-major ``W[K, M]``, then the bias ``b[M]``. Activations are feature-major ``x[F, L]``: L is the batch padded to a
multiple of 16, so that every inner loop runs over whole vectors of contiguous memory. Columns that are no sample must
be finite in x and zero in the gradient by the outputs; they change nothing. Sizes are run-time values: one compilation
serves every configuration. Arrays that ``aligned`` made are the fastest.

Arithmetic floor of one double-DQN update (three forward passes, one backward), at 110 GFLOP/s, MKL's rate for large
products on the core that this was written on, and 0.19 ns per tanh; and what it takes:

    4-64-64-2 tanh, batch 64        floor  30.4 us     takes  18 us
    4-128-128-2 relu, batch 128     floor   198 us     takes 104 us
    4-256-256-2 relu, batch 256     floor  1556 us     takes 757 us
    6-112-112-3 tanh, batch 149     floor   216 us     takes 107 us
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit
from numba.extending import register_jitable

from agents.kernels import JIT
from agents.kernels.gemm import BLOCK, out_of_line, product, transpose

F4, I8 = np.float32, np.int64
# numba compiles a function once more for every literal integer among its arguments; a numpy integer is no literal.
NONE, NIL, UNIT = I8(-1), I8(0), I8(1)
TANH, RELU, LEAKYRELU, PRELU, IDENTITY = I8(0), I8(1), I8(2), I8(3), I8(4)  # indices of envs.networks.ACTIVATIONS
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


@njit(inline="always", **JIT)
def tanh4(z0, z1, z2, z3):
    """Four at once with one division, which costs more than the polynomials.

    The product of the denominators lies in [5e-10, 1], far from underflow.
    """
    z0, z1 = min(max(z0, -CLAMP), CLAMP), min(max(z1, -CLAMP), CLAMP)
    z2, z3 = min(max(z2, -CLAMP), CLAMP), min(max(z3, -CLAMP), CLAMP)
    y0, y1, y2, y3 = z0 * z0, z1 * z1, z2 * z2, z3 * z3
    d0, d1, d2, d3 = _denominator(y0), _denominator(y1), _denominator(y2), _denominator(y3)
    d01, d23 = d0 * d1, d2 * d3
    r = ONE / (d01 * d23)
    r01, r23 = r * d23, r * d01
    n0, n1, n2, n3 = _numerator(z0, y0), _numerator(z1, y1), _numerator(z2, y2), _numerator(z3, y3)
    return n0 * (d1 * r01), n1 * (d0 * r01), n2 * (d3 * r23), n3 * (d2 * r23)


@njit(**JIT)
def activate(x, n, act, slope):
    """In place on x[:n]."""
    out_of_line()
    if act == TANH:
        for i in range(n):
            x[i] = tanh(x[i])
    elif act == RELU:
        for i in range(n):
            x[i] = max(x[i], ZERO)
    elif act == LEAKYRELU:
        for i in range(n):
            x[i] = max(x[i], LEAKY_SLOPE * x[i])
    elif act == PRELU:
        for i in range(n):
            x[i] = x[i] if x[i] > ZERO else slope * x[i]


@njit(**JIT)
def affine(p, o, K, M, x, out, L, act):
    """out[m, i] = act(b[m] + sum_k W[k, m] x[k, i])."""
    product(p, o, UNIT, M, o + K * M, x, L, out, NIL, L, K, M, L)
    activate(out.reshape(out.size), M * L, act, ZERO)


@njit(**JIT)
def weight_gradient(o, K, M, x, d, L, g, t):
    """g <- dLoss/dW[k, m] = sum_i x[k, i] d[m, i] and dLoss/db[m] = sum_i d[m, i]; t: scratch for d transposed."""
    transpose(d, M, L, t, g, o + K * M)
    product(x, NIL, L, UNIT, NONE, t, (M + BLOCK - 1) // BLOCK * BLOCK, g, o, M, L, K, M)


@njit(**JIT)
def head_gradient(o, K, M, x, d, L, g, t, gT):
    """``weight_gradient`` of a layer with few outputs, where x is transposed; t, gT: scratch."""
    out_of_line()
    transpose(x, K, L, t, gT, NIL)
    width = (K + BLOCK - 1) // BLOCK * BLOCK
    for first in range(0, M, BLOCK):
        rows = min(BLOCK, M - first)
        product(d, first * L, L, UNIT, NONE, t, width, gT, NIL, width, L, rows, K)
        by_row = gT.reshape(gT.size)
        for m in range(rows):
            for k in range(K):
                g[o + k * M + first + m] = by_row[m * width + k]
    for m in range(M):
        s = ZERO
        for i in range(L):
            s += d[m, i]
        g[o + K * M + m] = s


@njit(**JIT)
def input_gradient(p, o, K, M, x, d, L, dx, act):
    """dx[k, i] = act'(z) sum_m W[k, m] d[m, i]; x holds the activations of the layer below, which give act'(z)."""
    out_of_line()
    product(p, o, M, UNIT, NONE, d, L, dx, NIL, L, M, K, L)
    n = K * L
    dz, h = dx.reshape(dx.size), x.reshape(x.size)
    if act == TANH:
        for i in range(n):
            dz[i] *= ONE - h[i] * h[i]
    elif act == RELU:
        for i in range(n):
            dz[i] = dz[i] if h[i] > ZERO else ZERO
    elif act == LEAKYRELU:
        for i in range(n):
            dz[i] = dz[i] if h[i] > ZERO else LEAKY_SLOPE * dz[i]


@njit(**JIT)
def size(K, H, layers, M, act=IDENTITY):
    """Parameters of a net, with its slope if ``act`` is PRELU."""
    return K * H + H + (layers - 1) * (H * H + H) + H * M + M + (1 if act == PRELU else 0)


@register_jitable
def aligned(shape):
    """float32 zeros that begin at a cache line: a vector that straddles two lines costs two loads. shape: a tuple.

    This and the next two can be called from Python too.
    """
    n = 1
    for length in shape:
        n *= length
    raw = np.zeros(n + 15, F4)
    skip = (-raw.ctypes.data % 64) // 4
    return raw[skip : skip + n].reshape(shape)


@register_jitable
def activations(H, layers, L):
    """Room for the hidden activations of one net and one batch: ``h`` of forward and backward."""
    return aligned((layers, H, L))


@register_jitable
def workspace(H, L):
    """Scratch of a backward pass, ``dh``; nets of the same H and L can share it."""
    return aligned((3, (H + 15) // 16 * 16, L))


@njit(**JIT)
def forward(p, o, K, H, layers, M, x, h, q, L, act):
    """The net at offset o of p: x[K, L] -> q[M, L]; h (see ``activations``) keeps what the backward pass needs."""
    out_of_line()
    affine(p, o, K, H, x, h[0], L, act)
    o += K * H + H
    for layer in range(1, layers):
        affine(p, o, H, H, h[layer - 1], h[layer], L, act)
        o += H * H + H
    affine(p, o, H, M, h[layers - 1], q, L, IDENTITY)


@njit(**JIT)
def _backward(p, o, K, H, layers, M, x, h, dq, dh, L, g, dx, act, by_weights, by_input):
    out_of_line()
    start, o = o, o + size(K, H, layers, M) - (H * M + M)
    if by_weights:
        head_gradient(o, H, M, h[layers - 1], dq, L, g, dh[2], dh[0])
    now = 0
    input_gradient(p, o, H, M, h[layers - 1], dq, L, dh[now], act)
    for layer in range(layers - 1, 0, -1):
        o -= H * H + H
        if by_weights:
            weight_gradient(o, H, H, h[layer - 1], dh[now], L, g, dh[2])
        input_gradient(p, o, H, H, h[layer - 1], dh[now], L, dh[1 - now], act)
        now = 1 - now
    if by_weights:
        weight_gradient(start, K, H, x, dh[now], L, g, dh[2])
    if by_input:
        input_gradient(p, start, K, H, x, dh[now], L, dx, IDENTITY)


@njit(**JIT)
def backward(p, o, K, H, layers, M, x, h, dq, dh, L, g, act):
    """g[o : o + size] <- gradient of the loss whose derivative by the outputs is dq[M, L], 0 in columns that are no
    sample. x and h as they were after ``forward``; dh: see ``workspace``."""
    _backward(p, o, K, H, layers, M, x, h, dq, dh, L, g, dh[0], act, True, False)


@njit(**JIT)
def backward_both(p, o, K, H, layers, M, x, h, dq, dh, L, g, dx, act):
    """``backward``, and dx[K, L] <- the gradient by the net's input."""
    _backward(p, o, K, H, layers, M, x, h, dq, dh, L, g, dx, act, True, True)


@njit(**JIT)
def backward_input(p, o, K, H, layers, M, x, h, dq, dh, L, dx, act):
    """dx[K, L] <- the gradient by the net's input alone: a critic is held fixed in its actor's update."""
    _backward(p, o, K, H, layers, M, x, h, dq, dh, L, p, dx, act, False, True)


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


@njit(**JIT)
def predict(p, o, K, H, layers, M, act, x, out, h, h2):
    """One sample x[K] -> out[M], net at offset o; a PReLU net's slope comes last. Returns the offset behind it."""
    out_of_line()
    end = o + size(K, H, layers, M, act)
    slope = p[end - 1] if act == PRELU else ZERO
    for m in range(H):
        h[m] = p[o + K * H + m]
    for k in range(K):
        xk = x[k]
        q = o + k * H
        for m in range(H):
            h[m] += xk * p[q + m]
    activate(h, H, act, slope)
    o += K * H + H
    for _ in range(1, layers):
        for m in range(H):
            h2[m] = p[o + H * H + m]
        for k in range(H):
            xk = h[k]
            q = o + k * H
            for m in range(H):
                h2[m] += xk * p[q + m]
        activate(h2, H, act, slope)
        for m in range(H):
            h[m] = h2[m]
        o += H * H + H
    for m in range(M):
        z = p[o + H * M + m]
        for k in range(H):
            z += h[k] * p[o + k * M + m]
        out[m] = z
    return end
