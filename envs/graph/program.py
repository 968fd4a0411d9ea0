"""Executable form of a graph: a flat list of calls with prepared arguments.

What calls read and write lies in the slots of one list, the frame: inputs, constants, numbers, results. Operations
whose arguments are known without the inputs are done once, when the frame for n environments is made; equal operations
are done once; a slot is reused once it is no longer read, which frees the memory of its tensor. None of
this changes a bit of what comes out.
"""

from __future__ import annotations

import math
import operator
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Set, Tuple

import torch
from torch import Tensor

from envolve.envs.graph.calls import IN_PLACE, getter, prepare
from envolve.envs.graph.check import Node, Parsed, Ref
from envolve.envs.graph.plan import Plan, Result, look_up, param_dims, tensors

Shape = Tuple[int, ...]
Key = int  # says what a value is: equal keys, equal values
CACHED = 2**19  # numbers that stay in a core's cache


class Call(NamedTuple):
    """frame[slot] = function(*get(frame))."""

    function: Callable[..., Any]
    get: Callable[[List[Any]], Sequence[Any]]
    slot: int


class Value(NamedTuple):
    """Kind of a node, an input or an argument."""

    key: Key
    fresh: bool  # a tensor with dense memory of its own: no input, no constant, no view
    fixed: bool  # known without the inputs


class Step(NamedTuple):
    """Call without assigned slots."""

    function: Callable[..., Any]
    reads: List[Key]
    key: Key
    view: bool = False  # the result may share memory with what is read first
    like_first: bool = False  # the result has the shape, type and layout of what is read first


