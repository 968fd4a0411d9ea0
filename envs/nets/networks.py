"""Stacks of P small MLPs in one flat buffer ``[P, D]``, evaluated feature-major: activations ``[P, F, B]``.

Feature-major with the long batch axis last is what makes skinny batched matmuls fast on a CPU, and one flat buffer
makes perturbing, copying, soft-updating and saving a population one-liners (figures: docs/back_ends.md).

Flat layout of one net, shared with the numba twin (``agents/kernels/dense/mlp.py``): for each layer the weights
input-major
``W[K, M]``, then the bias ``b[M]``; then the weight[H] and bias[H] of its layer norm, if it has one; a PReLU net ends
with its one slope.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, List, Optional, Sequence, Tuple, Union

import torch
from torch import Tensor

from envolve.core import rng
from envolve.envs.nets import traced
from envolve.envs.nets.mkl import same_bits_at_any_address
from envolve.envs.nets.traced import LEAKY_SLOPE

ACTIVATIONS = ("tanh", "relu", "leakyrelu", "prelu", "identity")  # the index is the code the numba twin uses
PRELU_INIT, NORM_EPSILON = 0.25, 1e-5  # torch's defaults
LATENT_SCALE = 2.0 * math.sqrt(3.0)  # z = scale (u - 1/2) has mean 0 and variance 1 for a uniform u


same_bits_at_any_address()


@lru_cache(maxsize=None)
def _minus_one(device: torch.device) -> Tensor:
    return torch.tensor(-1.0, device=device)


@dataclass(frozen=True)
class MLPShape:
    """Shape of a network: inputs -> hidden x layers -> outputs. ``layers`` 0 and 1 build the same net, as in the
    original.

    layer_norm: one layer norm, shared by the hidden layers from the second on, stands before their activations.
    """

    inputs: int
    outputs: int
    hidden: int
    layers: int
    activation: str
    layer_norm: bool = False

    def widths(self) -> List[int]:
        return [self.inputs] + [self.hidden] * max(1, self.layers) + [self.outputs]

    @property
    def slope_slots(self) -> int:
        return 1 if self.activation == "prelu" else 0

    @property
    def norm_slots(self) -> int:
        return 2 * self.hidden if self.layer_norm and self.layers > 1 else 0

    @property
    def size(self) -> int:
        """Number of float32 parameters, D."""
        w = self.widths()
        return sum(k * m + m for k, m in zip(w[:-1], w[1:])) + self.norm_slots + self.slope_slots

    @cached_property
    def layout(self) -> Tuple[List[Tuple[int, int, int]], List[int]]:
        """(offset, K, M) of each layer in the flat vector; sizes of its parts: W, b, W, b, ..., norm's, slope."""
        out, offset, w = [], 0, self.widths()
        for k, m in zip(w[:-1], w[1:]):
            out.append((offset, k, m))
            offset += k * m + m
        norm = [self.hidden, self.hidden] if self.norm_slots else []
        return out, [n for _, k, m in out for n in (k * m, m)] + norm + [1] * self.slope_slots

    def layer_offsets(self) -> List[Tuple[int, int, int]]:
        """(offset, K, M) of each layer in the flat vector."""
        return self.layout[0]

    @property
    def norm_offset(self) -> int:
        """Positions of the layer norm's weight and then its bias in the flat vector."""
        return self.size - self.slope_slots - self.norm_slots


@dataclass(frozen=True)
class LinearShape(MLPShape):
    """Linear map inputs -> outputs: no hidden layer, no bias. ``init_flat`` makes the weights 0."""

    def widths(self) -> List[int]:
        return [self.inputs, self.outputs]

    @property
    def slope_slots(self) -> int:
        return 0

    @property
    def size(self) -> int:
        return self.inputs * self.outputs

    @cached_property
    def layout(self) -> Tuple[List[Tuple[int, int, int]], List[int]]:
        return [(0, self.inputs, self.outputs)], [self.size]


@dataclass(frozen=True)
class TableShape(LinearShape):
    """Table of ``inputs`` rows with ``outputs`` numbers each. ``init_flat`` draws them with mean 0 and variance 1."""


