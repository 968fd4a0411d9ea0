"""Objects that hold constants (dataclasses, NamedTuples, plain classes, SimpleNamespace) as dicts of them."""

from __future__ import annotations

import ast
import copy

from envolve.llm.vetting.allow.allowed_names import METHODS, PROPERTIES
from envolve.llm.vetting.normal.facts import Facts

DECORATORS = ("dataclass", "dataclasses.dataclass")
BASES = ("NamedTuple", "typing.NamedTuple", "object", "Protocol")
Fields = dict[str, "ast.expr | None"]  # by name: the default


class Configs:
    """Classes of a module that only hold constants, and the names of their objects."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self.classes = {name: fields for name, c in facts.classes.items() if (fields := _fields(c)) is not None}
        for name in [n for n in self.classes if _is_tuple(facts.classes[n]) and not self._read_by_name(n)]:
            del self.classes[name]
        self.fields = {field for fields in self.classes.values() for field in fields}
        for call in facts.calls:
            if _is_namespace(call):
                self.fields |= {k.arg for k in call.keywords if k.arg}

    def _read_by_name(self, name: str) -> bool:
        """Whether the objects of a NamedTuple are only used as ``object.field``: as a dict they would have another
        length and other elements."""
        facts, fields = self._facts, self.classes[name]
        own = {n for n, values in facts.assigned.items() if any(_calls(v, name) for v in values)}
        for function in facts.functions.values():
            arguments = [*function.args.posonlyargs, *function.args.args]
            defaults = function.args.defaults
            own |= {a.arg for a, d in zip(arguments[len(arguments) - len(defaults) :], defaults) if _calls(d, name)}
        own = facts.passed_on(own)

        def fine(node: ast.expr) -> bool:
            parent = facts.parents.get(id(node))
            if isinstance(parent, ast.Attribute):
                return parent.attr in fields
            if isinstance(parent, (ast.Assign, ast.AnnAssign)):  # its other names are in ``own``
                targets = parent.targets if isinstance(parent, ast.Assign) else [parent.target]
                return parent.value is node and all(isinstance(t, ast.Name) for t in targets)
            if isinstance(parent, ast.Call) and node in parent.args:
                return isinstance(parent.func, ast.Name) and parent.func.id in facts.functions
            return isinstance(parent, ast.arguments)

        made = [c for c in facts.calls if _calls(c, name)]
        used = [
            n for n in ast.walk(facts.tree) if isinstance(n, ast.Name) and n.id in own and isinstance(n.ctx, ast.Load)
        ]
        return all(map(fine, [*made, *used]))

    def holds(self, owner: ast.expr, field: str) -> bool:
        """True if ``owner.field`` is a constant of such an object; names of methods of tensors are left to them."""
        name = isinstance(owner, ast.Name) and owner.id not in ("torch", "math", "np", "numpy", "F", "self")
        plain = field not in METHODS and field not in PROPERTIES
        made = isinstance(owner, ast.Dict) or (name and isinstance(owner, ast.Name) and owner.id in self.classes)
        return field in self.fields and (made or (name and plain))

    def statement(self, node: ast.ClassDef) -> ast.stmt | None:
        """The class as a dict of its defaults; None: it is another class."""
        fields = self.classes.get(node.name)
        if fields is None:
            return None
        given = {field: value for field, value in fields.items() if value is not None}
        return ast.copy_location(ast.Assign([ast.Name(node.name, ast.Store())], _dict(given)), node)

    def made(self, node: ast.Call) -> ast.expr | None:
        """Config(), Config(speed=2.0) -> its dict; None: it is another call."""
        if _is_namespace(node):
            return _dict({k.arg: k.value for k in node.keywords if k.arg})
        fields = self.classes.get(node.func.id) if isinstance(node.func, ast.Name) else None
        if fields is None or len(node.args) > len(fields) or any(k.arg not in fields for k in node.keywords):
            return None
        if not node.args and not node.keywords:
            return ast.Name(node.func.id, ast.Load()) if None not in fields.values() else None  # type: ignore[attr-defined]
        given: Fields = dict(fields)
        given.update(zip(fields, node.args))
        given.update({k.arg: k.value for k in node.keywords if k.arg})
        if any(value is None for value in given.values()):
            return None
        return _dict({field: copy.deepcopy(value) for field, value in given.items() if value is not None})


def _is_tuple(node: ast.ClassDef) -> bool:
    return any(ast.unparse(base).endswith("NamedTuple") for base in node.bases)


def _calls(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name


def _dict(given: dict[str, ast.expr]) -> ast.Dict:
    return ast.Dict([ast.Constant(name) for name in given], list(given.values()))


def _is_namespace(node: ast.Call) -> bool:
    f = node.func
    name = f.id if isinstance(f, ast.Name) else f.attr if isinstance(f, ast.Attribute) else ""
    return name == "SimpleNamespace" and not node.args and all(k.arg for k in node.keywords)


def _fields(node: ast.ClassDef) -> Fields | None:
    """Fields of a class that has nothing else."""
    for decorator in node.decorator_list:
        called = decorator.func if isinstance(decorator, ast.Call) else decorator
        if ast.unparse(called) not in DECORATORS:
            return None
    if any(ast.unparse(base) not in BASES for base in node.bases) or node.keywords:
        return None
    found: Fields = {}
    for statement in node.body:
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            found[statement.target.id] = None if statement.value is None else _default(statement.value)
        elif isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            if not isinstance(statement.targets[0], ast.Name):
                return None
            found[statement.targets[0].id] = statement.value
        elif not isinstance(statement, ast.Pass) and not (
            isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
        ):
            return None
    values = [n for value in found.values() if value is not None for n in ast.walk(value)]
    if any(isinstance(n, ast.Name) and n.id in found for n in values):  # outside the class the name means another thing
        return None
    return None if any(name.startswith("__") for name in found) else found or None


def _default(value: ast.expr) -> ast.expr:
    """field(default=1.0), field(default_factory=lambda: [1.0]) -> the value."""
    if isinstance(value, ast.Call) and ast.unparse(value.func) in ("field", "dataclasses.field"):
        for keyword in value.keywords:
            if keyword.arg == "default":
                return keyword.value
            if keyword.arg == "default_factory" and isinstance(keyword.value, ast.Lambda):
                return keyword.value.body
    return value
