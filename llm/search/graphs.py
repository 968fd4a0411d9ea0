"""Rewards as expressions: a graph file taken apart, changed with respect to types, and put together again.

An expression is an operation on others, an input, a parameter (a number that is tuned), a constant, or a plain value.
The type of an expression is the shape and the dtype of its result. Only expressions of one type
stand in for each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from envolve.envs.graph.file import GraphFile
from envolve.envs.graph.plan import make_plan
from envolve.envs.graph.values import GraphError

KIND = "compute_reward"
ARITHMETIC = tuple(f"aten.{name}.Tensor" for name in ("add", "sub", "mul", "div"))
ROWS = 96  # environments with which types are found
MOST_NODES = 120  # of a reward: more is refused, so that evolution cannot grow without end
Type = tuple[tuple[int, ...], str]  # shape without the environments, dtype


@dataclass(eq=False)
class Param:
    """Number that is tuned."""

    name: str
    value: float


@dataclass(eq=False)
class Input:
    """Quantity of the state."""

    name: str


@dataclass(eq=False)
class Item:
    """One result of an operation that has several."""

    of: Op
    number: int


@dataclass(eq=False)
class Op:
    """Operation on other expressions, or a constant ("")."""

    name: str
    args: list[Any] = field(default_factory=list)
    kwargs: dict[str, Any] = field(default_factory=dict)
    constant: dict[str, Any] | None = None


Expression = Op | Input | Item


def decode(graph_file: Mapping[str, Any]) -> Expression:
    """Total of the reward in a graph file as an expression."""
    graph = graph_file["functions"][KIND]
    params = [Param(p["name"], float(p["value"])) for p in graph_file["params"]]
    inputs = [Input(name) for name in graph["inputs"]]
    made: list[Op] = []

    def value(x: Any) -> Any:
        if isinstance(x, list):
            return [value(v) for v in x]
        if isinstance(x, dict) and len(x) == 1:
            (key, k), *_ = x.items()
            if key == "node":
                return made[k]
            if key == "in":
                return inputs[k]
            if key == "param":
                return params[k]
            if key == "item":
                return Item(made[k[0]], k[1])
        return x

    for node in graph["nodes"]:
        if "constant" in node:
            made.append(Op("", constant=dict(node)))
        else:
            kwargs = {name: value(v) for name, v in node.get("kwargs", {}).items()}
            made.append(Op(node["op"], [value(v) for v in node["args"]], kwargs))
    found = value(graph["outputs"][0])
    assert isinstance(found, (Op, Input, Item))
    return found


def encode(total: Expression, task: str) -> GraphFile:
    """Graph file of a reward. Raises GraphError if it is none, or too large."""
    nodes: list[dict[str, Any]] = []
    places: dict[int, int] = {}
    inputs: dict[str, int] = {}
    params: dict[int, int] = {}
    listed: list[dict[str, Any]] = []
    names: set[str] = set()

    def param(p: Param) -> dict[str, Any]:
        if id(p) not in params:
            params[id(p)] = len(listed)
            name, k = p.name, 1
            while name in names:
                k += 1
                name = f"{p.name}_{k}"
            names.add(name)
            listed.append({"name": name, "value": p.value, "scale": abs(p.value) or 1.0})
        return {"param": params[id(p)]}

    def value(x: Any) -> Any:
        if isinstance(x, Op):
            return {"node": place(x)}
        if isinstance(x, Item):
            return {"item": [place(x.of), x.number]}
        if isinstance(x, Input):
            return {"in": inputs.setdefault(x.name, len(inputs))}
        if isinstance(x, Param):
            return param(x)
        return [value(v) for v in x] if isinstance(x, list) else x

    def place(op: Op) -> int:
        if id(op) not in places:
            if op.constant is not None:
                node: dict[str, Any] = op.constant
            else:
                node = {"op": op.name, "args": [value(a) for a in op.args]}
                if op.kwargs:
                    node["kwargs"] = {name: value(v) for name, v in op.kwargs.items()}
            places[id(op)] = len(nodes)
            nodes.append(node)
        return places[id(op)]

    output = value(total)
    if len(nodes) > MOST_NODES:
        raise GraphError(f"a reward of {len(nodes)} operations, at most {MOST_NODES} are wanted")
    graph = {"inputs": list(inputs), "nodes": nodes, "outputs": [output], "names": ["total"]}
    return GraphFile({
        "envolve_graph": 1, "task": task, "action_size": None, "params": listed, "functions": {KIND: graph},
    })  # fmt: skip


def with_numbers(graph_file: Mapping[str, Any]) -> GraphFile:
    """The total of a reward, whose factors, divisors and summands that are numbers became parameters. Raises
    GraphError."""
    total = decode(graph_file)
    for x in walk(total):
        if isinstance(x, Op) and x.name in ARITHMETIC:
            x.args = [Param("number", a) if isinstance(a, float) and a else a for a in x.args]
    return encode(total, graph_file["task"])


def walk(total: Expression) -> Iterator[Expression]:
    """Every expression once, those below first."""
    seen: set[int] = set()

    def visit(x: Any) -> Iterator[Expression]:
        if isinstance(x, list):
            for v in x:
                yield from visit(v)
        elif isinstance(x, (Op, Input, Item)) and id(x) not in seen:
            seen.add(id(x))
            if isinstance(x, Op):
                yield from visit(x.args)
                yield from visit(list(x.kwargs.values()))
            elif isinstance(x, Item):
                yield from visit(x.of)
            yield x

    yield from visit(total)


def params_of(total: Expression) -> list[Param]:
    """Parameters, each once, in the order in which they are read."""
    found: dict[int, Param] = {}
    for x in walk(total):
        if isinstance(x, Op):
            found.update({id(a): a for a in [*x.args, *x.kwargs.values()] if isinstance(a, Param)})
    return list(found.values())


def replaced(total: Expression, old: Expression, new: Expression) -> Expression:
    """The expression with ``new`` wherever ``old`` is read."""
    if total is old:
        return new
    for x in walk(total):
        if isinstance(x, Op) and x is not new:
            x.args = [_swap(a, old, new) for a in x.args]
    return total


def _swap(a: Any, old: Expression, new: Expression) -> Any:
    if isinstance(a, list):
        return [_swap(v, old, new) for v in a]
    return new if a is old else a


def types(total: Expression, example: Mapping[str, torch.Tensor]) -> dict[int, Type]:
    """Types by the id of the expression; those of several results have none. example: inputs by name, [n, ...]. Raises
    GraphError."""
    graph_file = encode(total, "any")
    parsed, order = graph_file.parsed[KIND], [x for x in walk(total) if isinstance(x, Op)]
    plan = make_plan(parsed, KIND, [example[name] for name in parsed.inputs], ROWS, bound=False)
    found: dict[int, Type] = {}
    for op, result in zip(order, plan.results):
        if isinstance(result, torch.Tensor):
            found[id(op)] = _type(result)
    for x in walk(total):
        if isinstance(x, Input):
            found[id(x)] = tuple(example[x.name].shape[1:]), str(example[x.name].dtype)
    return found


def _type(result: torch.Tensor) -> Type:
    rows = result.dim() > 0 and result.shape[0] == ROWS
    return (tuple(result.shape[1:]) if rows else (-1, *result.shape)), str(result.dtype)


def is_reward(graph_file: GraphFile, example: Mapping[str, torch.Tensor]) -> bool:
    """True if it gives a finite number for every environment of the example, not the same one for all."""
    n = len(next(iter(example.values())))
    try:
        out = graph_file.function(KIND)(dict(example))
    except GraphError:
        return False
    total = out[0] if isinstance(out, tuple) else out
    plain = isinstance(total, torch.Tensor) and total.shape == (n,) and total.dtype == torch.float32
    return bool(plain and total.isfinite().all() and total.std() > 1e-6 and total.abs().max() < 1e6)
