"""Functions out of a class: ``class Reward: def compute_reward(self, state)`` where self only holds constants."""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import count

STATIC = ("staticmethod", "classmethod")


def functions_of(node: ast.ClassDef, types: Sequence[str] = (), taken: Collection[str] = ()) -> str | None:
    """The class's methods as functions and its constants as constants of a module; None if self is more than that: if
    an attribute is not a constant, or self is passed on. types: names that are kept; taken: by the rest of the module.
    A constant or a method gets another name where its own means something else."""
    methods = [n for n in node.body if isinstance(n, ast.FunctionDef)]
    constants: dict[str, ast.expr] = {}
    for statement in node.body:
        if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            if isinstance(statement.targets[0], ast.Name):
                constants[statement.targets[0].id] = statement.value
        elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name) and statement.value:
            constants[statement.target.id] = statement.value
    begin = next((m for m in methods if m.name == "__init__"), None)
    if begin is not None and not _read_init(begin, constants):
        return None
    rest = [m for m in methods if m.name != "__init__"]
    names = {m.name for m in rest}
    if names & set(constants) or any(name.startswith("__") for name in names):
        return None
    meant = {*taken, *(name for method in rest for name in _names(method))}
    if meant & names & set(types):
        return None
    new = {name: _other(name, {*meant, *names, *constants}) if name in meant else name for name in [*constants, *names]}
    within = _With(lambda name: ast.Name(new[name], ast.Load()) if name in constants else None)
    out: list[ast.stmt] = [
        ast.Assign([ast.Name(new[name], ast.Store())], within.visit(value)) for name, value in constants.items()
    ]
    for method in rest:
        function = _plain(method, node.name, new, within)
        if function is None:
            return None
        out.append(function)
    return ast.unparse(ast.fix_missing_locations(ast.Module(out, [])))


def _read_init(begin: ast.FunctionDef, constants: dict[str, ast.expr]) -> bool:
    """Adds what __init__ stores in self -> whether all of it is known: literals, defaults, and what they make up."""
    arguments = [*begin.args.posonlyargs, *begin.args.args]
    defaults = begin.args.defaults
    known: dict[str, ast.expr] = dict(zip([a.arg for a in arguments[len(arguments) - len(defaults) :]], defaults))
    known |= {a.arg: d for a, d in zip(begin.args.kwonlyargs, begin.args.kw_defaults) if d is not None}
    for statement in begin.body:
        if isinstance(statement, ast.Expr):  # documentation, super().__init__()
            if not isinstance(statement.value, ast.Constant) and ast.unparse(statement.value) != "super().__init__()":
                return False
            continue
        target: ast.expr | None = None
        value: ast.expr | None = None
        if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            target, value = statement.targets[0], statement.value
        elif isinstance(statement, ast.AnnAssign):
            target, value = statement.target, statement.value
        if not (isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and value is not None):
            return False
        for name in ast.walk(value):
            if isinstance(name, ast.Name) and name.id not in known and name.id not in ("torch", "math", "float"):
                return False
        if constants.pop(target.attr, None) is not None and _read(constants, target.attr):
            return False  # another was computed from what it was
        constants[target.attr] = _With(lambda n: known.get(n)).visit(copy.deepcopy(value))
    return True


class _With(ast.NodeTransformer):
    """Puts expressions in the place of names."""

    def __init__(self, of: Callable[[str], ast.expr | None]) -> None:
        self._of = of

    def visit_Name(self, node: ast.Name) -> ast.AST:
        found = self._of(node.id)
        return node if found is None else copy.deepcopy(found)


def _names(method: ast.FunctionDef) -> set[str]:
    """Names that a method has or uses, but for those of default values, which are the class's."""
    found = {n.id for s in method.body for n in ast.walk(s) if isinstance(n, ast.Name)}
    return found | {n.arg for n in ast.walk(method) if isinstance(n, ast.arg)}


def _other(name: str, taken: Collection[str]) -> str:
    return next(new for k in count(2) if (new := f"{name}_{k}") not in taken)


def _read(constants: Mapping[str, ast.expr], name: str) -> bool:
    return any(isinstance(n, ast.Name) and n.id == name for value in constants.values() for n in ast.walk(value))


def _plain(method: ast.FunctionDef, owner: str, new: Mapping[str, str], within: _With) -> ast.FunctionDef | None:
    """A method without self; None: self is more than a holder of constants. new: names of what self holds."""
    function = copy.deepcopy(method)
    function.name = new[function.name]
    function.args.defaults = [within.visit(d) for d in function.args.defaults]
    function.args.kw_defaults = [d and within.visit(d) for d in function.args.kw_defaults]
    static = any(ast.unparse(d) == "staticmethod" for d in function.decorator_list)
    function.decorator_list = [d for d in function.decorator_list if ast.unparse(d) not in STATIC]
    first = [*function.args.posonlyargs, *function.args.args][:1]
    self_name = "" if static or not first else first[0].arg
    if self_name:
        if function.args.posonlyargs:
            return None
        function.args.args = function.args.args[1:]
    owners = {self_name, owner} - {""}
    function = _Attributes(owners, new).visit(function)
    left = any(isinstance(n, ast.Name) and n.id in owners for s in function.body for n in ast.walk(s))
    return None if left else function


class _Attributes(ast.NodeTransformer):
    """self.weight -> weight"""

    def __init__(self, owners: set[str], new: Mapping[str, str]) -> None:
        self._owners, self._new = owners, new

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        own = isinstance(node.value, ast.Name) and node.value.id in self._owners and node.attr in self._new
        return ast.copy_location(ast.Name(self._new[node.attr], node.ctx), node) if own and _loads(node) else node


def _loads(node: ast.Attribute) -> bool:
    return isinstance(node.ctx, ast.Load)
