"""The nets of contrastive RL and their gradients, on one core; twin of ``forward`` in ``agents/goal/crl_networks.py``.

Built on the products of ``mlp.py``, whose conventions hold: activations feature-major ``[F, L]``, L the batch padded to
a multiple of 16; columns that are no sample are finite in an input and zero in a gradient by outputs. What is here and
not there: swish, a layer norm with parameters of its own after each hidden layer, skip connections, and a gradient by
some rows of the input only, because of a state and an action the actor has chosen the action.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from envolve.agents.goal.crl_networks import TrunkShape
from envolve.agents.kernels import JIT, JIT_UNCOUNTED
from envolve.agents.kernels.dense.activation import F4, NIL, NO, NONE, ONE, UNIT, YES, ZERO
from envolve.agents.kernels.dense.gemm import out_of_line, product
from envolve.agents.kernels.dense.layer_norm import norm_gradient, normalize
from envolve.agents.kernels.dense.mlp import affine, aligned, head_gradient, weight_gradient
from envolve.agents.kernels.dense.vector import exp, larger

EPSILON = F4(1e-6)  # agents.goal.crl_networks.NORM_EPSILON
FEW = 32  # outputs of a layer that ``head_gradient`` is faster for


class Trunk(NamedTuple):
    """A ``TrunkShape`` at offset ``at`` of a member's parameters."""

    at: int
    K: int
    H: int
    M: int
    layers: int
    swish: bool
    norm: bool
    skip: int
    size: int

    @classmethod
    def create(cls, shape: TrunkShape, at: int) -> Trunk:
        return cls(
            at=at,
            K=shape.inputs,
            H=shape.hidden,
            M=shape.outputs,
            layers=shape.layers,
            swish=shape.activation == "swish",
            norm=shape.layer_norm,
            skip=shape.skip,
            size=shape.size,
        )

    def activations(self, L: int) -> np.ndarray:
        """Room for what ``forward`` keeps, h: [planes, layers, H + 1, L]. The planes: outputs of the hidden layers,
        their numbers before the activation, x^ of the layer norm (with a row more, see ``layer_norm.py``)."""
        return aligned((3, self.layers, self.H + 1, L))

    def workspace(self, L: int) -> np.ndarray:
        """Scratch of a backward pass, dh: three gradients by activations, and that which a skip connection carries."""
        rows = -(-max(self.H, self.M) // 16) * 16
        return aligned((4, rows, L))


@njit(**JIT)
def _activate(z, x, n, swish):
    """x[:n] <- activation of z[:n]; other memory, for where they overlap nothing would be vectorised."""
    out_of_line()
    if swish:
        for i in range(n):
            x[i] = z[i] / (ONE + exp(-z[i]))
    else:
        for i in range(n):
            x[i] = larger(z[i], ZERO)


@njit(**JIT)
def _relu(x, n):
    """In place on x[:n]."""
    out_of_line()
    for i in range(n):
        x[i] = larger(x[i], ZERO)


@njit(**JIT)
def _activation_gradient(z, d, n, swish):
    """d[:n]: the derivative by the activation of z -> that by z, in place. Of relu, z may be its outputs."""
    out_of_line()
    if swish:
        for i in range(n):
            s = ONE / (ONE + exp(-z[i]))
            d[i] *= s * (ONE + z[i] * (ONE - s))
    else:
        for i in range(n):
            d[i] *= F4(z[i] > ZERO)


@njit(**JIT)
def _add(x, y, n):
    """x[:n] += y[:n]."""
    for i in range(n):
        x[i] += y[i]


@njit(**JIT_UNCOUNTED)
def forward(t, p, x, h, q, L):
    """The net t of the parameters p[D]: x[K, L] -> q[M, L]; h (``activations``) keeps what the backward pass needs."""
    out_of_line()
    o, K, H, n = t.at, t.K, t.H, t.H * L
    kept = 1 if t.swish or t.skip > 0 else 0  # else the outputs say all about the numbers before the activation
    for layer in range(t.layers):
        z = h[kept, layer]
        affine(p, o, K, H, x if layer == 0 else h[0, layer - 1], z, L)
        o += K * H + H
        K = H
        if t.norm:
            normalize(p, o, H, z, h[2, layer], L, EPSILON)
            o += 2 * H
        out = h[0, layer].reshape(z.size)
        if kept == 0:
            _relu(out, n)
        else:
            _activate(z.reshape(z.size), out, n, t.swish)
        if t.skip > 0 and layer > 0 and layer % t.skip == 0:
            _add(out, h[0, layer - t.skip].reshape(z.size), n)
    affine(p, o, H, t.M, h[0, t.layers - 1], q, L)


@njit(**JIT_UNCOUNTED)
def _backward(t, p, x, h, dq, dh, L, g, dx, first, rows, by_weights):
    """by_weights: the gradient by the weights, else that by the inputs."""
    out_of_line()
    K, H, M, n, now, behind = t.K, t.H, t.M, t.H * L, 0, t.H * (3 if t.norm else 1)
    o = t.at + t.size - (H * M + M)
    kept = 1 if t.swish or t.skip > 0 else 0
    if by_weights:
        if M < FEW:
            head_gradient(o, H, M, h[0, t.layers - 1], dq, L, g, dh[2], dh[0])
        else:
            weight_gradient(o, H, M, h[0, t.layers - 1], dq, L, g, dh[2])
    product(p, o, M, UNIT, NONE, dq, L, dh[0], NIL, L, M, H, L)
    carried = dh[3].reshape(dh[3].size)  # the gradient by a layer's outputs that comes from ``skip`` layers further on
    for layer in range(t.layers - 1, -1, -1):
        d = dh[now]
        flat = d.reshape(d.size)
        if t.skip > 0 and layer % t.skip == 0:
            if layer + t.skip < t.layers:
                _add(flat, carried, n)
            for i in range(n):
                carried[i] = flat[i]
        z = h[kept, layer]
        _activation_gradient(z.reshape(z.size), flat, n, t.swish)
        inputs = H if layer > 0 else K
        o -= inputs * H + behind
        if t.norm:
            at = o + inputs * H + H
            if by_weights:
                g[at : at + 2 * H] = ZERO
            norm_gradient(p, at, H, d, h[2, layer], L, g, by_weights, dh[2])
        if by_weights:
            weight_gradient(o, inputs, H, h[0, layer - 1] if layer > 0 else x, d, L, g, dh[2])
        if layer > 0:
            product(p, o, H, UNIT, NONE, d, L, dh[1 - now], NIL, L, H, H, L)  # dx[k, i] = sum_m W[k, m] d[m, i]
            now = 1 - now
        elif not by_weights:
            product(p, o + first * H, H, UNIT, NONE, d, L, dx, NIL, L, H, rows, L)


@njit(**JIT_UNCOUNTED)
def backward(t, p, x, h, dq, dh, L, g):
    """g[at : at + size] <- gradient of the loss whose derivative by the outputs is dq[M, L]. x, h as after
    ``forward``; dh: ``workspace``."""
    _backward(t, p, x, h, dq, dh, L, g, dh[0], NIL, NIL, YES)


@njit(**JIT_UNCOUNTED)
def backward_input(t, p, x, h, dq, dh, L, dx, first, rows):
    """dx[rows, L] <- the gradient by the inputs first .. first + rows - 1 alone, weights held fixed."""
    _backward(t, p, x, h, dq, dh, L, p, dx, first, rows, NO)