def init_flat(shape: MLPShape, key: Tensor, counter: int = 0) -> Tensor:
    """torch's default nn.Linear initialisation, U(-1/sqrt(K), 1/sqrt(K)). key: int64 [P] -> float32 [P, D]."""
    if isinstance(shape, TableShape):
        u = rng.uniform(key[:, None], torch.arange(counter, counter + shape.size, device=key.device)[None, :])
        return (LATENT_SCALE * (u - 0.5)).float()
    if isinstance(shape, LinearShape):
        return torch.zeros(len(key), shape.size, device=key.device)
    u = rng.uniform(key[:, None], torch.arange(counter, counter + shape.size, device=key.device)[None, :])
    bound = torch.empty(shape.size, device=key.device)
    for offset, k, m in shape.layer_offsets():
        bound[offset : offset + k * m + m] = k**-0.5
    flat = (u * 2 - 1) * bound
    if shape.norm_slots:
        flat[:, shape.norm_offset : shape.norm_offset + shape.hidden] = 1
        flat[:, shape.norm_offset + shape.hidden : shape.norm_offset + shape.norm_slots] = 0
    if shape.slope_slots:
        flat[:, -1] = PRELU_INIT
    return flat


def fast_tanh_(z: Tensor) -> Tensor:
    """tanh(z) = 2 sigmoid(2z) - 1 in place (but where torch.compile traces it): five times faster than torch.tanh on a
    CPU, absolute error below 2e-7."""
    return traced.tanh(z) if torch.compiler.is_compiling() else _Tanh.apply(z)


class _Tanh(torch.autograd.Function):
    """Tanh in place with a one-pass backward: dz = (1 - tanh(z)^2) dy."""

    @staticmethod
    def forward(ctx: Any, z: Tensor) -> Tensor:
        ctx.mark_dirty(z)
        ctx.save_for_backward(_tanh_of_doubled_(z.mul_(2)))
        return z

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Tensor:
        return torch.ops.aten.tanh_backward(dy, *ctx.saved_tensors)


def _tanh_of_doubled_(z2: Tensor) -> Tensor:
    """Computes tanh(z) from 2z, in place."""
    return torch.add(_minus_one(z2.device), z2.sigmoid_(), alpha=2, out=z2)


def activate_(z: Tensor, name: str, slope: Tensor) -> Tensor:
    """Activation; overwrites z where possible; a tanh without a gradient. z: [P, F, B]; slope, of a PReLU: [P, 1 or F,
    1]."""
    if name == "tanh":
        return _tanh_of_doubled_(z.mul_(2))
    if name == "relu":
        return z.relu_()
    if name == "leakyrelu":
        return torch.nn.functional.leaky_relu_(z, LEAKY_SLOPE)
    return torch.where(z > 0, z, slope * z) if name == "prelu" else z


def forward(shape: MLPShape, flat: Tensor, x: Tensor, width: Optional[Tensor] = None) -> Tensor:
    """flat: [P, D] (a view of a longer buffer is fine), x: [P, K, B] -> [P, M, B].

    width: int64 or float [P], of a net with layer norm the hidden units that each member has; None: all of them.
    """
    if shape.norm_slots:
        return _with_layer_norm(shape, flat, x, width)
    if torch.compiler.is_compiling():
        return traced.MLP.apply(shape.activation, shape.layout, flat, x)
    if torch.is_grad_enabled() and (flat.requires_grad or x.requires_grad):
        return _MLP.apply(shape, flat, x)
    return _inference(shape, flat, x)


def normalize(z: Tensor, weight: Tensor, bias: Tensor, width: Optional[Tensor] = None) -> Tensor:
    """Layer norm over the units of z: [P, H, B]; weight, bias: [P, H]; width: [P], see ``forward``."""
    if width is None:
        centred = z - z.mean(1, keepdim=True)
        variance = centred.square().mean(1, keepdim=True)
    else:  # what a unit that does not exist holds enters nothing, and its gradient is 0
        exists = (torch.arange(z.shape[1], device=z.device) < width[:, None]).to(z.dtype).unsqueeze(2)
        count = width.to(z.dtype)[:, None, None]
        centred = (z - (z * exists).sum(1, keepdim=True) / count) * exists
        variance = centred.square().sum(1, keepdim=True) / count
    return torch.addcmul(bias.unsqueeze(2), centred * (variance + NORM_EPSILON).rsqrt(), weight.unsqueeze(2))


