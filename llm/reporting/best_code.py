"""Best candidate as a file for people and ``eval_shapers.py``: its author's code with the tuned constants.

A tuned number goes back to the literal that it came from, and the result is traced again: only if that gives the very
graph that was trained is it the author's code. Otherwise (a literal that is used twice and was tuned apart, or that
Python had combined with others) the graph itself is written down as Python, an operation per line.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from envolve.envs.physics.task import SHAPER_TYPES
from envolve.llm.reporting.graph_code import code_of_graph, quoted
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


def best_code(
    code: str,
    written: Mapping[str, Any] | None,
    tuned: Mapping[str, Any],
    recheck: Recheck | None,
    names: Collection[str],
    about: str,
) -> str:
    """A file that gives the same bits as the graph file ``tuned``.

    code: of the author, whose graph file is ``written`` (None: it is not known); names: of the task's state; about: one
    line on what it is.
    """
    if written is not None and code == code_of_graph(written):  # nobody wrote it
        return f'"""{about}"""\n\n{code_of_graph(tuned)}'
    numbers = None if written is None else code_with_numbers(code, written["params"], tuned["params"])
    fits = numbers is not None and _defined(numbers) == set(tuned["functions"]) and "__future__" not in numbers
    if numbers is not None and fits:
        # a graph that was not tuned is known to be the code's; what was changed has to show that it is
        again = tuned if numbers == code else recheck(numbers) if recheck is not None else None
        if again is not None and same_graphs(again, tuned):
            whole = _with_signatures(f"{numbers.strip()}\n", names)
            return f'"""{about}"""\n\n{_imports(numbers)}\n\n{whole}'
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


def _with_signatures(code: str, names: Collection[str]) -> str:
    """``code``, whose functions that name quantities of the state as arguments have another name, and are called by
    functions with the task's signature. names: of the state."""
    tree = ast.parse(code)
    named: dict[str, str] = {}
    wrappers = []
    for f in tree.body:
        if not isinstance(f, ast.FunctionDef) or f.name not in SHAPER_TYPES:
            continue
        wanted = WANTED[f.name]
        have = [a.arg for a in [*f.args.posonlyargs, *f.args.args, *f.args.kwonlyargs]]
        needed = len(have) - len(f.args.defaults) - sum(d is not None for d in f.args.kw_defaults)
        if len(have) >= len(wanted) >= needed and have[wanted.index("state")] not in names:
            continue  # as llm/vetting/trace/calling.py decides
        keys = {name: WHOLE.get(name, name) for name in have}
        given = [
            f"{name}={key}" if key in wanted else f"{name}=state[{quoted(key)}]"
            for name, key in keys.items()
            if key in wanted or key in names
        ]
        named[f.name] = _free(f"named_{f.name}", tree)
        body = f"return {named[f.name]}({', '.join(given)})"
        wrappers.append(f"\n\ndef {f.name}({', '.join(wanted)}):\n    {body}\n")
    return _renamed(code, tree, named) + "".join(wrappers)


def _renamed(code: str, tree: ast.Module, names: Mapping[str, str]) -> str:
    """``code`` with other names of these functions, where they are defined and where they are called."""
    lines = [line.encode() for line in code.split("\n")]  # columns count bytes
    places = [(n.lineno - 1, n.col_offset, n.id) for n in ast.walk(tree) if isinstance(n, ast.Name) and n.id in names]
    for f in tree.body:
        if isinstance(f, ast.FunctionDef) and f.name in names:
            text = lines[f.lineno - 1]
            places.append((f.lineno - 1, text.index(f.name.encode(), text.index(b"def", f.col_offset)), f.name))
    for row, at, name in sorted(places, reverse=True):
        lines[row] = lines[row][:at] + names[name].encode() + lines[row][at + len(name.encode()) :]
    return b"\n".join(lines).decode()


def _free(name: str, tree: ast.Module) -> str:
    """``name``, or one like it, that the code has not."""
    taken = {getattr(n, "id", getattr(n, "name", getattr(n, "arg", ""))) for n in ast.walk(tree)}
    return next(tried for k in range(1, len(taken) + 3) if (tried := name if k == 1 else f"{name}_{k}") not in taken)
