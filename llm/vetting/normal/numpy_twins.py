"""Functions and numbers of numpy as torch's, or as math's where all arguments are numbers."""

from __future__ import annotations

import ast

from envolve.llm.vetting.normal.facts import Facts

CONSTANTS = {"pi": "pi", "e": "e", "inf": "inf", "nan": "nan", "Inf": "inf", "infty": "inf"}
DTYPES = {"float32": "float32", "float64": "float64", "int32": "int32", "int64": "int64", "bool_": "bool"}
OF_NUMBERS = {  # numpy: math
    "exp": "exp", "sqrt": "sqrt", "sin": "sin", "cos": "cos", "tan": "tan", "tanh": "tanh", "sinh": "sinh",
    "cosh": "cosh", "arctan": "atan", "arcsin": "asin", "arccos": "acos", "arctan2": "atan2", "log": "log",
    "log10": "log10", "log2": "log2", "log1p": "log1p", "deg2rad": "radians", "radians": "radians",
    "rad2deg": "degrees", "degrees": "degrees", "abs": "fabs", "fabs": "fabs", "hypot": "hypot", "power": "pow",
    "floor": "floor", "ceil": "ceil",
}  # fmt: skip
OF_TENSORS = {  # numpy: torch
    **{name: name for name in (
        "abs absolute exp exp2 expm1 log log10 log1p log2 sqrt square sin cos tan sinh cosh tanh arcsin arccos arctan "
        "arctan2 arcsinh arctanh sign floor ceil round isnan isinf isfinite where sum mean prod stack zeros_like "
        "ones_like full_like deg2rad rad2deg logical_and logical_or logical_not logical_xor nan_to_num hypot cross "
        "clip multiply subtract add divide matmul dot outer reciprocal negative copysign concatenate maximum minimum "
        "zeros ones full arange linspace eye vstack hstack squeeze reshape transpose argmax argmin all any"
    ).split()},
    "power": "pow", "array": "tensor", "asarray": "tensor", "radians": "deg2rad", "degrees": "rad2deg",
    "mod": "remainder", "remainder": "remainder",
    "max": "amax", "min": "amin", "amax": "amax", "amin": "amin", "fabs": "abs",
}  # fmt: skip
REDUCING = ("max", "min", "amax", "amin")
BOUNDS = {"maximum": "min", "minimum": "max"}


def constant(name: str) -> ast.expr | None:
    """np.pi, np.float32 -> the same of math or torch; None: it is another."""
    if name in CONSTANTS:
        return _of("math", CONSTANTS[name])
    return _of("torch", DTYPES[name]) if name in DTYPES else None


def call(node: ast.Call, facts: Facts) -> ast.Call | None:
    """np.exp(x) -> torch.exp(x) or math.exp(2.0); None: it is no call of numpy that has a twin."""
    function = node.func
    if not isinstance(function, ast.Attribute):
        return None
    name, owner = function.attr, function.value
    inner = isinstance(owner, ast.Attribute) and owner.attr == "linalg" and _is_numpy(owner.value)
    if inner and name == "norm":
        return ast.Call(_of("torch", "norm", "linalg"), node.args, _renamed(node.keywords))
    if not _is_numpy(owner) or any(k.arg in ("out", "where", "order") for k in node.keywords):
        return None
    numbers = bool(node.args) and not node.keywords and all(facts.number(a) for a in node.args)
    if numbers and name in OF_NUMBERS:
        return ast.Call(_of("math", OF_NUMBERS[name]), node.args, [])
    if numbers and name in BOUNDS:
        return ast.Call(ast.Name(name[:3], ast.Load()), node.args, [])
    if name in BOUNDS and len(node.args) == 2 and not node.keywords:
        for k in (0, 1):
            if facts.number(node.args[k]):
                bound = ast.keyword(BOUNDS[name], node.args[k])
                return ast.Call(_of("torch", "clamp"), [node.args[1 - k]], [bound])
    if name in REDUCING and len(node.args) + len(node.keywords) < 2:
        return ast.Call(_of("torch", name[-3:]), node.args, [])
    if name in ("std", "var") and node.args:  # numpy divides by n unless told otherwise, torch by n - 1
        given = [k.value for k in node.keywords if k.arg == "ddof"] or [ast.Constant(0)]
        kept = _renamed([k for k in node.keywords if k.arg != "ddof"])
        return ast.Call(_of("torch", name), node.args, [*kept, ast.keyword("correction", given[0])])
    if name == "cross" and len(node.args) == 2 and not any((k.arg or "").startswith("axis") for k in node.keywords):
        last = ast.keyword("dim", ast.UnaryOp(ast.USub(), ast.Constant(1)))  # torch takes the first axis of three
        return ast.Call(_of("torch", "cross"), node.args, [*node.keywords, last])
    return (
        None if name not in OF_TENSORS else ast.Call(_of("torch", OF_TENSORS[name]), node.args, _renamed(node.keywords))
    )


def _renamed(keywords: list[ast.keyword]) -> list[ast.keyword]:
    names = {"axis": "dim", "keepdims": "keepdim", "a_min": "min", "a_max": "max"}
    return [ast.keyword(names.get(k.arg or "", k.arg), k.value) for k in keywords]


def _is_numpy(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id in ("np", "numpy")


def _of(module: str, name: str, within: str = "") -> ast.Attribute:
    owner: ast.expr = ast.Name(module, ast.Load())
    return ast.Attribute(ast.Attribute(owner, within, ast.Load()) if within else owner, name, ast.Load())
