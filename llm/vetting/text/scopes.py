"""Free names of a statement: Python's scopes, read off the syntax tree.

A function's arguments and variables are its own; so are a comprehension's. What is left is looked up in the module,
and among the builtins. The same as what Python's own ``symtable`` says, in one pass over the nodes, however deep
(https://docs.python.org/3/reference/executionmodel.html#naming-and-binding).
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass, field

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


@dataclass
class _Scope:
    """Scope of a module, class, function, lambda or comprehension."""

    kind: str  # "module", "class", "function" or "comprehension"
    outer: _Scope | None
    bound: set[str] = field(default_factory=set)
    used: set[str] = field(default_factory=set)
    of_module: set[str] = field(default_factory=set)  # by ``global``
    of_outer: set[str] = field(default_factory=set)  # by ``nonlocal``
    below: set[str] = field(default_factory=set)  # wanted by scopes within it

    def wanted(self) -> tuple[set[str], set[str]]:
        """Names looked up in the enclosing scope, and in the module."""
        own = self.bound - self.of_module - self.of_outer
        outward = (self.used | self.of_outer) - own - self.of_module
        if self.kind == "class":  # its names are not those of its methods
            return outward | self.below, self.of_module
        return outward | (self.below - own - self.of_module), self.of_module


def outside_names(statement: ast.stmt) -> set[str]:
    """The names that a statement at the top of a module looks up in the module or among the builtins; of augmented
    assignments also the one that is changed."""
    return _Walk(statement).found()


class _Walk:
    """Visitor of one statement."""

    def __init__(self, statement: ast.stmt) -> None:
        self.module = _Scope("module", None)
        self.scopes = [self.module]  # outer ones before those within them
        self.todo: list[tuple[ast.AST, _Scope]] = [(statement, self.module)]
        while self.todo:
            self._take(*self.todo.pop())

    def found(self) -> set[str]:
        names: set[str] = set()
        for scope in reversed(self.scopes[1:]):
            outward, of_module = scope.wanted()
            names |= of_module
            assert scope.outer is not None
            scope.outer.below |= outward
        return names | self.module.used | self.module.below

    def _take(self, node: ast.AST, scope: _Scope) -> None:
        if isinstance(node, ast.Name):
            (scope.used if isinstance(node.ctx, ast.Load) else scope.bound).add(node.id)
        elif isinstance(node, _FUNCTIONS):
            self._function(node, scope)
        elif isinstance(node, _COMPREHENSIONS):
            self._comprehension(node, scope)
        elif isinstance(node, ast.ClassDef):
            scope.bound.add(node.name)
            around = self._typed(node, scope)
            self._later(node.body, self._opened("class", around))
            self._later([*node.bases, *node.keywords], around)
            self._later(node.decorator_list, scope)
        elif isinstance(node, ast.NamedExpr):
            target = scope
            while target.kind == "comprehension" and target.outer is not None:
                target.of_outer.add(node.target.id)
                target = target.outer
            self._later([node.target], target)
            self._later([node.value], scope)
        else:
            self._bind(node, scope)
            self._later(ast.iter_child_nodes(node), scope)

    def _bind(self, node: ast.AST, scope: _Scope) -> None:
        """Names that a node binds or declares without an ``ast.Name``."""
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            scope.bound |= {alias.asname or alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.Global):
            scope.of_module |= set(node.names)
        elif isinstance(node, ast.Nonlocal):
            scope.of_outer |= set(node.names)
        elif isinstance(node, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)) and node.name:
            scope.bound.add(node.name)
        elif isinstance(node, ast.MatchMapping) and node.rest:
            scope.bound.add(node.rest)
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name) and scope is self.module:
            scope.used.add(node.target.id)

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda, scope: _Scope) -> None:
        """Its body is in a scope of its own; defaults, hints and decorators are worked out where it stands."""
        around = self._typed(node, scope)
        inner, a = self._opened("function", around), node.args
        arguments = [*a.posonlyargs, *a.args, *a.kwonlyargs, *(x for x in (a.vararg, a.kwarg) if x is not None)]
        inner.bound |= {x.arg for x in arguments}
        self._later([*a.defaults, *(d for d in a.kw_defaults if d is not None)], scope)
        if isinstance(node, ast.Lambda):
            self._later([node.body], inner)
            return
        scope.bound.add(node.name)
        self._later(node.body, inner)
        self._later(node.decorator_list, scope)
        self._later([x.annotation for x in arguments if x.annotation is not None], around)
        self._later([node.returns] if node.returns is not None else [], around)

    def _comprehension(self, node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp, scope: _Scope) -> None:
        """In a scope of its own, but for what is looped over first."""
        inner = self._opened("comprehension", scope)
        self._later([node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt], inner)
        for k, generator in enumerate(node.generators):
            self._later([generator.iter], inner if k else scope)
            self._later([generator.target, *generator.ifs], inner)

    def _typed(self, node: ast.AST, scope: _Scope) -> _Scope:
        """The scope in which a function's or class's type parameters are known (Python 3.12: def f[T](x: T))."""
        parameters = getattr(node, "type_params", [])
        if not parameters:
            return scope
        inner = self._opened("function", scope)
        inner.bound |= {p.name for p in parameters}
        self._later(parameters, inner)
        return inner

    def _opened(self, kind: str, outer: _Scope) -> _Scope:
        self.scopes.append(_Scope(kind, outer))
        return self.scopes[-1]

    def _later(self, nodes: Iterable[ast.AST], scope: _Scope) -> None:
        self.todo += [(node, scope) for node in nodes]
