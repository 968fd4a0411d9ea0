"""Records a function's tensor operations as a graph of aten operations while it runs.

``Recorder`` is a TorchDispatchMode below ``torch.func.functionalize``: in-place operations arrive as functional
ones, and
every operation's arguments are Python numbers, earlier results, inputs, or tensors that the function made itself
(constants). What a graph cannot hold is rewritten (assignment through a mask becomes a where) or refused, with the line
of the candidate's own code.
"""

from __future__ import annotations

import functools
import math
import re
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from envolve.envs.graph.ops import OPS
from envolve.llm.vetting.trace.watch import line_of_candidate, refuse_if_never, refused

MOST_NODES = 2000
MOST_NUMBERS = 4096  # of one constant
MAX_INT = 2**63 - 1  # the end of x[a:]
SAME_VALUES = {"aten.lift_fresh.default", "aten.lift_fresh_copy.default", "aten.detach.default", "aten.alias.default"}
INDEXING = {"aten.index.Tensor", "aten.index_put.default", "aten.index_select.default", "aten.gather.default"}
DROPPED = {"device", "layout", "pin_memory", "memory_format", "non_blocking"}  # of keyword arguments
IN_PLACE = re.compile(r"_(?=\.\w+$)")  # in an operation's name
NUMBERS = {bool: torch.bool, int: torch.int64, float: torch.float64}
BOUNDS = {"aten.maximum.default": "aten.clamp_min.default", "aten.minimum.default": "aten.clamp_max.default"}
COMMUTE = {"aten.add.Tensor", "aten.mul.Tensor"}  # number op x -> x op number: there numbers can be tuned


