"""Checks of candidate code, node by node of the syntax tree; ``engine.py`` has those of whole modules."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Sequence
from functools import cached_property

from envolve.llm.vetting.allow.allowed_names import CONSTANTS
from envolve.llm.vetting.allow.allowed_syntax import PARTS, Values, elements
from envolve.llm.vetting.allow.table import Table
from envolve.llm.vetting.problems import Hint, Problems, near, short

MOST_REPEATED = 1000  # times, of a list
LONGEST_SHOWN = 40  # characters of an expression
CONVERTING = ("float", "int", "bool", "list", "tuple", "dict", "str", "set")  # builtins that are types as well


class NodeChecks:
    """Checks of single nodes; ``found`` has the problems."""

    def __init__(self, tree: ast.Module, types: Sequence[str], table: Table, found: Problems | None = None) -> None:
        self.tree, self.types, self.table = tree, types, table
        self.found = Problems() if found is None else found
        self.values = Values(table.given)
        self.functions = {n.name: n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)}
        self.modules = dict(table.given)  # by the name they have here
        self.imported = {name: f"typing.{name}" for name in table.types}  # name here: its full name
        self.constants = {name for _, constants, _ in table.modules.values() for name in constants}
        self.owner = table.owner(tree)
        self.stored: set[str] = set()  # variables and arguments
        self.called = {id(n.func) for n in ast.walk(tree) if isinstance(n, ast.Call)}
        self.within = {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Attribute)}
        self.annotations: set[int] = set()
        self.documentation: set[int] = set()
        self.ignored: set[int] = set()  # within a class, which is refused as a whole

    def say(self, node: ast.AST, text: str, hint: Hint | None = None) -> None:
        self.found.add(node, text, hint)

    def _node(self, node: ast.AST) -> None:
        kind = type(node).__name__
        if kind not in self.table.syntax:
            if not isinstance(node, (ast.expr_context, ast.operator)) and kind not in PARTS:
                self.say(node, self.table.refusal(node))
            return
        check = getattr(self, f"_{kind.lower()}", None)
        if check is not None:
            check(node)

    def _functiondef(self, node: ast.FunctionDef) -> None:
        for decorator in node.decorator_list:
            self.say(decorator, "decorators are not allowed; leave it out")
        if getattr(node, "type_params", None):
            self.say(node, "type parameters are not allowed; leave them out")
        if (node.args.vararg or node.args.kwarg) and self.table.closed:
            self.say(node, "*args and **kwargs are not allowed; name the arguments")
        for default in [*node.args.defaults, *node.args.kw_defaults]:
            if default is not None and not self.values.is_constant(default):
                self.say(default, "a default value must be a number, text, None or a tuple of those")

    def _expr(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Call) and id(node) not in self.documentation:
            self.say(node, "a statement without effect; leave it out")

    def _for(self, node: ast.For) -> None:
        if node.orelse:
            self.say(node, "'else' after a loop is not allowed; leave it out")

    def _comprehension(self, node: ast.comprehension) -> None:
        if node.is_async:
            self.say(node.iter, "'async' is not allowed; leave it out")

    def _call(self, node: ast.Call) -> None:
        function, table = node.func, self.table
        if not isinstance(function, (ast.Name, ast.Attribute)):
            self.say(node, "only functions and methods may be called, by their names")
        elif isinstance(function, ast.Name):
            name = function.id
            known = name in self.functions or name in table.builtins or name in table.function_names
            known |= name in self.imported and name not in table.types
            if name in self.stored and not known:
                self.say(node, f"{short(name)!r} is a variable, and only functions may be called")
            elif not known:
                self._unknown(function, name)
            if name == "range" and table.limits.turns is not None:
                self._range(node, table.limits.turns)
        elif function.attr in table.changing and self._module_of(function.value) is None:
            self._changed(function.value, f".{function.attr}(...)")
        last = function.id if isinstance(function, ast.Name) else getattr(function, "attr", "")
        for keyword in node.keywords:
            if keyword.arg is None:
                self.say(node, "'**' is not allowed; write the arguments")
            elif keyword.arg in table.keywords or keyword.arg.startswith("_") or keyword.arg.endswith("_"):
                self.say(node, f"the argument {short(keyword.arg)!r} is not allowed; leave it out")
            if keyword.arg == "device" and isinstance(keyword.value, ast.Constant):
                self.say(node, "a device may not be named; write device=x.device, or leave it out")
        if last in table.sized:
            sizes = node.args[:1] if last in ("full", "new_full") else node.args
            for part in [p for size in sizes for p in elements(size)]:
                value, most = self.values.of(part), table.limits.size
                if value is not None and isinstance(value, int) and abs(value) > most:
                    self.say(node, f"{last} with a size of {_amount(value)}; at most {most} is allowed")

    def _range(self, node: ast.Call, most: int) -> None:
        for argument in node.args:
            value = self.values.of(argument)
            if (value is None and self.values.multiplies(argument)) or (value is not None and abs(value) > most):
                self.say(node, f"a loop may have at most {most} turns; write operations on whole {self.table.whole}")

    def _subscript(self, node: ast.Subscript) -> None:
        if isinstance(node.ctx, ast.Store):
            self._changed(node.value, "[...] = ...")

    def _changed(self, node: ast.AST, what: str) -> None:
        """Protects what is not the function's own: a call would depend on those before, or change the environment."""
        why = self.owner(node, what)
        if why is not None:
            self.say(node, why)

    def _name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Store) or id(node) in self.called:
            return
        name = node.id
        if name in self.modules:
            if id(node) not in self.within:
                self.say(node, f"the module {name} may only be used as in {name}.exp(x)")
        elif name in self.functions or name in self.table.builtins or name in self.table.function_names:
            if name not in CONVERTING or name not in self.table.builtins:
                self.say(node, f"the function {short(name)!r} may only be called, not passed on")
        elif name in self.imported:
            if self.imported[name].split(".")[-1] not in self.constants | self.table.types:
                self.say(node, f"the function {name!r} may only be called, not passed on")
        elif name not in self.stored and name not in CONSTANTS:
            if self.table.closed or hasattr(builtins, name) or name.startswith("_"):
                self._unknown(node, name)

    def _unknown(self, node: ast.AST, name: str) -> None:
        table = self.table
        if name in table.instead or name.startswith("_"):
            instead = f"; {table.instead[name]}" if name in table.instead else ""
            return self.say(node, f"{short(name)!r} is not allowed{instead}")
        module = next((m for m in table.given.values() if name in table.modules[m][0]), None)
        if module is not None:
            return self.say(node, f"{name!r} is not defined; write {module}.{name}")
        if hasattr(builtins, name):
            return self.say(node, f"{name!r} is not allowed; allowed are {', '.join(sorted(table.builtins))}")
        return self.say(node, f"{short(name)!r} is not defined", near(name, self._known, 0.5, "define it first"))

    @cached_property
    def _known(self) -> list[str]:
        """Every name that is defined; asked for when all of them are known."""
        others = self.table.builtins | self.table.function_names
        return sorted(self.stored | set(self.functions) | set(self.modules) | set(self.imported) | others)

    def _attribute(self, node: ast.Attribute) -> None:
        name, table, module = node.attr, self.table, self._module_of(node.value)
        if not isinstance(node.ctx, ast.Load):
            instead = table.assigned(ast.unparse(node.value)[:LONGEST_SHOWN], short(name))
            return self.say(node, f"'.{short(name)} = ...' is not allowed; {instead}")
        plain = name.strip("_")
        if name.startswith("_") or (name.endswith("_") and name not in table.in_place | self.constants):
            instead = (
                f"write x = x.{plain}(...)" if not name.startswith("_") and plain in table.methods else "leave it out"
            )
            return self.say(node, f"'.{short(name)}' is not allowed; {table.instead_of_attributes.get(name, instead)}")
        called = id(node) in self.called
        if module is None:
            return self._of_object(node, name, called)
        functions, constants, submodules = table.modules[module]
        if name in submodules and name != "Tensor" and id(node) in self.within:
            return None
        if name in (functions if called else constants):
            return None
        if name in functions:
            return self.say(node, f"the function {module}.{name} may only be called, not passed on")
        if module == "torch" and name == "Tensor" and not called and id(node) not in self.within:
            return None  # isinstance(x, torch.Tensor)
        return self._unknown_attribute(node, f"{ast.unparse(node.value)}.{short(name)}", name, functions | constants)

    def _of_object(self, node: ast.Attribute, name: str, called: bool) -> None:
        """An attribute or method of anything but a module."""
        table = self.table
        methods = table.methods | table.in_place
        if called and isinstance(node.value, ast.Name) and node.value.id in table.read_only:
            return self.say(node, f"{node.value.id}.{short(name)}() is not allowed; only its attributes may be read")
        if table.properties is None and not called:
            if name in table.hidden:
                self.say(node, f"'.{name}' is not allowed; {table.instead_of_attributes.get(name, 'leave it out')}")
            return None
        properties = table.properties or frozenset()
        if name in (methods if called else properties):
            return None
        if name in methods | properties:
            instead = table.instead_of_attributes.get(name, f"write .{name}")
            why = f"cannot be called; {instead}" if called else f"must be called: .{name}(...)"
            return self.say(node, f"'.{name}' {why}")
        return self._unknown_attribute(node, f".{short(name)}", name, methods - table.in_place | properties)

    def _unknown_attribute(self, node: ast.AST, shown: str, name: str, known: frozenset[str]) -> None:
        table = self.table
        if name in table.instead_of_attributes:
            return self.say(node, f"{shown!r} is not allowed; {table.instead_of_attributes[name]}")
        return self.say(node, f"{shown!r} is not allowed", near(name, known, 0.75, table.others))

    def _module_of(self, node: ast.expr) -> str | None:
        """The module that ``torch`` or ``torch.nn.functional`` is; None: it is none."""
        attributes: list[str] = []
        while isinstance(node, ast.Attribute) and len(attributes) < 3:
            attributes.append(node.attr)
            node = node.value
        module = self.modules.get(node.id) if isinstance(node, ast.Name) else None
        for attribute in reversed(attributes):
            module = f"{module}.{attribute}" if f"{module}.{attribute}" in self.table.modules else None
        return module

    def _constant(self, node: ast.Constant) -> None:
        value, limits = node.value, self.table.limits
        if isinstance(value, str):
            if len(value) > (20 if id(node) in self.documentation else 1) * limits.text:
                self.say(node, f"a text of {len(value)} characters; at most {limits.text} are allowed")
        elif isinstance(value, (bytes, complex)):
            self.say(node, f"{type(value).__name__} is not allowed; write numbers")
        elif isinstance(value, (int, float)) and not isinstance(value, bool) and not abs(value) <= limits.number:
            self.say(node, f"the number {_amount(value)} is too large; at most {limits.number:.0e} is allowed")

    def _operator(self, node: ast.BinOp | ast.AugAssign) -> None:
        if type(node.op).__name__ not in self.table.syntax:
            self.say(node, self.table.refusal(node.op))

    _augassign = _operator

    def _binop(self, node: ast.BinOp) -> None:
        self._operator(node)
        sides = (node.left, node.right)
        if not self.table.texts and any(isinstance(s, ast.Constant) and isinstance(s.value, str) for s in sides):
            self.say(node, "text may not be computed; write it as it is")
        if isinstance(node.op, ast.Mult) and any(isinstance(s, (ast.List, ast.Tuple)) for s in sides):
            size = next((self.values.of(s) for s in sides if not isinstance(s, (ast.List, ast.Tuple))), None)
            if (size is None and self.table.closed) or (size is not None and abs(size) > MOST_REPEATED):
                self.say(node, f"a list may be repeated at most {MOST_REPEATED} times, by a number; write a full one")
        if isinstance(node.op, ast.Pow):
            exponent, right = self.values.of(node.right), node.right
            constant = (
                self.values.is_constant(right) or isinstance(right, ast.BinOp) and self.values.only_numbers(right)
            )
            if (exponent is not None and abs(exponent) > 64) or (constant and exponent is None):
                self.say(node, "a power of this size is not allowed; write the number")
            elif exponent is not None and self.values.only_numbers(node.left):
                base = self.values.of(node.left)
                if base is None or (abs(base) > 1 and abs(exponent) > 16) or abs(base) > 1e6:
                    self.say(node, "a power of this size is not allowed; write the number")


def _amount(value: float) -> str:
    return f"{value:.3g}" if isinstance(value, float) or abs(value) < 10**300 else "of over 300 digits"
