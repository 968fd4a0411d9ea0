"""Whether a function can change the object behind one of its names. A default argument that is an object lives from one
call to the next, so it may become a fresh one only where nothing changes it."""

from __future__ import annotations

import ast
from collections.abc import Mapping

READING = ("get", "items", "keys", "values")  # methods that change nothing
BUILT_IN = ("len", "sum", "min", "max", "abs", "float", "int", "bool", "zip", "enumerate", "range", "sorted")
OPERATORS = (ast.BinOp, ast.UnaryOp, ast.Compare, ast.BoolOp)


Parents = Mapping[int, ast.AST]  # by the id of a node


def parents_of(tree: ast.AST) -> Parents:
    """Parent of every node of a syntax tree."""
    return {id(child): node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}


def only_read(f: ast.FunctionDef, name: str, parents: Parents | None = None) -> bool:
    """True if every use of the name is one that changes nothing and makes no second name for the object: a subscript
    that is read, an operator, a loop over it, a method of ``READING``, an argument of torch or of ``BUILT_IN``.
    parents: of the tree that the function stands in, if they are known."""
    parents = parents_of(f) if parents is None else parents
    body = [node for statement in f.body for node in ast.walk(statement)]
    uses = [node for node in body if isinstance(node, ast.Name) and node.id == name]
    return all(isinstance(use.ctx, ast.Load) and _reads(use, parents) for use in uses)


def _reads(use: ast.Name, parents: Parents) -> bool:
    parent = parents.get(id(use))
    if isinstance(parent, ast.Subscript) and parent.value is use:
        return isinstance(parent.ctx, ast.Load) and _plain(parent, parents)
    if isinstance(parent, ast.Attribute):
        call = parents.get(id(parent))
        if isinstance(call, ast.Call) and call.func is parent:
            return parent.attr in READING
        return isinstance(parent.ctx, ast.Load) and _plain(parent, parents)
    if isinstance(parent, (ast.For, ast.comprehension)):
        return parent.iter is use
    if isinstance(parent, ast.Call) and use in parent.args:
        torchs = isinstance(parent.func, ast.Attribute) and not parent.func.attr.endswith("_")
        root = parent.func.value if isinstance(parent.func, ast.Attribute) else parent.func
        while isinstance(root, ast.Attribute):
            root = root.value
        known = isinstance(root, ast.Name) and (torchs and root.id == "torch" or root.id in BUILT_IN)
        return known and not any(keyword.arg == "out" for keyword in parent.keywords)
    return isinstance(parent, OPERATORS)


def _plain(read: ast.Subscript | ast.Attribute, parents: Parents) -> bool:
    """Whether what was read from an object is itself only computed with: w["a"].append(1) changes it, too."""
    parent = parents.get(id(read))
    return not isinstance(parent, (ast.Attribute, ast.Subscript)) and not (
        isinstance(parent, ast.AugAssign) and parent.target is read
    )
