"""Plan of a graph, found without data: shapes and types of everything in it, and its cost.

The graph runs once on torch's meta device, whose tensors have shapes but no memory. So no graph, even a hostile one,
makes a worker allocate or compute more than a fixed amount per environment. Costs that have to be known even before
that come from envs/graph/cost.py.
"""

from __future__ import annotations

import math
from typing import Any, Dict, List, NamedTuple, Sequence, Tuple, Union

import torch
from torch import Tensor

from envolve.envs.graph import cost as graph_cost
from envolve.envs.graph.check import OUTPUTS, GraphError, Node, Parsed, Ref

BYTES, BYTES_PER_ROW = 2**24, 2**15  # of all results together
WORK, WORK_PER_ROW = 2**22, 2**15  # numbers read and written by all operations together
MOST_DIMENSIONS, MOST_RESULTS = 8, 512  # of a tensor, of an operation
MOST_TENSORS = 8192  # of all operations together
LEAST_ROWS = 64  # least number of environments in a trial, a power of two
PRODUCTS = ("aten.mm.default", "aten.bmm.default", "aten.addmm.default", "aten.mv.default")

Result = Union[Tensor, Tuple[Tensor, ...]]  # of a node, on the meta device


class Plan(NamedTuple):
    """Shapes, types and costs of a graph for inputs of certain shapes."""

    rows: int  # number of environments in the trial; valid for fewer, too
    inputs: List[Tensor]  # on the meta device, as are
    results: List[Result]  # [nodes]
    bytes: int
    work: int


def rows_to_try(n: int) -> int:
    """Number n of environments to plan with before a call with n environments."""
    return max(LEAST_ROWS, 1 << (n - 1).bit_length())


def make_plan(parsed: Parsed, kind: str, inputs: Sequence[Tensor], rows: int, bound: bool) -> Plan:
    """Try the graph with ``rows`` environments.

    inputs: [n, ...] each, for any n; bound: params are numbers, else columns. Raises GraphError."""
    given = [_like(x, rows, f"{kind}: {name}") for name, x in zip(parsed.inputs, inputs)]
    planner = Planner(kind, given, rows, bound)
    for node in parsed.nodes:
        planner.add(node)
    results = planner.results
    _check_outputs(parsed, kind, [look_up(ref, given, results) for ref in parsed.outputs], rows)
    return Plan(rows, given, results, planner.bytes, planner.work)


class Planner:
    """Plans one node after the other. ``results``: their values on the meta device; bytes and work: the cost so far."""

    def __init__(self, kind: str, given: Sequence[Tensor], rows: int, bound: bool) -> None:
        self.kind, self.given, self.rows, self.bound = kind, given, rows, bound
        self.results: List[Result] = []
        self.bytes = self.work = self.tensors = 0
        self.most_bytes, self.most_work = BYTES + BYTES_PER_ROW * rows, WORK + WORK_PER_ROW * rows

    def add(self, node: Node) -> None:
        """Raises GraphError if the node cannot be computed, or the total cost is too high."""
        where = f"{self.kind}: node {len(self.results)}" + (f" ({node.op.name})" if node.op else "")
        try:
            result = self._try(node, where)
        except GraphError:
            raise
        except Exception as e:  # torch raises what it likes
            raise GraphError(f"{where}: {_first_line(e)}") from None
        out = (result,) if isinstance(result, Tensor) else tuple(result)
        if not all(isinstance(t, Tensor) for t in out):
            raise GraphError(f"{where}: it does not return tensors")
        self.results.append(result if isinstance(result, Tensor) else out)
        for t in out:
            if t.dim() > MOST_DIMENSIONS:
                raise GraphError(f"{where}: {t.dim()} dimensions, allowed are {MOST_DIMENSIONS}")
            if node.op and node.op.floating and not t.is_floating_point():
                raise GraphError(f"{where}: division of integers is not allowed, only of floats")
            self.bytes += math.prod(t.shape) * t.element_size()
        read = [look_up(ref, self.given, self.results) for ref in tensors(node.args)]
        self.work += sum(math.prod(t.shape) for t in (*read, *out))
        if node.op and node.op.name in PRODUCTS:  # every output sums as many products as its first operand has columns
            self.work += math.prod(out[0].shape) * read[-2].shape[-1] // 4
        self._check(where, self.bytes, self.work)

    def _try(self, node: Node, where: str) -> Any:
        """Result of the node; not computed if the cost of its arguments alone is too high."""
        if node.op is None:
            assert node.constant is not None
            return torch.empty(node.constant.shape, dtype=node.constant.dtype, device="meta")
        dims = param_dims(node, self.given, self.results)
        args = [self._value(arg, dims) for arg in node.args]
        kwargs = {name: self._value(v, dims) for name, v in node.kwargs}
        check_limits(node, args[0])
        count = graph_cost.count(node.op, args)
        self.tensors += count
        if count > MOST_RESULTS or self.tensors > MOST_TENSORS:
            raise GraphError(
                f"{where}: {count} results, {self.tensors} of all operations up to here; allowed are {MOST_RESULTS} and"
                f" {MOST_TENSORS}"
            )
        numbers = graph_cost.numbers(node.op, args)
        if node.op.name in graph_cost.LOSSES:  # it makes them all before it adds them up
            self.bytes += 2 * args[0].element_size() * numbers
            self.work += 2 * numbers
        self._check(where, self.bytes + numbers, self.work)
        if node.op.factory:
            kwargs["device"] = "meta"
        return caller(node, self.bound)(*args, **kwargs)

    def _check(self, where: str, size: int, work: int) -> None:
        if size > self.most_bytes or work > self.most_work:
            raise GraphError(
                f"{where}: too large: {_amount(size)} bytes and {_amount(work)} numbers with {self.rows} environments"
                f" up to here, allowed are {_amount(self.most_bytes)} and {_amount(self.most_work)}"
            )

    def _value(self, arg: Any, dims: int) -> Any:
        """Argument as torch takes it. dims: of a column of params."""
        if isinstance(arg, list):
            return [self._value(a, dims) for a in arg]
        if not isinstance(arg, Ref):
            return arg
        if arg.kind == "batch":
            return arg.k * self.rows
        if arg.kind == "param":
            return 1.5 if self.bound else torch.empty((self.rows,) + (1,) * (dims - 1), device="meta")
        return look_up(arg, self.given, self.results)


