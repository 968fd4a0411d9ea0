"""May this code be run in the jail? A strict list of what Python and torch it may use, with advice for the model.

This is not what keeps the machine safe (the jail and the checked graph do, llm/jail.py, envs/graph_check.py); it keeps
nonsense out cheaply and tells the model what to write instead. What is not expressly allowed is refused:

- at the top: imports of torch, math and typing, functions, constants;
- in functions: assignments, ``if``, ``for`` over ``range`` or a list, ``return``, expressions without ``lambda``,
  ``:=`` or generators; helper functions, called by name, without recursion; work bounded by ``MOST_WORK``;
- attributes: those of llm/allowed_names.py, for each module and for tensors; no name begins or ends with an
  underscore.
"""

from __future__ import annotations

import ast
import builtins
import difflib
from collections.abc import Iterator, Sequence

from llm.allowed_names import (
    BUILTINS,
    CONSTANTS,
    FUNCTIONAL,
    GIVEN,
    INSTEAD,
    KEYWORDS_REFUSED,
    LINALG,
    MATH,
    MATH_CONSTANTS,
    METHODS,
    MODULES,
    PROPERTIES,
    SIZED,
    TORCH,
    TORCH_CONSTANTS,
    TYPING,
)
from llm.extract import MOST_CHARACTERS, VetError, parse

__all__ = ["BUILTINS", "MODULES", "TYPING", "check_source"]

MOST_NODES = 6000  # of the syntax tree
MOST_PROBLEMS = 20  # that are told at once
MOST_RANGE = 1000  # of a loop, where it is a number
USUAL_LOOP = 32  # turns that a loop is taken to have, where it is not
MOST_WORK = 2_000_000  # statements and expressions executed, loops and calls counted
LARGEST = 1e9  # constant, but for powers of ten
LARGEST_SIZE = 4096  # of a tensor that is made, per dimension
CHANGING = {"append", "extend", "insert", "update"}  # methods
LONGEST_TEXT = 200  # of a string that is no docstring
ALLOWED = {
    name: getattr(ast, name)
    for name in """Module FunctionDef arguments arg Return Assign AugAssign AnnAssign For If IfExp Expr Call keyword
    Name Load Store Attribute Subscript Slice Tuple List Dict Constant BinOp UnaryOp BoolOp Compare ListComp DictComp
    comprehension Import ImportFrom alias Pass Break Continue Add Sub Mult Div FloorDiv Mod Pow MatMult BitAnd BitOr
    BitXor USub UAdd Not Invert And Or Eq NotEq Lt LtE Gt GtE Is IsNot In NotIn""".split()
}
IN_TYPES = (ast.Name, ast.Attribute, ast.Subscript, ast.Tuple, ast.List, ast.Constant, ast.Load, ast.BinOp, ast.BitOr)
REFUSED = {  # syntax: its word, what to write instead
    "While": ("while", "write torch.where, or a for over range(number)"),
    "Try": ("try", "write code that cannot raise: + 1e-6 in divisors, torch.clamp"),
    "TryStar": ("try", "write code that cannot raise"),
    "Lambda": ("lambda", "write a function with def"),
    "ClassDef": ("class", "write plain functions"),
    "With": ("with", "leave it out: nothing is differentiated and no files are read"),
    "GeneratorExp": ("a generator (... for ... in ...)", "write a list: [... for ... in ...]"),
    "SetComp": ("a set", "write a list"),
    "Set": ("a set", "write a list"),
    "Global": ("global", "pass values as arguments"),
    "Nonlocal": ("nonlocal", "pass values as arguments and return them"),
    "Delete": ("del", "leave it out"),
    "Assert": ("assert", "leave it out"),
    "Raise": ("raise", "leave it out"),
    "JoinedStr": ("an f-string", "write the text itself"),
    "Yield": ("yield", "return a tensor"),
    "YieldFrom": ("yield", "return a tensor"),
    "Await": ("await", "leave it out"),
    "AsyncFunctionDef": ("async", "write def"),
    "AsyncFor": ("async", "write for"),
    "AsyncWith": ("async", "leave it out"),
    "NamedExpr": (":=", "write an assignment of its own"),
    "Starred": ("*", "write the elements"),
    "Match": ("match", "write torch.where"),
    "LShift": ("<<", "write * and powers"),
    "RShift": (">>", "write / and powers"),
}
MODULE_NAMES = {  # module: (functions, constants, submodules)
    "torch": (TORCH, TORCH_CONSTANTS, {"nn", "linalg", "Tensor"}),
    "torch.nn": (frozenset(), frozenset(), {"functional"}),
    "torch.nn.functional": (FUNCTIONAL, frozenset(), set()),
    "torch.linalg": (LINALG, frozenset(), set()),
    "math": (MATH, MATH_CONSTANTS, set()),
    "typing": (frozenset(), TYPING, set()),
}


