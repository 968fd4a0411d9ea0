"""Which syntax candidate code may use, and what its expressions are worth where that can be read off them."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from llm.vetting.allowed_names import FUNCTIONAL, LINALG, MATH, MATH_CONSTANTS, TORCH, TORCH_CONSTANTS, TYPING

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


def value_of(node: ast.AST) -> float | None:
    """Of a number, a negative one, or a sum or product of two; None: not known."""
    if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
        inner = value_of(node.operand)
        return None if inner is None else -inner if isinstance(node.op, ast.USub) else inner
    if isinstance(node, ast.BinOp):
        a, b = value_of(node.left), value_of(node.right)
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


def only_numbers(node: ast.AST) -> bool:
    return all(isinstance(n, (ast.Constant, ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop)) for n in ast.walk(node))


def is_constant(node: ast.AST) -> bool:
    fine = (ast.Constant, ast.UnaryOp, ast.unaryop, ast.Tuple, ast.Load, ast.Attribute, ast.Name)
    names = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
    return all(isinstance(n, fine) for n in ast.walk(node)) and names <= {"torch", "math"}


def elements(node: ast.expr) -> Iterator[ast.expr]:
    if isinstance(node, (ast.Tuple, ast.List)):
        for element in node.elts:
            yield from elements(element)
    else:
        yield node


def turns(node: ast.expr) -> float:
    """How often a loop over this turns, at most or about."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "range":
        values = [value_of(a) for a in node.args]
        known = [abs(v) for v in values if v is not None]
        return sum(known) if known and len(known) == len(values) else USUAL_LOOP
    return len(node.elts) if isinstance(node, (ast.Tuple, ast.List)) else USUAL_LOOP
