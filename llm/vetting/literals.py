"""Numbers in a candidate's code that may be tuned: those with a name, under that name.

``speed_weight = 1.5``, a constant of the module, a default, an entry of a dict or list with a name. Numbers inside
formulas stay what they are.

Which number of the source is it that an operation was given? The function is traced once more with every float of the
source changed by its own small factor; an argument that changed to exactly such a number is that literal. (An integer
may be a size, so integers are found by line and value.)
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

FACTOR = 2.0**-20  # literal k becomes (1 + (k + 1) FACTOR) times itself: distinct in float32, too
LONGEST = 40  # letters of a name
TUNABLE = set(
    "add sub mul div rsub gt ge lt le eq ne where clamp clamp_min clamp_max maximum minimum full full_like "
    "fill masked_fill floor_divide new_full scalar_tensor".split()
)  # operations whose numbers a candidate's author would tune
SUMS = "reward rewards total total_reward rew".split()  # targets of sums of weighted terms
SIZES = "dim axis dims p ord keepdim".split()  # keyword arguments that are no amounts
Path = int | str  # of a number in a node: its place in "args", its name in "kwargs", or "constant"


@dataclass
class Literal:
    """Number in the source that looks like an amount."""

    node: ast.Constant
    name: str  # what it is called where it stands; "" if it is not
    target: str  # of the statement that it belongs to: the variable that is assigned, or the function
    own: bool = True  # the name is its own, not one made from what it stands beside
    sign: int = 1  # -1: a minus stands before it

    @property
    def line(self) -> int:
        return self.node.lineno

    @property
    def written(self) -> float:
        """The number with its sign."""
        return self.sign * float(self.node.value)  # type: ignore[arg-type]


@dataclass
class Source:
    """Candidate's code and its numbers."""

    tree: ast.Module
    literals: list[Literal] = field(default_factory=list)
    targets: dict[int, str] = field(default_factory=dict)  # by line: of the statement
    spans: dict[int, tuple[int, int]] = field(default_factory=dict)  # by line: of the statement
    names: dict[int, set[str]] = field(default_factory=dict)  # by line: variables that the statement reads


def read(code: str) -> Source:
    """Numbers of parseable code."""
    source = Source(ast.parse(code))
    _statements(source, source.tree.body, "value")
    return source


def changed(source: Source) -> tuple[ast.Module, dict[float, Literal]]:
    """The same code with every float changed, and the literals by what they became, as float and as float32. The tree
    is the source's own: it cannot be used for anything else afterwards."""
    found: dict[float, Literal] = {}
    k = 0
    for literal in source.literals:
        value = literal.node.value
        if not isinstance(value, float) or not value or not np.isfinite(value):
            continue
        while True:
            k += 1
            other = value * (1 + k * FACTOR)
            keys = {other, float(str(np.float32(other)))}
            if not keys & found.keys():
                break
        literal.node.value = other
        found.update(dict.fromkeys(keys, literal))
    return source.tree, found


def name_arguments(
    functions: Mapping[str, tuple[Sequence[dict[str, Any]], Sequence[dict[str, Any]], Sequence[int]]],
    source: Source,
    values: Mapping[int, float],
    found: Mapping[float, Literal],
) -> list[list[Any]]:
    """[kind, node, path, name] of the numbers with a name that operations were given.

    functions: by kind, the nodes of the trace, those of the trace with changed numbers (of the same structure, or
    empty), and the nodes' lines in the code; values: what the literals were, by id."""
    near = _Places(source)
    places: list[tuple[str, int, Path, Literal]] = []
    for kind, (nodes, others, lines) in functions.items():
        for k, node in enumerate(nodes):
            if "constant" not in node and node["op"].split(".")[1] not in TUNABLE:
                continue
            for path, value in _numbers(node):
                other = dict(_numbers(others[k])).get(path, value) if others else value
                literal = found.get(abs(other)) if other != value else near.by_line(kind, lines[k], value, values)
                if literal is not None and values[id(literal)] != abs(value):
                    literal = None  # computed from it
                if literal is not None and literal.name and literal.own:
                    places.append((kind, k, path, literal))
    return [[kind, k, path, literal.name] for kind, k, path, literal in places]


