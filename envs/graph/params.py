"""Converts numbers in a graph to params for an outer loop.

A literal becomes a param where a column of numbers, one for each environment, can stand for it without changing the
shape, type or layout of anything: in arithmetic, comparisons, bounds, ``where`` and fillings whose result has a row for
every environment, in float32. Exponents, sizes, zeros, and guards against division by zero stay as they are.
"""

from __future__ import annotations

import copy
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple, Union

import torch
from torch import Tensor

from envolve.envs.graph.check import Node, Parsed, parse
from envolve.envs.graph.ops import Argument
from envolve.envs.graph.plan import LEAST_ROWS, Plan, caller, look_up, make_plan, param_dims, tensors
from envolve.envs.graph.program import needed
from envolve.envs.graph.values import MOST_PARAMS, Ref
from envolve.envs.physics.task import SHAPER_TYPES

GUARD = 1e-4  # a smaller number that is added, or is a lower bound, guards against division by zero
GUARDS = ("add", "sub", "rsub", "clamp", "clamp_min", "maximum")
LARGEST = 1e30
Path = Union[int, str]  # of a literal: its position in "args", or its name in "kwargs"


class Literal(NamedTuple):
    """A number in a graph that may become a param."""

    node: int
    path: Path
    value: float
    source: Tuple[int, Path]  # where it is written: there, or in a constant ("constant") that is used there


def lift(
    functions: Mapping[str, Any],
    names: Optional[Mapping[Tuple[str, int, Path], str]] = None,
    *,
    example: Mapping[str, Tensor],
    only_named: bool = False,
) -> Tuple[Dict[str, Any], List[Dict[str, Any]]]:
    """Graphs by kind -> the same with {"param": k}, and params [{"name", "value", "scale"}].

    names: of literals, by (kind, node, path); those without one are called after their operation, or stay as they are
    if only_named. Places with the same name and value share a param; a name that occurs with another value gets a
    number. example: every input of the graphs by its name, [n, ...] for any n. scale is |value|, what one step of an
    outer loop's noise is a multiple of.
    Raises GraphError for what is no graph.
    """
    lifted: Dict[str, Any] = {}
    params: List[Dict[str, Any]] = []
    taken: Set[str] = set()
    counts: Dict[str, int] = {}  # of names that were given out with a number
    named: Dict[Tuple[str, float], int] = {}
    for kind in [kind for kind in SHAPER_TYPES if kind in functions]:
        parsed = parse(functions[kind], kind, 0)
        graph = lifted[kind] = copy.deepcopy(functions[kind])
        inputs = [example[name][:1] for name in parsed.inputs]
        plans = [make_plan(parsed, kind, inputs, rows, True) for rows in (LEAST_ROWS, 2 * LEAST_ROWS)]
        for literal in _literals(parsed, graph):
            given = (names or {}).get((kind, *literal.source), "")
            if only_named and not given:
                continue
            if len(params) == MOST_PARAMS or not _may_vary(parsed.nodes[literal.node], literal, plans):
                continue
            op = parsed.nodes[literal.node].op
            assert op is not None
            index = named.get((given, literal.value), len(params))
            if index == len(params):
                name = _unique(given or op.name.split(".")[1].strip("_"), taken, counts)
                params.append({"name": name, "value": literal.value, "scale": abs(literal.value)})
                if given:
                    named[given, literal.value] = index
            node = graph["nodes"][literal.node]
            where = node["args"] if isinstance(literal.path, int) else node["kwargs"]
            where[literal.path] = {"param": index}
    return lifted, params


def _literals(parsed: Parsed, graph: Mapping[str, Any]) -> Iterator[Literal]:
    """Numbers that are neither zeros nor guards, in places where a param may be, in order."""
    wanted = needed(parsed)
    for k, node in enumerate(parsed.nodes):
        if k not in wanted or node.op is None or any(name in ("alpha", "dtype") for name, _ in node.kwargs):
            continue
        for path, a in _written(node, graph["nodes"][k]):
            if a.name not in node.op.literals:
                continue
            argument = _argument(node, a)
            source: Tuple[int, Path] = (k, path)
            if isinstance(argument, Ref) and argument.kind == "node":
                found = _constant(parsed.nodes, argument.k)
                if found is None:
                    continue
                argument, source = found
            if isinstance(argument, (Ref, bool)) or not isinstance(argument, (int, float)):
                continue
            value = float(argument)
            guard = abs(value) < GUARD and node.op.name.split(".")[1] in GUARDS
            if 1 / LARGEST < abs(value) < LARGEST and not guard:
                yield Literal(k, path, value, source)


