"""Is this code allowed? One engine for every kind of candidate code; a table (``table.py``) says what is allowed.

This is not what keeps the machine safe (jails do, and for shapers the checked graph); it keeps nonsense out cheaply and
tells the model what to write instead. What is not expressly allowed is refused:

- at the top: imports of known modules, functions, constants;
- in functions: the table's syntax; helper functions, called by name, without recursion; bounded work;
- attributes: those of the table, for each module and for objects; no name begins or ends with an underscore;
- nothing is changed that outlives a call (``ownership.py``).
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from envolve.llm.vetting.allow.allowed_syntax import IN_TYPES
from envolve.llm.vetting.allow.node_checks import NodeChecks
from envolve.llm.vetting.allow.table import Table
from envolve.llm.vetting.problems import Problems, short
from envolve.llm.vetting.text.naming import meant
from envolve.llm.vetting.text.parsing import DEEP, VetError


def check(tree: ast.Module, types: Sequence[str], table: Table, found: Problems | None = None) -> None:
    """Raises VetError("allowlist", one line per problem) unless the code is allowed and defines one of ``types``.
    found: problems that are told as well."""
    limits = table.limits
    if sum(1 for _ in ast.walk(tree)) > limits.nodes:
        text = f"the code is too long: over {limits.nodes} names, numbers and operations; "
        raise VetError("allowlist", f"{text}write operations on whole {table.whole}")
    try:
        problems = Checker(tree, types, table, found).problems()
    except RecursionError:
        raise VetError("allowlist", f"line {_longest(tree)}: {DEEP}") from None
    if problems:
        raise VetError("allowlist", problems.told(limits.problems))


def _longest(tree: ast.Module) -> int:
    """The line of the longest expression, in characters."""
    found = [n for n in ast.walk(tree) if isinstance(n, ast.expr) and n.end_lineno == n.lineno]
    return max(found, key=lambda n: (n.end_col_offset or 0) - n.col_offset).lineno if found else 1


class Checker(NodeChecks):
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
            if (
                not fine
                and id(statement) not in self.documentation
                and type(statement).__name__ not in self.table.refused
            ):
                text = "only imports, functions and constants may stand outside of functions"
                self.say(statement, f"{text}; write it within a function, or what comes of it as a constant")
        functions = [n for n in self.tree.body if isinstance(n, ast.FunctionDef)]
        top = {n.name for n in functions}
        if not top & set(self.types):
            like = [
                kind
                for n in functions[: self.table.limits.problems]
                if (kind := meant(n.name, len(n.args.args), self.types))
            ]
            nearest = f"; nearest: {like[0]}" if like else ""
            found = (
                f" (found {', '.join(short(n) for n in sorted(top)[: self.table.limits.problems])}{nearest})"
                if top
                else ""
            )
            self.found.add(0, f"the code defines none of {', '.join(self.types)}{found}")
        elif len(top) < len(functions):
            first = {n.name: n for n in reversed(functions)}
            twice = next(n for n in functions if first[n.name] is not n)
            self.say(twice, f"{short(twice.name)} is defined twice: give each function its own name")

    def _import(self, node: ast.Import | ast.ImportFrom) -> None:
        source = node.module or "" if isinstance(node, ast.ImportFrom) else ""
        table = self.table
        if source == "__future__" and source in table.importable:
            return None
        if isinstance(node, ast.ImportFrom) and (node.level or source not in table.importable):
            return self.say(node, f"import from {short(source or '.')!r} is not allowed; {self._there(source)}")
        for alias in node.names:
            full = f"{source}.{alias.name}" if source else alias.name
            name = alias.asname or (alias.name if source else alias.name.split(".")[0])
            if full in table.importable:
                bound = full if alias.asname or source else full.split(".")[0]
                if name in self._taken and self.modules.get(name, bound) != bound:
                    self.say(node, f"{short(name)!r} stands for something else; choose another name")
                self.modules[name] = bound
            elif source and source in table.modules and alias.name in self._exports(source):
                if name in self._taken - {alias.name}:
                    self.say(node, f"{short(name)!r} stands for something else; choose another name")
                self.imported[name] = full
            else:
                self.say(node, f"import of {short(full)!r} is not allowed; {self._there(full)}")
        return None

    def _exports(self, module: str) -> frozenset[str]:
        functions, constants, submodules = self.table.modules[module]
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
                meaning = name in self._taken or name in self.modules or name in self.imported
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
        if sum(of(name, node) for name, node in self.functions.items()) > self.table.limits.work:
            most = max(self.functions, key=lambda name: work.get(name, 0.0))
            text = f"too much work in loops of {short(most)}: write operations on whole {self.table.whole}"
            self.say(self.functions[most], text)

    @property
    def _taken(self) -> frozenset[str]:
        """Names that have a meaning."""
        return self.table.builtins | self.table.types | self.table.function_names | frozenset(self.table.given)

    def _there(self, module: str) -> str:
        """Modules that may be imported instead."""
        name = "np" if module.startswith("numpy") else module.split(".")[0]
        return self.table.there + (f"; {self.table.instead[name]}" if name in self.table.instead else "")
