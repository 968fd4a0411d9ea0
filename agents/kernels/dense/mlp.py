"""Dense layers and their gradients for small MLPs, on one core. Twin of ``envs/nets/networks.py``.

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

from typing import NamedTuple

import numpy as np
from numba import njit
from numba.extending import register_jitable

from envolve.agents.kernels import JIT
from envolve.agents.kernels.dense.activation import (
    F4,
    IDENTITY,
    LEAKY_SLOPE,
    LEAKYRELU,
    NIL,
    NONE,
    ONE,
    PRELU,
    RELU,
    TANH,
    UNIT,
    ZERO,
    activate,
    prelu_gradient,
)
from envolve.agents.kernels.dense.gemm import BLOCK, out_of_line, product, transpose
from envolve.agents.kernels.dense.layer_norm import EPSILON, norm_gradient, normalize, normalize_one
from envolve.agents.kernels.dense.vector import choose

WEIGHTS, INPUT, BOTH = np.int64(0), np.int64(1), np.int64(2)  # gradients that a backward pass is for


class Net(NamedTuple):
    """Sizes of one net. Every field is an int64, so that a function of nets is compiled once."""

    inputs: int  # K
    hidden: int  # H, units of each hidden layer
    layers: int  # hidden ones
    outputs: int  # M
    act: int  # ``activation.py``


@njit(**JIT)
def affine(p, o, K, M, x, out, L):
    """out[m, i] = b[m] + sum_k W[k, m] x[k, i]."""
    product(p, o, UNIT, M, o + K * M, x, L, out, NIL, L, K, M, L)


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
            dz[i] *= choose(h[i] > ZERO, ONE, ZERO)  # no 0 where dz is infinite: that member has diverged
    elif act == LEAKYRELU:
        for i in range(n):
            dz[i] *= choose(h[i] > ZERO, ONE, LEAKY_SLOPE)


@register_jitable
def size(K, H, layers, M, act=IDENTITY, norm=False):
    """Parameters of a net: those of its layers, weight[H] and bias[H] of its layer norm, the slope of a PReLU."""
    after = 2 * H * (1 if norm and layers > 1 else 0) + (1 if act == PRELU else 0)
    return K * H + H + (layers - 1) * (H * H + H) + H * M + M + after


@register_jitable
def net_size(net, norm=False):
    """``size`` of a net's sizes."""
    K, H, layers, M, act = net
    return size(K, H, layers, M, act, norm)


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
def activations(H, layers, L, act=IDENTITY, norm=False):
    """Room for what ``forward`` keeps of one net and one batch, ``h``: the hidden activations, then of PReLU nets the
    numbers before the activation, then of nets with layer norm x^ (``layer_norm.py``)."""
    planes = 1 + (1 if act == PRELU else 0) + (1 if norm else 0)
    return aligned((planes * layers, H + (1 if norm else 0), L))


