"""A reward for a user's Gymnasium environment: ``compute_reward(self, ...)`` out of a reply. Nothing is run here."""

from __future__ import annotations

import ast
import re
import textwrap
from dataclasses import dataclass

MAX_CODE = 32_768
METHOD = "compute_reward"
MEMORY = "reward_memory"  # the one attribute of self that a reward may write to: a dict, emptied at every reset

_FENCE = re.compile(r"^[ \t]*(```+|~~~+)[ \t]*([\w+-]*)[^\n]*$", re.MULTILINE)


class RewardError(Exception):
    """The reply has no reward that may be run. stage: ``extract`` or ``allowlist``; message: what the model is told."""

    def __init__(self, stage: str, message: str) -> None:
        self.stage, self.message = stage, message
        super().__init__(f"{stage}: {message}")


# ----------------------------------------------------------------------------------------------------------- extraction


def extract_method(reply: str) -> str:
    """The Python of ``compute_reward`` and of the helpers and constants beside it. Raises RewardError("extract").

    Of several fenced blocks the last with the method counts; without fences the reply is searched for it. A class
    around it, imports and other methods are left away.
    """
    if len(reply) > 40 * MAX_CODE:
        raise RewardError("extract", "the reply is too long; answer with one method")
    blocks, open_at_end = _blocks(reply.replace("\r\n", "\n"))
    problems = []
    for i, block in reversed(list(enumerate(blocks))):
        if not re.search(rf"\bdef[ \t]+{METHOD}\b", block):
            continue
        try:
            tree = parse(block)
        except SyntaxError as e:
            last = open_at_end and i == len(blocks) - 1
            cut = "; the reply ends in the middle of it: answer more briefly" if last else ""
            problems.append(f"line {e.lineno}: {e.msg}: {(e.text or '').strip()[:120]!r}{cut}")
            continue
        code = _with_method(block, tree)
        if code:
            if len(code) > MAX_CODE:
                raise RewardError("extract", f"the code has {len(code)} characters, expected at most {MAX_CODE}")
            return code
    if problems:
        raise RewardError("extract", f"the code is no valid Python: {problems[0]}")
    found = f"{len(blocks)} code block{'s' * (len(blocks) != 1)} without it" if blocks else "no code"
    raise RewardError("extract", f"found {found}, expected one ```python block with def {METHOD}(self, ...)")


def _blocks(reply: str) -> tuple[list[str], bool]:
    """-> what stands between fences (without any: from the method on), and whether the last one is not closed."""
    blocks: list[str] = []
    fence, start = "", 0
    for mark in _FENCE.finditer(reply):
        if not fence:
            fence, start = mark[1], mark.end() + 1
        elif mark[1].startswith(fence) and not mark[2]:
            blocks.append(textwrap.dedent(reply[start : mark.start()]))
            fence = ""
    if fence:
        blocks.append(textwrap.dedent(reply[start:]))
    if not blocks:
        found = re.search(rf"^[ \t]*def[ \t]+{METHOD}\b", reply, re.MULTILINE)
        if found:
            blocks.append(_indented(textwrap.dedent(reply[found.start() :])))
    return blocks, bool(fence)


def _indented(text: str) -> str:
    """The first line and what is indented below it: prose after a function without fences is not part of it."""
    lines = text.splitlines()
    end = next((i for i, line in enumerate(lines[1:], 1) if line.strip() and line[0] not in " \t)"), len(lines))
    return "\n".join(lines[:end])


def parse(code: str) -> ast.Module:
    try:
        return ast.parse(code)
    except (ValueError, RecursionError, MemoryError) as e:  # null bytes; nesting deeper than the parser's stack
        raise SyntaxError(str(e) or "too deeply nested") from None


def _with_method(block: str, tree: ast.Module) -> str:
    body: list[ast.stmt] = []
    for node in tree.body:
        inside = node.body if isinstance(node, ast.ClassDef) else []
        method = [n for n in inside if isinstance(n, ast.FunctionDef) and n.name == METHOD]
        body += method or [node]
    if not any(isinstance(n, ast.FunctionDef) and n.name == METHOD for n in body):
        return ""
    kept = [n for n in body if isinstance(n, (ast.FunctionDef, ast.Assign, ast.AnnAssign)) or unknown_import(n)]
    lines = block.splitlines()
    parts = [textwrap.dedent("\n".join(lines[n.lineno - 1 : n.end_lineno])) for n in kept]
    return "\n\n\n".join(parts) + "\n"


def unknown_import(node: ast.stmt) -> bool:
    """Imports of numpy, math and typing are taken away; any other is kept, for the allow-list to name it."""
    if isinstance(node, ast.Import):
        return any(a.name not in ("numpy", "math") or a.asname not in (None, "np") for a in node.names)
    if isinstance(node, ast.ImportFrom):
        return node.module not in ("typing", "__future__", "collections.abc")
    return False


@dataclass(frozen=True)
class StepCall:
    """How the user's ``step`` calls the reward. arguments: of ``self.compute_reward(...)``, as written there."""

    arguments: tuple[str, ...]


def step_call(step: str) -> StepCall | None:
    """Finds ``self.compute_reward(...)`` in the text of step.py; None if it is not there or has no fixed arity."""
    try:
        tree = parse(textwrap.dedent(step))
    except SyntaxError:
        return None
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == METHOD:
            if any(isinstance(a, ast.Starred) for a in node.args) or node.keywords:
                return None
            return StepCall(tuple(ast.unparse(a) for a in node.args))
    return None
