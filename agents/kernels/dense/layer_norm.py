"""Layer norm over the units of a hidden layer, and its gradient. Twin of ``normalize`` in ``envs/nets/networks.py``.

n = weight x^ + bias with x^ = (z - mean) / sqrt(var + eps), mean and variance over the H units, for each sample. Arrays
of a normalised net have a row more than units (``mlp.activations``): those of z and x^ hold a sum over units each.
"""

from __future__ import annotations

import math

from numba import njit

from envolve.agents.kernels import JIT
from envolve.agents.kernels.dense.activation import F4, ONE, ZERO
from envolve.agents.kernels.dense.gemm import out_of_line

EPSILON = F4(1e-5)  # envs.nets.networks.NORM_EPSILON


@njit(**JIT)
def normalize(p, o, H, z, x, L, eps):
    """z[:H] <- n, x[:H] <- x^, x[H] <- 1 / sqrt(var + eps); weight and then bias lie at o of p."""
    out_of_line()
    mean, scale, one_over = z[H], x[H], ONE / F4(H)
    for i in range(L):
        mean[i], scale[i] = ZERO, ZERO
    for j in range(H):
        for i in range(L):
            mean[i] += z[j, i] * one_over
    for j in range(H):
        for i in range(L):
            x[j, i] = z[j, i] - mean[i]
            scale[i] += x[j, i] * x[j, i] * one_over
    for i in range(L):
        scale[i] = ONE / math.sqrt(scale[i] + eps)
    for j in range(H):
        weight, bias = p[o + j], p[o + H + j]
        for i in range(L):
            x[j, i] *= scale[i]
            z[j, i] = weight * x[j, i] + bias


@njit(**JIT)
def normalize_one(p, o, H, z):
    """n of one sample: z[:H] <- n."""
    mean, variance = ZERO, ZERO
    for j in range(H):
        mean += z[j] / F4(H)
    for j in range(H):
        variance += (z[j] - mean) * (z[j] - mean) / F4(H)
    scale = ONE / math.sqrt(variance + EPSILON)
    for j in range(H):
        z[j] = p[o + j] * ((z[j] - mean) * scale) + p[o + H + j]


@njit(**JIT)
def norm_gradient(p, o, H, d, x, L, g, by_weights, t):
    """d: dLoss/dn -> dLoss/dz, in place; adds the gradients by weight and bias to g if ``by_weights``. t: scratch.

    dLoss/dz = (e - mean(e) - x^ mean(e x^)) / sqrt(var + eps) with e = weight dLoss/dn
    """
    out_of_line()
    scale, mean, along, one_over = x[H], t[0], t[1], ONE / F4(H)
    for i in range(L):
        mean[i], along[i] = ZERO, ZERO
    for j in range(H):
        weight, by_weight, by_bias = p[o + j], ZERO, ZERO
        for i in range(L):
            dn, xi = d[j, i], x[j, i]
            by_weight += dn * xi
            by_bias += dn
            mean[i] += weight * dn * one_over
            along[i] += weight * dn * xi * one_over
        if by_weights:
            g[o + j] += by_weight
            g[o + H + j] += by_bias
    for j in range(H):
        weight = p[o + j]
        for i in range(L):
            d[j, i] = (weight * d[j, i] - mean[i] - x[j, i] * along[i]) * scale[i]
