"""Best candidate as a file for people and ``eval_shapers.py``: its author's code with the tuned constants.

A tuned number goes back to the literal that it came from, and the result is traced again: only if that gives the very
graph that was trained is it the author's code. Otherwise (a literal that is used twice and was tuned apart, or that
Python had combined with others) the graph itself is written down as Python, an operation per line.
"""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from envolve.envs.graph.ops import OPS
from envolve.envs.physics.task import SHAPER_TYPES
from envolve.llm.vetting.allow.allowed_names import TYPING
from envolve.llm.vetting.literals import Literal, read
from envolve.llm.vetting.trace.calling import WANTED, WHOLE

if TYPE_CHECKING:
    from envolve.llm.vetting.vet import Vetter

# code -> its graph file, None: refused; runs the code in the jail
Recheck = Callable[[str], "Mapping[str, Any] | None"]
IMPORTS = (  # what llm/vetting/trace/tracer.py gives to code, beside torch
    ("import math", ("math",)),
    ("from typing import {}", tuple(sorted(TYPING))),
    ("import torch.nn.functional as F", ("F",)),
    ("from torch import {}", ("Tensor",)),
    ("from envolve.envs.physics.task import {}", ("Pose",)),
)
ARITHMETIC = ("add", "sub", "mul", "div")
POSE = ("root_state", "joint_position", "joint_velocity")


def best_code(
    code: str,
    written: Mapping[str, Any],
    tuned: Mapping[str, Any],
    recheck: Recheck | None,
    names: Collection[str],
    about: str,
) -> str:
    """A file that gives the same bits as the graph file ``tuned``.

    code: of the author, whose graph file is ``written``; names: of the task's state; about: one line on what it is.
    """
    numbers = code_with_numbers(code, written["params"], tuned["params"])
    fits = numbers is not None and _defined(numbers) == set(tuned["functions"]) and "__future__" not in numbers
    if numbers is not None and fits:
        # a graph that was not tuned is known to be the code's; what was changed has to show that it is
        again = tuned if numbers == code else recheck(numbers) if recheck is not None else None
        if again is not None and same_graphs(again, tuned):
            return f'"""{about}"""\n\n{_imports(numbers)}\n\n{numbers.strip()}\n{_adapters(numbers, names)}'
    text = f'"""{about}\n\nWritten from best.graph.json, an operation per line.\n"""\n\n{code_of_graph(tuned)}'
    lines = [f"# {line}".rstrip() for line in code.strip().splitlines()]
    return "\n".join([text, "", "# The author's code, with the numbers that it came with:", "#", *lines]) + "\n"


def recheck_with(vetter: Vetter) -> Recheck:
    """Function that traces code with an open vetter."""

    def recheck(code: str) -> Mapping[str, Any] | None:
        return getattr(vetter.vet_code(code, "best"), "graph_file", None)

    return recheck