class Program:
    """Calls for one plan, one device and one form of the params: their values, or None for columns [n, D]."""

    def __init__(self, parsed: Parsed, plan: Plan, device: torch.device, values: Optional[Sequence[float]]) -> None:
        self.rows, self._device, self._params = plan.rows, device, values
        self._parsed, self._plan = parsed, plan
        self._keys: Dict[Tuple[Any, ...], Key] = {}
        self._slots: Dict[Key, int] = {}
        self._start: List[Any] = []  # the frame, as far as it depends on nothing
        self._by_rows: List[Tuple[int, Any]] = []  # (slot, {"batch": m} or a list with some)
        self._columns: List[Tuple[int, int, Shape]] = []  # (slot, param, shape without n)
        self._values: Dict[Ref, Value] = {}
        for i in range(len(parsed.inputs)):
            key = self._key("in", i)
            self._slot(key)
            self._values[Ref("in", i)] = Value(key, False, False)
        steps: Dict[Key, Step] = {}
        fixed: Dict[Key, Step] = {}
        wanted = needed(parsed)
        for k, node in enumerate(parsed.nodes):
            if k in wanted:
                self._add(k, node, steps, fixed)
        outputs = [self._values[ref] for ref in parsed.outputs]
        self._fixed = [Call(s.function, self._getter(s), self._slot(s.key)) for s in fixed.values()]
        self.calls = self._choose_slots(list(steps.values()), {v.key for v in outputs})
        keys = [v.key for v in outputs]
        self.outputs = [(self._slots[v.key], not v.fresh or v.key in keys[:i]) for i, v in enumerate(outputs)]
        del self._parsed, self._plan, self._values, self._keys

    # ------------------------------------------------------------------------------------------------ frames and runs

    def frame(self, n: int, params: Optional[Tensor]) -> List[Any]:
        """Values known for n environments before there are inputs."""
        frame = list(self._start)
        for slot, value in self._by_rows:
            frame[slot] = _with_rows(value, n)
        for slot, index, shape in self._columns:
            assert params is not None
            column = params[:, index].contiguous().view((n,) + (1,) * len(shape))
            frame[slot] = column.expand(n, *shape).contiguous()
        for function, get, slot in self._fixed:
            frame[slot] = function(*get(frame))
        return frame

    def run(self, frame: List[Any], inputs: Sequence[Tensor]) -> List[Tensor]:
        """Outputs for these inputs; ``frame`` stays as it is."""
        frame = frame.copy()
        frame[: len(inputs)] = inputs
        for function, get, slot in self.calls:
            frame[slot] = function(*get(frame))
        return [frame[slot].clone() if alias else frame[slot] for slot, alias in self.outputs]

    # ---------------------------------------------------------------------------------------------------- preparation

    def _key(self, *parts: Any) -> Key:
        """Number of the value described by these parts, keys among them: deep expressions have short keys."""
        return self._keys.setdefault(parts, len(self._keys))

    def _slot(self, key: Key, value: Any = None) -> int:
        """Permanent slot of the value with this key."""
        if key not in self._slots:
            self._slots[key] = len(self._start)
            self._start.append(value)
        return self._slots[key]

    def _add(self, k: int, node: Node, steps: Dict[Key, Step], fixed: Dict[Key, Step]) -> None:
        """Makes node k a value, and a step unless an equal one is known."""
        if node.op is None:
            data = node.constant
            assert data is not None
            key = self._key("constant", data.dtype, tuple(data.shape), data.numpy().tobytes())
            self._slot(key, data.to(self._device))
            self._values[Ref("node", k)] = Value(key, False, True)
            return
        if self._changes_nothing(k, node):
            self._values[Ref("node", k)] = self._values[node.args[0]]
            return
        results = self._plan.results[k]
        function, given = prepare(node, self._plan, results, self._params, self._device)
        shape = self._column_shape(node, results)
        args = [self._argument(a, shape) for a in given]
        key = self._key(node.op.name, *(a.key for a in args), repr(node.kwargs))
        known = all(a.fixed for a in args)
        step = Step(function, [a.key for a in args], key, node.op.view, self._like_first(node, results))
        (fixed if known else steps).setdefault(key, step)
        fresh = not node.op.view and not known
        if node.op.results == 1:
            self._values[Ref("node", k)] = Value(key, fresh, known)
            return
        for j in range(len(results)):
            item = self._key("item", key, j)
            place = self._key("number", "int", str(j))
            self._slot(place, j)
            (fixed if known else steps).setdefault(item, Step(operator.getitem, [key, place], item, True))
            self._values[Ref("item", k, j)] = Value(item, fresh, known)

    def _column_shape(self, node: Node, result: Result) -> Shape:
        """Shape of columns of params beside a node's other arguments, without n: [1, ..], or the result's, written out,
        where a CPU is faster with it; ``where`` is far slower without."""
        ones = (1,) * (param_dims(node, self._plan.inputs, self._plan.results) - 1)
        if not isinstance(result, Tensor) or self._device.type != "cpu" or not result.is_contiguous():
            return ones
        small = math.prod(result.shape) <= CACHED or node.op is None or node.op.name == "aten.where.self"
        return tuple(result.shape[1:]) if small and len(result.shape) == len(ones) + 1 else ones

    def _changes_nothing(self, k: int, node: Node) -> bool:
        """True if node k has the values of its first argument, in the same layout."""
        assert node.op is not None
        if not (node.op.identity or node.op.view) or not node.args or not isinstance(node.args[0], Ref):
            return False
        source = self._values[node.args[0]]
        if node.op.identity:
            copies = node.op.name == "aten.clone.default"  # keeps the layout of dense memory only
            return not copies or (source.fresh and not node.kwargs and self._like_first(node, self._plan.results[k]))
        b = self._plan.results[k]
        a = look_up(node.args[0], self._plan.inputs, self._plan.results)
        return self._like_first(node, b) and isinstance(b, Tensor) and a.storage_offset() == b.storage_offset()

    def _like_first(self, node: Node, result: Result) -> bool:
        if not (node.args and isinstance(node.args[0], Ref) and isinstance(result, Tensor) and tensors(node.args[0])):
            return False
        a = look_up(node.args[0], self._plan.inputs, self._plan.results)
        return (a.shape, a.dtype, a.stride()) == (result.shape, result.dtype, result.stride())

    def _argument(self, arg: Any, shape: Shape) -> Value:
        """shape: of columns of params, without n."""
        if isinstance(arg, Ref) and arg.kind in ("node", "item", "in"):
            return self._values[arg]
        if isinstance(arg, Ref) and arg.kind == "param" and self._params is None:
            key = self._key("param", arg.k, shape)
            if key not in self._slots:
                self._columns.append((self._slot(key), arg.k, shape))
            return Value(key, False, True)
        if isinstance(arg, Tensor):  # of one number
            key = self._key("number", "Tensor", repr(arg.item()))
            self._slot(key, arg)
            return Value(key, False, True)
        if isinstance(arg, (list, tuple)) and not isinstance(arg, Ref) and tensors(arg):  # indices
            key = self._key("indices", *(self._values[a].key if isinstance(a, Ref) else repr(a) for a in arg))
            self._slot(key, type(arg)(self._constant(a) if isinstance(a, Ref) else a for a in arg))
            return Value(key, False, True)
        key = self._key("number", type(arg).__name__, repr(arg))
        if key not in self._slots:
            if isinstance(arg, Ref) or (isinstance(arg, list) and any(isinstance(a, Ref) for a in arg)):
                self._by_rows.append((self._slot(key), arg))
            else:
                self._slot(key, arg)
        return Value(key, False, True)

    def _constant(self, ref: Ref) -> Tensor:
        return self._start[self._slots[self._values[ref].key]]

    def _getter(self, step: Step) -> Callable[[List[Any]], Sequence[Any]]:
        return getter([self._slot(key) for key in step.reads])

    def _choose_slots(self, steps: List[Step], kept: Set[Key]) -> List[Call]:
        """Assigns slots; a result may reuse one that is no longer read."""
        read = set(kept)
        for i in reversed(range(len(steps))):
            if steps[i].key in read:
                read.update(steps[i].reads)
            else:
                del steps[i]
        steps = in_place(steps, kept)
        last = {key: i for i, step in enumerate(steps) for key in step.reads}
        own = {step.key for step in steps}
        free: List[int] = []
        calls = []
        for i, step in enumerate(steps):
            get = self._getter(step)
            for key in set(step.reads):
                if key in own and key not in kept and last[key] == i:
                    free.append(self._slots[key])
            if free:
                self._slots[step.key] = free.pop()
            calls.append(Call(step.function, get, self._slot(step.key)))
        return calls


