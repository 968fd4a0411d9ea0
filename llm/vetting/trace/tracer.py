"""Runs a candidate's code on real state and writes its functions down as graphs. Only inside a jail (jail.py).

Each function runs once as it is, on all rows of the probe, and then under ``torch.func.functionalize`` and a
``Recorder`` at two numbers of environments. The two records must agree; integers that are 5 in one and 7 in the other
are the number of environments. The graph must give the same bits as the function at 1, 2 and all environments.
"""

from __future__ import annotations
import __future__

import ast
import builtins
import math
import re
import types as python_types
import typing
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from envolve.envs.graph.check import GraphError
from envolve.envs.graph.ir import GraphFunction
from envolve.envs.physics.task import Pose
from envolve.llm.vetting import literals
from envolve.llm.vetting.allow.allowed_names import BUILTINS, MODULES, TYPING
from envolve.llm.vetting.text.extract import VetError
from envolve.llm.vetting.trace import calling
from envolve.llm.vetting.trace.code_errors import advice, describe, with_source
from envolve.llm.vetting.trace.recorder import Recorder
from envolve.llm.vetting.trace.records import SIZES, Record, live, merge, needed
from envolve.llm.vetting.trace.watch import CANDIDATE, FirstNotFinite, Watch

TRIED = 1, 2  # environments at which the graph is compared with the function, beside all of the probe's
WIDTH_ERRORS = (RuntimeError, IndexError, ValueError)  # of a compute_torque that wants actions of another width


class Trace(NamedTuple):
    """Trace of one function."""

    graph: dict[str, Any]
    nodes: list[dict[str, Any]]  # of the graph, before integers became {"batch": m}
    lines: list[int]  # of the code, by node
    squeezed: bool


