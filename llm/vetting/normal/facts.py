"""What a module is known to be before it is rewritten: its names, functions, numbers, configurations, loop variables.

Everything is read off the syntax tree in a fixed number of passes.
"""

from __future__ import annotations

import ast
import builtins
import keyword
import re
from collections.abc import Mapping, Sequence

from envolve.llm.vetting.allow.allowed_names import GIVEN, METHODS
from envolve.llm.vetting.normal.unchanged import parents_of
from envolve.llm.vetting.parts import in_place

MOST_VALUES = 32  # of a loop variable that stands in a text
NUMBERS = (int, float)
STATE_NAMES = ("state", "state_dict", "states", "obs_dict", "sim_state", "state_tensors")
FLOAT32 = ("torch.float32", "torch.float", "np.float32", "numpy.float32")
VIEWS = set(  # methods and functions that may give a view of what they are given
    (
        "view view_as reshape reshape_as squeeze unsqueeze flatten ravel transpose permute t expand expand_as narrow "
        "select unbind split chunk detach to type type_as float bool int contiguous diagonal movedim swapaxes swapdims "
        "unfold unflatten as_tensor asarray from_numpy get broadcast_to atleast_1d requires_grad_ real cpu cuda "
        "positive moveaxis tensor_split atleast_2d meshgrid broadcast_tensors"
    ).split()
)
COPIES = ("float", "double")  # of truth values, which they never give back as they are
SIZES = ("shape", "dtype", "device", "ndim")
CONVERTING = ("float", "int", "bool", "len", "abs")
_HIDDEN = re.compile(r"_+[A-Za-z0-9]\w*|[A-Za-z]\w*_")  # begins or ends with an underscore
Text = str | int