class Recorder(TorchDispatchMode):
    """nodes: as in a graph, with the integers of this batch; lines: of the candidate's code, one per node.
    ``numbers``: names of constants are replaced by other numbers in this run (``literals``), so that masks which are
    written twice are not the same expression; they are trusted to be."""

    def __init__(self, inputs: dict[str, Tensor], numbers: bool = False) -> None:
        super().__init__()
        self.input_names = list(inputs)
        self.refs: dict[int, Any] = {id(t): {"in": i} for i, t in enumerate(inputs.values())}
        self.nodes: list[dict[str, Any]] = []
        self.lines: list[int] = []
        self.squeezed = False  # squeeze() without a dimension was called
        self._trusting = numbers
        self._keys: list[int] = []  # of nodes: equal for equal expressions
        self._varying: list[bool] = []  # of nodes: depends on an input
        self._masked: dict[int, Tensor] = {}  # x[mask]: its mask; the node has all rows
        self._kept: list[Any] = []  # no id is used twice while this lives

    # ---------------------------------------------------------------------------------------------------- operations

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        refuse_if_never(func)
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        self._kept.append((args, kwargs, out))
        name = IN_PLACE.sub("", str(func))  # within torch's own functions, on tensors of theirs
        given = [a for a in (*args, *kwargs.values()) if isinstance(a, Tensor)]
        masked = [t for t in given if id(t) in self._masked]
        one_row = masked and name == "aten.view.default" and args[0].shape[args[0].dim() - out.dim() :] == out.shape
        if name in SAME_VALUES or one_row:  # torch takes leading ones off a value that is assigned
            self.refs[id(out)] = self._ref(args[0])
            if masked:
                self._masked[id(out)] = self._masked[id(args[0])]
        elif name == "aten.index.Tensor" and _mask(args[1]) is not None:
            self._rows_of(args[0], args[1], out)
        elif name == "aten.index_put.default" and _mask(args[1]) is not None:
            self._assign(args, out)
        else:
            if masked:
                self._check_rows(func, name, args, given, masked, out)
            self._record(name, args, kwargs, out)
        return out

    def _record(self, name: str, args: Any, kwargs: dict[str, Any], out: Any) -> None:
        rewritten = self._rewrite(name, args, kwargs, out)
        if rewritten is None:
            return
        name, arguments, keywords = rewritten
        node: dict[str, Any] = {"op": name, "args": arguments}
        if keywords:
            node["kwargs"] = keywords
        self._append(name, node, out)

    def _rewrite(self, name: str, args: Any, kwargs: dict[str, Any], out: Any) -> Any:
        """The operation as a graph has it: (name, encoded arguments, encoded keywords); None: nothing to record."""
        if name == "aten.copy.default":  # z[:] = x: x, in z's shape and type
            source = args[1]
            if source.dtype != args[0].dtype:
                return "aten._to_copy.default", [self._like(source, out)], {"dtype": _dtype(args[0].dtype)}
            self.refs[id(out)] = self._like(source, out)
            return None
        if name in ("aten.fill.Scalar", "aten.fill.Tensor", "aten.zero.default"):
            number = 0.0 if name == "aten.zero.default" else self._number(args[1])
            if number is not None:
                return "aten.full_like.default", [self._ref(args[0]), number], {}
        if name == "aten.squeeze.default":  # of one environment it would take the environments' dimension, too
            self.squeezed = True
            return "aten.squeeze.dims", [self._ref(args[0]), [d for d, k in enumerate(args[0].shape) if k == 1]], {}
        if name in COMMUTE and not kwargs and self._number(args[0]) is not None and isinstance(args[1], Tensor):
            args = args[::-1]
        if name in BOUNDS:  # of a number: minimum takes none, and this one can be tuned
            for x, bound in (args, args[::-1]):
                number = self._number(bound)
                if isinstance(number, float) and number and self._number(x) is None and x.dtype == torch.float32:
                    return BOUNDS[name], [self._ref(x), number], {}
        if name == "aten.clamp.Tensor":
            limits = [self._number(a) if isinstance(a, Tensor) else a for a in (*args[1:], *kwargs.values())]
            if not any(isinstance(a, Tensor) and self._number(a) is None for a in (*args[1:], *kwargs.values())):
                name = "aten.clamp.default"
                return name, [self._ref(args[0]), *limits[: len(args) - 1]], dict(zip(kwargs, limits[len(args) - 1 :]))
        if name in INDEXING:
            self._check_indices(name, args)
        if name == "aten.slice.Tensor" and len(args) > 3 and args[3] == MAX_INT:
            args = (*args[:3], None, *args[4:])
        if name == "aten.clone.default" and kwargs.get("memory_format") == torch.contiguous_format:
            return "aten.repeat.default", [self._ref(args[0]), [1] * args[0].dim()], {}  # a copy without gaps
        keywords = {k: self._encode(v) for k, v in kwargs.items() if k not in DROPPED}
        tensors = _only_tensors(name)
        return name, [self._tensor(a) if k in tensors else self._encode(a) for k, a in enumerate(args)], keywords

    def _append(self, name: str, node: dict[str, Any], out: Any) -> None:
        if name not in OPS:
            plain = name.split(".")[1]
            raise refused(
                f"torch's {plain} ({name}) is not among the operations of a graph; write it with ordinary arithmetic, "
                "torch.where, sums and norms"
            )
        k = self._add(node)
        if isinstance(out, Tensor):
            self.refs[id(out)] = {"node": k}
        else:
            for j, part in enumerate(out):
                self.refs[id(part)] = {"item": [k, j]}

    def _add(self, node: dict[str, Any]) -> int:
        if len(self.nodes) == MOST_NODES:
            raise refused(
                f"more than {MOST_NODES} operations: replace loops by operations on whole tensors",
            )
        self.nodes.append(node)
        self.lines.append(line_of_candidate())
        self._keys.append(hash(self._frozen(node)))
        self._varying.append(self._varies(node))
        return len(self.nodes) - 1

    # ----------------------------------------------------------------------------------------------------- arguments

    def _ref(self, tensor: Tensor) -> Any:
        known = self.refs.get(id(tensor))
        if known is None:  # made by the code, without an operation that was seen: a constant
            self._kept.append(tensor)
            known = self.refs[id(tensor)] = {"node": self._add(self._constant(tensor))}
        return known

    def _constant(self, tensor: Tensor) -> dict[str, Any]:
        if tensor.numel() > MOST_NUMBERS:
            raise refused(
                f"a constant of {tensor.numel()} numbers, at most {MOST_NUMBERS} are allowed",
            )
        return {"constant": _numbers(tensor.tolist(), tensor.dtype), "dtype": _dtype(tensor.dtype)["dtype"]}

    def _encode(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            return self._ref(value)
        if isinstance(value, (list, tuple)):
            return [self._encode(v) for v in value]
        if isinstance(value, torch.dtype):
            return _dtype(value)
        if isinstance(value, float):
            return _number(value)
        if value is None or isinstance(value, (bool, int, str)):
            return value
        if isinstance(value, (torch.device, torch.layout, torch.memory_format)):
            return None
        raise refused(f"a {type(value).__name__} as an argument of a torch function")

    def _tensor(self, value: Any) -> Any:
        """A number where an operation of a graph takes tensors alone, as one without dimensions."""
        return self._encode(torch.tensor(value, dtype=NUMBERS.get(type(value))) if type(value) in NUMBERS else value)

    def _number(self, tensor: Any) -> Any:
        """The number in a float32 constant without dimensions, else None; numbers themselves."""
        if not isinstance(tensor, Tensor):
            return _number(tensor) if isinstance(tensor, float) else tensor
        node = self._node(self._ref(tensor)) if tensor.dim() == 0 else None
        is_float = tensor.dtype == torch.float32
        return node["constant"] if node is not None and "constant" in node and is_float else None

    def _node(self, ref: Any) -> Any:
        return self.nodes[ref["node"]] if ref is not None and "node" in ref else None

    def _like(self, source: Tensor, out: Tensor) -> Any:
        """Expands ``source`` to the shape of out."""
        if source.shape == out.shape:
            return self._ref(source)
        return {"node": self._add({"op": "aten.expand.default", "args": [self._ref(source), list(out.shape)]})}

    def _varies(self, value: Any) -> bool:
        if isinstance(value, dict):
            if "in" in value:
                return True
            if "node" in value or "item" in value:
                return self._varying[value["node"] if "node" in value else value["item"][0]]
            return any(self._varies(v) for v in value.values())
        return any(self._varies(v) for v in value) if isinstance(value, list) else False

    def _frozen(self, value: Any) -> Any:
        if isinstance(value, dict):
            if "node" in value:
                return "node", self._keys[value["node"]]
            if "item" in value:
                return "item", self._keys[value["item"][0]], value["item"][1]
            return tuple((k, self._frozen(v)) for k, v in value.items())
        return tuple(self._frozen(v) for v in value) if isinstance(value, list) else (type(value), value)

    def _check_indices(self, name: str, args: Any) -> None:
        """Integer indices become constants; those that are computed from the state are refused."""
        at = 2 if name in ("aten.index_select.default", "aten.gather.default") else 1
        for index in args[at] if isinstance(args[at], (list, tuple)) else [args[at]]:
            if index is None:
                continue
            ref = self._ref(index)
            if self._varies(ref):
                raise refused(
                    "an index is computed from the state; indices must be constants: use torch.where, or a sum over a "
                    "comparison with torch.arange"
                )
            if "constant" not in (self._node(ref) or {}) or bool((index < 0).any()):
                dim = args[1] if at == 2 else next(d for d, other in enumerate(args[at]) if other is index)
                counted = index.where(index >= 0, index + args[0].shape[dim])  # from the front
                self.refs[id(index)] = {"node": self._add(self._constant(counted))}

    # --------------------------------------------------------------------------------------------------------- masks

    def _rows_of(self, x: Tensor, indices: Any, out: Tensor) -> None:
        """x[mask], of which the graph keeps all rows until they are assigned through the same mask."""
        if indices[0] is None or len(indices) > 1 or id(x) in self._masked:
            self._refuse_mask()
        self.refs[id(out)] = self._ref(x)
        self._masked[id(out)] = indices[0]

    def _assign(self, args: Any, out: Tensor) -> None:
        """x[mask] = value -> where."""
        x, indices, value = args[:3]
        at, mask = _mask(indices)  # type: ignore[misc]
        if len(args) > 3 and args[3]:
            self._refuse_mask()
        if id(value) in self._masked:
            if at or not self._same(self._masked[id(value)], mask):
                self._refuse_mask()
        elif value.dim() > x.dim() - at - mask.dim():
            self._refuse_mask()
        if self._same_number(value):
            number = self._number(value)
            self._append(
                "aten.masked_fill.Scalar", self._op("masked_fill.Scalar", x, self._wide(x, at, mask), number), out
            )
        else:
            self._append("aten.where.self", self._op("where.self", self._wide(x, at, mask), self._ref(value), x), out)

    def _same_number(self, value: Tensor) -> bool:
        return id(value) not in self._masked and self._number(value) is not None

    def _op(self, name: str, *args: Any) -> dict[str, Any]:
        return {"op": f"aten.{name}", "args": [self._ref(a) if isinstance(a, Tensor) else a for a in args]}

    def _wide(self, x: Tensor, at: int, mask: Tensor) -> Any:
        """The mask of dimensions at, at + 1 ... of x, with as many dimensions behind as x has."""
        ref = self._ref(mask)
        for _ in range(x.dim() - at - mask.dim()):
            ref = {"node": self._add({"op": "aten.unsqueeze.default", "args": [ref, -1]})}
        return ref

    def _same(self, a: Tensor, b: Tensor) -> bool:
        if self._trusting:
            return torch.equal(a, b)
        return self._frozen(self._ref(a)) == self._frozen(self._ref(b))

    def _check_rows(self, func: Any, name: str, args: Any, given: list[Tensor], masked: list[Tensor], out: Any) -> None:
        """An operation on x[mask] may be done on all rows if it treats each by itself."""
        mask = self._masked[id(masked[0])]
        each = torch.Tag.pointwise in func.tags or name in ("aten.clone.default", "aten._to_copy.default")
        each = each or (name in ("aten.select.int", "aten.slice.Tensor") and args[1] % args[0].dim() >= mask.dim())
        for t in given:
            rows = id(t) in self._masked and self._same(self._masked[id(t)], mask)
            each = each and (rows or (id(t) not in self._masked and t.dim() <= masked[0].dim() - mask.dim()))
        if not each:
            self._refuse_mask()
        self._masked[id(out)] = mask

    def check_output(self, out: Tensor) -> Any:
        if id(out) in self._masked:
            self._refuse_mask()
        return self._ref(out)

    def _refuse_mask(self) -> None:
        raise refused(
            "how many rows x[mask] has depends on the data: write "
            "torch.where(mask, a, b) on whole tensors (x[mask] = number and x[mask] = y[mask] are fine)",
        )


@functools.cache
def _only_tensors(name: str) -> tuple[int, ...]:
    """Places of an operation's arguments where a number may not stand for a tensor."""
    op = OPS.get(name)
    given = [] if op is None else [a for a in op.arguments if not a.by_name]
    return tuple(k for k, a in enumerate(given) if a.type == "Tensor" and op and a.name not in op.literals)


def _mask(indices: Any) -> tuple[int, Tensor] | None:
    """The mask among indices and the dimension that it begins at."""
    for at, index in enumerate(indices):
        if isinstance(index, Tensor) and index.dtype in (torch.bool, torch.uint8):
            if any(other is not None for other in (*indices[:at], *indices[at + 1 :])):
                return None
            return at, index
    return None


def _dtype(dtype: torch.dtype) -> dict[str, str]:
    return {"dtype": str(dtype).split(".")[1]}


def _number(value: float) -> Any:
    return value if math.isfinite(value) else {"float": str(value)}


def _numbers(value: Any, dtype: torch.dtype) -> Any:
    """Nested lists of a tensor's numbers; float32 as the shortest decimals that give the same bits."""
    if isinstance(value, list):
        return [_numbers(v, dtype) for v in value]
    if not isinstance(value, float) or not math.isfinite(value):
        return _number(value) if isinstance(value, float) else value
    return float(str(np.float32(value))) if dtype == torch.float32 else value
