"""Expressions in an equal, allowed form, one rule a method. A rule takes only what the allow-list would refuse."""

from __future__ import annotations

import ast
import re
import struct
from collections import Counter
from collections.abc import Sequence
from itertools import product

from envolve.llm.vetting.normal import numpy_twins
from envolve.llm.vetting.normal.configs import Configs
from envolve.llm.vetting.normal.facts import Facts, Text
from envolve.llm.vetting.normal.folds import folded

CONSUMERS = ("sum", "min", "max", "list", "tuple", "dict")  # functions that take every element, in order
TENSORS = {"Tensor": "float32", "FloatTensor": "float32", "LongTensor": "long", "BoolTensor": "bool"}
IGNORED = ("requires_grad", "pin_memory")  # arguments that change no number
MODULES = ("torch", "math", "np", "numpy", "F")
MOST_ROWS = 32  # of a matrix that is written out
DEVICES = ("cpu", "cuda")  # methods that move a tensor: here all are on one device
_SPEC = re.compile(r"0?\d{0,2}d?")  # of an f-string


class Expressions(ast.NodeTransformer):
    """Rewrites expressions of one module. done: counts of what was rewritten, in words; touched: set to True by every
    change."""

    def __init__(self, facts: Facts, configs: Configs, torch: bool) -> None:
        """torch: False on the path of Gymnasium, where numpy stays what it is."""
        self.facts, self.configs, self.torch = facts, configs, torch
        self.done: Counter[str] = Counter()
        self.touched = False

    def changed(self, what: str, old: ast.AST, new: ast.AST) -> ast.AST:
        self.done[what] += 1
        self.touched = True
        return ast.copy_location(new, old)

    # ---------------------------------------------------------------------------------------------------------- names

    def visit_Name(self, node: ast.Name) -> ast.AST:
        new = self.facts.renames.get(node.id)
        return node if new is None else self.changed(_RENAMED, node, ast.Name(new, node.ctx))

    def visit_arg(self, node: ast.arg) -> ast.AST:
        new = self.facts.renames.get(node.arg)
        return node if new is None else self.changed(_RENAMED, node, ast.arg(new, node.annotation))

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        if not isinstance(node.ctx, ast.Load):
            return node
        owner = node.value
        if self.configs.holds(owner, node.attr):
            key = ast.Subscript(owner, ast.Constant(node.attr), ast.Load())
            return self.changed("objects of constants written as dicts", node, key)
        if self.torch and isinstance(owner, ast.Name) and owner.id in ("np", "numpy"):
            new = numpy_twins.constant(node.attr)
            return node if new is None else self.changed(_NUMPY, node, new)
        if self.torch and node.attr == "data" and not (isinstance(owner, ast.Name) and owner.id in MODULES):
            return self.changed("'.data' left out", node, owner)
        return node

    # ---------------------------------------------------------------------------------------------------------- calls

    def visit_Call(self, node: ast.Call) -> ast.AST:
        function = node.func
        made = self.configs.made(node)
        if made is not None:
            return self.changed("objects of constants written as dicts", node, self.visit(made))
        if self.torch and (plain := folded(node, self.facts)) is not None:
            return self.changed("reduce written out", node, self.visit(plain))
        if self.torch and (twin := numpy_twins.call(node, self.facts)) is not None:
            self.changed(_NUMPY, node, twin)
            self.generic_visit(twin)
            return ast.copy_location(twin, node)
        self.generic_visit(node)
        name = function.id if isinstance(function, ast.Name) else ""
        for keyword in node.keywords:
            if name in self.facts.functions and keyword.arg in self.facts.renames:
                keyword.arg = self.facts.renames[keyword.arg]
                self.touched = True
        if name in CONSUMERS and node.args and isinstance(node.args[0], ast.GeneratorExp) and self.torch:
            inner = node.args[0]
            listed = ast.Call(function, [ast.ListComp(inner.elt, inner.generators), *node.args[1:]], node.keywords)
            return self.changed("generators written as lists", node, listed)
        if not self.torch:
            return node
        if name == "pow" and len(node.args) == 2 and not node.keywords and name not in self.facts.bound:
            return self.changed("pow(x, y) written as x ** y", node, ast.BinOp(node.args[0], ast.Pow(), node.args[1]))
        if name in ("float", "int") and len(node.args) == 1 and name not in self.facts.bound:
            number = self.facts.constant_tensor(node.args[0])
            if number is not None:
                return self.changed(_ITEM, node, ast.Call(function, [_rounded(number)], []))
        if name == "to_torch" and node.args and name not in self.facts.functions:
            dtype = next((k for k in node.keywords if k.arg == "dtype"), ast.keyword("dtype", _torch("float32")))
            new = ast.Call(_torch("tensor"), node.args[:1], [dtype])
            return self.changed("to_torch written as torch.tensor", node, new)
        return self._method(node, function) if isinstance(function, ast.Attribute) else node

    def _method(self, node: ast.Call, function: ast.Attribute) -> ast.AST:
        name, owner = function.attr, function.value
        plain = _without_rare(node, name)
        if plain is not None:
            return self.changed("torch.diag and pairwise_distance written out", node, plain)
        of_torch = isinstance(owner, ast.Name) and owner.id == "torch"
        kept = [k for k in node.keywords if k.arg not in IGNORED and not _names_device(k)]
        if len(kept) < len(node.keywords) and all(k.arg != "device" or of_torch or k in kept for k in node.keywords):
            node.keywords = kept
            self.changed("arguments left out: requires_grad, pin_memory, names of devices", node, node)
        if of_torch:
            if name == "device":
                return self.changed("names of devices left out", node, ast.Constant(None))
            if name in TENSORS and len(node.args) == 1 and isinstance(node.args[0], ast.List) and not node.keywords:
                dtype = ast.keyword("dtype", _torch(TENSORS[name]))
                return self.changed(
                    "tensors made by torch.tensor", node, ast.Call(_torch("tensor"), node.args, [dtype])
                )
            return node
        if name == "type" and len(node.args) == 1 and not node.keywords:
            return self.changed("'.type(dtype)' written as '.to(dtype)'", node, self._to(owner, node.args[0]))
        if name == "astype" and len(node.args) == 1 and not node.keywords and (to := _numpy_kind(node.args[0])):
            kind = ast.Call(ast.Attribute(owner, to, ast.Load()), [], [])
            return self.changed("'.astype(dtype)' written as .float(), .long() or .bool()", node, kind)
        if name in DEVICES and not node.args:
            return self.changed("names of devices left out", node, owner)
        if name == "to" and len(node.args) == 1 and not node.keywords and _is_device(node.args[0]):
            return self.changed("names of devices left out", node, owner)
        if name == "item" and not node.args:
            number = self.facts.constant_tensor(owner)
            if number is not None:
                return self.changed(_ITEM, node, _rounded(number))
        if name == "get" and node.args and isinstance(owner, ast.Name) and owner.id in self.facts.state:
            new = self.facts.alias(ast.Subscript(owner, node.args[0], ast.Load()))
            return node if new is None else self.changed(_ALIAS, node, new)
        return node

    @staticmethod
    def _to(owner: ast.expr, dtype: ast.expr) -> ast.Call:
        old = isinstance(dtype, ast.Attribute) and dtype.attr in TENSORS
        last = dtype.attr if isinstance(dtype, ast.Attribute) else ""
        named = dtype.value if isinstance(dtype, ast.Constant) and isinstance(dtype.value, str) else ""
        named = named.rsplit(".", 1)[-1]
        if old or named in TENSORS:
            dtype = _torch(TENSORS[last if old else named])
        return ast.Call(ast.Attribute(owner, "to", ast.Load()), [dtype], [])

    # ---------------------------------------------------------------------------------------------------- of the state

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        alias = self.facts.alias(node) if isinstance(node.ctx, ast.Load) else None
        self.generic_visit(alias if alias is not None else node)
        return node if alias is None else self.changed(_ALIAS, node, alias)

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        """ "progress_buf" in state"""
        self.generic_visit(node)
        over, key = node.comparators[0], node.left
        known = isinstance(key, ast.Constant) and isinstance(key.value, str) and key.value in self.facts.aliases
        of_state = isinstance(over, ast.Name) and over.id in self.facts.state
        if known and of_state and len(node.ops) == 1 and isinstance(node.ops[0], (ast.In, ast.NotIn)):
            return self.changed(_ALIAS, node, ast.Constant(isinstance(node.ops[0], ast.In)))
        return node

    # ----------------------------------------------------------------------------------------------------------- texts

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        return self._text(node) if self.torch else node

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        if self.torch and isinstance(node.op, ast.Add) and _begins_as_text(node):
            new = self._text(node)
            if new is not node:
                return new
        self.generic_visit(node)
        return node

    def _text(self, node: ast.expr) -> ast.AST:
        """A text of constants and of loop variables over constants: the constant, or a table of them."""
        parts = self._parts(node)
        if parts is None:
            return node
        names = list(dict.fromkeys(name for name, _ in parts if name))
        values: list[Sequence[Text]] = []
        for name in names:
            own = self.facts.texts_of(name)
            if own is None:
                return node
            values.append(own)
        count = 1
        for every in values:
            count *= len(every)
        if count > 32:
            return node
        table: dict[tuple[Text, ...], str] = {}
        for chosen in product(*values):
            of = dict(zip(names, chosen))
            try:
                table[chosen] = "".join(format(of[name], spec) if name else spec for name, spec in parts)
            except ValueError:
                return node
        loaded: list[ast.expr] = [ast.Name(self.facts.renames.get(name, name), ast.Load()) for name in names]
        if len(table) == 1 and all(len(every) == 1 for every in values):
            return self.changed(_TEXT, node, ast.Constant(next(iter(table.values()))))
        keys = [_key(chosen) for chosen in table]
        which = loaded[0] if len(loaded) == 1 else ast.Tuple(loaded, ast.Load())
        texts: list[ast.expr] = [ast.Constant(text) for text in table.values()]
        return self.changed(_TEXT, node, ast.Subscript(ast.Dict(list(keys), texts), which, ast.Load()))

    def _parts(self, node: ast.expr) -> list[tuple[str, str]] | None:
        """("", text) and (name of a variable, how it is written), in order; None: something else is in it."""
        if isinstance(node, ast.Constant) and type(node.value) in (str, int):
            return [("", str(node.value))]
        if isinstance(node, ast.Name):
            return [(node.id, "")]
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "str":
            return self._parts(node.args[0]) if len(node.args) == 1 and not node.keywords else None
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            sides = self._parts(node.left), self._parts(node.right)
            return None if sides[0] is None or sides[1] is None else [*sides[0], *sides[1]]
        if isinstance(node, ast.FormattedValue):
            spec = node.format_spec
            text = "" if spec is None else self._constant_of(spec)
            inner = self._parts(node.value)
            fine = text is not None and _SPEC.fullmatch(text) and node.conversion in (-1, ord("s"))
            if not fine or inner is None or len(inner) != 1:
                return None
            return [(inner[0][0], text or "")] if inner[0][0] else inner
        if isinstance(node, ast.JoinedStr):
            found: list[tuple[str, str]] = []
            for value in node.values:
                inner = self._parts(value)
                if inner is None:
                    return None
                found += inner
            return found
        return None

    @staticmethod
    def _constant_of(spec: ast.expr) -> str | None:
        values = spec.values if isinstance(spec, ast.JoinedStr) else []
        if len(values) == 1 and isinstance(values[0], ast.Constant) and isinstance(values[0].value, str):
            return values[0].value
        return None if values else ""