class Facts:
    """Facts of one module. types: the functions that are asked for; aliases: of the state (envs/physics/aliases.py)."""

    def __init__(self, tree: ast.Module, types: Sequence[str], aliases: Mapping[str, str]) -> None:
        self.tree, self.types, self.aliases = tree, tuple(types), aliases
        self.functions: dict[str, ast.FunctionDef] = {}
        self.calls: list[ast.Call] = []
        self.classes: dict[str, ast.ClassDef] = {}
        self.bound: dict[str, int] = {}  # name: how often it is bound
        self.values: dict[str, ast.expr] = {}  # of names that are bound by an assignment
        self.loaded: set[str] = set()
        self.imported: dict[str, str] = {}  # name: module, or module.name
        self.shared: set[str] = set()  # names of what has, or may have, another name: arguments, parts, aliases
        self.assigned: dict[str, list[ast.expr]] = {}  # like values, with all that a name is bound to
        self.changed: set[str] = set()  # names of objects that something may change in place
        self.uses: dict[str, list[ast.Name]] = {}  # by name: where it is read
        self.augmented: dict[str, int] = {}  # by name: how often it stands before += and the like
        self._loops: dict[str, list[ast.expr | None]] = {}  # loop variable: what it runs over; None: not known
        self.parents = parents_of(tree)  # as they were written
        self._nodes = list(ast.walk(tree))  # kept, so that no id is used twice
        for node in self._nodes:
            self._see(node)
        self._change_under_other_names()
        self.renames = self._renames()
        self.state = self.passed_on({self._first(f) for k, f in self.functions.items() if k in self.types})
        self.state |= {n for n in STATE_NAMES if n not in self.values}
        self.state -= {n for n, value in self.values.items() if isinstance(value, (ast.Dict, ast.DictComp))}

    def _see(self, node: ast.AST) -> None:
        if isinstance(node, ast.Name):
            if isinstance(node.ctx, ast.Load):
                self.loaded.add(node.id)
                self.uses.setdefault(node.id, []).append(node)
            else:
                self._bind(node.id)
        elif isinstance(node, ast.arg):
            self._bind(node.arg)
            self.shared.add(node.arg)
        elif isinstance(node, ast.FunctionDef):
            self._bind(node.name)
            self.functions[node.name] = node
        elif isinstance(node, ast.ClassDef):
            self._bind(node.name)
            self.classes[node.name] = node
        elif isinstance(node, ast.Call):
            self.calls.append(node)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            source = f"{node.module}." if isinstance(node, ast.ImportFrom) and node.module else ""
            for alias in node.names:
                name = alias.asname or alias.name.split(".")[0]
                self.imported[name] = source + (alias.name if alias.asname or source else name)
        elif isinstance(node, (ast.For, ast.comprehension)):
            self._loop(node.target, node.iter)
        elif isinstance(node, (ast.Subscript, ast.Attribute)) and not isinstance(node.ctx, ast.Load):
            self._change(node.value)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if in_place(node.func.attr):
                self._change(node.func.value)
        if isinstance(node, ast.keyword) and node.arg == "out":
            self._change(node.value)
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            self.augmented[node.target.id] = self.augmented.get(node.target.id, 0) + 1
            self._change(node.target)
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            self.values[node.targets[0].id] = node.value
            self.assigned.setdefault(node.targets[0].id, []).append(node.value)
            if isinstance(node.value, (ast.Name, ast.Subscript, ast.Attribute)):
                self.shared.add(node.targets[0].id)
        if isinstance(node, (ast.Assign, ast.Tuple, ast.List, ast.Dict, ast.keyword)):
            inner = getattr(node, "elts", None) or getattr(node, "values", None) or [getattr(node, "value", None)]
            loads = [n for n in inner if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)]
            self.shared |= {n.id for n in loads} if not isinstance(node, ast.keyword) else set()
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            self.values[node.target.id] = node.value
            self.assigned.setdefault(node.target.id, []).append(node.value)

    def _change(self, owner: ast.expr) -> None:
        """Notes that this object, or a part of it, is changed in place."""
        while isinstance(owner, (ast.Subscript, ast.Attribute)):
            owner = owner.value
        if isinstance(owner, ast.Name):
            self.changed.add(owner.id)

    def _change_under_other_names(self) -> None:
        """An object that is changed under one name, or as an argument, is changed under all."""
        for _ in range(4):
            size = len(self.changed)
            for name, values in self.assigned.items():
                for value in values:
                    if isinstance(value, ast.Name) and name in self.changed:
                        self.changed.add(value.id)
                    elif isinstance(value, ast.Name) and value.id in self.changed:
                        self.changed.add(name)
            for call in self.calls:
                function = self.functions.get(call.func.id) if isinstance(call.func, ast.Name) else None
                if function is not None:
                    own = [a.arg for a in (*function.args.posonlyargs, *function.args.args)]
                    pairs = [*zip(own, call.args), *((k.arg, k.value) for k in call.keywords)]
                    self.changed |= {v.id for o, v in pairs if isinstance(v, ast.Name) and o in self.changed}
            if len(self.changed) == size:
                return

    def changes(self, node: ast.AST) -> bool:
        """Whether evaluating this may change an object: a method that works in place, or an own function that does."""
        for call in ast.walk(node):
            if isinstance(call, ast.NamedExpr):
                return True
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
                if in_place(call.func.attr):
                    return True
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in self.functions:
                if any(isinstance(a, ast.Name) and a.id in self.changed for a in call.args):
                    return True
        return False

    def lasting(self, name: str) -> bool:
        """True for a name that means the same object, unchanged, wherever it is read."""
        return self.bound.get(name, 0) <= 1 and name not in self._loops and name not in self.changed

    def only_computed(self, name: str, mask: bool = False) -> bool:
        """True if nothing but numbers is made of the object behind this name: no use gives it a second name, or makes
        a view of it. mask: of truth values; its float() is a copy, and it may be what a function returns."""
        return all(self._computes(use, mask) for use in self.uses.get(name, ()))

    def _computes(self, use: ast.Name, mask: bool) -> bool:
        parent = self.parents.get(id(use))
        if isinstance(parent, ast.Subscript):
            return parent.slice is use
        if isinstance(parent, ast.Attribute):
            call = self.parents.get(id(parent))
            called = isinstance(call, ast.Call) and call.func is parent
            changing = parent.attr.endswith("_")
            known = parent.attr in {*METHODS, "item"} if called else parent.attr in SIZES
            return known and not changing and (parent.attr not in VIEWS or (mask and parent.attr in COPIES))
        if isinstance(parent, ast.Call) and use in parent.args:
            f = parent.func
            known = isinstance(f, ast.Attribute) and isinstance(f.value, ast.Name) and f.value.id in ("torch", "math")
            known = known and isinstance(f, ast.Attribute) and f.attr not in VIEWS and not f.attr.endswith("_")
            plain = isinstance(f, ast.Name) and f.id in CONVERTING and f.id not in self.bound
            return (known or plain) and not any(k.arg in ("out", "inplace") for k in parent.keywords)
        if isinstance(parent, ast.Return):
            return mask
        return isinstance(parent, (ast.BinOp, ast.UnaryOp, ast.Compare, ast.AugAssign, ast.FormattedValue))

    def _bind(self, name: str) -> None:
        self.bound[name] = self.bound.get(name, 0) + 1

    # ---------------------------------------------------------------------------------------------------------- names

    def free(self, name: str) -> str:
        """``name``, or one like it, that means nothing in this module and in Python; it is taken from now on."""
        wanted, k = name, 1
        while (
            wanted in self.bound or wanted in self.loaded or wanted in GIVEN or wanted in self.imported
            or hasattr(builtins, wanted) or keyword.iskeyword(wanted)
        ):  # fmt: skip
            wanted, k = (f"{name}_value" if k == 1 else f"{name}_{k}"), k + 1
        self._bind(wanted)
        return wanted

    def _renames(self) -> dict[str, str]:
        """Names bound here with an underscore at either end: names without."""
        hidden = [n for n in self.bound if _HIDDEN.fullmatch(n) and not (n.startswith("__") and n.endswith("__"))]
        hidden += ["__"] * ("__" in self.bound)
        plain = {n: n.strip("_") or "unused" for n in hidden}
        return {n: self.free(f"n{name}" if name[0].isdigit() else name) for n, name in plain.items()}

    @staticmethod
    def _first(function: ast.FunctionDef) -> str:
        names = [a.arg for a in (*function.args.posonlyargs, *function.args.args)]
        return next((n for n in names if n in STATE_NAMES), names[0] if len(names) == 1 else "")

    def passed_on(self, names: set[str]) -> set[str]:
        """Names that these are known by in other functions, too: of arguments and of assignments."""
        found = set(names) - {""}
        for _ in range(4):  # helpers of helpers
            size = len(found)
            for call in self.calls:
                function = self.functions.get(call.func.id) if isinstance(call.func, ast.Name) else None
                if function is None:
                    continue
                own = [a.arg for a in (*function.args.posonlyargs, *function.args.args)]
                found |= {o for o, given in zip(own, call.args) if isinstance(given, ast.Name) and given.id in found}
            found |= {n for n, value in self.values.items() if isinstance(value, ast.Name) and value.id in found}
            if len(found) == size:
                break
        return found

    def reached(self, body: Sequence[ast.AST]) -> list[ast.AST]:
        """These statements, and the functions here that they call, or name, directly or through others."""
        found, todo, names = list(body), list(body), set()
        while todo:
            for node in ast.walk(todo.pop()):
                name = node.id if isinstance(node, ast.Name) else ""
                value = self.functions.get(name) or self.values.get(name)
                if name not in names and isinstance(value, (ast.FunctionDef, ast.Lambda)):
                    names.add(name)
                    found.append(value)
                    todo.append(value)
        return found

    # ------------------------------------------------------------------------------------------------ numbers and texts

    def number(self, node: ast.AST, depth: int = 0) -> bool:
        """True for an expression of numbers: of literals, of names bound once to such an expression, of math."""
        if isinstance(node, ast.Constant):
            return isinstance(node.value, NUMBERS) and not isinstance(node.value, bool)
        if depth > 8:
            return False
        if isinstance(node, ast.UnaryOp):
            return self.number(node.operand, depth + 1)
        if isinstance(node, ast.BinOp):
            return self.number(node.left, depth + 1) and self.number(node.right, depth + 1)
        if isinstance(node, ast.Name):
            value = self.values.get(node.id) if self.bound.get(node.id) == 1 else None
            return value is not None and self.number(value, depth + 1)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            return node.value.id in ("math", "np", "numpy") and node.attr in ("pi", "e", "inf", "nan", "tau")
        if isinstance(node, ast.Call):
            function = node.func
            of_math = isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name)
            known = of_math and function.value.id in ("math", "np", "numpy")  # type: ignore[attr-defined]
            return bool(known and node.args) and all(self.number(a, depth + 1) for a in node.args)
        return False

    def constant_tensor(self, node: ast.AST, depth: int = 0) -> ast.expr | None:
        """The number in ``torch.tensor(number)``, or in a name that is bound once to it; None: it is not known."""
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "tensor":
            if any(k.arg == "dtype" and ast.unparse(k.value) not in FLOAT32 for k in node.keywords):
                return None
            first = node.args[0] if node.args else None
            while isinstance(first, ast.List) and len(first.elts) == 1:
                first = first.elts[0]
            return first if first is not None and self.number(first) else None
        if isinstance(node, ast.Name) and self.bound.get(node.id) == 1 and self.lasting(node.id) and depth < 4:
            value = self.values.get(node.id)
            if not self.only_computed(node.id):
                return None
            return None if value is None else self.constant_tensor(value, depth + 1)
        alias = self.alias(node)
        return None if alias is None else self.constant_tensor(alias, depth + 1)

    def alias(self, node: ast.AST) -> ast.expr | None:
        """What state["progress_buf"] stands for, a name of another simulator; None: it is none."""
        if not (isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id in self.state):
            return None
        key = node.slice
        if not (isinstance(key, ast.Constant) and isinstance(key.value, str) and key.value in self.aliases):
            return None
        return ast.parse(self.aliases[key.value].replace("{s}", node.value.id), mode="eval").body

    def _loop(self, target: ast.expr, over: ast.expr | None) -> None:
        """Notes what the variables of a loop run over: through enumerate, zip and .items()."""
        if isinstance(target, ast.Name):
            self._loops.setdefault(target.id, []).append(over)
        elif isinstance(target, ast.Tuple):
            parts: list[ast.expr | None] = [None] * len(target.elts)
            if isinstance(over, ast.Call) and isinstance(over.func, ast.Name):
                if over.func.id == "enumerate" and len(over.args) == 1 and not over.keywords and len(parts) == 2:
                    parts = [ast.Call(ast.Name("len", ast.Load()), [over.args[0]], []), over.args[0]]
                elif over.func.id == "zip" and len(over.args) == len(parts):
                    parts = list(over.args)
            elif isinstance(over, ast.Call) and isinstance(over.func, ast.Attribute) and over.func.attr == "items":
                parts = [over.func.value, None]
            for element, part in zip(target.elts, parts):
                self._loop(element, part)

    def texts_of(self, name: str) -> list[Text] | None:
        """Every value that a loop variable over constants, or a constant, can have; None: they are not known."""
        if name in self._loops:
            if self.bound.get(name) != len(self._loops[name]):
                return None
            every: dict[Text, None] = {}
            for over in self._loops[name]:
                values = None if over is None else self._elements(over)
                if values is None:
                    return None
                every.update(dict.fromkeys(values))
            return list(every) if 0 < len(every) <= MOST_VALUES else None
        value = self.values.get(name) if self.bound.get(name) == 1 else None
        return [value.value] if isinstance(value, ast.Constant) and _is_text(value) else None  # type: ignore[list-item]

    def _elements(self, node: ast.expr) -> list[Text] | None:
        """Values of range(number), of a list of constants, of the keys of a dict of constants."""
        if isinstance(node, ast.Name) and self.lasting(node.id) and node.id in self.values:
            node = self.values[node.id]
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and len(node.args) == 1:
            if node.func.id == "len":
                length = self._length(node.args[0])
                return None if length is None else list(range(length))
            argument = node.args[0]
            if node.func.id == "range" and isinstance(argument, ast.Constant) and type(argument.value) is int:
                return list(range(argument.value)) if argument.value <= MOST_VALUES else None
        parts: Sequence[ast.expr | None] = node.elts if isinstance(node, (ast.List, ast.Tuple)) else ()
        parts = parts or (node.keys if isinstance(node, ast.Dict) else ())
        if not parts or len(parts) > MOST_VALUES or not all(_is_text(p) for p in parts):
            return None
        return [p.value for p in parts]  # type: ignore[union-attr]

    def _length(self, node: ast.expr) -> int | None:
        """Most turns of a loop over this: a list, a name of one, zip of several; None: it is not known."""
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "zip":
            known = [n for a in node.args if (n := self._length(a)) is not None]
            return min(known) if known else None
        if isinstance(node, ast.Name) and self.lasting(node.id) and node.id in self.values:
            node = self.values[node.id]
        if isinstance(node, (ast.List, ast.Tuple)) and len(node.elts) <= MOST_VALUES:
            return len(node.elts)
        known_values = self._elements(node) if isinstance(node, (ast.Call, ast.Dict)) else None
        return None if known_values is None else len(known_values)


def _is_text(node: ast.AST | None) -> bool:
    return (
        isinstance(node, ast.Constant)
        and isinstance(node.value, (str, int))
        and not isinstance(node.value, bool)
        and (not isinstance(node.value, str) or len(node.value) <= 64)
    )
