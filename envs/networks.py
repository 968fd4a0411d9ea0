"""Stacks of P small MLPs in one flat buffer ``[P, D]``, evaluated feature-major: activations ``[P, F, B]``.

Feature-major with the long batch axis last is what makes skinny batched matmuls fast on a CPU, and one flat buffer
makes perturbing, copying, soft-updating and saving a population one-liners (figures: docs/architecture.md).

Flat layout of one net, shared with the numba twin (``agents/kernels/mlp.py``): for each layer the weights input-major
``W[K, M]``, then the bias ``b[M]``; a PReLU net ends with its one slope.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, List, Tuple

import torch
from torch import Tensor

from envs import rng

ACTIVATIONS = ("tanh", "relu", "leakyrelu", "prelu", "identity")  # the index is the code the numba twin uses
LEAKY_SLOPE, PRELU_INIT = 0.01, 0.25  # torch's defaults


@lru_cache(maxsize=None)
def _minus_one(device: torch.device) -> Tensor:
    return torch.tensor(-1.0, device=device)


@dataclass(frozen=True)
class MLPShape:
    """inputs -> hidden x layers -> outputs. ``layers`` 0 and 1 build the same net, as in the original."""

    inputs: int
    outputs: int
    hidden: int
    layers: int
    activation: str

    def widths(self) -> List[int]:
        return [self.inputs] + [self.hidden] * max(1, self.layers) + [self.outputs]

    @property
    def slope_slots(self) -> int:
        return 1 if self.activation == "prelu" else 0

    @property
    def size(self) -> int:
        """Number of float32 parameters, D."""
        w = self.widths()
        return sum(k * m + m for k, m in zip(w[:-1], w[1:])) + self.slope_slots

    @cached_property
    def layout(self) -> Tuple[List[Tuple[int, int, int]], List[int]]:
        """(offset, K, M) of each layer in the flat vector; sizes of its parts W, b, W, b, ... and the slope."""
        out, offset, w = [], 0, self.widths()
        for k, m in zip(w[:-1], w[1:]):
            out.append((offset, k, m))
            offset += k * m + m
        return out, [n for _, k, m in out for n in (k * m, m)] + [1] * self.slope_slots

    def layer_offsets(self) -> List[Tuple[int, int, int]]:
        """(offset, K, M) of each layer in the flat vector."""
        return self.layout[0]


def init_flat(shape: MLPShape, key: Tensor, counter: int = 0) -> Tensor:
    """torch's default nn.Linear initialisation, U(-1/sqrt(K), 1/sqrt(K)). key: int64 [P] -> float32 [P, D]."""
    u = rng.uniform(key[:, None], torch.arange(counter, counter + shape.size, device=key.device)[None, :])
    bound = torch.empty(shape.size, device=key.device)
    for offset, k, m in shape.layer_offsets():
        bound[offset : offset + k * m + m] = k**-0.5
    flat = (u * 2 - 1) * bound
    if shape.slope_slots:
        flat[:, -1] = PRELU_INIT
    return flat


class _Tanh(torch.autograd.Function):
    """In place, and one pass backward: dz = (1 - tanh(z)^2) dy."""

    @staticmethod
    def forward(ctx: Any, z: Tensor) -> Tensor:
        ctx.mark_dirty(z)
        torch.add(_minus_one(z.device), z.mul_(2).sigmoid_(), alpha=2, out=z)
        ctx.save_for_backward(z)
        return z

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Tensor:
        return torch.ops.aten.tanh_backward(dy, *ctx.saved_tensors)


def fast_tanh_(z: Tensor) -> Tensor:
    """tanh(z) = 2 sigmoid(2z) - 1 in place: five times faster than torch.tanh on a CPU, absolute error below 2e-7."""
    return _Tanh.apply(z)


def activate_(z: Tensor, name: str, slope: Tensor) -> Tensor:
    """Overwrites z where it can: memory traffic is most of what an activation costs. z: [P, F, B]; slope: [P, 1, 1]."""
    if name == "tanh":
        return fast_tanh_(z)
    if name == "relu":
        return z.relu_()
    if name == "leakyrelu":
        return torch.nn.functional.leaky_relu_(z, LEAKY_SLOPE)
    if name == "prelu":
        return torch.where(z > 0, z, slope * z)
    return z


def forward(shape: MLPShape, flat: Tensor, x: Tensor) -> Tensor:
    """flat: [P, D] (a view of a longer buffer is fine), x: [P, K, B] -> [P, M, B]."""
    layers, sizes = shape.layout
    parts = flat.split(sizes, dim=1)  # one node of the graph; a slice per part would be one each, and one sum of each
    if shape.activation == "tanh" and not flat.requires_grad:
        return _forward_tanh(layers, parts, x)
    for i, (_, k, m) in enumerate(layers):
        w = parts[2 * i].view(-1, k, m).transpose(1, 2)  # [P, M, K]
        x = torch.baddbmm(parts[2 * i + 1].unsqueeze(2), w, x)
        if i < len(layers) - 1:
            x = activate_(x, shape.activation, parts[-1].unsqueeze(2))
    return x


def _forward_tanh(layers: List[Tuple[int, int, int]], parts: Tuple[Tensor, ...], x: Tensor) -> Tensor:
    """With tanh(z) = 2 sigmoid(2z) - 1 folded into the layers, which saves two of three passes over the activations:
    the factor before z is one of the matrix product, and W (2 s - 1) + b = 2 W s + (b - W 1).

    Not for weights that want a gradient: that of a padded unit's, whose s is 1/2, would be 0 up to rounding only.
    """
    for i, (_, k, m) in enumerate(layers):
        w, bias, scale = parts[2 * i].view(-1, k, m), parts[2 * i + 1], 1
        if i > 0:
            bias, scale = bias - w.sum(1), 2
        doubled = 2 if i < len(layers) - 1 else 1
        x = torch.baddbmm(bias.unsqueeze(2), w.transpose(1, 2), x, beta=doubled, alpha=doubled * scale)
        if i < len(layers) - 1:
            x = x.sigmoid_()
    return x
