"""Networks of ``envs/nets/networks.py`` in a form that torch.compile turns into fast code.

By itself PyTorch pays for calls and for passes over memory, so its nets are few library calls. A compiler joins what is
written as plain arithmetic and keeps it in registers. Hence here: a product with few inputs or few outputs is a sum
over these, as library products are slow where a side is short; and tanh is a quotient of polynomials.
"""

from __future__ import annotations

import functools
from typing import Any, List, Optional, Tuple

import torch
from torch import Tensor

SHORT = 8  # inputs or outputs up to which a product is written out
# tanh(x) ~ x P(x^2) / Q(x^2), |x| clamped: coefficients of Eigen (MathFunctionsImpl.h), absolute error below 4e-7.
# Shared with agents/kernels/dense/activation.py (a test compares them).
P = (
    4.89352455891786e-03, 6.37261928875436e-04, 1.48572235717979e-05, 5.12229709037114e-08, -8.60467152213735e-11,
    2.00018790482477e-13, -2.76076847742355e-16,
)  # fmt: skip
Q = (4.89352518554385e-03, 2.26843463243900e-03, 1.18534705686654e-04, 1.19825839466702e-06)
CLAMP = 7.90531110763549805

LEAKY_SLOPE = 0.01  # torch's default

Layout = Tuple[List[Tuple[int, int, int]], List[int]]


def tanh(z: Tensor) -> Tensor:
    z = z.clamp(-CLAMP, CLAMP)
    return z * _horner(P, z * z) / _horner(Q, z * z)


def _horner(coefficients: Tuple[float, ...], y: Tensor) -> Any:
    value: Any = coefficients[-1]
    for c in coefficients[-2::-1]:
        value = value * y + c
    return value


def product(w: Tensor, x: Tensor) -> Tensor:
    """Product w^T x. w: [P, K, M], x: [P, K, B] -> [P, M, B]."""
    _, K, M = w.shape
    if K <= SHORT:
        return functools.reduce(torch.add, [w[:, k].unsqueeze(2) * x[:, k].unsqueeze(1) for k in range(K)])
    if M <= SHORT:
        return torch.stack([(w[:, :, m].unsqueeze(2) * x).sum(1) for m in range(M)], 1)
    return torch.bmm(w.transpose(1, 2), x)


def activate(z: Tensor, name: str, slope: Tensor) -> Tensor:
    """Activation. z: [P, F, B]; slope, of a PReLU: [P, 1, 1]."""
    if name == "tanh":
        return tanh(z)
    if name == "relu":
        return z.relu()
    if name == "leakyrelu":
        return torch.where(z > 0, z, LEAKY_SLOPE * z)
    return torch.where(z > 0, z, slope * z) if name == "prelu" else z


class MLP(torch.autograd.Function):
    """A whole net, [P, K, B] -> [P, M, B]. Gradients of weights stay library products: they sum over the batch, along
    which everything else here is made of vectors."""

    @staticmethod
    def forward(ctx: Any, act: str, layout: Layout, flat: Tensor, x: Tensor) -> Tensor:
        """act: activation; layout: ``MLPShape.layout``; flat: [P, D]."""
        layers, sizes = layout
        parts, last = flat.split(sizes, dim=1), len(layers) - 1
        inputs, zs = [x], []  # of every layer; what a PReLU gets
        for i, (_, k, m) in enumerate(layers):
            x = product(parts[2 * i].view(-1, k, m), x) + parts[2 * i + 1].unsqueeze(2)
            if i == last:
                break
            if act == "prelu":
                zs.append(x)
            x = activate(x, act, parts[-1].unsqueeze(2))
            inputs.append(x)
        ctx.act, ctx.layout = act, layout
        ctx.save_for_backward(flat, *inputs, *zs)
        return x

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Tuple[None, None, Optional[Tensor], Optional[Tensor]]:
        flat, *saved = ctx.saved_tensors
        (layers, sizes), act = ctx.layout, ctx.act
        inputs, zs = saved[: len(layers)], saved[len(layers) :]
        _, _, want_flat, want_x = ctx.needs_input_grad
        parts = flat.split(sizes, dim=1)
        grads: List[Tensor] = []  # the last layer's first
        slope = torch.zeros_like(flat[:, :1])
        for i in range(len(layers) - 1, -1, -1):
            _, k, m = layers[i]
            grads += [dy.sum(2), torch.bmm(inputs[i], dy.transpose(1, 2)).flatten(1)]
            if i == 0 and not want_x:
                break
            dy = product(parts[2 * i].view(-1, k, m).transpose(1, 2), dy)  # dx = W dy
            if i == 0:
                break
            if act == "tanh":
                dy = dy * (1 - inputs[i] * inputs[i])
            elif act == "relu":
                dy = torch.where(inputs[i] > 0, dy, 0)
            elif act == "leakyrelu":
                dy = torch.where(inputs[i] > 0, dy, LEAKY_SLOPE * dy)
            elif act == "prelu":
                positive = zs[i - 1] > 0
                slope = slope + torch.where(positive, 0, dy * zs[i - 1]).sum((1, 2)).unsqueeze(1)
                dy = torch.where(positive, dy, parts[-1].unsqueeze(2) * dy)
        if act == "prelu":
            grads.insert(0, slope)
        return None, None, torch.cat(grads[::-1], 1) if want_flat else None, dy if want_x else None
