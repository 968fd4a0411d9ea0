"""A checked graph as Python code, an operation per line: plain torch that gives the same bits and that ``envolve vet``
takes."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from envolve.envs.graph.ops import OPS
from envolve.envs.physics.task import SHAPER_TYPES
from envolve.llm.vetting.allow.allowed_names import FUNCTIONAL, TORCH
from envolve.llm.vetting.trace.calling import WANTED

POSE = ("root_state", "joint_position", "joint_velocity")
INFIX = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "gt": ">", "ge": ">=", "lt": "<", "le": "<=", "eq": "==",
    "ne": "!=", "bitwise_and": "&", "bitwise_or": "|", "bitwise_xor": "^",
}  # fmt: skip
PREFIX = {"neg": "-", "bitwise_not": "~"}
TAKES_NUMBERS = ("Tensor", "Scalar")  # overloads of INFIX, where a number may stand for a tensor
OTHER_NAMES = {
    "linalg_vector_norm": "torch.linalg.vector_norm", "linalg_cross": "torch.linalg.cross",
    "split_with_sizes": "torch.split", "fill": "torch.full_like", "constant_pad_nd": "torch.nn.functional.pad",
}  # fmt: skip
METHODS = {
    "repeat": "repeat", "expand": "expand", "view": "reshape", "_unsafe_view": "reshape", "new_zeros": "new_zeros",
    "new_ones": "new_ones", "new_full": "new_full",
}  # fmt: skip
SAME = ("alias", "detach", "lift_fresh", "lift_fresh_copy")
REDUCTIONS = ("none", "mean", "sum")  # of losses, by their number in a graph
SELU = 1.6732632423543772, 1.0507009873554805  # what torch's selu gives to elu


def code_of_graph(graph_file: Mapping[str, Any]) -> str:
    """Python code of the functions of a checked graph file, with a table of its parameters at the top."""
    params = [(str(p["name"]), float(np.float32(p["value"]))) for p in graph_file["params"]]
    parts = ["import math\n\nimport torch\n"]
    if any(kind == "compute_initial_state" for kind in graph_file["functions"]):
        parts[0] += "\nfrom envolve.envs.physics.task import Pose\n"
    if graph_file["action_size"] is not None:
        parts.append(f"ACTION_SIZE = {int(graph_file['action_size'])}\n")
    if params:
        rows = "".join(f"    {quoted(name)}: {value!r},\n" for name, value in params)
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
        lines = [line for k, node in enumerate(self.graph["nodes"]) for line in self._node(k, node)]
        text = "\n".join(f"    {line}" for line in lines)
        given = self._value({"in": 0}) if self.graph["inputs"] else 'state["progress"]'
        head = [f"def {self.kind}({', '.join(self.wanted)}):"]
        head += [f"    n = {given}.shape[0]"] * bool(re.search(r"\bn\b", text))
        head += [f"    device = {given}.device"] * ("device=device" in text)
        return "\n".join([*head, *[text] * bool(text), f"    return {self._outputs()}"]) + "\n"

    def _node(self, k: int, node: Mapping[str, Any]) -> list[str]:
        if "constant" in node:
            return [f"v{k} = torch.tensor({_number(node['constant'])}, dtype={_dtype(node['dtype'])}, device=device)"]
        name = node["op"]
        if name not in OPS:  # it becomes code
            raise ValueError(f"{name!r} is no operation of a graph")
        keywords = dict(node.get("kwargs", {}))
        for key in keywords:
            if not key.isidentifier():
                raise ValueError(f"{key!r} is no argument")
        positional = [a.type for a in OPS[name].arguments if not a.by_name]
        infix = name.split(".")[1] in INFIX and name.split(".")[2] in TAKES_NUMBERS
        words = [self._argument(kind, a, infix) for kind, a in zip(positional, node.get("args", []))]
        named = {key: self._value(value) for key, value in keywords.items() if value is not None}
        places = self._assigned(name, node.get("args", []), words)
        if places:
            return [f"v{k} = torch.clone({words[0]})", f"v{k}[{places}] = {words[2 if 'index_put' in name else 1]}"]
        return [f"v{k} = {self._call(name, node.get('args', []), words, named)}"]

    def _call(self, name: str, given: Sequence[Any], words: list[str], named: dict[str, str]) -> str:
        """One operation as an expression. given: its arguments as in the graph; words: the same as Python."""
        base, overload = name.split(".")[1:]
        x = words[0] if words else ""
        if not named and len(words) == 2:
            if base in INFIX and overload in TAKES_NUMBERS:
                return f"{x} {INFIX[base]} {words[1]}"
            if base == "rsub":
                return f"{words[1]} - {x}"
        if base in PREFIX:
            return f"{PREFIX[base]}{x}"
        if base in SAME:
            return x
        if base == "slice":
            return f"{x}[{_slice(given, words)}]"
        if base == "index":
            return f"{x}[{self._places(given[1])}]"
        if base == "_to_copy":
            return f"{x}.to({named['dtype']})" if "dtype" in named else f"torch.clone({x})"
        if base == "copy":
            return f"{words[1]}.expand_as({x}).to({x}.dtype)"
        if base in ("_softmax", "_log_softmax"):
            return f"torch.{base[1:]}({x}, {words[1]})"
        if base.endswith("_loss") and len(given) > 2:
            more = {"beta": words[3]} if base == "smooth_l1_loss" and len(words) > 3 else {}
            more |= {"delta": words[3]} if base == "huber_loss" and len(words) > 3 else {}
            words, named = words[:2], {**named, **more, "reduction": quoted(REDUCTIONS[given[2]])}
        if base == "elu" and len(given) > 2:
            if tuple(given[1:]) != SELU:
                return self._as_it_is(name, words, named)
            base, words = "selu", words[:1]
        if base == "constant_pad_nd":
            words, named = words[:2], {**named, **({"value": words[2]} if len(words) > 2 else {})}
        if OPS[name].factory:
            named["device"] = "device"
        written = [*words, *(f"{key}={value}" for key, value in named.items())]
        if base in METHODS:
            return f"{x}.{METHODS[base]}({', '.join(written[1:])})"
        if base in OTHER_NAMES:
            return f"{OTHER_NAMES[base]}({', '.join(written)})"
        if base in TORCH:
            return f"torch.{base}({', '.join(written)})"
        if base in FUNCTIONAL:
            return f"torch.nn.functional.{base}({', '.join(written)})"
        return self._as_it_is(name, words, named)

    @staticmethod
    def _as_it_is(name: str, words: Sequence[str], named: Mapping[str, str]) -> str:
        return f"torch.ops.{name}({', '.join([*words, *(f'{key}={value}' for key, value in named.items())])})"

    def _assigned(self, name: str, given: Sequence[Any], words: Sequence[str]) -> str:
        """Subscript of what an operation gives other values to in a copy of its first argument; "": it is another."""
        if name == "aten.index_put.default" and len(given) == 3:
            return self._places(given[1])
        if name == "aten.slice_scatter.default":  # (x, source, dim, start, end, step)
            return _slice([given[0], *given[2:]], [words[0], *words[2:]])
        if name == "aten.select_scatter.default":  # (x, source, dim, index)
            dim = int(given[2])
            return ":, " * dim + words[3] if dim >= 0 else f"..., {words[3]}" + ", :" * (-1 - dim)
        return ""

    def _places(self, indices: Sequence[Any]) -> str:
        return ", ".join(":" if at is None else self._value(at) for at in indices)

    def _argument(self, kind: str, value: Any, infix: bool) -> str:
        """One given by position: numbers stand for tensors beside operators alone."""
        text = self._value(value)
        number = isinstance(value, (int, float)) or (isinstance(value, dict) and "param" in value)
        return f"torch.tensor({text}, device=device)" if kind == "Tensor" and number and not infix else text

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
            return name if name.split(".")[0] in ("random", "rest") and "." in name else f"state[{quoted(name)}]"
        if key == "param":
            return f"NUMBERS[{quoted(self.params[x])}]"
        return _dtype(x) if key == "dtype" else _number(float(x))

    def _outputs(self) -> str:
        values, names = [self._value(v) for v in self.graph["outputs"]], self.graph["names"]
        if self.kind == "compute_reward":
            parts = ", ".join(f"{quoted(name)}: {value}" for name, value in zip(names[1:], values[1:]))
            return f"{values[0]}, {{{parts}}}"
        if self.kind == "compute_initial_state":
            return f"Pose({', '.join(f'{part}={values[names.index(part)]}' for part in POSE)})"
        return values[0]


def _slice(given: Sequence[Any], words: Sequence[str]) -> str:
    """Subscript of slice(x, dim, start, end, step)."""
    dim = int(given[1]) if len(given) > 1 else 0
    start, end, step = [*("" if w == "None" else w for w in words[2:5]), "", "", ""][:3]
    bounds = f"{start}:{end}" + f":{step}" * bool(step)
    return ":, " * dim + bounds if dim >= 0 else f"..., {bounds}" + ", :" * (-1 - dim)


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
    return quoted(value) if isinstance(value, str) else repr(value)


def quoted(text: str) -> str:
    """Python string in the quotes that formatters prefer."""
    return json.dumps(text)
