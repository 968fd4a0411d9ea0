"""A reward for a user's Gymnasium environment: ``compute_reward(self, ...)`` out of a reply. Nothing is run here."""

from __future__ import annotations

import ast
import re
import textwrap
from dataclasses import dataclass

from envolve.llm.vetting.text.extract import MOST_REPLY, VetError, extract_code, parse

METHOD = "compute_reward"
MEMORY = "reward_memory"  # the one attribute of self that a reward may write to: a dict, emptied at every reset


def extract_method(reply: str) -> str:
    """The Python of ``compute_reward`` and of the helpers and constants that it uses, also out of a class around it.
    Raises VetError("extract")."""
    try:
        return extract_code(reply, [METHOD])
    except VetError as e:
        code = _out_of_a_class(reply) if len(reply) <= MOST_REPLY else None
        if code is not None:
            return extract_code(code, [METHOD])
        message = e.message.replace(f"{METHOD}(state)", f"{METHOD}(self, ...)")  # the arguments of other tasks' rewards
        raise VetError(e.stage, message) from None


def _out_of_a_class(reply: str) -> str | None:
    """Last method of that name as a plain function, without the rest of its class; None without a class."""
    found = list(re.finditer(rf"^[ \t]+def[ \t]+{METHOD}\b", reply, re.MULTILINE))
    if not found or not re.search(r"^[ \t]*class[ \t]+\w+", reply[: found[-1].start()], re.MULTILINE):
        return None
    lines = reply[found[-1].start() :].splitlines()
    depth = len(lines[0]) - len(lines[0].lstrip())
    inside = [bool(re.match(rf"[ \t]{{{depth + 1}}}|[ \t]*$|[ \t]*[)\]]", line)) for line in lines[1:]]
    end = inside.index(False) + 1 if False in inside else len(lines)
    closed = "\n```" if end < len(lines) else ""  # else the reply may have been cut off
    return "```python\n" + textwrap.dedent("\n".join(lines[:end])) + closed


@dataclass(frozen=True)
class StepCall:
    """Call of the reward in the user's ``step``. arguments: of ``self.compute_reward(...)``, as written there."""

    arguments: tuple[str, ...]


def step_call(step: str) -> StepCall | None:
    """Finds ``self.compute_reward(...)`` in the text of step.py; None if it is not there or has no fixed arity."""
    try:
        tree = parse(textwrap.dedent(step))
    except VetError:
        return None
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == METHOD:
            if any(isinstance(a, ast.Starred) for a in node.args) or node.keywords:
                return None
            return StepCall(tuple(ast.unparse(a) for a in node.args))
    return None
