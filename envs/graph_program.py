"""A graph made ready to run: a flat list of calls with prepared arguments.

What calls read and write lies in the slots of one list, the frame: inputs, constants, numbers, results. Operations
whose arguments are known without the inputs are done once, when the frame for n environments is made; equal operations
are done once; a slot is used again as soon as nobody reads it any more, which frees the memory of its tensor. None of
this changes a bit of what comes out.
"""

from __future__ import annotations

import operator
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Set, Tuple

import torch
from torch import Tensor

from envs.graph_calls import getter, prepare
from envs.graph_check import Node, Parsed, Ref
from envs.graph_plan import Plan, look_up, param_dims, tensors

Key = Tuple[Any, ...]  # says what a value is: equal keys, equal values


class Call(NamedTuple):
    """frame[slot] = function(*get(frame))."""

    function: Callable[..., Any]
    get: Callable[[List[Any]], Sequence[Any]]
    slot: int


class Value(NamedTuple):
    """What a node, an input or an argument is."""

    key: Key
    fresh: bool  # a tensor with dense memory of its own: no input, no constant, no view
    fixed: bool  # known without the inputs


class Step(NamedTuple):
    """A call whose slots are not chosen yet."""

    function: Callable[..., Any]
    reads: List[Key]
    key: Key


class Program:
    """Calls for one plan, one device and one way to give params: their values, or None for columns [n, D]."""

    def __init__(self, parsed: Parsed, plan: Plan, device: torch.device, values: Optional[Sequence[float]]) -> None:
        self.rows, self._device, self._params = plan.rows, device, values
        self._parsed, self._plan = parsed, plan
        self._slots: Dict[Key, int] = {}
        self._start: List[Any] = []  # the frame, as far as it depends on nothing
        self._by_rows: List[Tuple[int, Any]] = []  # (slot, {"batch": m} or a list with some)
        self._columns: List[Tuple[int, int, int]] = []  # (slot, param, dimensions)
        self._values: Dict[Ref, Value] = {}
        for i in range(len(parsed.inputs)):
            self._slot(("in", i))
            self._values[Ref("in", i)] = Value(("in", i), False, False)
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
        del self._parsed, self._plan, self._values

    # ------------------------------------------------------------------------------------------------ frames and runs

    def frame(self, n: int, params: Optional[Tensor]) -> List[Any]:
        """What is known for n environments before there are inputs."""
        frame = list(self._start)
        for slot, value in self._by_rows:
            frame[slot] = _with_rows(value, n)
        for slot, index, dims in self._columns:
            assert params is not None
            frame[slot] = params[:, index].contiguous().view((n,) + (1,) * (dims - 1))
        for function, get, slot in self._fixed:
            frame[slot] = function(*get(frame))
        return frame

    def run(self, frame: List[Any], inputs: Sequence[Tensor]) -> List[Tensor]:
        """The outputs for these inputs; ``frame`` stays as it is."""
        frame = frame.copy()
        frame[: len(inputs)] = inputs
        for function, get, slot in self.calls:
            frame[slot] = function(*get(frame))
        return [frame[slot].clone() if alias else frame[slot] for slot, alias in self.outputs]

    # ---------------------------------------------------------------------------------------------------- preparation

    def _slot(self, key: Key, value: Any = None) -> int:
        """Where the value with this key lies for good."""
        if key not in self._slots:
            self._slots[key] = len(self._start)
            self._start.append(value)
        return self._slots[key]

    def _add(self, k: int, node: Node, steps: Dict[Key, Step], fixed: Dict[Key, Step]) -> None:
        """Make node k a value, and a step if no equal one is known."""
        if node.op is None:
            data = node.constant
            assert data is not None
            key: Key = ("constant", str(data.dtype), tuple(data.shape), data.numpy().tobytes())
            self._slot(key, data.to(self._device))
            self._values[Ref("node", k)] = Value(key, False, True)
            return
        if self._changes_nothing(k, node):
            self._values[Ref("node", k)] = self._values[node.args[0]]
            return
        results = self._plan.results[k]
        function, given = prepare(node, self._plan, results, self._params, self._device)
        dims = param_dims(node, self._plan.inputs, self._plan.results)
        args = [self._argument(a, dims) for a in given]
        key = (node.op.name, *(a.key for a in args), repr(node.kwargs))
        known = all(a.fixed for a in args)
        (fixed if known else steps).setdefault(key, Step(function, [a.key for a in args], key))
        fresh = not node.op.view and not known
        if node.op.results == 1:
            self._values[Ref("node", k)] = Value(key, fresh, known)
            return
        for j in range(len(results)):
            item: Key = ("item", key, j)
            place: Key = ("number", "int", str(j))
            self._slot(place, j)
            (fixed if known else steps).setdefault(item, Step(operator.getitem, [key, place], item))
            self._values[Ref("item", k, j)] = Value(item, fresh, known)

    def _changes_nothing(self, k: int, node: Node) -> bool:
        """Whether node k has the values of its first argument, in the same layout."""
        assert node.op is not None
        if not (node.op.identity or node.op.view) or not node.args or not isinstance(node.args[0], Ref):
            return False
        source = self._values[node.args[0]]
        if node.op.identity:
            copies = node.op.name == "aten.clone.default"  # keeps the layout of dense memory only
            return not copies or (source.fresh and all(name != "memory_format" for name, _ in node.kwargs))
        a, b = look_up(node.args[0], self._plan.inputs, self._plan.results), self._plan.results[k]
        return isinstance(b, Tensor) and (a.shape, a.dtype, a.stride(), a.storage_offset()) == (
            b.shape, b.dtype, b.stride(), b.storage_offset(),
        )  # fmt: skip

    def _argument(self, arg: Any, dims: int) -> Value:
        """dims: of columns of params."""
        if isinstance(arg, Ref) and arg.kind in ("node", "item", "in"):
            return self._values[arg]
        if isinstance(arg, Ref) and arg.kind == "param" and self._params is None:
            key: Key = ("param", arg.k, dims)
            if key not in self._slots:
                self._columns.append((self._slot(key), arg.k, dims))
            return Value(key, False, True)
        if isinstance(arg, Tensor):  # of one number
            key = ("number", "Tensor", repr(arg.item()))
            self._slot(key, arg)
            return Value(key, False, True)
        if isinstance(arg, (list, tuple)) and not isinstance(arg, Ref) and tensors(arg):  # indices
            key = ("indices", *(self._values[a].key if isinstance(a, Ref) else repr(a) for a in arg))
            self._slot(key, type(arg)(self._constant(a) if isinstance(a, Ref) else a for a in arg))
            return Value(key, False, True)
        key = ("number", type(arg).__name__, repr(arg))
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
        """A result may lie where something lay that is read no more."""
        read = set(kept)
        for i in reversed(range(len(steps))):
            if steps[i].key in read:
                read.update(steps[i].reads)
            else:
                del steps[i]
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


def needed(parsed: Parsed) -> Set[int]:
    """The nodes that outputs depend on."""
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
