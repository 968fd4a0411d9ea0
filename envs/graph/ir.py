"""A shaper that is a graph: checked data instead of code, run by an interpreter of allowed tensor operations.

    graph --check--> nodes --plan, per shapes--> what it needs --program, per device--> calls on a frame

Nothing of a graph is ever executed as Python, so it may come from any source (envs/graph/check.py says what is in
one). A graph always ends, for it has no loops, and what it may compute and allocate is limited (envs/graph/plan.py).
"""

from __future__ import annotations

import copy
import hashlib
import json
import weakref
from operator import attrgetter, itemgetter
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from torch import Tensor

from envolve.core.registry import nearest
from envolve.envs.graph.check import GraphError, Parsed, parse
from envolve.envs.graph.plan import Plan, make_plan, rows_to_try
from envolve.envs.graph.program import Program
from envolve.envs.graph.values import MOST_PARAMS
from envolve.envs.physics.task import Pose

_shape = attrgetter("shape")
_interned: weakref.WeakValueDictionary = weakref.WeakValueDictionary()  # digest -> GraphFunction


class GraphFunction:
    """Callable as the shaper that it stands for: ``(state[, params])``, ``(action, state[, params])``,
    ``(state, random, rest[, params])``, ``(state, random[, params])``; with params if it has any and is not bound.

    Inputs stay as they are, outputs are the caller's own. A call raises GraphError for inputs that are missing, of the
    wrong shape or too many, for outputs of the wrong shape or type, and for whatever torch raises.
    """

    def __init__(self, graph: Any, kind: str, parsed: Optional[Parsed] = None) -> None:
        """parsed: of a graph that was checked; others are checked here. Raises GraphError."""
        self.kind = kind
        self._parsed = parse(graph, kind, MOST_PARAMS) if parsed is None else parsed
        text = json.dumps([kind, graph], sort_keys=True, separators=(",", ":"))
        self.digest = hashlib.sha256(text.encode()).hexdigest()  # equal graphs, equal digests
        self.params = 1 + max(_params_in([node.args for node in self._parsed.nodes]), default=-1)
        self._plans: Dict[Any, Plan] = {}  # shared with what is bound
        self._values: Optional[List[float]] = None if self.params else []
        self._inputs = _inputs(kind, self._parsed.inputs)
        self._forget()

    def _forget(self) -> None:
        self._programs: Dict[Any, Program] = {}
        self._now: Tuple[Any, ...] = ()  # shapes, device, params and their version of the call before
        self._program: Optional[Program] = None
        self._frame: List[Any] = []

    @property
    def takes_params(self) -> bool:
        return self._values is None

    def bind(self, values: Sequence[float]) -> GraphFunction:
        """Same graph with these numbers instead of params: faster, bit for bit the same on a CPU."""
        if len(values) < self.params:
            raise GraphError(f"{self.kind}: {len(values)} numbers for {self.params} params")
        bound = copy.copy(self)
        bound._values = [float(v) for v in values[: self.params]]
        bound._forget()
        return bound

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GraphFunction) and (self.digest, self._values) == (other.digest, other._values)

    def __hash__(self) -> int:
        return hash(self.digest)

    def __call__(self, *args: Any) -> Any:
        inputs = self._inputs(args)
        shapes = tuple(map(_shape, inputs)) or _some(args).shape[:1]
        params = args[-1] if self._values is None else None
        device = inputs[0].device if inputs else _some(args).device
        now = (shapes, device, id(params), None if params is None else params._version)
        if now != self._now:
            self._prepare(args, inputs, now)
        try:
            out = self._program.run(self._frame, inputs)  # type: ignore[union-attr]
        except Exception as e:
            self._now = ()
            raise GraphError(f"{self.kind}: {str(e).strip().splitlines()[0]}") from None
        if self.kind == "compute_reward":
            return (out[0], dict(zip(self._parsed.names[1:], out[1:]))) if len(out) > 1 else out[0]
        return Pose(*out) if self.kind == "compute_initial_state" else out[0]

    def _prepare(self, args: Sequence[Any], inputs: Sequence[Tensor], now: Tuple[Any, ...]) -> None:
        """Plan, program and frame for inputs of these shapes."""
        params = args[-1] if self._values is None else None
        n = (inputs[0] if inputs else _some(args)).shape[0]
        device = now[1]
        for name, x in zip(self._parsed.inputs, inputs):
            if x.dim() == 0 or x.shape[0] != n or x.device != device:
                found = f"{list(x.shape)} on {x.device}"
                raise GraphError(f"{self.kind}: {name} is {found}, expected [{n}, ...] on {device}")
        if params is not None and (params.dim() != 2 or params.shape[0] != n or params.shape[1] < self.params):
            raise GraphError(f"{self.kind}: found params {list(params.shape)}, expected [{n}, {self.params}]")
        layout = tuple((x.shape[1:], x.stride(), x.dtype) for x in inputs)
        plan = self._plans.get((layout, params is None))
        if plan is None or plan.rows < n:
            rows = rows_to_try(n)
            plan = make_plan(self._parsed, self.kind, inputs, rows, params is None)
            self._plans[layout, params is None] = plan
        program = self._programs.get((layout, device))
        if program is None or program.rows < n:
            program = self._programs[layout, device] = Program(self._parsed, plan, device, self._values)
        try:
            self._frame = program.frame(n, params)
        except Exception as e:
            raise GraphError(f"{self.kind}: {str(e).strip().splitlines()[0]}") from None
        self._program, self._now, self._held = program, now, params  # held, so that its id stays unique


def graph_function(graph: Any, kind: str, parsed: Optional[Parsed] = None) -> GraphFunction:
    """Graph as a function; equal graphs are the same object while it is in use. parsed: as of ``GraphFunction``. Raises
    GraphError."""
    function = GraphFunction(graph, kind, parsed)
    return _interned.setdefault(function.digest, function)


def _params_in(args: Any) -> List[int]:
    if isinstance(args, (list, tuple)) and not hasattr(args, "kind"):
        return [index for a in args for index in _params_in(a)]
    return [args.k] if getattr(args, "kind", "") == "param" else []


def _inputs(kind: str, names: Sequence[str]) -> Callable[[Sequence[Any]], Tuple[Tensor, ...]]:
    """Converter of a shaper's arguments to the tensors with these names."""
    at = 1 if kind == "compute_torque" else 0
    plain = not any("." in name or (name == "action" and at) for name in names)
    get = itemgetter(*names) if len(names) > 1 else lambda state: tuple(state[name] for name in names)

    def one(name: str, args: Sequence[Any]) -> Tensor:
        if name == "action" and at:
            return args[0]
        group, _, part = name.partition(".")
        return getattr(args[("", "random", "rest").index(group)], part) if part else args[at][name]

    def inputs(args: Sequence[Any]) -> Tuple[Tensor, ...]:
        try:
            return get(args[at]) if plain else tuple(one(name, args) for name in names)
        except KeyError as e:
            near = nearest(str(e.args[0]), args[at], cutoff=0.0)
            hint = f"; nearest: {near!r}" if near else ""
            raise GraphError(f"{kind}: the state has no {e.args[0]!r}{hint}") from None

    return inputs


def _some(args: Sequence[Any]) -> Tensor:
    """Any tensor of the state, for a graph without inputs."""
    state = next(a for a in args if isinstance(a, dict))
    return next(iter(state.values()))
