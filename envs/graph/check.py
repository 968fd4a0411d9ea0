"""Checks that JSON is a valid graph, and reads it.

A graph is what one shaper computes, for any number n of environments (docs/shapers.md, "Graph files"):

    {"inputs": ["forward_velocity", "torque"],
     "nodes": [{"op": "aten.mul.Tensor", "args": [{"in": 0}, 0.25]}, {"constant": [0.0, 1.0], "dtype": "float32"}],
     "outputs": [{"node": 0}],
     "names": ["total"]}

Anybody may have written it: what is not allowed expressly is refused, before anything is computed.
"""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional, Tuple

import torch
from torch import Tensor

from envolve.envs.graph.ops import OPS, Argument, Op
from envolve.envs.graph.values import (
    FORMATS,
    IGNORED,
    MOST_ARGUMENTS,
    MOST_CONSTANTS,
    MOST_INPUTS,
    MOST_NODES,
    MOST_OUTPUTS,
    MOST_SIZES,
    GraphError,
    Ref,
    check_keys,
    check_name,
    integer,
    is_object,
    is_param,
    listed,
    number,
    read_constant,
    read_dtype,
    short_list,
    shown,
)
from envolve.envs.physics.task import SHAPER_TYPES

OUTPUTS: Dict[str, Tuple[str, ...]] = {
    "compute_reward": ("total",), "compute_observation": ("observation",), "compute_torque": ("effort",),
    "compute_terminal": ("terminal",), "compute_goal": ("goal",),
    "compute_initial_state": ("root_state", "joint_position", "joint_velocity"),
}  # fmt: skip
DRAWN = ("random.uniform", "random.normal")
REST = ("rest.root_state", "rest.joint_position", "rest.joint_velocity")


class Node(NamedTuple):
    """One step of a graph: an operation, or a constant."""

    op: Optional[Op]
    args: Tuple[Any, ...] = ()  # in the order of the schema; numbers, dtypes, Refs, lists of these
    kwargs: Tuple[Tuple[str, Any], ...] = ()
    constant: Optional[Tensor] = None  # on the CPU
    limits: Tuple[Tuple[int, int, int], ...] = ()  # of constant indices: (dimension, smallest, largest)


class Parsed(NamedTuple):
    """Checked graph."""

    inputs: Tuple[str, ...]
    nodes: Tuple[Node, ...]
    outputs: Tuple[Ref, ...]
    names: Tuple[str, ...]


def parse(graph: Any, kind: str, params: int) -> Parsed:
    """Checks that ``graph`` can be a shaper of this kind with this number of params. Raises GraphError."""
    if kind not in SHAPER_TYPES:
        raise GraphError(f"{shown(kind)}: expected one of {', '.join(SHAPER_TYPES)}")
    check_keys(graph, ("inputs", "nodes", "outputs", "names"), (), kind)
    inputs = tuple(check_name(name, f"{kind}: inputs[{i}]") for i, name in listed(graph, "inputs", MOST_INPUTS, kind))
    for name in inputs:
        if name in DRAWN and kind not in ("compute_initial_state", "compute_goal"):
            raise GraphError(f"{kind}: it is given no random numbers, but reads {name}")
        if name in REST and kind != "compute_initial_state":
            raise GraphError(f"{kind}: it is given no pose at rest, but reads {name}")
    if len(set(inputs)) < len(inputs):
        raise GraphError(f"{kind}: an input occurs twice")
    reader = _Reader(kind, len(inputs), params)
    for k, node in listed(graph, "nodes", MOST_NODES, kind):
        reader.add(node, f"{kind}: node {k}")
    outputs = tuple(
        reader.ref(out, f"{kind}: outputs[{i}]", ("node", "item", "in"))
        for i, out in listed(graph, "outputs", MOST_OUTPUTS, kind)
    )
    names = tuple(check_name(name, f"{kind}: names[{i}]") for i, name in listed(graph, "names", MOST_OUTPUTS, kind))
    wanted = OUTPUTS[kind]
    if names[: len(wanted)] != wanted or (len(names) > len(wanted) and kind != "compute_reward"):
        raise GraphError(f"{kind}: found names {shown(list(names))}, expected {', '.join(wanted)}")
    if len(names) != len(outputs) or len(set(names)) < len(names):
        raise GraphError(f"{kind}: {len(outputs)} outputs and {len(set(names))} different names for them")
    return Parsed(inputs, tuple(reader.nodes), outputs, names)