def trace_candidate(code: str, types: Sequence[str], probe: Any) -> dict[str, Any]:
    """The graph file of ``code``, with its numbers still in it, and "literal_names" for them (literals.py).

    probe: probe.py. Raises VetError of the stages "trace" (it raised, or does what a graph cannot hold), "smoke"
    (what it returns is wrong) and "graph" (the graph is not the function).
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch, about what is compared and vetted below
        return _graph_file(code, types, probe)


def _graph_file(code: str, types: Sequence[str], probe: Any) -> dict[str, Any]:
    source = literals.read(code)
    names = load(ast.parse(code), code)
    functions = {kind: names[kind] for kind in types if isinstance(names.get(kind), python_types.FunctionType)}
    if not functions:
        raise VetError("trace", f"the code defines none of {', '.join(types)}")
    if "compute_goal" in functions and not probe.goal_size:
        raise VetError("trace", f"{probe.task} has no goals, so there is nothing for compute_goal to set: leave it out")
    size = _action_size(functions, names.get("ACTION_SIZE"), probe, code)
    inputs = calling.make_inputs(probe, size)
    calls = {kind: calling.how_to_call(f, kind, _quantities(inputs)) for kind, f in functions.items()}
    traces = {kind: _trace(call, kind, inputs, probe, code) for kind, call in calls.items()}
    return {
        "envolve_graph": 1,
        "task": probe.task,
        "action_size": size,
        "params": [],
        "functions": {kind: trace.graph for kind, trace in traces.items()},
        "source": code,
        "literal_names": _name_literals(source, traces, inputs, code),
    }


def trace_reward(function: Callable[..., Any], probe: Any) -> dict[str, Any]:
    """The graph file of a reward that is this project's own, with its numbers still in it. Raises VetError as
    ``trace_candidate`` does."""
    kind, inputs = "compute_reward", calling.make_inputs(probe)
    trace = _trace(calling.how_to_call(function, kind, _quantities(inputs)), kind, inputs, probe, "")
    return {"envolve_graph": 1, "task": probe.task, "action_size": None, "params": [], "functions": {kind: trace.graph}}


def load(tree: ast.Module, code: str) -> dict[str, Any]:
    """Runs the module -> its names. Annotations are not evaluated."""

    def import_(name: str, *_: Any, **__: Any) -> Any:
        if name not in MODULES and name.split(".")[0] != "torch":  # torch itself imports parts of it when first needed
            raise VetError("trace", f"import {name}: only {', '.join(sorted(MODULES))} can be imported")
        return __import__(name, *_, **__)

    allowed = {name: getattr(builtins, name) for name in BUILTINS}
    namespace: dict[str, Any] = {
        "__builtins__": {**allowed, "__import__": import_}, "__name__": "candidate", "torch": torch, "math": math,
        "F": torch.nn.functional, "Tensor": Tensor, "Pose": Pose, **{name: getattr(typing, name) for name in TYPING},
    }  # fmt: skip
    flags = __future__.annotations.compiler_flag
    try:
        exec(compile(tree, CANDIDATE, "exec", flags=flags, dont_inherit=True), namespace)
    except Exception as e:
        raise describe(e, code, 0) from e
    return namespace


def _quantities(inputs: calling.Inputs) -> list[str]:
    return [name for name in inputs if "." not in name]


def _action_size(functions: dict[str, Any], wanted: Any, probe: Any, code: str) -> int | None:
    """Width of the actions that compute_torque takes, found as envs/shaping/widths.py does; None without one."""
    if "compute_torque" not in functions:
        return None
    if wanted is not None and not (type(wanted) is int and 1 <= wanted <= 1024):
        raise VetError("trace", f"found ACTION_SIZE = {wanted!r:.40}, expected an integer from 1 to 1024")
    first: VetError | None = None
    inputs = calling.make_inputs(probe)
    for size in [wanted] if wanted is not None else probe.widths:
        inputs.update(calling.actions(probe, size))
        call = calling.how_to_call(functions["compute_torque"], "compute_torque", _quantities(inputs))
        try:
            _eager(call, "compute_torque", inputs, probe.n, probe, code)
            return size
        except VetError as e:
            first = first or e  # what counts is what it raises with the width that it was meant for
            if e.stage == "trace" and not isinstance(e.__cause__, WIDTH_ERRORS):
                break
    assert first is not None
    raise first


# ------------------------------------------------------------------------------------------------------- one function


def _eager(call: Callable[..., Any], kind: str, inputs: calling.Inputs, n: int, probe: Any, code: str) -> Any:
    """Names and tensors that the function returns for n environments, checked."""
    given = calling.inputs_of(kind, inputs, n)
    try:
        with torch.no_grad(), Watch(given):
            names, parts = calling.flat(kind, call(given))
    except Exception as e:
        raise describe(e, code, n) from e
    calling.check_outputs(kind, names, parts, n, probe)
    return names, parts


def _trace(call: Callable[..., Any], kind: str, inputs: calling.Inputs, probe: Any, code: str) -> Trace:
    names, parts = _eager(call, kind, inputs, probe.n, probe, code)
    _check_finite(call, kind, inputs, names, parts, probe.n, code)
    again = _eager(call, kind, inputs, probe.n, probe, code)[1]
    if not all(same_bits(a, b) for a, b in zip(parts, again)):
        raise VetError("smoke", f"{kind} returns something else when it is called again with the same state")
    records = [record(call, kind, calling.inputs_of(kind, inputs, n), code) for n in SIZES]
    graph = merge(kind, records, code)
    trace = Trace(graph, *live(graph, records[0]), records[0][0].squeezed)
    try:
        function = _checked(graph, kind)
        for n in (*TRIED, probe.n):
            _compare(call, function, kind, inputs, n, probe, code, trace.squeezed)
    except VetError as e:
        raise VetError(e.stage, with_source(_at_line(e.message, trace.lines), code)) from e
    return trace


def _at_line(message: str, lines: Sequence[int]) -> str:
    """Message about a node of a graph, with the line of the code that it comes from in its place."""
    found = re.match(r"\w+: node (\d+) \(aten\.(\w+)\.\w+\): ", message)
    if found is None or int(found[1]) >= len(lines):
        return message
    why = message[found.end() :]
    return f"line {lines[int(found[1])]}: torch's {found[2]}: {why}{advice(why)}"


def record(call: Callable[..., Any], kind: str, given: calling.Inputs, code: str, changed: bool = False) -> Record:
    """Runs the function on these inputs -> the record, names of its outputs and references to them."""
    names: list[str] = []
    given = {name: t.detach() for name, t in given.items()}  # each a tensor of its own

    def run(*tensors: Tensor) -> tuple[Tensor, ...]:
        names[:], parts = calling.flat(kind, call(dict(zip(given, tensors))))
        return tuple(parts)

    recorder = Recorder(given, changed)
    try:
        with torch.no_grad(), recorder:
            parts = torch.func.functionalize(run)(*given.values())
        return recorder, names, [recorder.check_output(part) for part in parts]
    except Exception as e:
        raise describe(e, code, len(next(iter(given.values())))) from e


def _checked(graph: dict[str, Any], kind: str) -> GraphFunction:
    try:
        return GraphFunction(graph, kind)
    except GraphError as e:
        raise VetError("graph", str(e)) from e


def _compare(
    call: Callable[..., Any],
    function: Any,
    kind: str,
    inputs: calling.Inputs,
    n: int,
    probe: Any,
    code: str,
    squeezed: bool,
) -> None:
    """Raises VetError unless the graph gives the same bits as the function for n environments."""
    given = calling.inputs_of(kind, inputs, n)
    try:
        parts = _eager(call, kind, inputs, n, probe, code)[1]
    except VetError as e:
        if squeezed and n == 1:  # squeeze() has taken the environments' dimension, which the graph does not do
            return
        raise VetError(e.stage, f"with {n} environment{'s' * (n > 1)}: {e.message}") from e
    state = {name: t for name, t in given.items() if "." not in name}
    drawn = [calling._given("random", given)] if "random" in calling.WANTED[kind] else []
    rest = [calling._given("rest", given)] if "rest" in calling.WANTED[kind] else []
    action = [given["action"]] if kind == "compute_torque" else []
    try:
        with torch.no_grad():
            out = calling.flat(kind, function(*action, state, *drawn, *rest))[1]
    except GraphError as e:
        raise VetError("graph", str(e)) from e
    if len(out) != len(parts) or not all(same_bits(a, b) for a, b in zip(out, parts)):
        raise VetError(
            "graph",
            f"{kind} gives other numbers for {n} environments when it is written as a graph of tensor operations: does "
            "what it does depend on the number of environments, or on earlier calls?",
        )


def same_bits(a: Tensor, b: Tensor) -> bool:
    """Equal in shape, type and every bit but for those of NaN."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    equal = a == b
    if a.is_floating_point():
        equal = (equal & (a.signbit() == b.signbit())) | (a.isnan() & b.isnan())
    return bool(equal.all())


