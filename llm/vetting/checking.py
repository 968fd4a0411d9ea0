"""Converts a child's trace to a graph file: untrusted bytes, read with limits.

Finding the shapes of thousands of operations takes seconds, so ``check`` is run where candidates are, in a locked child
of its own that runs no foreign code (``jailed.py``); the master only looks at the form of what comes out (``accept``).
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

from envolve.envs.graph.check import GraphError
from envolve.envs.graph.file import GraphFile
from envolve.envs.graph.params import lift
from envolve.envs.graph.plan import look_up, make_plan
from envolve.llm.vetting.literals import literal_names
from envolve.llm.vetting.probe import Probe
from envolve.llm.vetting.text.parsing import VetError
from envolve.llm.vetting.trace.calling import check_outputs, make_inputs

STAGES = ("extract", "allowlist", "trace", "smoke", "graph", "limits")
MOST_ACTIONS = 1024
META_ROWS = 96, 8192  # environments with which a graph's shapes are found: shapes may not be made for one number


def check(traced: bytes, code: str, types: Sequence[str], probe: Probe) -> dict[str, Any]:
    """Graph file of a child's trace, checked, with its numbers as parameters. Raises VetError."""
    found = read_result(traced)
    functions, size = found.get("functions"), found.get("action_size")
    if not isinstance(functions, dict) or not functions or not set(functions) <= set(types):
        raise VetError("graph", f"expected functions among {', '.join(types)}")
    if size is not None and not (type(size) is int and 1 <= size <= MOST_ACTIONS):
        raise VetError("graph", f"found actions of width {size!r:.40}, expected 1 to {MOST_ACTIONS}")
    try:
        names = literal_names(found.get("literal_names"))
        example = make_inputs(probe, size or probe.action_size)
        lifted, params = lift(functions, names, example=example, only_named=True)
        file = GraphFile.of(probe.task, lifted, params, size, code)
        for kind, parsed in file.parsed.items():
            for rows in META_ROWS:
                plan = make_plan(parsed, kind, [example[name] for name in parsed.inputs], rows, bound=False)
                outputs = [look_up(ref, plan.inputs, plan.results) for ref in parsed.outputs]
                check_outputs(kind, list(parsed.names), outputs, rows, probe)
        file.text()  # raises for one that is too large
        return file.data
    except KeyError as e:
        raise VetError("graph", f"{probe.task} has no {e.args[0]!r}") from None
    except GraphError as e:
        raise VetError("graph", str(e)) from None
    except VetError:
        raise
    except Exception as e:  # whatever it is, it came from outside
        raise VetError("graph", f"its graph cannot be used ({type(e).__name__})") from None


def accept(code: str, task: str, checked: bytes, types: Sequence[str]) -> GraphFile:
    """Graph file written by ``check``, if it is one of this code for this task. Raises VetError."""
    try:
        found = GraphFile(read_result(checked))
    except GraphError as e:
        raise VetError("graph", str(e)) from None
    if found["task"] != task or found.get("source") != code or not set(found["functions"]) <= set(types):
        raise VetError("graph", "the graph file is not of this code")
    return found


def read_result(data: bytes) -> dict[str, Any]:
    """Graphs written by a child. Raises VetError: the child's own, or for invalid output."""
    try:
        found = json.loads(data, parse_int=_integer, parse_float=_float, parse_constant=_no_constant)
    except (ValueError, RecursionError) as e:
        raise VetError("graph", f"what came out of the process that ran it is not what it should be: {e}") from None
    if isinstance(found, dict) and list(found) == ["graph"] and isinstance(found["graph"], dict):
        return found["graph"]
    if isinstance(found, dict) and list(found) == ["error"]:
        error = found["error"]
        if isinstance(error, list) and len(error) == 2 and all(isinstance(part, str) for part in error):
            raise VetError(error[0] if error[0] in STAGES else "trace", error[1])
    raise VetError("graph", "what came out of the process that ran it is neither a graph nor a reason")


def _integer(text: str) -> int:
    if len(text) > 20:
        raise ValueError(f"an integer of {len(text)} digits")
    return int(text)


def _float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"a number that is not finite: {text[:20]}")
    return value


def _no_constant(text: str) -> float:
    raise ValueError(f"{text} is not JSON")