class _Reader:
    """Reads nodes in order."""

    def __init__(self, kind: str, inputs: int, params: int) -> None:
        self.kind, self.inputs, self.params = kind, inputs, params
        self.nodes: List[Node] = []
        self.numbers = 0

    def add(self, node: Any, where: str) -> None:
        if isinstance(node, dict) and "constant" in node:
            check_keys(node, ("constant", "dtype"), (), where)
            constant = read_constant(node["constant"], node["dtype"], where)
            self.numbers += constant.numel()
            if self.numbers > MOST_CONSTANTS:
                raise GraphError(f"{where}: all constants together have more than {MOST_CONSTANTS} numbers")
            self.nodes.append(Node(None, constant=constant))
            return
        check_keys(node, ("op", "args"), ("kwargs",), where)
        op = OPS.get(node["op"]) if isinstance(node["op"], str) else None
        if op is None:
            raise GraphError(f"{where}: the operation {shown(node['op'])} is not allowed")
        where = f"{where} ({op.name})"
        args, kwargs = node["args"], node.get("kwargs", {})
        if not isinstance(args, list) or not isinstance(kwargs, dict):
            raise GraphError(f"{where}: expected a list of args and an object of kwargs")
        self.nodes.append(self.call(op, args, kwargs, where))

    def call(self, op: Op, args: List[Any], kwargs: Dict[str, Any], where: str) -> Node:
        positional = [a for a in op.arguments if not a.by_name]
        if len(args) > len(positional):
            raise GraphError(f"{where}: {len(args)} args, expected at most {len(positional)}")
        unknown = [name for name in kwargs if name not in {a.name for a in op.arguments[len(args) :]}]
        if unknown:
            raise GraphError(f"{where}: unknown or repeated kwarg {shown(unknown[0])}")
        given = {**{a.name: value for a, value in zip(positional, args)}, **kwargs}
        missing = [a.name for a in op.arguments if a.needed and a.name not in given]
        if missing:
            raise GraphError(f"{where}: {missing[0]} is missing")
        read: Dict[str, Any] = {}
        for a in op.arguments:
            if a.name not in given:
                continue
            value, at = given[a.name], f"{where}: {a.name}"
            if a.name in IGNORED:
                if value is not None and value is not False:
                    raise GraphError(f"{at}: found {shown(value)}, expected nothing")
                continue
            read[a.name] = self.argument(op, a, value, at)
        if any(is_param(v) for v in read.values()) and ("alpha" in read or "dtype" in read):
            raise GraphError(f"{where}: a param beside alpha or dtype")
        limits = self.limits(op, read, where) if op.indices else ()
        last = max([i for i, a in enumerate(positional) if a.name in read], default=-1)
        return Node(
            op,
            tuple(read.get(a.name, a.default) for a in positional[: last + 1]),
            tuple((a.name, read[a.name]) for a in op.arguments if a.by_name and a.name in read),
            limits=limits,
        )

    def argument(self, op: Op, a: Argument, value: Any, at: str) -> Any:
        """Argument a of op from ``value``. Raises GraphError."""
        kind = a.type
        if kind.startswith("Optional["):
            if value is None:
                return None
            kind = kind[len("Optional[") : -1]
        params = ("param",) if a.name in op.literals else ()
        if a.name == "dtype":
            return read_dtype(value, at)
        if a.name == "memory_format" and isinstance(value, str) and value in FORMATS:
            return FORMATS[value]
        if kind == "Tensor":
            if a.name in op.literals and not is_object(value, "node", "item", "in", "param"):
                return number(value, at, batch=True)
            return self.ref(value, at, ("node", "item", "in", *params))
        if kind == "List[Tensor]":
            return [self.ref(v, at, ("node", "item", "in")) for v in short_list(value, at)]
        if kind == "List[Optional[Tensor]]":
            return [None if v is None else self.ref(v, at, ("node",)) for v in short_list(value, at)]
        if kind == "number" or kind == "float":
            if params and is_object(value, "param"):
                return self.ref(value, at, params)
            return number(value, at, batch=kind == "number" and not a.by_name and a.name != "ord")
        if kind == "int":
            return integer(value, at, batch=op.by_rows and a.name in ("end",))
        if kind == "List[int]":
            listed = short_list(value if isinstance(value, list) else [value], at)
            if len(listed) > MOST_SIZES and a.name != "split_sizes":
                raise GraphError(f"{at}: found {shown(value)}, expected at most {MOST_SIZES} integers")
            return [integer(v, at, batch=op.by_rows and a.name in ("size", "repeats")) for v in listed]
        if kind == "bool":
            if not isinstance(value, bool):
                raise GraphError(f"{at}: found {shown(value)}, expected true or false")
            return value
        if kind == "str":
            if value not in ("floor", "trunc", "none", "tanh"):
                raise GraphError(f"{at}: found {shown(value)}, expected floor, trunc, none or tanh")
            return value
        raise GraphError(f"{at}: found {shown(value)}, expected nothing")

    def ref(self, value: Any, at: str, kinds: Tuple[str, ...]) -> Ref:
        """Reference {"node": k}, {"item": [k, j]}, {"in": i} or {"param": k}. Raises GraphError."""
        if not is_object(value, *kinds):
            raise GraphError(f"{at}: found {shown(value)}, expected {' or '.join(kinds)}")
        ((kind, index),) = value.items()
        item = -1
        if kind == "item":
            if not (isinstance(index, list) and len(index) == 2 and all(type(i) is int for i in index)):
                raise GraphError(f"{at}: found {shown(value)}, expected two integers")
            index, item = index
        count = {"in": self.inputs, "param": self.params}.get(kind, len(self.nodes))
        if type(index) is not int or not 0 <= index < count:
            raise GraphError(f"{at}: found {shown(value)}, but there are only {count} {kind}s before it")
        if kind in ("node", "item"):
            op = self.nodes[index].op
            results = 1 if op is None else op.results
            if (kind == "node") != (results == 1) or (kind == "item" and not 0 <= item < (results or MOST_ARGUMENTS)):
                raise GraphError(f"{at}: found {shown(value)}, but node {index} has {results or 'several'} results")
        return Ref(kind, index, item)

    def limits(self, op: Op, read: Dict[str, Any], where: str) -> Tuple[Tuple[int, int, int], ...]:
        """Checks constants that op takes as indices: on a GPU, an index out of range would kill the process."""
        if op.name == "aten.index_select.default":
            at = {read["dim"]: read["index"]}
        else:
            at = {dim: ref for dim, ref in enumerate(read["indices"]) if ref is not None}
        found = []
        for dim, ref in at.items():
            node = self.nodes[ref.k] if ref.kind == "node" else Node(None)
            while node.op is not None and node.op.identity and isinstance(node.args[0], Ref):
                node = self.nodes[node.args[0].k] if node.args[0].kind == "node" else Node(None)
            if node.constant is None or node.constant.dtype != torch.int64 or not node.constant.numel():
                raise GraphError(f"{where}: an index must be a constant of int64")
            low, high = int(node.constant.min()), int(node.constant.max())
            if op.name == "aten.index_put.default" and (
                low < 0 or len(at) > 1 or read.get("accumulate") or len(node.constant.unique()) < node.constant.numel()
            ):
                raise GraphError(f"{where}: expected one tensor of different indices from 0 on, without accumulate")
            found.append((dim, low, high))
        if not found:
            raise GraphError(f"{where}: no indices")
        return tuple(found)
