"""``functools.reduce`` as the sums and nested calls that it stands for."""

from __future__ import annotations

import ast
import copy

from envolve.llm.vetting.normal.facts import Facts

ADDS = ("add", "operator.add", "torch.add")
TWO = {"operator.mul": ast.Mult, "mul": ast.Mult, "operator.and_": ast.BitAnd, "operator.or_": ast.BitOr}
MOST_NESTED = 32  # elements of a list that is written out


def folded(node: ast.Call, facts: Facts) -> ast.expr | None:
    """reduce(add, terms) -> sum(terms); reduce(torch.minimum, [a, b, c]) -> torch.minimum(torch.minimum(a, b), c);
    None: it is another call, or one that a for loop has to say."""
    name = ast.unparse(node.func) if isinstance(node.func, (ast.Name, ast.Attribute)) else ""
    source = facts.imported.get(name.split(".")[0], "")
    known = source in ("functools.reduce", "functools") and name.split(".")[-1] == "reduce" or name == "reduce"
    if not known or "reduce" in facts.functions or node.keywords or not 2 <= len(node.args) <= 3:
        return None
    function, values, start = node.args[0], node.args[1], node.args[2:]
    adds = _adds(function, facts)
    if adds and start:
        return ast.Call(ast.Name("sum", ast.Load()), [values, *start], [])
    if adds and _again(values):  # sum begins with 0, and 0 plus a truth value is a number
        listed = ast.Call(ast.Name("list", ast.Load()), [values], [])
        first = ast.Subscript(listed, ast.Constant(0), ast.Load())
        rest = ast.Subscript(copy.deepcopy(listed), ast.Slice(ast.Constant(1)), ast.Load())
        return ast.Call(ast.Name("sum", ast.Load()), [rest, first], [])
    if not isinstance(values, (ast.List, ast.Tuple)) or not 0 < len(values.elts) <= MOST_NESTED:
        return None
    elements = [*start, *values.elts]
    if any(isinstance(e, ast.Starred) for e in elements):
        return None
    total = elements[0]
    for element in elements[1:]:
        made = ast.BinOp(total, ast.Add(), element) if adds else _applied(function, total, element, facts)
        if made is None:
            return None
        total = made
    return total


def _again(values: ast.expr) -> bool:
    """Whether this can be evaluated twice: a name, or the values of a dict with one."""
    if isinstance(values, ast.Call) and isinstance(values.func, ast.Attribute) and values.func.attr == "values":
        return not values.args and not values.keywords and isinstance(values.func.value, ast.Name)
    return isinstance(values, ast.Name)


def _known(function: ast.expr, facts: Facts) -> str:
    """Name of a function of a module; "" for an own one, whatever it is called."""
    text = ast.unparse(function) if isinstance(function, (ast.Name, ast.Attribute)) else ""
    return "" if text.split(".")[0] in facts.bound else text


def _adds(function: ast.expr, facts: Facts) -> bool:
    if isinstance(function, (ast.Name, ast.Attribute)):
        return _known(function, facts) in ADDS
    names = _arguments(function)
    body = getattr(function, "body", None)
    return (
        names is not None
        and isinstance(body, ast.BinOp)
        and isinstance(body.op, ast.Add)
        and ([getattr(side, "id", "") for side in (body.left, body.right)] == names)
    )


def _arguments(function: ast.expr) -> list[str] | None:
    """Names of the two arguments of a lambda that has no others."""
    if not isinstance(function, ast.Lambda):
        return None
    a = function.args
    plain = not (a.posonlyargs or a.kwonlyargs or a.vararg or a.kwarg or a.defaults)
    return [x.arg for x in a.args] if plain and len(a.args) == 2 else None


def _applied(function: ast.expr, left: ast.expr, right: ast.expr, facts: Facts) -> ast.expr | None:
    """The function of these two."""
    names = _arguments(function)
    if names is not None and isinstance(function, ast.Lambda):
        uses = [n.id for n in ast.walk(function.body) if isinstance(n, ast.Name)]
        if any(uses.count(name) > 1 for name in names):  # written out, an element would be computed again
            return None
        return _Put(dict(zip(names, (left, right)))).visit(copy.deepcopy(function.body))
    if (text := _known(function, facts)) in TWO:
        return ast.BinOp(left, TWO[text](), right)
    called = isinstance(function, (ast.Name, ast.Attribute))
    return ast.Call(copy.deepcopy(function), [left, right], []) if called else None


class _Put(ast.NodeTransformer):
    """Expressions in the place of names."""

    def __init__(self, values: dict[str, ast.expr]) -> None:
        self.values = values

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self.values.get(node.id, node)