def _with_layer_norm(shape: MLPShape, flat: Tensor, x: Tensor, width: Optional[Tensor]) -> Tensor:
    layers, sizes = shape.layout
    parts, last = flat.split(sizes, dim=1), len(layers) - 1
    for i, (_, k, m) in enumerate(layers):
        x = layer(parts[2 * i + 1].unsqueeze(2), parts[2 * i].view(-1, k, m).transpose(1, 2), x)
        if 0 < i < last:
            x = normalize(x, parts[2 * last + 2], parts[2 * last + 3], width)
        if i < last:
            tanh = shape.activation == "tanh"
            x = fast_tanh_(x) if tanh else activate_(x, shape.activation, parts[-1].unsqueeze(2))
    return x


def layer(bias: Tensor, w: Tensor, x: Tensor) -> Tensor:
    """bias + w x, each with P members first. A member alone has the bits that it has among others: on Intel's
    processors torch multiplies one matrix and a vector by a routine that rounds differently, so it is made two. The
    result is no view, as activations overwrite it."""
    if _alone_with_a_vector(w, x):
        return torch.baddbmm(bias.expand(2, -1, -1), w.expand(2, -1, -1), x.expand(2, -1, -1))[:1].clone()
    return torch.baddbmm(bias, w, x)


def product(a: Tensor, b: Tensor) -> Tensor:
    """a b, as ``layer``."""
    if _alone_with_a_vector(a, b):
        return torch.bmm(a.expand(2, -1, -1), b.expand(2, -1, -1))[:1].clone()
    return torch.bmm(a, b)


def _alone_with_a_vector(a: Tensor, b: Tensor) -> bool:
    return len(a) == 1 and 1 in (a.shape[1], a.shape[2], b.shape[2])


def _inference(shape: MLPShape, flat: Tensor, x: Tensor) -> Tensor:
    """Without a gradient. tanh is folded into the layers, which saves two of three passes over the activations: the
    factor before z is one of the matrix product, and W (2 sigmoid(2z) - 1) + b = 2 W sigmoid(2z) + (b - W 1).

    (With a gradient that of a padded unit's weights, whose sigmoid is 1/2, would be 0 up to rounding only.)
    """
    layers, sizes = shape.layout
    parts, tanh, last = flat.split(sizes, dim=1), shape.activation == "tanh", len(layers) - 1
    for i, (_, k, m) in enumerate(layers):
        w, bias = parts[2 * i].view(-1, k, m), parts[2 * i + 1]
        if tanh and i > 0:
            bias, w = bias - w.sum(1), w * 2
        if tanh and i < last:  # the weights are few: alpha and beta of baddbmm would be a pass over its output
            bias, w = bias * 2, w * 2
        x = layer(bias.unsqueeze(2), w.transpose(1, 2), x)
        if i < last:
            x = x.sigmoid_() if tanh else activate_(x, shape.activation, parts[-1].unsqueeze(2))
    return x