def check_source(code: str, types: Sequence[str]) -> None:
    """Raises VetError("allowlist", one line per problem) unless the code is allowed and defines one of ``types``."""
    if len(code) > MOST_CHARACTERS:
        raise VetError("allowlist", f"the code has {len(code)} characters, at most {MOST_CHARACTERS} are allowed")
    tree = parse(code, "allowlist")
    if sum(1 for _ in ast.walk(tree)) > MOST_NODES:
        raise VetError("allowlist", f"the code is too long: over {MOST_NODES} names, numbers and operations")
    try:
        problems = _Checker(tree, types).problems()
    except RecursionError:
        raise VetError("allowlist", "the code is nested too deeply") from None
    if problems:
        lines = [f"line {line}: {text}" if line else text for line, text in sorted(set(problems))]
        more = [f"and {len(lines) - MOST_PROBLEMS} more"] * (len(lines) > MOST_PROBLEMS)
        raise VetError("allowlist", "\n".join(lines[:MOST_PROBLEMS] + more))


class _Checker:
    def __init__(self, tree: ast.Module, types: Sequence[str]) -> None:
        self.tree, self.types = tree, types
        self.found: list[tuple[int, str]] = []
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
        for function in self.functions.values():
            inside = list(ast.walk(function))
            own = {n.id for n in inside if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
            own |= {n.arg for n in inside if isinstance(n, ast.arg)}
            self.local |= {id(n) for n in inside if isinstance(n, ast.Name) and n.id in own}
        self.ignored: set[int] = set()  # within a class, which is refused as a whole

    def problems(self) -> list[tuple[int, str]]:
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
                self.ignored |= {id(part) for part in ast.walk(node) if part is not node}
                self.stored.add(node.name)
            elif isinstance(node, ast.ExceptHandler):
                self.ignored |= {id(node), *(id(part) for part in ast.walk(node.type or node))}
                self.stored |= {node.name} if node.name else set()
        self._names()
        self._top()
        for node in ast.walk(tree):
            if id(node) not in self.annotations and id(node) not in self.ignored:
                self._node(node)
        self._recursion()
        return self.found

    def say(self, node: ast.AST, text: str) -> None:
        self.found.append((getattr(node, "lineno", 0), text))

    # ------------------------------------------------------------------------------------------------ whole module

    def _top(self) -> None:
        for statement in self.tree.body:
            fine = isinstance(statement, (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.Assign, ast.AnnAssign))
            if not fine and id(statement) not in self.documentation and type(statement).__name__ not in REFUSED:
                self.say(statement, "only imports, functions and constants may stand outside of functions")
        top = {n.name for n in self.tree.body if isinstance(n, ast.FunctionDef)}
        if not top & set(self.types):
            near = difflib.get_close_matches(next(iter(top), ""), self.types, n=1, cutoff=0.0)
            found = f" (found {', '.join(sorted(top))}; nearest: {near[0]})" if top and near else ""
            self.found.append((0, f"the code defines none of {', '.join(self.types)}{found}"))
        elif len(top) < sum(isinstance(n, ast.FunctionDef) for n in self.tree.body):
            self.found.append((0, "a function is defined twice: give each its own name"))

    def _import(self, node: ast.Import | ast.ImportFrom) -> None:
        source = node.module or "" if isinstance(node, ast.ImportFrom) else ""
        if isinstance(node, ast.ImportFrom) and (node.level or source not in MODULES):
            return self.say(
                node,
                f"import from {source or '.'!r} is not allowed; torch, math and typing are there"
                + self._module_hint(source),
            )
        for alias in node.names:
            full = f"{source}.{alias.name}" if source else alias.name
            name = alias.asname or (alias.name if source else alias.name.split(".")[0])
            if full in MODULES:
                bound = full if alias.asname or source else full.split(".")[0]
                if name in GIVEN | BUILTINS and self.modules.get(name, bound) != bound:
                    self.say(node, f"{name!r} stands for something else; choose another name")
                self.modules[name] = bound
            elif source and source in MODULE_NAMES and alias.name in self._exports(source):
                if name in (GIVEN | BUILTINS) - {alias.name}:
                    self.say(node, f"{name!r} stands for something else; choose another name")
                self.imported[name] = full
            else:
                self.say(node, f"import of {full!r} is not allowed; torch, math and typing are there"
                         + self._module_hint(full))  # fmt: skip
        return None

    def _module_hint(self, module: str) -> str:
        return self._hint("np" if module.startswith("numpy") else module.split(".")[0])

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
        """What the code binds: nothing that has a meaning already, no underscores at either end."""
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
                    self.say(node, f"{name!r}: names may not begin or end with '_'; write {instead!r}")
                meaning = name in BUILTINS or name in GIVEN or name in self.modules or name in self.imported
                if meaning and not isinstance(node, ast.alias):
                    self.say(node, f"{name!r} may not be given another meaning; write '{name}_value'")
                if name in self.functions and not isinstance(node, ast.FunctionDef):
                    self.say(node, f"{name!r} is a function; give the variable another name")
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
                inner *= _turns(node.iter)
            elif isinstance(node, (ast.ListComp, ast.DictComp)):
                for generator in node.generators:
                    inner *= _turns(generator.iter)
            return inner

        def of(name: str, where: ast.AST) -> float:
            if name in open_:
                self.say(where, f"{name} calls itself; write a for over range(number)")
                return 0.0
            if name not in work:
                open_.append(name)
                work[name] = sum(cost(statement) for statement in self.functions[name].body)
                open_.pop()
            return work[name]

        open_: list[str] = []
        if sum(of(name, node) for name, node in self.functions.items()) > MOST_WORK:
            self.found.append((0, "too much work in loops: write operations on whole tensors"))

    # ------------------------------------------------------------------------------------------------- single nodes

    def _node(self, node: ast.AST) -> None:
        kind = type(node).__name__
        if kind not in ALLOWED:
            if not isinstance(node, ast.expr_context):
                word, instead = REFUSED.get(kind, (kind, "write something simpler"))
                self.say(node, f"{word if ' ' in word else repr(word)} is not allowed; {instead}")
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
            if default is not None and not _is_constant(default):
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
                self.say(node, f"{function.id!r} is a variable, and only functions may be called")
            if not known and function.id != "Pose" and function.id not in self.stored:
                self._unknown(function, function.id)
            if function.id == "range":
                self._range(node)
        elif function.attr in CHANGING:
            self._changed(function.value)
        last = function.id if isinstance(function, ast.Name) else getattr(function, "attr", "")
        for keyword in node.keywords:
            if keyword.arg is None:
                self.say(node, "'**' is not allowed; write the arguments")
            elif keyword.arg in KEYWORDS_REFUSED or keyword.arg.startswith("_") or keyword.arg.endswith("_"):
                self.say(node, f"the argument {keyword.arg!r} is not allowed; leave it out")
            if keyword.arg == "device" and isinstance(keyword.value, ast.Constant):
                self.say(node, "a device may not be named; write device=x.device, or leave it out")
        if last in SIZED:
            sizes = node.args[:1] if last in ("full", "new_full") else node.args
            for part in [p for size in sizes for p in _elements(size)]:
                value = _value(part)
                if value is not None and isinstance(value, int) and abs(value) > LARGEST_SIZE:
                    self.say(node, f"{last} with a size of {value:.3g}; at most {LARGEST_SIZE} is allowed")

    def _range(self, node: ast.Call) -> None:
        for argument in node.args:
            value = _value(argument)
            powers = any(isinstance(n, (ast.Pow, ast.Mult)) for n in ast.walk(argument))
            if (value is None and powers) or (value is not None and abs(value) > MOST_RANGE):
                self.say(node, f"a loop may have at most {MOST_RANGE} turns; write operations on whole tensors")

    def _subscript(self, node: ast.Subscript) -> None:
        if isinstance(node.ctx, ast.Store):
            self._changed(node.value)

    def _changed(self, node: ast.AST) -> None:
        """What is outside of functions stays what it is, or a call would depend on those before."""
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
            return self.say(node, f"{name!r} is not allowed{self._hint(name)}")
        known = sorted(self.stored | set(self.functions) | BUILTINS | set(self.modules) | set(self.imported) | {"Pose"})
        if name in TORCH:
            return self.say(node, f"{name!r} is not defined; write torch.{name}")
        if hasattr(builtins, name):
            return self.say(node, f"{name!r} is not allowed; allowed are {', '.join(sorted(BUILTINS))}")
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
        return self.say(node, f"{name!r} is not defined" + (f"; nearest: {near[0]!r}" if near else ""))

    def _attribute(self, node: ast.Attribute) -> None:
        name, module = node.attr, self._module_of(node.value)
        if not isinstance(node.ctx, ast.Load):
            return self.say(node, f"'.{name} = ...' is not allowed; use variables")
        if name.startswith("_") or name.endswith("_"):
            plain = name.strip("_")
            instead = f"write x = x.{plain}(...)" if not name.startswith("_") and plain in METHODS else "leave it out"
            return self.say(node, f"'.{name}' is not allowed; {INSTEAD.get(name, instead)}")
        called = id(node) in self.called
        if module is None:
            if name in (METHODS if called else PROPERTIES):
                return None
            if name in METHODS | PROPERTIES:
                why = "cannot be called" if called else f"must be called: .{name}(...)"
                return self.say(node, f"'.{name}' {why}")
            return self.say(node, f"'.{name}' is not allowed{self._hint(name, METHODS | PROPERTIES)}")
        functions, constants, submodules = MODULE_NAMES[module]
        if name in submodules and name != "Tensor" and id(node) in self.within:
            return None
        if name in (functions if called else constants):
            return None
        if name in functions:
            return self.say(node, f"the function {module}.{name} may only be called, not passed on")
        if module == "torch" and name == "Tensor" and not called and id(node) not in self.within:
            return None  # isinstance(x, torch.Tensor)
        return self.say(node, f"'{module}.{name}' is not allowed{self._hint(name, functions | constants)}")

    def _module_of(self, node: ast.expr) -> str | None:
        if isinstance(node, ast.Name):
            return self.modules.get(node.id)
        if isinstance(node, ast.Attribute):
            outer = self._module_of(node.value)
            if outer is not None and f"{outer}.{node.attr}" in MODULE_NAMES:
                return f"{outer}.{node.attr}"
        return None

    @staticmethod
    def _hint(name: str, known: frozenset[str] | set[str] = frozenset()) -> str:
        if name in INSTEAD:
            return f"; {INSTEAD[name]}"
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.75)
        return f"; nearest: {near[0]!r}" if near else ""

    def _constant(self, node: ast.Constant) -> None:
        value = node.value
        if isinstance(value, str):
            if len(value) > (20 * LONGEST_TEXT if id(node) in self.documentation else LONGEST_TEXT):
                self.say(node, f"a text of {len(value)} characters; at most {LONGEST_TEXT} are allowed")
        elif isinstance(value, (bytes, complex)):
            self.say(node, f"{type(value).__name__} is not allowed; write numbers")
        elif isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) > LARGEST:
            self.say(node, f"the number {value:.3g} is too large; at most {LARGEST:.0e} is allowed"
                     if isinstance(value, float) or abs(value) < 10**300 else "an integer is too large")  # fmt: skip

    def _binop(self, node: ast.BinOp) -> None:
        sides = (node.left, node.right)
        if any(isinstance(s, ast.Constant) and isinstance(s.value, str) for s in sides):
            self.say(node, "text may not be computed; write it as it is")
        if isinstance(node.op, ast.Mult) and any(isinstance(s, (ast.List, ast.Tuple)) for s in sides):
            size = next((_value(s) for s in sides if not isinstance(s, (ast.List, ast.Tuple))), None)
            if size is None or abs(size) > MOST_RANGE:
                self.say(node, f"a list may be repeated at most {MOST_RANGE} times, by a number; write torch.full")
        if isinstance(node.op, ast.Pow):
            exponent = _value(node.right)
            constant = _is_constant(node.right) or isinstance(node.right, ast.BinOp) and _only_numbers(node.right)
            if (exponent is not None and abs(exponent) > 64) or (constant and exponent is None):
                self.say(node, "a power of this size is not allowed; write the number")
            elif exponent is not None and _only_numbers(node.left):
                base = _value(node.left)
                if base is None or (abs(base) > 1 and abs(exponent) > 16) or abs(base) > 1e6:
                    self.say(node, "a power of this size is not allowed; write the number")


