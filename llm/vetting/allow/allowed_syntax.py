"""Syntax that candidate code may use, and the values of constant expressions."""

from __future__ import annotations

import ast
from collections.abc import Container, Iterator

from envolve.llm.vetting.allow.allowed_names import (
    FUNCTIONAL,
    LINALG,
    MATH,
    MATH_CONSTANTS,
    TORCH,
    TORCH_CONSTANTS,
    TYPING,
)

USUAL_LOOP = 32  # turns that a loop is taken to have, where it is not
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
    "Try": ("try", "write code that cannot raise: + 1e-6 in divisors, torch.clamp, if instead of except"),
    "TryStar": ("try", "write code that cannot raise, if instead of except"),
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
    "TypeAlias": ("type", "leave it out"),
    "TemplateStr": ("a t-string", "write the text itself"),
}
# parts of syntax that is refused as a whole: nothing is said of them again
PARTS = set(
    """FormattedValue Interpolation withitem ExceptHandler match_case MatchValue MatchSingleton MatchSequence
MatchMapping MatchClass MatchStar MatchAs MatchOr TypeVar ParamSpec TypeVarTuple""".split()
)
MODULE_NAMES = {  # module: (functions, constants, submodules)
    "torch": (TORCH, TORCH_CONSTANTS, frozenset({"nn", "linalg", "Tensor"})),
    "torch.nn": (frozenset(), frozenset(), frozenset({"functional"})),
    "torch.nn.functional": (FUNCTIONAL, frozenset(), frozenset()),
    "torch.linalg": (LINALG, frozenset(), frozenset()),
    "math": (MATH, MATH_CONSTANTS, frozenset()),
    "typing": (frozenset(), TYPING, frozenset()),
}


class Values:
    """Values of expressions, each computed once however they are nested."""

    def __init__(self, modules: Container[str]) -> None:
        """modules: names that stand for some."""
        self._modules = modules
        self._values: dict[int, float | None] = {}
        self._numbers: dict[int, bool] = {}
        self._constants: dict[int, bool] = {}
        self._multiplies: dict[int, bool] = {}

    def of(self, node: ast.AST) -> float | None:
        """Value of a number, a negative one, or a sum or product of two; None: unknown."""
        if id(node) not in self._values:
            self._values[id(node)] = self._of(node)
        return self._values[id(node)]

    def _of(self, node: ast.AST) -> float | None:
        if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
            return node.value
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
            inner = self.of(node.operand)
            return None if inner is None else -inner if isinstance(node.op, ast.USub) else inner
        if isinstance(node, ast.BinOp):
            a, b = self.of(node.left), self.of(node.right)
            if a is None or b is None or max(abs(a), abs(b)) > 1e100:
                return None
            if isinstance(node.op, ast.Mult):
                return a * b
            if isinstance(node.op, (ast.Add, ast.Sub)):
                return a + b if isinstance(node.op, ast.Add) else a - b
            if isinstance(node.op, ast.Pow) and abs(b) <= 64 and 0 < abs(a) <= 1e6:
                try:
                    result = a**b
                except OverflowError:
                    return None
                return result if isinstance(result, (int, float)) else None
        return None

    def only_numbers(self, node: ast.AST) -> bool:
        """True for numbers and operations on them."""
        if id(node) not in self._numbers:
            inner = [node.left, node.right] if isinstance(node, ast.BinOp) else []
            inner += [node.operand] if isinstance(node, ast.UnaryOp) else []
            self._numbers[id(node)] = isinstance(node, ast.Constant) or (
                bool(inner) and all(self.only_numbers(n) for n in inner)
            )
        return self._numbers[id(node)]

    def is_constant(self, node: ast.AST) -> bool:
        """True for numbers, texts, tuples of these, and names in modules."""
        if id(node) not in self._constants:
            inner: list[ast.expr] = list(node.elts) if isinstance(node, ast.Tuple) else []
            inner += [node.operand] if isinstance(node, ast.UnaryOp) else []
            inner += [node.value] if isinstance(node, ast.Attribute) else []
            fine = isinstance(node, (ast.Constant, ast.UnaryOp, ast.Tuple, ast.Attribute))
            fine |= isinstance(node, ast.Name) and node.id in self._modules
            self._constants[id(node)] = fine and all(self.is_constant(n) for n in inner)
        return self._constants[id(node)]

    def multiplies(self, node: ast.AST) -> bool:
        """True if it contains a product or a power."""
        if id(node) not in self._multiplies:
            self._multiplies[id(node)] = isinstance(node, (ast.Pow, ast.Mult)) or any(
                self.multiplies(n) for n in ast.iter_child_nodes(node)
            )
        return self._multiplies[id(node)]

    def turns(self, node: ast.expr) -> float:
        """Number of iterations of a loop over this, at most or about."""
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "range":
            values = [self.of(a) for a in node.args]
            known = [abs(v) for v in values if v is not None]
            return sum(known) if known and len(known) == len(values) else USUAL_LOOP
        return len(node.elts) if isinstance(node, (ast.Tuple, ast.List)) else USUAL_LOOP


def elements(node: ast.expr) -> Iterator[ast.expr]:
    if isinstance(node, (ast.Tuple, ast.List)):
        for element in node.elts:
            yield from elements(element)
    else:
        yield node
