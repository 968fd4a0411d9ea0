"""Size of the results of a graph's operations, computed from shapes before torch runs anything.

Shapes are found on torch's meta device, where tensors take no memory (envs/graph/plan.py). Three things are known too
late there: how many tensors an operation returns, for torch makes them all at once; sizes that no machine can count;
what is made on the way to a result: a loss of [n, 1] and [1, m] comes to one number by way of n m of them.
"""

from __future__ import annotations

import math
from typing import Any, Callable, Dict, Optional, Sequence

from torch import Tensor

from envolve.envs.graph.ops import Op

LOSSES = ("aten.mse_loss.default", "aten.smooth_l1_loss.default", "aten.huber_loss.default")


def _unbound(x: Tensor, dim: int = 0) -> int:
    return x.shape[dim]


def _split(x: Tensor, size: int, dim: int = 0) -> int:
    return -(-x.shape[dim] // size) if size > 0 else 1


def _split_with_sizes(x: Tensor, sizes: Sequence[int], dim: int = 0) -> int:
    return len(sizes)


COUNTS: Dict[str, Callable[..., int]] = {  # of operations that return as many tensors as their arguments say
    "aten.unbind.int": _unbound,
    "aten.split.Tensor": _split,
    "aten.split_with_sizes.default": _split_with_sizes,
}


def _of_sizes(sizes: Sequence[int], *_: Any) -> int:
    return math.prod(abs(size) for size in sizes)


def _of_second(x: Tensor, sizes: Sequence[int], *_: Any) -> int:
    return math.prod(abs(size) for size in sizes)


def _repeated(x: Tensor, repeats: Sequence[int], *_: Any) -> int:
    return math.prod(x.shape) * math.prod(abs(r) for r in repeats)


def _padded(x: Tensor, pad: Sequence[int], *_: Any) -> int:
    sizes = list(x.shape)
    for k in range(min(len(pad) // 2, len(sizes))):
        sizes[-1 - k] += abs(pad[2 * k]) + abs(pad[2 * k + 1])
    return math.prod(sizes)


def _counted(start: float, end: Optional[float] = None, step: float = 1) -> int:
    start, end = (0, start) if end is None else (start, end)
    turns = (end - start) / step if step else 0.0
    return math.ceil(abs(turns)) if math.isfinite(turns) else 2**63


def _joined(parts: Sequence[Tensor], *_: Any) -> int:
    return sum(math.prod(part.shape) for part in parts)


NUMBERS: Dict[str, Callable[..., int]] = {
    "aten.zeros.default": _of_sizes, "aten.ones.default": _of_sizes, "aten.full.default": _of_sizes,
    "aten.new_zeros.default": _of_second, "aten.new_ones.default": _of_second, "aten.new_full.default": _of_second,
    "aten.expand.default": _of_second, "aten.view.default": _of_second, "aten._unsafe_view.default": _of_second,
    "aten.reshape.default": _of_second, "aten.repeat.default": _repeated, "aten.constant_pad_nd.default": _padded,
    "aten.arange.default": _counted, "aten.arange.start": _counted, "aten.arange.start_step": _counted,
    "aten.linspace.default": lambda start, end, steps, *_: abs(steps), "aten.eye.default": lambda n, *_: n * n,
    "aten.eye.m": lambda n, m, *_: abs(n * m), "aten.cat.default": _joined, "aten.stack.default": _joined,
}  # fmt: skip


def count(op: Op, args: Sequence[Any]) -> int:
    """Number of tensors that the operation returns for these arguments."""
    try:
        return COUNTS[op.name](*args) if op.name in COUNTS else op.results
    except IndexError:  # there is no such dimension: torch will say so
        return 0


def numbers(op: Op, args: Sequence[Any]) -> int:
    """Lower bound of the numbers that it has to make, results or not, computed from sizes alone; 0 if unknown."""
    if op.name in LOSSES:
        return paired(args[0].shape, args[1].shape)
    return NUMBERS[op.name](*args) if op.name in NUMBERS else 0


def paired(a: Sequence[int], b: Sequence[int]) -> int:
    """Numbers in the broadcast of two shapes; torch reports shapes that do not fit."""
    longer, shorter = sorted((list(a), list(b)), key=len, reverse=True)
    shorter = [1] * (len(longer) - len(shorter)) + shorter
    return math.prod(max(x, y) if x and y else 0 for x, y in zip(longer, shorter))
