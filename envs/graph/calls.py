"""Fast calls of a graph's operations, with the same bits as plain calls."""

from __future__ import annotations

import operator
from functools import partial
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import torch
from torch import Tensor

from envolve.envs.graph.check import Node, Ref
from envolve.envs.graph.plan import Plan, Result, caller, check_limits, look_up, tensors

Function = Callable[..., Any]
# a number beside a tensor costs torch a new tensor in every call; one of float32 that is made once is the same to these
WITH_TENSOR = {
    f"aten.{name}.{kind}"
    for name in ("add", "sub", "mul", "div", "gt", "ge", "lt", "le", "eq", "ne", "rsub")
    for kind in ("Tensor", "Scalar")
} - {"aten.rsub.Tensor"}
IN_PLACE: Dict[Function, Function] = {
    getattr(torch, name): getattr(Tensor, name + "_")
    for name in """abs neg exp exp2 expm1 log log1p log2 log10 sqrt rsqrt reciprocal square sin cos tan asin acos atan
    sinh cosh tanh sigmoid relu erf floor ceil round trunc frac add sub mul div pow clamp clamp_min clamp_max atan2
    """.split()
}


def prepare(
    node: Node, plan: Plan, result: Result, values: Optional[Sequence[float]], device: torch.device
) -> Tuple[Function, List[Any]]:
    """Function to call for a node, and its arguments. values: of params; None: they are columns."""
    assert node.op is not None
    function = caller(node, values is not None)
    given = [_value(a, values) for a in node.args]
    if node.op.name in WITH_TENSOR and not node.kwargs and _in_float32(node, plan, result):
        if not isinstance(given[1], (Ref, bool)):
            given[1] = torch.tensor(float(given[1]), dtype=torch.float32)
            function = _swapped_sub if node.op.name == "aten.rsub.Scalar" else getattr(torch, function.__name__)
    elif node.op.name == "aten.slice.Tensor" and not any(isinstance(a, Ref) for a in given[1:]):
        defaults: List[Any] = [0, None, None, 1]
        dim, start, end, step = given[1:] + defaults[len(given) - 1 :]
        dim %= look_up(given[0], plan.inputs, plan.results).dim()
        function, given = operator.getitem, [given[0], (slice(None),) * dim + (slice(start, end, step),)]
    elif node.op.name == "aten.index.Tensor":
        function, given = operator.getitem, [given[0], tuple(slice(None) if a is None else a for a in given[1])]
    elif given and isinstance(given[0], list) and tensors(given[0]):  # cat, stack
        function, given = _joined(function, len(given[0])), [*given[0], *given[1:]]
    kwargs = dict(node.kwargs)
    if node.op.factory:
        kwargs["device"] = device
    if kwargs:
        function = partial(function, **kwargs)
    return (_limited(function, node) if node.limits else function), given


def getter(slots: List[int]) -> Callable[[List[Any]], Sequence[Any]]:
    """Getter of these slots of a frame, as arguments of a call."""
    if not slots:
        return operator.itemgetter(slice(0, 0))
    if len(slots) == 1:
        return operator.itemgetter(slice(slots[0], slots[0] + 1))
    return operator.itemgetter(*slots)


def _value(arg: Any, values: Optional[Sequence[float]]) -> Any:
    return values[arg.k] if isinstance(arg, Ref) and arg.kind == "param" and values is not None else arg


def _in_float32(node: Node, plan: Plan, result: Result) -> bool:
    """True if a node's operation is done in float32 on a tensor with dimensions."""
    x = look_up(node.args[0], plan.inputs, plan.results) if isinstance(node.args[0], Ref) else None
    return x is not None and x.dtype == torch.float32 and x.dim() > 0 and isinstance(result, Tensor)


def _swapped_sub(x: Tensor, other: Tensor) -> Tensor:
    return torch.sub(other, x)


def _joined(function: Function, count: int) -> Function:
    """``function`` with its first argument, a sequence of this length, spread out."""

    def join(*args: Any) -> Any:
        return function(args[:count], *args[count:])

    return join


def _limited(function: Function, node: Node) -> Function:
    """``function`` without the check that the node's constant indices fit its first argument."""

    def limited(x: Tensor, *rest: Any) -> Any:
        check_limits(node, x)
        return function(x, *rest)

    return limited
