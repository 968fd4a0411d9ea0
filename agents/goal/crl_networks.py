"""The nets of contrastive RL: stacks of P trunks in one flat buffer, and the tanh-Gaussian policy.

As ``envs/nets/networks.py``, but what it has not: swish, a layer norm of its own for every hidden layer, skip
connections over several layers; and activations lie sample by sample, [P, B, F], as layer norm and the matrix of logits
want them.

Flat layout of one net: for each layer W[K, M], then b[M], then, of a hidden layer with layer norm, weight[M], bias[M].
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import List, Tuple

import torch
from torch import Tensor
from torch.nn.functional import layer_norm, silu, softplus

from envolve.core import rng

NORM_EPSILON = 1e-6
LOG_STD = (-5.0, 2.0)  # of a bounded policy
LEAST_STD = 1e-3  # of a softplus policy


@dataclass(frozen=True)
class TrunkShape:
    """Shape of a network: inputs -> hidden x layers -> outputs. Each hidden layer is affine, layer norm (if any),
    activation. With ``skip`` k > 0, every k-th hidden layer after the first adds the output of the layer k before it.
    """

    inputs: int
    outputs: int
    hidden: int
    layers: int
    activation: str = "relu"
    layer_norm: bool = False
    skip: int = 0

    @cached_property
    def layout(self) -> Tuple[List[Tuple[int, int, int]], List[int]]:
        """(offset, K, M) of each layer in the flat vector; sizes of its parts: W, b (, weight, bias), W, b, ..."""
        layers, sizes, offset = [], [], 0
        widths = [self.inputs] + [self.hidden] * self.layers + [self.outputs]
        for i, (k, m) in enumerate(zip(widths[:-1], widths[1:])):
            layers.append((offset, k, m))
            parts = [k * m, m] + [m, m] * (self.layer_norm and i < self.layers)
            sizes += parts
            offset += sum(parts)
        return layers, sizes

    @property
    def size(self) -> int:
        """Number of float32 parameters, D."""
        return sum(self.layout[1])


def initial(shape: TrunkShape, key: Tensor, counter: int) -> Tensor:
    """Fresh parameters: weights U(-1/sqrt(K), 1/sqrt(K)), biases 0, layer norm 1 and 0. key: int64 [P] -> float32 [P,
    D]. Uses counters counter .. counter + D - 1."""
    flat = torch.zeros(len(key), shape.size, device=key.device)
    for offset, k, m in shape.layout[0]:
        numbers = torch.arange(counter + offset, counter + offset + k * m, device=key.device)
        flat[:, offset : offset + k * m] = (rng.uniform(key[:, None], numbers) * 2 - 1) * k**-0.5
    if shape.layer_norm:
        for offset, k, m in shape.layout[0][:-1]:
            flat[:, offset + k * m + m : offset + k * m + 2 * m] = 1
    return flat


def forward(shape: TrunkShape, flat: Tensor, x: Tensor) -> Tensor:
    """Forward pass. flat: [P, D] (may be a view of a longer buffer), x: [P, B, K] -> [P, B, M]."""
    layers, sizes = shape.layout
    parts, at, remembered = flat.split(sizes, dim=1), 0, x
    for i, (_, k, m) in enumerate(layers):
        x = torch.baddbmm(parts[at + 1].unsqueeze(1), x, parts[at].view(-1, k, m))
        at += 2
        if i == shape.layers:
            break
        if shape.layer_norm:
            weight, bias = parts[at].unsqueeze(1), parts[at + 1].unsqueeze(1)
            x = torch.addcmul(bias, layer_norm(x, (m,), eps=NORM_EPSILON), weight)
            at += 2
        x = torch.relu_(x) if shape.activation == "relu" else silu(x)
        if shape.skip and i % shape.skip == 0:
            x = x + remembered if i else x
            remembered = x
    return x


# ------------------------------------------------------------------------------------------------------------ policy


def gaussian(outputs: Tensor, kind: str) -> Tuple[Tensor, Tensor]:
    """Splits the actor's outputs [P, B, 2 A] into mean and standard deviation of u, [P, B, A]; the action is
    tanh(u)."""
    mean, raw = outputs.chunk(2, dim=2)
    if kind == "softplus":
        return mean, softplus(raw) + LEAST_STD
    low, high = LOG_STD
    return mean, (low + 0.5 * (high - low) * (torch.tanh(raw) + 1)).exp()


def squashed(mean: Tensor, std: Tensor, noise: Tensor) -> Tuple[Tensor, Tensor]:
    """Action tanh(u), u = mean + std noise, and its log-probability [P, B]. noise: [P, B, A], standard normal."""
    u = mean + std * noise
    # log N(u; mean, std) = -n^2 / 2 - log std - log(2 pi) / 2, and of tanh's slope log(1 - tanh(u)^2)
    # = 2 (log 2 - u - softplus(-2 u)), which does not cancel where tanh(u) nears 1
    slope = 2 * (math.log(2) - u - softplus(-2 * u))
    log_prob = -0.5 * (noise.square() + math.log(2 * math.pi)) - std.log() - slope
    return torch.tanh(u), log_prob.sum(2)