def in_place(steps: List[Step], kept: Set[Key]) -> List[Step]:
    """Same calls, where results overwrite slots that are no longer read, which saves memory."""
    owner: Dict[Key, Key] = {}  # of the memory that a result lies in
    for step in steps:
        owner[step.key] = owner.get(step.reads[0], step.reads[0]) if step.view else step.key
    last = {owner.get(key, key): i for i, step in enumerate(steps) for key in step.reads}
    last.update({owner.get(key, key): len(steps) for key in kept})
    found = []
    for i, step in enumerate(steps):
        first = step.reads[0] if step.reads else None
        alone = all(key == first or owner.get(key, key) != first for key in step.reads)
        if step.like_first and owner.get(first) == first and last[first] == i and alone:  # type: ignore[arg-type,index]
            step = step._replace(function=IN_PLACE.get(step.function, step.function))
        found.append(step)
    return found


def needed(parsed: Parsed) -> Set[int]:
    """Nodes that the outputs depend on."""
    found: Set[int] = set()
    todo = [ref.k for ref in parsed.outputs if ref.kind != "in"]
    while todo:
        k = todo.pop()
        if k not in found:
            found.add(k)
            todo += [ref.k for ref in tensors(parsed.nodes[k].args) if ref.kind != "in"]
    return found


def _with_rows(value: Any, n: int) -> Any:
    if isinstance(value, list):
        return [_with_rows(v, n) for v in value]
    return value.k * n if isinstance(value, Ref) else value