_RENAMED = "names with an underscore at an end"
_NUMPY = "numpy written as torch or math"
_ITEM = "numbers taken out of constant tensors"
_ALIAS = "names of the state from other simulators"
_TEXT = "texts of constants written out"


def _torch(name: str) -> ast.Attribute:
    return ast.Attribute(ast.Name("torch", ast.Load()), name, ast.Load())


def _key(chosen: tuple[Text, ...]) -> ast.expr:
    parts: list[ast.expr] = [ast.Constant(value) for value in chosen]
    return parts[0] if len(parts) == 1 else ast.Tuple(parts, ast.Load())


def _rounded(node: ast.expr) -> ast.expr:
    """A number as a float32 tensor holds it."""
    if isinstance(node, ast.Constant) and isinstance(node.value, float):
        try:
            return ast.Constant(struct.unpack("f", struct.pack("f", node.value))[0])
        except OverflowError:
            return node
    return node


def _begins_as_text(node: ast.expr) -> bool:
    for _ in range(16):
        if isinstance(node, ast.BinOp):
            if isinstance(node.right, ast.Constant) and isinstance(node.right.value, str):
                return True
            node = node.left
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def _without_rare(node: ast.Call, name: str) -> ast.expr | None:
    """pairwise_distance(a, b) as a norm; torch.diag of a list of numbers as a matrix; None: it is another call."""
    if name == "pairwise_distance" and len(node.args) == 2 and not node.keywords:  # torch adds 1e-6 to the difference
        apart = ast.BinOp(ast.BinOp(node.args[0], ast.Sub(), node.args[1]), ast.Add(), ast.Constant(1e-6))
        last = ast.keyword("dim", ast.UnaryOp(ast.USub(), ast.Constant(1)))
        return ast.Call(_torch("norm"), [apart], [last])
    inner = node.args[0] if name == "diag" and len(node.args) == 1 and not node.keywords else None
    if isinstance(inner, ast.Call) and inner.args and isinstance(inner.args[0], ast.List):
        row = inner.args[0].elts
        made = isinstance(inner.func, ast.Attribute) and inner.func.attr == "tensor" and not any(map(_is_list, row))
        if made and len(row) <= MOST_ROWS:
            places, zero = range(len(row)), ast.Constant(0.0)
            rows: list[ast.expr] = [ast.List([row[i] if j == i else zero for j in places], ast.Load()) for i in places]
            return ast.Call(inner.func, [ast.List(rows, ast.Load()), *inner.args[1:]], inner.keywords)
    return None


def _is_list(node: ast.expr) -> bool:
    return isinstance(node, (ast.List, ast.Tuple, ast.Starred))


def _names_device(keyword: ast.keyword) -> bool:
    return keyword.arg == "device" and _is_device(keyword.value)


def _is_device(node: ast.expr) -> bool:
    """A device by its name: "cuda:0", torch.device("cpu")."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "device":
        return True
    return isinstance(node, ast.Constant) and (node.value is None or str(node.value).startswith(("cuda", "cpu")))


def _numpy_kind(dtype: ast.expr) -> str:
    """float, np.float32, "int64" -> the method of a tensor that makes it so; "": another."""
    named = isinstance(dtype, ast.Constant) and isinstance(dtype.value, str)
    text = str(dtype.value) if named else ast.unparse(dtype)  # type: ignore[attr-defined]
    kinds = {"float": "float", "float32": "float", "float64": "float", "int": "long", "int64": "long", "bool": "bool"}
    return kinds.get(text.removeprefix("np.").removeprefix("numpy.").removeprefix("torch.").rstrip("_"), "")