@register_jitable
def workspace(H, L):
    """Scratch of a backward pass, ``dh``; nets of the same H and L can share it."""
    return aligned((3, (H + 15) // 16 * 16, L))


@njit(**JIT)
def forward(p, o, net, x, h, q, L, norm=False):
    """The net at offset o of p: x[K, L] -> q[M, L]; h (see ``activations``) keeps what the backward pass needs.

    L is also the stride of a row in all of these arrays, here and in the backward passes: none may have more columns.
    That is not checked, and numbers from the wrong columns look like any others.

    norm: with layer norm in the hidden layers from the second on. Apart from the sizes: a net that never has one is
    compiled without.
    """
    out_of_line()
    K, H, layers, M, act = net
    norm_at, slope, normed = _after_layers(p, o, net, norm)
    n = H * L
    affine(p, o, K, H, x, h[0], L)
    o += K * H + H
    for layer in range(layers):
        z = h[layer].reshape(h[0].size)
        if layer > 0:
            affine(p, o, H, H, h[layer - 1], h[layer], L)
            o += H * H + H
            if norm:
                normalize(p, norm_at, H, h[layer], h[normed + layer], L, EPSILON)
        if act == PRELU:
            before = h[layers + layer].reshape(z.size)
            for i in range(n):
                before[i] = z[i]
        activate(z, n, act, slope)
    affine(p, o, H, M, h[layers - 1], q, L)


@njit(**JIT)
def _after_layers(p, o, net, norm):
    """Finds where the layer norm of the net at o lies in p, the net's slope, and the first plane of x^ in h."""
    K, H, layers, M, act = net
    end = o + size(K, H, layers, M, act, norm)
    return o + size(K, H, layers, M), p[end - 1] if act == PRELU else ZERO, 2 * layers if act == PRELU else layers


@njit(**JIT)
def _backward(p, o, net, x, h, dq, dh, L, g, dx, norm, wanted):
    """wanted: WEIGHTS, INPUT or BOTH, of the gradients."""
    out_of_line()
    K, H, layers, M, act = net
    by_weights, by_input = wanted != INPUT, wanted != WEIGHTS
    norm_at, slope, normed = _after_layers(p, o, net, norm)
    start, end = o, o + size(K, H, layers, M, act, norm)
    o += size(K, H, layers, M) - (H * M + M)
    by_slope = ZERO
    if by_weights:
        if norm and layers > 1:  # shared by the layers, hence a sum
            g[norm_at : norm_at + 2 * H] = ZERO
        head_gradient(o, H, M, h[layers - 1], dq, L, g, dh[2], dh[0])
    now = 0
    input_gradient(p, o, H, M, h[layers - 1], dq, L, dh[now], act)
    for layer in range(layers - 1, -1, -1):
        d = dh[now]
        if act == PRELU:
            by_slope += prelu_gradient(h[layers + layer].reshape(h[0].size), d.reshape(d.size), H * L, slope)
        if layer > 0:
            if norm:
                norm_gradient(p, norm_at, H, d, h[normed + layer], L, g, by_weights, dh[2])
            o -= H * H + H
            if by_weights:
                weight_gradient(o, H, H, h[layer - 1], d, L, g, dh[2])
            input_gradient(p, o, H, H, h[layer - 1], d, L, dh[1 - now], act)
            now = 1 - now
    if by_weights:
        weight_gradient(start, K, H, x, dh[now], L, g, dh[2])
        if act == PRELU:
            g[end - 1] = by_slope
    if by_input:
        input_gradient(p, start, K, H, x, dh[now], L, dx, IDENTITY)


@njit(**JIT)
def backward(p, o, net, x, h, dq, dh, L, g, norm=False):
    """g[o : o + size] <- gradient of the loss whose derivative by the outputs is dq[M, L], 0 in columns that are no
    sample. x and h as they were after ``forward``; dh: see ``workspace``."""
    _backward(p, o, net, x, h, dq, dh, L, g, dh[0], norm, WEIGHTS)


@njit(**JIT)
def backward_both(p, o, net, x, h, dq, dh, L, g, dx, norm=False):
    """``backward``, and dx[K, L] <- the gradient by the net's input."""
    _backward(p, o, net, x, h, dq, dh, L, g, dx, norm, BOTH)


@njit(**JIT)
def backward_input(p, o, net, x, h, dq, dh, L, dx, norm=False):
    """dx[K, L] <- the gradient by the net's input alone: a critic is held fixed in its actor's update."""
    _backward(p, o, net, x, h, dq, dh, L, p, dx, norm, INPUT)


@njit(**JIT)
def predict(p, o, net, x, out, h, h2, norm=False):
    """One sample x[K] -> out[M], net at offset o; h, h2: scratch [H]. Returns the offset behind the net."""
    out_of_line()
    K, H, layers, M, act = net
    end = o + size(K, H, layers, M, act, norm)
    norm_at, slope, _ = _after_layers(p, o, net, norm)
    _predict_layer(p, o, K, H, x, h)
    activate(h, H, act, slope)
    o += K * H + H
    for _ in range(1, layers):
        _predict_layer(p, o, H, H, h, h2)
        if norm:
            normalize_one(p, norm_at, H, h2)
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


@njit(**JIT)
def _predict_layer(p, o, K, M, x, out):
    for m in range(M):
        out[m] = p[o + K * M + m]
    for k in range(K):
        xk = x[k]
        q = o + k * M
        for m in range(M):
            out[m] += xk * p[q + m]
