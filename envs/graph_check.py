"""Is this JSON a graph? What may be in one, and how it is read.

A graph is what one shaper computes, for any number n of environments (docs/shapers.md, "Graph files"):

    {"inputs": ["forward_velocity", "torque"],
     "nodes": [{"op": "aten.mul.Tensor", "args": [{"in": 0}, 0.25]}, {"constant": [0.0, 1.0], "dtype": "float32"}],
     "outputs": [{"node": 0}],
     "names": ["total"]}

Anybody may have written it: what is not allowed expressly is refused, before anything is computed.
"""

from __future__ import annotations

import math
import re
import reprlib
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple, Union

import torch
from torch import Tensor

from envs.graph_ops import OPS, Argument, Op
from envs.physics.task import SHAPER_TYPES

MOST_NODES, MOST_INPUTS, MOST_OUTPUTS, MOST_PARAMS = 2000, 256, 64, 1024
MOST_NUMBERS = 4096  # in a constant
MOST_CONSTANTS = 65536  # numbers in all constants together
MOST_ARGUMENTS = 256  # in a list
MOST_SIZES = 16  # in a list of integers
LARGEST_INTEGER = 2**40  # of sizes and the like; and INT64_MAX, which ends a slice
INT64_MAX = 2**63 - 1
DTYPES = {str(t)[6:]: t for t in (torch.float32, torch.float64, torch.int64, torch.int32, torch.bool)}
SPECIAL = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}
FORMATS = {"contiguous": torch.contiguous_format, "preserve": torch.preserve_format}
IGNORED = ("device", "layout", "pin_memory", "non_blocking", "requires_grad")  # null or false
OUTPUTS: Dict[str, Tuple[str, ...]] = {
    "compute_reward": ("total",), "compute_observation": ("observation",), "compute_torque": ("effort",),
    "compute_terminal": ("terminal",), "compute_goal": ("goal",),
    "compute_initial_state": ("root_state", "joint_position", "joint_velocity"),
}  # fmt: skip
DRAWN = ("random.uniform", "random.normal")
REST = ("rest.root_state", "rest.joint_position", "rest.joint_velocity")


class GraphError(ValueError):
    """A graph is not what it should be, or cannot be run on what it was given."""


class Ref(NamedTuple):
    """What an argument stands for: ("node", k), ("item", k, j), ("in", i), ("param", k) or ("batch", m), m n."""

    kind: str
    k: int
    item: int = -1


class Node(NamedTuple):
    """One step of a graph: an operation, or a constant."""

    op: Optional[Op]
    args: Tuple[Any, ...] = ()  # in the order of the schema; numbers, dtypes, Refs, lists of these
    kwargs: Tuple[Tuple[str, Any], ...] = ()
    constant: Optional[Tensor] = None  # on the CPU
    limits: Tuple[Tuple[int, int, int], ...] = ()  # of constant indices: (dimension, smallest, largest)


class Parsed(NamedTuple):
    """A graph that was checked."""

    inputs: Tuple[str, ...]
    nodes: Tuple[Node, ...]
    outputs: Tuple[Ref, ...]
    names: Tuple[str, ...]


def check_graph(graph: Any, kind: str, params: int) -> None:
    """Raises GraphError unless ``graph`` may stand for a shaper of this kind, with so many params."""
    parse(graph, kind, params)


def parse(graph: Any, kind: str, params: int) -> Parsed:
    """The graph, checked. Raises GraphError."""
    if kind not in SHAPER_TYPES:
        raise GraphError(f"{shown(kind)}: expected one of {', '.join(SHAPER_TYPES)}")
    check_keys(graph, ("inputs", "nodes", "outputs", "names"), (), kind)
    inputs = tuple(check_name(name, f"{kind}: inputs[{i}]") for i, name in _listed(graph, "inputs", MOST_INPUTS, kind))
    for name in inputs:
        if name in DRAWN and kind not in ("compute_initial_state", "compute_goal"):
            raise GraphError(f"{kind}: it is given no random numbers, but reads {name}")
        if name in REST and kind != "compute_initial_state":
            raise GraphError(f"{kind}: it is given no pose at rest, but reads {name}")
    if len(set(inputs)) < len(inputs):
        raise GraphError(f"{kind}: an input occurs twice")
    reader = _Reader(kind, len(inputs), params)
    for k, node in _listed(graph, "nodes", MOST_NODES, kind):
        reader.add(node, f"{kind}: node {k}")
    outputs = tuple(
        reader.ref(out, f"{kind}: outputs[{i}]", ("node", "item", "in"))
        for i, out in _listed(graph, "outputs", MOST_OUTPUTS, kind)
    )
    names = tuple(check_name(name, f"{kind}: names[{i}]") for i, name in _listed(graph, "names", MOST_OUTPUTS, kind))
    wanted = OUTPUTS[kind]
    if names[: len(wanted)] != wanted or (len(names) > len(wanted) and kind != "compute_reward"):
        raise GraphError(f"{kind}: found names {shown(list(names))}, expected {', '.join(wanted)}")
    if len(names) != len(outputs) or len(set(names)) < len(names):
        raise GraphError(f"{kind}: {len(outputs)} outputs and {len(set(names))} different names for them")
    return Parsed(inputs, tuple(reader.nodes), outputs, names)