def literal_names(listed: Any) -> dict[tuple[str, int, Path], str]:
    """``name_arguments``' list, which has come through JSON from a process that is not trusted, as
    ``graph_params.lift`` takes it; what is not such a list is left out."""
    found = {}
    for entry in listed if isinstance(listed, list) else ():
        if isinstance(entry, list) and len(entry) == 4:
            kind, node, path, name = entry
            fine = (
                isinstance(kind, str) and type(node) is int and isinstance(path, (int, str)) and isinstance(name, str)
            )
            if fine and re.fullmatch(r"[A-Za-z]\w{0,63}", name, re.A):
                found[kind, node, path] = name
    return found


def signs(code: str, params: Sequence[Mapping[str, Any]]) -> list[int]:
    """-1 for each parameter, of a graph that was traced from ``code``, which its author wrote with the other sign: what
    is subtracted, ``- energy_weight * energy``, is a negative number in a graph."""
    try:
        literals = read(code).literals
    except (SyntaxError, ValueError, RecursionError):  # a graph file of a stranger
        return [1] * len(params)
    found = []
    for p in params:
        value, base = np.float32(p["value"]), re.sub(r"_\d+$", "", p["name"])
        same = [x for x in literals if x.name in (p["name"], base) and abs(np.float32(x.written)) == abs(value)]
        found.append(-1 if same and all(np.float32(x.written) != value for x in same) else 1)
    return found


def as_written(graph_file: Mapping[str, Any]) -> dict[str, float]:
    """Names and numbers of a graph file's parameters, with the signs that they have in its source."""
    params = graph_file["params"]
    given = zip(params, signs(graph_file.get("source", ""), params))
    return {str(p["name"]): sign * float(p["value"]) for p, sign in given}


class _Places:
    """Finds literals where the trace with changed numbers does not tell which one it is."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self._turns: dict[tuple[str, int, float], int] = {}

    def by_line(self, kind: str, line: int, value: float, values: Mapping[int, float]) -> Literal | None:
        """The literal of this value in the statement at the line (of several, each in its turn), or of a variable that
        the statement reads."""
        first, last = self.source.spans.get(line, (line, line))
        read = self.source.names.get(line, set())
        near = [x for x in self.source.literals if values[id(x)] == abs(value)]
        here = [x for x in near if first <= x.line <= last]
        if here:
            turn = self._turns[kind, first, abs(value)] = self._turns.get((kind, first, abs(value)), -1) + 1
            return here[turn % len(here)]
        return next((x for x in near if x.name in read), None)


def _numbers(node: dict[str, Any]) -> Iterator[tuple[Path, float]]:
    """Numbers among a node's arguments, by path."""
    given = {**dict(enumerate(node.get("args", ()))), **node.get("kwargs", {})}
    for path, value in {"constant": node["constant"]}.items() if "constant" in node else given.items():
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            yield path, value


# ---------------------------------------------------------------------------------------------------- reading the
# source


def _statements(source: Source, body: Sequence[ast.stmt], function: str) -> None:
    for statement in body:
        if isinstance(statement, ast.FunctionDef):
            arguments = statement.args
            own = statement.name.replace("compute_", "")
            for argument, default in [
                *zip(arguments.args[len(arguments.args) - len(arguments.defaults) :], arguments.defaults),
                *zip(arguments.kwonlyargs, arguments.kw_defaults),
            ]:
                if default is not None:
                    _expression(source, default, argument.arg, own)
            _statements(source, statement.body, own)
            continue
        inner = [s for s in ast.iter_child_nodes(statement) if isinstance(s, ast.stmt)]
        target = _target(statement) or function
        name = _target(statement) if isinstance(statement, (ast.Assign, ast.AnnAssign)) else ""
        last = inner[0].lineno - 1 if inner else statement.end_lineno or statement.lineno
        span = statement.lineno, max(last, statement.lineno)
        read = {n.id for n in ast.walk(statement) if isinstance(n, ast.Name)} if not inner else set()
        for line in range(span[0], span[1] + 1):
            source.targets[line], source.spans[line] = target, span
            source.names[line] = source.names.get(line, set()) | read
        for child, own in _values(statement, name):
            _expression(source, child, own, target)
        if inner:
            _statements(source, inner, function)