def _written(node: Node, written: Mapping[str, Any]) -> Iterator[Tuple[Path, Argument]]:
    """Arguments of a node as in its JSON."""
    assert node.op is not None
    positional = [a for a in node.op.arguments if not a.by_name]
    for i, _ in enumerate(written["args"]):
        yield i, positional[i]
    for a in node.op.arguments:
        if a.name in written.get("kwargs", {}):
            yield a.name, a


def _argument(node: Node, a: Argument) -> Any:
    assert node.op is not None
    names = [b.name for b in node.op.arguments if not b.by_name]
    return node.args[names.index(a.name)]


def _constant(nodes: Sequence[Node], k: int) -> Optional[Tuple[float, Tuple[int, Path]]]:
    """Number that node k stands for, and where it is written; None: no single float32."""
    node = nodes[k]
    while node.op is not None and node.op.identity and node.args[0].kind == "node":
        k = node.args[0].k
        node = nodes[k]
    if node.constant is not None and node.constant.dim() == 0 and node.constant.dtype == torch.float32:
        return float(node.constant), (k, "constant")
    if node.op is not None and node.op.name == "aten.scalar_tensor.default" and isinstance(node.args[0], (int, float)):
        if dict(node.kwargs).get("dtype", torch.float32) == torch.float32:
            return float(node.args[0]), (k, 0)
    return None


def _may_vary(node: Node, literal: Literal, plans: Sequence[Plan]) -> bool:
    """True if columns may replace the literal: the result must keep its shape, type and layout for any n."""
    assert node.op is not None
    at = [a.name for a in node.op.arguments if not a.by_name].index(node.op.literals[0])
    if isinstance(literal.path, int):
        at = literal.path
    else:
        at = [a.name for a in node.op.arguments].index(literal.path)
    for plan in plans:
        was = plan.results[literal.node]
        refs = [ref for i, a in enumerate(node.args) if i != at for ref in tensors(a)]
        others = [look_up(ref, plan.inputs, plan.results) for ref in refs]
        numbers = [t for t in others if t.dtype != torch.bool or node.op.name != "aten.where.self"]
        whole = isinstance(node.args[at], int)  # an integer leaves integers what they are
        if any(t.dtype != torch.float32 and (whole or t.dtype == torch.float64) for t in numbers):
            return False
        compares = isinstance(was, Tensor) and was.dtype == torch.bool
        if not isinstance(was, Tensor) or (was.dtype != torch.float32 and not compares):
            return False
        if compares and any(t.dtype != torch.float32 for t in others):
            return False
        args: List[Any] = list(node.args)
        args[at] = Ref("param", 0)
        column = node._replace(args=tuple(args))
        if was.dim() == 0 or was.shape[0] != plan.rows or param_dims(column, plan.inputs, plan.results) != was.dim():
            return False
        try:
            new = _run(column, plan)
        except Exception:  # torch raises what it likes
            return False
        if (new.shape, new.dtype, new.stride()) != (was.shape, was.dtype, was.stride()):
            return False
    return True


def _run(node: Node, plan: Plan) -> Tensor:
    dims = param_dims(node, plan.inputs, plan.results)

    def value(a: Any) -> Any:
        if isinstance(a, list):
            return [value(b) for b in a]
        if not isinstance(a, Ref):
            return a
        if a.kind == "param":
            return torch.empty((plan.rows,) + (1,) * (dims - 1), device="meta")
        return a.k * plan.rows if a.kind == "batch" else look_up(a, plan.inputs, plan.results)

    kwargs: Dict[str, Any] = dict(node.kwargs)
    if node.op is not None and node.op.factory:
        kwargs["device"] = "meta"
    return caller(node, False)(*[value(a) for a in node.args], **kwargs)


def _unique(name: str, taken: Set[str], counts: Dict[str, int]) -> str:
    """``name``, or the first free one of name_2, name_3 ... counts: by name, the last number that was tried."""
    name = tried = name[:56]
    k = counts.get(name, 1)
    while tried in taken:
        k += 1
        tried = f"{name}_{k}"
    counts[name] = k
    taken.add(tried)
    return tried