class _Reader:
    """Reads nodes in their order."""

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
        if any(_is_param(v) for v in read.values()) and ("alpha" in read or "dtype" in read):
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
        """``value`` as the argument a of op. Raises GraphError."""
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
            if a.name in op.literals and not _is_object(value, "node", "item", "in", "param"):
                return number(value, at, batch=True)
            return self.ref(value, at, ("node", "item", "in", *params))
        if kind == "List[Tensor]":
            return [self.ref(v, at, ("node", "item", "in")) for v in short_list(value, at)]
        if kind == "List[Optional[Tensor]]":
            return [None if v is None else self.ref(v, at, ("node",)) for v in short_list(value, at)]
        if kind == "number" or kind == "float":
            if params and _is_object(value, "param"):
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
        """{"node": k}, {"item": [k, j]}, {"in": i} or {"param": k}. Raises GraphError."""
        if not _is_object(value, *kinds):
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
        """Of the constants that op takes as indices. On a GPU one out of range would kill the process."""
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


# ------------------------------------------------------------------------------------------------------------- parts


def check_keys(value: Any, needed: Tuple[str, ...], optional: Tuple[str, ...], where: str) -> None:
    """Raises GraphError unless value is an object with exactly these keys."""
    if not isinstance(value, dict):
        raise GraphError(f"{where}: found {shown(value)}, expected an object")
    for name in needed:
        if name not in value:
            raise GraphError(f"{where}: {name!r} is missing")
    for name in value:
        if name not in needed and name not in optional:
            raise GraphError(f"{where}: unknown key {shown(name)}")


def _listed(graph: Dict[str, Any], key: str, most: int, where: str) -> Iterator[Tuple[int, Any]]:
    values = graph[key]
    if not isinstance(values, list) or len(values) > most:
        raise GraphError(f"{where}: {key} is {shown(values)}, expected a list of at most {most}")
    return enumerate(values)


def check_name(value: Any, where: str) -> str:
    """A name of up to 64 characters. Raises GraphError."""
    if not isinstance(value, str) or not re.fullmatch(r"[^\x00-\x1f\x7f]{1,64}", value) or not value.isprintable():
        raise GraphError(f"{where}: found {shown(value)}, expected a name of 1 to 64 characters")
    return value


def number(value: Any, at: str, batch: bool = False) -> Union[int, float, bool, Ref]:
    """A number, {"float": "inf"}, or {"batch": m}. Raises GraphError."""
    if isinstance(value, bool):
        return value
    if _is_object(value, "float") and isinstance(value["float"], str) and value["float"] in SPECIAL:
        return SPECIAL[value["float"]]
    if type(value) is float and math.isfinite(value):
        return value
    return integer(value, at, batch)


def integer(value: Any, at: str, batch: bool = False) -> Union[int, Ref]:
    """An integer, or {"batch": m}. Raises GraphError."""
    if type(value) is int and (abs(value) <= LARGEST_INTEGER or value == INT64_MAX):
        return value
    if batch and _is_object(value, "batch"):
        m = value["batch"]
        if type(m) is int and 1 <= m <= MOST_NUMBERS:
            return Ref("batch", m)
    raise GraphError(f"{at}: found {shown(value)}, expected a number of moderate size")


def short_list(value: Any, at: str) -> List[Any]:
    if not isinstance(value, list) or len(value) > MOST_ARGUMENTS:
        raise GraphError(f"{at}: found {shown(value)}, expected a list of at most {MOST_ARGUMENTS}")
    return value


def read_dtype(value: Any, at: str) -> torch.dtype:
    """{"dtype": "float32"} or its text. Raises GraphError."""
    name = value["dtype"] if _is_object(value, "dtype") else value
    if not isinstance(name, str) or name not in DTYPES:
        raise GraphError(f"{at}: found {shown(value)}, expected a dtype, one of {', '.join(DTYPES)}")
    return DTYPES[name]


def read_constant(value: Any, dtype: Any, where: str) -> Tensor:
    """Nested lists of numbers -> a tensor on the CPU. Raises GraphError."""
    kind = read_dtype(dtype, f"{where}: dtype")
    flat: List[Any] = []
    shape: List[int] = []
    level = [value]
    while any(isinstance(v, list) for v in level):  # breadth first: no recursion that depth could break
        lengths = {len(v) if isinstance(v, list) else -1 for v in level}
        if len(lengths) > 1 or len(shape) == 6:
            raise GraphError(f"{where}: a constant is not rectangular, or has more than 6 dimensions")
        shape.append(lengths.pop())
        level = [inner for v in level for inner in v]
        if len(level) > MOST_NUMBERS:
            raise GraphError(f"{where}: a constant has more than {MOST_NUMBERS} numbers")
    for v in level:
        read = number(v, where)
        if kind == torch.bool and not isinstance(read, bool) or kind != torch.bool and isinstance(read, bool):
            raise GraphError(f"{where}: found {shown(v)} in a constant of {dtype}")
        if not kind.is_floating_point and isinstance(read, float):
            raise GraphError(f"{where}: found {shown(v)} in a constant of {dtype}")
        if kind == torch.int32 and abs(read) >= 2**31:  # type: ignore[arg-type]
            raise GraphError(f"{where}: {shown(v)} does not fit {dtype}")
        flat.append(read)
    return torch.tensor(flat, dtype=kind).reshape(shape)


def _is_object(value: Any, *keys: str) -> bool:
    return isinstance(value, dict) and len(value) == 1 and next(iter(value)) in keys


def _is_param(value: Any) -> bool:
    return isinstance(value, Ref) and value.kind == "param"


def shown(value: Any) -> str:
    """``value`` in a few characters, whatever it is."""
    if type(value) is int and abs(value) > 2**64:
        return "a huge integer"
    try:
        return reprlib.repr(value)
    except Exception:  # a huge integer within a list has no repr
        return f"a {type(value).__name__}"