# ------------------------------------------------------------------------------------------------------ expressions


def _value(node: ast.AST) -> float | None:
    """Of a number, a negative one, or a sum or product of two; None: not known."""
    if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
        inner = _value(node.operand)
        return None if inner is None else -inner if isinstance(node.op, ast.USub) else inner
    if isinstance(node, ast.BinOp):
        a, b = _value(node.left), _value(node.right)
        if a is None or b is None or max(abs(a), abs(b)) > 1e100:
            return None
        if isinstance(node.op, ast.Mult):
            return a * b
        if isinstance(node.op, (ast.Add, ast.Sub)):
            return a + b if isinstance(node.op, ast.Add) else a - b
        if isinstance(node.op, ast.Pow) and abs(b) <= 64 and 0 < abs(a) <= 1e6:
            result = a**b
            return result if isinstance(result, (int, float)) else None
    return None


def _only_numbers(node: ast.AST) -> bool:
    return all(isinstance(n, (ast.Constant, ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop)) for n in ast.walk(node))


def _is_constant(node: ast.AST) -> bool:
    fine = (ast.Constant, ast.UnaryOp, ast.unaryop, ast.Tuple, ast.Load, ast.Attribute, ast.Name)
    names = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
    return all(isinstance(n, fine) for n in ast.walk(node)) and names <= {"torch", "math"}


def _elements(node: ast.expr) -> Iterator[ast.expr]:
    if isinstance(node, (ast.Tuple, ast.List)):
        for element in node.elts:
            yield from _elements(element)
    else:
        yield node


def _turns(node: ast.expr) -> float:
    """How often a loop over this turns, at most or about."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "range":
        values = [_value(a) for a in node.args]
        known = [abs(v) for v in values if v is not None]
        return sum(known) if known and len(known) == len(values) else USUAL_LOOP
    return len(node.elts) if isinstance(node, (ast.Tuple, ast.List)) else USUAL_LOOP