def _amount(size: int) -> str:
    return f"{size:.3g}" if size < 10**300 else "over 1e+300"


def caller(node: Node, bound: bool) -> Any:
    """Function of a node's operation."""
    assert node.op is not None
    columns = not bound and any(isinstance(a, Ref) and a.kind == "param" for a in node.args)
    return node.op.with_params if columns else node.op.call


def check_limits(node: Node, x: Any) -> None:
    """Raises IndexError unless a node's constant indices are valid indices into x."""
    for dim, low, high in node.limits:
        if not -x.shape[dim] <= low <= high < x.shape[dim]:
            raise IndexError(f"indices from {low} to {high} into dimension {dim} of {list(x.shape)}")


def tensors(args: Any) -> List[Ref]:
    """References to tensors among a node's arguments."""
    if isinstance(args, Ref):
        return [args] if args.kind in ("node", "item", "in") else []
    return [ref for a in args for ref in tensors(a)] if isinstance(args, (list, tuple)) else []


def look_up(ref: Ref, given: Sequence[Tensor], results: Sequence[Result]) -> Tensor:
    """Tensor of a reference."""
    if ref.kind == "in":
        return given[ref.k]
    result = results[ref.k]
    return result if isinstance(result, Tensor) else result[ref.item]


def param_dims(node: Node, given: Sequence[Tensor], results: Sequence[Result]) -> int:
    """Number of dimensions of a column of params beside a node's other arguments: [n, 1, ..]."""
    sizes = [len(a) for a in node.args if isinstance(a, list)] if node.op and node.op.factory else []
    return max([1, *sizes, *(look_up(ref, given, results).dim() for ref in tensors(node.args))])


def _like(x: Tensor, rows: int, where: str) -> Tensor:
    """Same as x [n, ...] with another n, on the meta device."""
    if not isinstance(x, Tensor) or x.dim() == 0 or x.dtype not in (torch.float32, torch.float64):
        raise GraphError(f"{where}: expected a float tensor [n, ...]")
    return torch.empty_strided((rows, *x.shape[1:]), x.stride(), dtype=x.dtype, device="meta")


def _check_outputs(parsed: Parsed, kind: str, outputs: Sequence[Tensor], rows: int) -> None:
    fixed = OUTPUTS[kind]
    for name, out in zip(parsed.names, outputs):
        dims: Dict[str, int] = {"root_state": 3, "compute_reward": 1, "compute_terminal": 1}
        wanted = dims.get(name, dims.get(kind, 2))
        empty = 0 in out.shape and kind != "compute_initial_state"  # a model may have no free body, or no joint
        if out.dim() != wanted or out.shape[0] != rows or empty:
            shape = str(["n" if size == rows else size for size in out.shape]).replace("'", "")
            more = "" if len(fixed) == len(parsed.names) == 1 else f" as {name}"
            raise GraphError(f"{kind} returned shape {shape}{more}, expected [n{', any' * (wanted - 1)}]")
        if kind != "compute_terminal" and not out.is_floating_point():
            raise GraphError(f"{kind} returned {out.dtype} as {name}, expected a floating-point tensor")


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:300]