def _values(statement: ast.stmt, name: str) -> Iterator[tuple[ast.expr, str]]:
    """Expressions of a statement and the names of their values."""
    if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Tuple):
        names = statement.targets[0].elts if isinstance(statement.targets[0], ast.Tuple) else []
        if len(names) == len(statement.value.elts):  # a, b = 1.0, 2.0
            for value, target in zip(statement.value.elts, names):
                yield value, target.id if isinstance(target, ast.Name) else ""
            return
    for child in ast.iter_child_nodes(statement):
        if isinstance(child, ast.expr) and child is not getattr(statement, "annotation", None):
            yield child, name


def _expression(source: Source, node: ast.AST, name: str, target: str, own: bool = True) -> None:
    """Note the literals below node, but for indices, dimensions and exponents. name: what the node's value is called,
    by a name of its own or not; target: of the statement."""
    if isinstance(node, ast.Constant):
        if isinstance(node.value, (int, float)) and not isinstance(node.value, bool):
            source.literals.append(Literal(node, _clean(name), _clean(target), own))
    elif isinstance(node, ast.UnaryOp) or _is_tensor_of(node):
        inner = node.operand if isinstance(node, ast.UnaryOp) else node.args[0]  # type: ignore[attr-defined]
        _expression(source, inner, name, target, own)
        if isinstance(inner, ast.Constant) and isinstance(getattr(node, "op", None), ast.USub):
            for literal in source.literals[-1:]:
                literal.sign *= -1 if literal.node is inner else 1
    elif isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values):
            called = key.value if isinstance(key, ast.Constant) and isinstance(key.value, str) else ""
            _expression(source, value, called, called or target)
    elif isinstance(node, (ast.List, ast.Tuple)) and name and all(map(_is_number, node.elts)):
        for k, element in enumerate(node.elts, 1):  # weights = [1.0, 0.5]: weights_1, weights_2
            _expression(source, element, f"{name}_{k}", target, own)
    elif isinstance(node, ast.Call):
        for argument in node.args:
            _expression(source, argument, "", target)
        if isinstance(node.func, ast.Attribute):  # x.clamp(min=0.0)
            _expression(source, node.func.value, "", target)
        for keyword in [k for k in node.keywords if k.arg not in SIZES]:
            of_torch, called = isinstance(node.func, ast.Attribute), keyword.arg or ""
            name = f"{target}_{called}" if of_torch and called else called
            _expression(source, keyword.value, name, target, not of_torch)
    elif isinstance(node, ast.Subscript):
        _expression(source, node.value, "", target)
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
        _expression(source, node.left, "", target)
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult) and isinstance(node.right, ast.Name):
        name = f"{node.right.id}_weight" if target in SUMS else ""  # total = speed - 0.5 * energy: energy_weight
        _expression(source, node.left, name, target, False)
    else:
        for child in ast.iter_child_nodes(node):
            _expression(source, child, "", target)


def _is_number(node: ast.AST) -> bool:
    inner = node.operand if isinstance(node, ast.UnaryOp) else node
    return isinstance(inner, ast.Constant) and type(inner.value) in (int, float)


def _is_tensor_of(node: ast.AST) -> bool:
    """torch.tensor(0.25)"""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "tensor"
        and bool(node.args)
    )


def _target(statement: ast.stmt) -> str:
    target = statement.targets[0] if isinstance(statement, ast.Assign) else getattr(statement, "target", None)
    if (
        isinstance(target, ast.Subscript)
        and isinstance(target.slice, ast.Constant)
        and isinstance(target.slice.value, str)
    ):
        return target.slice.value  # components["forward"] = ...
    while isinstance(target, (ast.Subscript, ast.Attribute)):
        target = target.value
    return target.id if isinstance(target, ast.Name) else ""


def _clean(name: str) -> str:
    name = re.sub(r"\W+", "_", name, flags=re.A).strip("_")[:LONGEST].strip("_")
    return f"n{name}" if name[:1].isdigit() else name