class _MLP(torch.autograd.Function):
    """A whole net as one node of the graph. Its gradient is written straight into one flat tensor: a node for every
    layer, and a concatenation of their gradients, cost as much as the small products themselves."""

    @staticmethod
    def forward(ctx: Any, shape: MLPShape, flat: Tensor, x: Tensor) -> Tensor:
        layers, sizes = shape.layout
        parts, act = flat.split(sizes, dim=1), shape.activation
        inputs, zs = [x], []  # of every layer; what a PReLU gets
        for i, (_, k, m) in enumerate(layers):
            w, bias = parts[2 * i].view(-1, k, m), parts[2 * i + 1]
            if act == "tanh" and i < len(layers) - 1:
                bias, w = bias * 2, w * 2
            x = layer(bias.unsqueeze(2), w.transpose(1, 2), x)
            if i == len(layers) - 1:
                break
            if act == "prelu":
                zs.append(x)
            x = _tanh_of_doubled_(x) if act == "tanh" else activate_(x, act, parts[-1].unsqueeze(2))
            inputs.append(x)
        ctx.shape, ctx.layers = shape, len(layers)
        ctx.save_for_backward(flat, *inputs, *zs)
        return x

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Tuple[None, Optional[Tensor], Optional[Tensor]]:
        flat, *saved = ctx.saved_tensors
        inputs, zs = saved[: ctx.layers], saved[ctx.layers :]
        (layers, sizes), act, P = ctx.shape.layout, ctx.shape.activation, len(flat)
        _, want_flat, want_x = ctx.needs_input_grad
        parts = flat.split(sizes, dim=1)
        grad = torch.empty_like(flat, memory_format=torch.contiguous_format) if want_flat else None
        if grad is not None and act == "prelu":
            grad[:, -1] = 0
        for i in range(len(layers) - 1, -1, -1):
            o, k, m = layers[i]
            if grad is not None:
                dw = product(inputs[i], dy.transpose(1, 2))  # x dy^T; as its output, a slice would be filled by row
                grad[:, o : o + k * m].view(P, k, m).copy_(dw)
                torch.sum(dy, 2, out=grad[:, o + k * m : o + k * m + m])
            if i == 0 and not want_x:
                return None, grad, None
            dy = product(parts[2 * i].view(P, k, m), dy)  # dx = W^T dy
            if i == 0:
                break
            if act == "tanh":  # in place, as the next two
                torch.ops.aten.tanh_backward(dy, inputs[i], grad_input=dy)
            elif act == "relu":
                torch.ops.aten.threshold_backward(dy, inputs[i], 0, grad_input=dy)
            elif act == "leakyrelu":
                torch.ops.aten.leaky_relu_backward(dy, inputs[i], LEAKY_SLOPE, True, grad_input=dy)
            elif act == "prelu":
                negative = zs[i - 1] <= 0
                if grad is not None:
                    grad[:, -1] += (dy * zs[i - 1]).masked_fill(~negative, 0).sum((1, 2))
                dy = torch.where(negative, parts[-1].unsqueeze(2) * dy, dy)
        return None, grad, dy


class SideBySide:
    """Nets of one depth with the same inputs as one wider net, for weights that stay as they are and the few samples of
    one decision: those pay for every call, and hardly for the zeros between the nets. A sample is a row here, because a
    product with one column takes five times as long as one with one row."""

    def __init__(self, shapes: Sequence[MLPShape], flats: Sequence[Tensor]) -> None:
        """flats: [P, D_i] each."""
        self.activation, P = shapes[0].activation, len(flats[0])
        parts = [flat.split(shape.layout[1], dim=1) for shape, flat in zip(shapes, flats)]
        self.layers: List[Tuple[Tensor, Tensor]] = []  # weights [P, K, M] and biases [P, 1, M]
        for i in range(len(shapes[0].layer_offsets())):
            blocks = [part[2 * i].view(P, *shape.layer_offsets()[i][1:]) for shape, part in zip(shapes, parts)]
            if i == 0:
                weights = torch.cat(blocks, dim=2)
            else:
                rows, columns = (sum(block.shape[d] for block in blocks) for d in (1, 2))
                weights, r, c = flats[0].new_zeros(P, rows, columns), 0, 0
                for block in blocks:
                    weights[:, r : r + block.shape[1], c : c + block.shape[2]] = block
                    r, c = r + block.shape[1], c + block.shape[2]
            bias = torch.cat([part[2 * i + 1] for part in parts], dim=1)
            self.layers.append((weights, bias.unsqueeze(1)))
        self.slope = torch.cat([part[-1][:, -1:].expand(P, s.hidden) for s, part in zip(shapes, parts)], 1).unsqueeze(1)

    def __call__(self, x: Tensor, members: Union[slice, Tensor] = slice(None)) -> Tensor:
        """Outputs of all nets, [P, N, sum of M]. x: [P, N, K], or of these members alone."""
        for i, (weights, bias) in enumerate(self.layers):
            x = torch.baddbmm(bias[members], x, weights[members])
            if i < len(self.layers) - 1:
                x = activate_(x, self.activation, self.slope[members])
        return x
