"""What candidate code may change in place: nothing that outlives the call."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from envolve.llm.vetting.allow.table import Owner


def inside_of_functions(tree: ast.Module) -> Owner:
    """All but names outside of functions: otherwise a call would depend on those before."""
    top = [n for n in tree.body if not isinstance(n, ast.FunctionDef)]
    outside = {n.id for t in top for n in ast.walk(t) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    local = {id(n) for t in top for n in ast.walk(t)}  # uses of names that are variables of their function
    for function in _outermost(tree):
        inside = list(ast.walk(function))
        own = {n.id for n in inside if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        own |= {n.arg for n in inside if isinstance(n, ast.arg)}
        local |= {id(n) for n in inside if isinstance(n, ast.Name) and n.id in own}

    def why(node: ast.AST, what: str) -> str | None:
        while isinstance(node, ast.Subscript):
            node = node.value
        if isinstance(node, ast.Name) and node.id in outside and id(node) not in local:
            return f"{node.id!r} is outside of the function and may not be changed; make a new variable"
        return None

    return why


def _outermost(tree: ast.Module) -> Iterator[ast.FunctionDef]:
    """The functions that are in no other function."""
    todo: list[ast.AST] = [tree]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.FunctionDef):
            yield node
        else:
            todo += ast.iter_child_nodes(node)
