"""Checks of candidate code, node by node of the syntax tree (allowlist.py)."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator, Sequence
from functools import cached_property

from envolve.llm.vetting.allow.allowed_names import (
    BUILTINS,
    CONSTANTS,
    IN_PLACE,
    INSTEAD,
    INSTEAD_OF_ATTRIBUTES,
    KEYWORDS_REFUSED,
    MATH_CONSTANTS,
    METHODS,
    PROPERTIES,
    SIZED,
    TORCH,
    TORCH_CONSTANTS,
    TYPING,
)
from envolve.llm.vetting.allow.allowed_syntax import ALLOWED, MODULE_NAMES, PARTS, Values, elements, refusal
from envolve.llm.vetting.problems import Hint, Problems, near, short

MOST_RANGE = 1000  # of a loop, where it is a number
LARGEST = 1e9  # constant, but for powers of ten
LARGEST_SIZE = 4096  # of a tensor that is made, per dimension
CHANGING = {"append", "extend", "insert", "update"}  # methods
LONGEST_TEXT = 200  # of a string that is no docstring
OTHERS = "write it with other operations"
_OF_TENSORS = METHODS | PROPERTIES


class NodeChecks:
    """Checks of single nodes; ``found`` has the problems."""

    def __init__(self, tree: ast.Module, types: Sequence[str]) -> None:
        self.tree, self.types = tree, types
        self.found = Problems()
        self.values = Values()
        self.functions = {n.name: n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)}
        self.modules = {"torch": "torch", "math": "math", "F": "torch.nn.functional"}  # by the name they have here
        self.imported: dict[str, str] = {"Tensor": "torch.Tensor"}  # name here: its full name
        self.stored: set[str] = set()  # variables and arguments
        self.called = {id(n.func) for n in ast.walk(tree) if isinstance(n, ast.Call)}
        self.within = {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Attribute)}
        self.annotations: set[int] = set()
        self.documentation: set[int] = set()
        top = [n for n in tree.body if not isinstance(n, ast.FunctionDef)]
        self.outside = {
            n.id for t in top for n in ast.walk(t) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
        }
        self.local = {id(n) for t in top for n in ast.walk(t)}  # uses of names that are variables of their function
        for function in _outermost(tree):
            inside = list(ast.walk(function))
            own = {n.id for n in inside if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
            own |= {n.arg for n in inside if isinstance(n, ast.arg)}
            self.local |= {id(n) for n in inside if isinstance(n, ast.Name) and n.id in own}
        self.ignored: set[int] = set()  # within a class, which is refused as a whole

    def say(self, node: ast.AST, text: str, hint: Hint | None = None) -> None:
        self.found.add(node, text, hint)

    def _node(self, node: ast.AST) -> None:
        kind = type(node).__name__
        if kind not in ALLOWED:
            if not isinstance(node, (ast.expr_context, ast.operator)) and kind not in PARTS:
                self.say(node, refusal(node))
            return
        check = getattr(self, f"_{kind.lower()}", None)
        if check is not None:
            check(node)

    def _functiondef(self, node: ast.FunctionDef) -> None:
        for decorator in node.decorator_list:
            self.say(decorator, "decorators are not allowed; leave it out")
        if getattr(node, "type_params", None):
            self.say(node, "type parameters are not allowed; leave them out")
        if node.args.vararg or node.args.kwarg:
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

    def _listcomp(self, node: ast.ListComp | ast.DictComp) -> None:
        if len(node.generators) > 1:
            self.say(node, "more than one for in a list; write loops")

    _dictcomp = _listcomp

    def _call(self, node: ast.Call) -> None:
        function = node.func
        if not isinstance(function, (ast.Name, ast.Attribute)):
            self.say(node, "only functions and methods may be called, by their names")
        elif isinstance(function, ast.Name):
            known = function.id in self.functions or function.id in BUILTINS or function.id in self.imported
            if function.id in self.stored and not known:
                self.say(node, f"{short(function.id)!r} is a variable, and only functions may be called")
            if not known and function.id != "Pose" and function.id not in self.stored:
                self._unknown(function, function.id)
            if function.id == "range":
                self._range(node)
        elif function.attr in CHANGING or function.attr in IN_PLACE:
            self._changed(function.value)
        last = function.id if isinstance(function, ast.Name) else getattr(function, "attr", "")
        for keyword in node.keywords:
            if keyword.arg is None:
                self.say(node, "'**' is not allowed; write the arguments")
            elif keyword.arg in KEYWORDS_REFUSED or keyword.arg.startswith("_") or keyword.arg.endswith("_"):
                self.say(node, f"the argument {short(keyword.arg)!r} is not allowed; leave it out")
            if keyword.arg == "device" and isinstance(keyword.value, ast.Constant):
                self.say(node, "a device may not be named; write device=x.device, or leave it out")
        if last in SIZED:
            sizes = node.args[:1] if last in ("full", "new_full") else node.args
            for part in [p for size in sizes for p in elements(size)]:
                value = self.values.of(part)
                if value is not None and isinstance(value, int) and abs(value) > LARGEST_SIZE:
                    self.say(node, f"{last} with a size of {_amount(value)}; at most {LARGEST_SIZE} is allowed")

    def _range(self, node: ast.Call) -> None:
        for argument in node.args:
            value = self.values.of(argument)
            if (value is None and self.values.multiplies(argument)) or (value is not None and abs(value) > MOST_RANGE):
                self.say(node, f"a loop may have at most {MOST_RANGE} turns; write operations on whole tensors")

    def _subscript(self, node: ast.Subscript) -> None:
        if isinstance(node.ctx, ast.Store):
            self._changed(node.value)

    def _changed(self, node: ast.AST) -> None:
        """Protects names outside of functions: otherwise a call would depend on those before."""
        while isinstance(node, ast.Subscript):
            node = node.value
        if isinstance(node, ast.Name) and node.id in self.outside and id(node) not in self.local:
            self.say(node, f"{node.id!r} is outside of the function and may not be changed; make a new variable")

    def _name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Store) or id(node) in self.called:
            return
        name = node.id
        if name in self.modules:
            if id(node) not in self.within:
                self.say(node, f"the module {name} may only be used as in {name}.exp(x)")
        elif name in self.functions or name in BUILTINS or name == "Pose":
            if not (name in ("float", "int", "bool", "list", "tuple", "dict") and name in BUILTINS):
                self.say(node, f"the function {name!r} may only be called, not passed on")
        elif name in self.imported:
            if self.imported[name].split(".")[-1] not in MATH_CONSTANTS | TORCH_CONSTANTS | {"Tensor"}:
                self.say(node, f"the function {name!r} may only be called, not passed on")
        elif name not in self.stored and name not in CONSTANTS and name not in TYPING:
            self._unknown(node, name)

    def _unknown(self, node: ast.AST, name: str) -> None:
        if name in INSTEAD or name.startswith("_"):
            return self.say(node, f"{short(name)!r} is not allowed{_instead(name)}")
        if name in TORCH:
            return self.say(node, f"{name!r} is not defined; write torch.{name}")
        if hasattr(builtins, name):
            return self.say(node, f"{name!r} is not allowed; allowed are {', '.join(sorted(BUILTINS))}")
        return self.say(node, f"{short(name)!r} is not defined", near(name, self._known, 0.5, "define it first"))

    @cached_property
    def _known(self) -> list[str]:
        """Every name that is defined; asked for when all of them are known."""
        return sorted(self.stored | set(self.functions) | BUILTINS | set(self.modules) | set(self.imported) | {"Pose"})

    def _attribute(self, node: ast.Attribute) -> None:
        name, module = node.attr, self._module_of(node.value)
        if not isinstance(node.ctx, ast.Load):
            return self.say(node, f"'.{short(name)} = ...' is not allowed; use variables")
        if name.startswith("_") or (name.endswith("_") and name not in IN_PLACE):
            plain = name.strip("_")
            instead = f"write x = x.{plain}(...)" if not name.startswith("_") and plain in METHODS else "leave it out"
            return self.say(node, f"'.{short(name)}' is not allowed; {INSTEAD_OF_ATTRIBUTES.get(name, instead)}")
        called = id(node) in self.called
        if module is None:
            if name in (METHODS | IN_PLACE if called else PROPERTIES):
                return None
            if name in METHODS | PROPERTIES:
                instead = INSTEAD_OF_ATTRIBUTES.get(name, f"write .{name}")
                why = f"cannot be called; {instead}" if called else f"must be called: .{name}(...)"
                return self.say(node, f"'.{name}' {why}")
            return self._unknown_attribute(node, f".{short(name)}", name, _OF_TENSORS)
        functions, constants, submodules = MODULE_NAMES[module]
        if name in submodules and name != "Tensor" and id(node) in self.within:
            return None
        if name in (functions if called else constants):
            return None
        if name in functions:
            return self.say(node, f"the function {module}.{name} may only be called, not passed on")
        if module == "torch" and name == "Tensor" and not called and id(node) not in self.within:
            return None  # isinstance(x, torch.Tensor)
        return self._unknown_attribute(node, f"{module}.{short(name)}", name, functions | constants)

    def _unknown_attribute(self, node: ast.AST, shown: str, name: str, known: frozenset[str]) -> None:
        if name in INSTEAD_OF_ATTRIBUTES:
            return self.say(node, f"{shown!r} is not allowed; {INSTEAD_OF_ATTRIBUTES[name]}")
        return self.say(node, f"{shown!r} is not allowed", near(name, known, 0.75, OTHERS))

    def _module_of(self, node: ast.expr) -> str | None:
        """The module that ``torch`` or ``torch.nn.functional`` is; None: it is none."""
        attributes: list[str] = []
        while isinstance(node, ast.Attribute) and len(attributes) < 3:
            attributes.append(node.attr)
            node = node.value
        module = self.modules.get(node.id) if isinstance(node, ast.Name) else None
        for attribute in reversed(attributes):
            module = f"{module}.{attribute}" if f"{module}.{attribute}" in MODULE_NAMES else None
        return module

    def _constant(self, node: ast.Constant) -> None:
        value = node.value
        if isinstance(value, str):
            if len(value) > (20 * LONGEST_TEXT if id(node) in self.documentation else LONGEST_TEXT):
                self.say(node, f"a text of {len(value)} characters; at most {LONGEST_TEXT} are allowed")
        elif isinstance(value, (bytes, complex)):
            self.say(node, f"{type(value).__name__} is not allowed; write numbers")
        elif isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) > LARGEST:
            self.say(node, f"the number {_amount(value)} is too large; at most {LARGEST:.0e} is allowed")

    def _operator(self, node: ast.BinOp | ast.AugAssign) -> None:
        if type(node.op).__name__ not in ALLOWED:
            self.say(node, refusal(node.op))

    _augassign = _operator

    def _binop(self, node: ast.BinOp) -> None:
        self._operator(node)
        sides = (node.left, node.right)
        if any(isinstance(s, ast.Constant) and isinstance(s.value, str) for s in sides):
            self.say(node, "text may not be computed; write it as it is")
        if isinstance(node.op, ast.Mult) and any(isinstance(s, (ast.List, ast.Tuple)) for s in sides):
            size = next((self.values.of(s) for s in sides if not isinstance(s, (ast.List, ast.Tuple))), None)
            if size is None or abs(size) > MOST_RANGE:
                self.say(node, f"a list may be repeated at most {MOST_RANGE} times, by a number; write torch.full")
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


def _outermost(tree: ast.Module) -> Iterator[ast.FunctionDef]:
    """The functions that are in no other function."""
    todo: list[ast.AST] = [tree]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.FunctionDef):
            yield node
        else:
            todo += ast.iter_child_nodes(node)


def _instead(name: str) -> str:
    return f"; {INSTEAD[name]}" if name in INSTEAD else ""


def _amount(value: float) -> str:
    return f"{value:.3g}" if isinstance(value, float) or abs(value) < 10**300 else "of over 300 digits"