def same_graphs(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    """True if two graph files compute the same, with their parameters in float32, whatever the parameters' names."""
    values = [[float(np.float32(p["value"])) for p in x["params"]] for x in (a, b)]
    return a["functions"] == b["functions"] and a["action_size"] == b["action_size"] and values[0] == values[1]


# ---------------------------------------------------------------------------------------- numbers back to their places


def code_with_numbers(
    code: str, written: Sequence[Mapping[str, Any]], tuned: Sequence[Mapping[str, Any]]
) -> str | None:
    """``code`` with other literals where a param has another value; None if a literal cannot be identified."""
    literals = read(code).literals
    edits: dict[int, tuple[Literal, str]] = {}
    for old, new in zip(written, tuned):
        if np.float32(old["value"]) == np.float32(new["value"]):
            continue
        literal = next((x for x in _literals_of(old, literals) if id(x) not in edits), None)
        if literal is None:
            return None
        sign = 1 if _number_of(literal) == old["value"] else -1  # of a minus before the literal
        edits[id(literal)] = literal, short(sign * new["value"])
    lines = code.split("\n")
    for literal, text in sorted(edits.values(), key=lambda e: (e[0].line, e[0].node.col_offset), reverse=True):
        node, row = literal.node, literal.line - 1
        line = lines[row].encode()  # columns count bytes
        lines[row] = (line[: node.col_offset] + text.encode() + line[node.end_col_offset :]).decode()
    return "\n".join(lines)


def _literals_of(param: Mapping[str, Any], literals: Sequence[Literal]) -> list[Literal]:
    """Literals with the param's name and value, in order."""
    same = [x for x in literals if abs(_number_of(x)) == abs(param["value"])]
    named = [x for x in same if x.name == param["name"]]
    target = re.sub(r"_\d+$", "", param["name"])
    found = named or [x for x in same if not x.name and x.target == target]
    return sorted(found, key=lambda x: isinstance(_number_of(x), int))  # an integer may be an index


def _number_of(literal: Literal) -> Any:
    """Int or float: the type that a constant's value does not show."""
    return literal.node.value


def short(value: float) -> str:
    """Shortest decimal of this number in float32; negative ones in brackets, because they may follow a minus."""
    text = str(np.float32(value))
    return text if value >= 0 else f"({text})"


def _imports(code: str) -> str:
    """Known names that ``code`` may use without an import. Annotations are not evaluated there."""
    used = {n.id for n in ast.walk(ast.parse(code)) if isinstance(n, ast.Name)}
    lines = ["from __future__ import annotations", "", "import torch"]
    for line, names in IMPORTS:
        needed = [name for name in names if name in used]
        lines += [line.format(", ".join(needed))] * bool(needed)
    return "\n".join(lines)


def _defined(code: str) -> set[str]:
    return {f.name for f in ast.parse(code).body if isinstance(f, ast.FunctionDef)} & set(SHAPER_TYPES)


def _adapters(code: str, names: Collection[str]) -> str:
    """Wrappers with the task's signature, for functions that name quantities of the state as arguments."""
    out = []
    for f in ast.parse(code).body:
        if not isinstance(f, ast.FunctionDef) or f.name not in SHAPER_TYPES:
            continue
        wanted = WANTED[f.name]
        have = [a.arg for a in [*f.args.posonlyargs, *f.args.args, *f.args.kwonlyargs]]
        needed = len(have) - len(f.args.defaults) - sum(d is not None for d in f.args.kw_defaults)
        if len(have) >= len(wanted) >= needed and have[wanted.index("state")] not in names:
            continue  # as llm/vetting/trace/calling.py decides
        keys = {name: WHOLE.get(name, name) for name in have}
        given = [
            f"{name}={key}" if key in wanted else f"{name}=state[{_quoted(key)}]"
            for name, key in keys.items()
            if key in wanted or key in names
        ]
        out.append(
            f"\n\n_named_{f.name} = {f.name}\n\n\ndef {f.name}({', '.join(wanted)}):\n"
            f"    return _named_{f.name}({', '.join(given)})\n"
        )
    return "".join(out)


# ---------------------------------------------------------------------------------------------- a graph as Python code


def code_of_graph(graph_file: Mapping[str, Any]) -> str:
    """Python code of the functions of a checked graph file, with a table of its parameters at the top."""
    params = [(str(p["name"]), float(np.float32(p["value"]))) for p in graph_file["params"]]
    parts = ["import math\n\nimport torch\n"]
    if any(kind == "compute_initial_state" for kind in graph_file["functions"]):
        parts[0] += "\nfrom envolve.envs.physics.task import Pose\n"
    if graph_file["action_size"] is not None:
        parts.append(f"ACTION_SIZE = {int(graph_file['action_size'])}\n")
    if params:
        rows = "".join(f"    {_quoted(name)}: {value!r},\n" for name, value in params)
        parts.append(f"NUMBERS = {{\n{rows}}}\n")
    for kind, graph in graph_file["functions"].items():
        parts.append("\n" + _Function(kind, graph, [name for name, _ in params]).text())
    return "\n".join(parts)


class _Function:
    """Python code of one graph."""

    def __init__(self, kind: str, graph: Mapping[str, Any], params: Sequence[str]) -> None:
        if kind not in SHAPER_TYPES:
            raise ValueError(f"{kind!r} is no shaper")
        self.kind, self.graph, self.params = kind, graph, params
        self.wanted = WANTED[kind]

    def text(self) -> str:
        lines = [self._node(k, node) for k, node in enumerate(self.graph["nodes"])]
        text = "\n".join(f"    {line}" for line in lines)
        head = [f"def {self.kind}({', '.join(self.wanted)}):"]
        head += ["    n = next(iter(state.values())).shape[0]"] * bool(re.search(r"\bn\b", text))
        head += ["    device = next(iter(state.values())).device"] * ("device=device" in text)
        return "\n".join([*head, *[text] * bool(text), f"    return {self._outputs()}"]) + "\n"

    def _node(self, k: int, node: Mapping[str, Any]) -> str:
        if "constant" in node:
            return f"v{k} = torch.tensor({_number(node['constant'])}, dtype={_dtype(node['dtype'])}, device=device)"
        name = node["op"]
        if name not in OPS:  # it becomes code
            raise ValueError(f"{name!r} is no operation of a graph")
        positional = [a.type for a in OPS[name].arguments if not a.by_name]
        words = [self._argument(name, kind, a) for kind, a in zip(positional, node.get("args", []))]
        for key, value in node.get("kwargs", {}).items():
            if not key.isidentifier():
                raise ValueError(f"{key!r} is no argument")
            words.append(f"{key}={self._value(value)}")
        words += ["device=device"] * OPS[name].factory
        return f"v{k} = torch.ops.{name}({', '.join(words)})"

    def _argument(self, op: str, kind: str, value: Any) -> str:
        """One given by position: numbers stand for tensors in arithmetic alone."""
        text = self._value(value)
        number = isinstance(value, (int, float)) or (isinstance(value, dict) and "param" in value)
        if kind == "Tensor" and number and op.split(".")[1] not in ARITHMETIC:
            return f"torch.tensor({text}, device=device)"
        return text

    def _value(self, value: Any) -> str:
        if isinstance(value, list):
            return f"[{', '.join(map(self._value, value))}]"
        if not isinstance(value, dict):
            return _number(value)
        (key, x), *_ = value.items()
        if key == "item":
            return f"v{int(x[0])}[{int(x[1])}]"
        if key in ("node", "batch"):
            return f"v{int(x)}" if key == "node" else "n" if x == 1 else f"{int(x)} * n"
        if key == "in":
            name = self.graph["inputs"][x]
            if name == "action" and "action" in self.wanted:
                return "action"
            return name if name.split(".")[0] in ("random", "rest") and "." in name else f"state[{_quoted(name)}]"
        if key == "param":
            return f"NUMBERS[{_quoted(self.params[x])}]"
        return _dtype(x) if key == "dtype" else _number(float(x))

    def _outputs(self) -> str:
        values, names = [self._value(v) for v in self.graph["outputs"]], self.graph["names"]
        if self.kind == "compute_reward":
            parts = ", ".join(f"{_quoted(name)}: {value}" for name, value in zip(names[1:], values[1:]))
            return f"{values[0]}, {{{parts}}}"
        if self.kind == "compute_initial_state":
            return f"Pose({', '.join(f'{part}={values[names.index(part)]}' for part in POSE)})"
        return values[0]


def _dtype(name: str) -> str:
    if not re.fullmatch(r"(float|int|uint)\d+|bool", name):
        raise ValueError(f"{name!r} is no type of numbers")
    return f"torch.{name}"


def _number(value: Any) -> str:
    """Python text of numbers, booleans, None, strings and lists of them."""
    if isinstance(value, list):
        return f"[{', '.join(map(_number, value))}]"
    if isinstance(value, dict):  # {"float": "inf"} in a constant
        return _number(float(value["float"]))
    if isinstance(value, float) and not math.isfinite(value):
        return "math.nan" if math.isnan(value) else "math.inf" if value > 0 else "-math.inf"
    return _quoted(value) if isinstance(value, str) else repr(value)


def _quoted(text: str) -> str:
    """Python string in the quotes that formatters prefer."""
    return json.dumps(text)