def _check_finite(
    call: Callable[..., Any],
    kind: str,
    inputs: calling.Inputs,
    names: list[str],
    parts: list[Tensor],
    n: int,
    code: str,
) -> None:
    for name, part in zip(names, parts):
        if part.isfinite().all():
            continue
        rows = int((~part.isfinite()).reshape(n, -1).any(1).sum())
        with torch.no_grad(), FirstNotFinite() as first:
            call(calling.inputs_of(kind, inputs, n))
        part_of = f" ({name})" if name != kind.replace("compute_", "") else ""
        text = (
            f"line {first.line}: {kind}{part_of} is NaN or infinite in {rows} of {n} environments; first "
            f"from {first.operation}: keep divisors and arguments of sqrt, log and pow positive (+ 1e-6, "
            "torch.clamp)"
        )
        raise VetError("smoke", with_source(text, code))


# ------------------------------------------------------------------------------------------------------------- literals


def _name_literals(
    source: literals.Source, traces: dict[str, Trace], inputs: calling.Inputs, code: str
) -> list[list[Any]]:
    """Names of the numbers in the graphs, from a third record with changed literals."""
    values = {id(x): float(x.node.value) for x in source.literals}  # type: ignore[arg-type]
    tree, found = literals.changed(source)
    functions = {}
    changed = load(tree, code)
    for kind, trace in traces.items():
        given = calling.inputs_of(kind, inputs, SIZES[0])
        others: list[dict[str, Any]] = []
        try:
            call = calling.how_to_call(changed[kind], kind, _quantities(inputs))
            recorder, _, outputs = record(call, kind, given, code, changed=True)
            order = needed(recorder.nodes, outputs)
            others = [recorder.nodes[k] for k in order]
            if [x.get("op") for x in others] != [x.get("op") for x in trace.nodes]:
                others = []
        except VetError:  # its numbers decide what it does: they are named by line
            others = []
        functions[kind] = trace.nodes, others, trace.lines
    return literals.name_arguments(functions, source, values, found)
