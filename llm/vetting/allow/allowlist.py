"""May this code be run in the jail? A strict list of what Python and torch it may use, with advice for the model.

This is not what keeps the machine safe (the jail and the checked graph do, jail.py, envs/graph/check.py); it keeps
nonsense out cheaply and tells the model what to write instead. What is not expressly allowed is refused:

- at the top: imports of torch, math and typing, functions, constants;
- in functions: assignments, ``if``, ``for`` over ``range`` or a list, ``return``, expressions without ``lambda``,
  ``:=`` or generators; helper functions, called by name, without recursion; work bounded by ``MOST_WORK``;
- attributes: those of allowed_names.py, for each module and for tensors; no name begins or ends with an
  underscore.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from envolve.llm.vetting.allow.allowed_names import BUILTINS, GIVEN, INSTEAD, MODULES
from envolve.llm.vetting.allow.allowed_syntax import IN_TYPES, MODULE_NAMES, REFUSED
from envolve.llm.vetting.allow.node_checks import NodeChecks
from envolve.llm.vetting.problems import Problems, short
from envolve.llm.vetting.text.naming import meant
from envolve.llm.vetting.text.parsing import DEEP, VetError, parse

MOST_NODES = 6000  # of the syntax tree
MOST_PROBLEMS = 20  # that are told at once
MOST_WORK = 2_000_000  # statements and expressions executed, loops and calls counted


def check_source(code: str, types: Sequence[str]) -> None:
    """Raises VetError("allowlist", one line per problem) unless the code is allowed and defines one of ``types``."""
    tree = parse(code, "allowlist")
    if sum(1 for _ in ast.walk(tree)) > MOST_NODES:
        raise VetError(
            "allowlist",
            f"the code is too long: over {MOST_NODES} names, numbers and operations; write operations on whole tensors",
        )
    try:
        problems = _Checker(tree, types).problems()
    except RecursionError:
        raise VetError("allowlist", f"line {_longest(tree)}: {DEEP}") from None
    if problems:
        raise VetError("allowlist", problems.told(MOST_PROBLEMS))


def _longest(tree: ast.Module) -> int:
    """The line of the longest expression, in characters."""
    found = [n for n in ast.walk(tree) if isinstance(n, ast.expr) and n.end_lineno == n.lineno]
    return max(found, key=lambda n: (n.end_col_offset or 0) - n.col_offset).lineno if found else 1


class _Checker(NodeChecks):
    """Checks of a whole module."""

    def problems(self) -> Problems:
        tree = self.tree
        for node in ast.walk(tree):
            for field in ("annotation", "returns"):
                self._annotation(getattr(node, field, None))
            if isinstance(node, (ast.Module, ast.FunctionDef)):
                for statement in node.body:
                    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                        self.documentation |= {id(statement), id(statement.value)}
            elif isinstance(node, (ast.Import, ast.ImportFrom)):
                self._import(node)
            elif isinstance(node, ast.ClassDef):
                self.stored.add(node.name)
                if id(node) not in self.ignored:
                    self.ignored |= {id(part) for part in ast.walk(node) if part is not node}
            elif isinstance(node, ast.ExceptHandler) and id(node) not in self.ignored:
                self.ignored |= {id(node), *(id(part) for part in ast.walk(node.type or node))}
                self.stored |= {node.name} if node.name else set()
        self._names()
        self._top()
        for node in ast.walk(tree):
            if id(node) not in self.annotations and id(node) not in self.ignored:
                self._node(node)
        self._recursion()
        return self.found

    # ------------------------------------------------------------------------------------------------ whole module

    def _top(self) -> None:
        for statement in self.tree.body:
            fine = isinstance(statement, (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.Assign, ast.AnnAssign))
            if not fine and id(statement) not in self.documentation and type(statement).__name__ not in REFUSED:
                self.say(statement, "only imports, functions and constants may stand outside of functions")
        functions = [n for n in self.tree.body if isinstance(n, ast.FunctionDef)]
        top = {n.name for n in functions}
        if not top & set(self.types):
            like = [kind for n in functions[:MOST_PROBLEMS] if (kind := meant(n.name, len(n.args.args), self.types))]
            nearest = f"; nearest: {like[0]}" if like else ""
            found = f" (found {', '.join(short(n) for n in sorted(top)[:MOST_PROBLEMS])}{nearest})" if top else ""
            self.found.add(0, f"the code defines none of {', '.join(self.types)}{found}")
        elif len(top) < len(functions):
            first = {n.name: n for n in reversed(functions)}
            twice = next(n for n in functions if first[n.name] is not n)
            self.say(twice, f"{short(twice.name)} is defined twice: give each function its own name")

    def _import(self, node: ast.Import | ast.ImportFrom) -> None:
        source = node.module or "" if isinstance(node, ast.ImportFrom) else ""
        if isinstance(node, ast.ImportFrom) and (node.level or source not in MODULES):
            return self.say(node, f"import from {short(source or '.')!r} is not allowed; {_there(source)}")
        for alias in node.names:
            full = f"{source}.{alias.name}" if source else alias.name
            name = alias.asname or (alias.name if source else alias.name.split(".")[0])
            if full in MODULES:
                bound = full if alias.asname or source else full.split(".")[0]
                if name in GIVEN | BUILTINS and self.modules.get(name, bound) != bound:
                    self.say(node, f"{short(name)!r} stands for something else; choose another name")
                self.modules[name] = bound
            elif source and source in MODULE_NAMES and alias.name in self._exports(source):
                if name in (GIVEN | BUILTINS) - {alias.name}:
                    self.say(node, f"{short(name)!r} stands for something else; choose another name")
                self.imported[name] = full
            else:
                self.say(node, f"import of {short(full)!r} is not allowed; {_there(full)}")
        return None

    @staticmethod
    def _exports(module: str) -> frozenset[str]:
        functions, constants, submodules = MODULE_NAMES[module]
        return functions | constants | (submodules & {"Tensor"})

    def _annotation(self, node: ast.AST | None) -> None:
        """Annotations are never evaluated; what is in them is names all the same."""
        if node is None:
            return
        for part in ast.walk(node):
            self.annotations.add(id(part))
            text = part.id if isinstance(part, ast.Name) else part.attr if isinstance(part, ast.Attribute) else ""
            if not isinstance(part, IN_TYPES) or text.startswith("_") or text.endswith("_"):
                self.say(node, "a type hint may only name types (Dict[str, torch.Tensor]); leave it out")
                return

    def _names(self) -> None:
        """Checks names that the code binds: none with a meaning already, none with underscores at either end."""
        for node in ast.walk(self.tree):
            bound: list[str] = []
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                bound = [node.id]
            elif isinstance(node, ast.arg):
                bound = [node.arg]
            elif isinstance(node, ast.FunctionDef):
                bound = [node.name]
            elif isinstance(node, ast.alias) and node.asname:
                bound = [node.asname]
            for name in bound if id(node) not in self.ignored else ():
                if name != "_" and (name.startswith("_") or name.endswith("_")):
                    instead = name.strip("_") or "x"
                    self.say(node, f"{short(name)!r}: names may not begin or end with '_'; write {short(instead)!r}")
                meaning = name in BUILTINS or name in GIVEN or name in self.modules or name in self.imported
                if meaning and not isinstance(node, ast.alias):
                    self.say(node, f"{name!r} may not be given another meaning; write '{name}_value'")
                if name in self.functions and not isinstance(node, ast.FunctionDef):
                    self.say(node, f"{short(name)!r} is a function; give the variable another name")
                if not isinstance(node, (ast.FunctionDef, ast.alias)):
                    self.stored.add(name)

    def _recursion(self) -> None:
        """Call graphs without cycles, and no more work than is sensible."""
        work: dict[str, float] = {}

        def cost(node: ast.AST) -> float:
            if isinstance(node, ast.FunctionDef):
                return 1.0
            inner = 1.0 + sum(cost(child) for child in ast.iter_child_nodes(node))
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in self.functions:
                inner += of(node.func.id, node)
            if isinstance(node, ast.For):
                inner *= self.values.turns(node.iter)
            elif isinstance(node, (ast.ListComp, ast.DictComp)):
                for generator in node.generators:
                    inner *= self.values.turns(generator.iter)
            return inner

        def of(name: str, where: ast.AST) -> float:
            if name in open_:
                self.say(where, f"{short(name)} calls itself; write a for over range(number)")
                return 0.0
            if name not in work:
                open_.append(name)
                work[name] = sum(cost(statement) for statement in self.functions[name].body)
                open_.pop()
            return work[name]

        open_: list[str] = []
        if sum(of(name, node) for name, node in self.functions.items()) > MOST_WORK:
            self.found.add(0, "too much work in loops: write operations on whole tensors")


def _there(module: str) -> str:
    """Modules that may be imported instead."""
    name = "np" if module.startswith("numpy") else module.split(".")[0]
    return "torch, math and typing are there" + (f"; {INSTEAD[name]}" if name in INSTEAD else "")
