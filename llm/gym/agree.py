"""Do step.py and env.py agree? The model sees the first, its reward is called by the second."""

from __future__ import annotations

import ast
import textwrap

from envolve.llm.gym.reward import METHOD, step_call
from envolve.llm.vetting.text.parsing import VetError, parse


def disagreement(env: str, class_name: str, step: str) -> tuple[str, str]:
    """(why a run cannot begin, what to warn of), texts of env.py and step.py given; each "" if there is nothing.

    A reward written for another call fails in every step, so that is an error. Other differences are told: a text may
    be shortened for the model on purpose. Nothing is said of a class that inherits its step from another file."""
    own = _step_of(env, class_name)
    if own is None:
        return "", ""
    here, there = step_call(step), step_call(ast.unparse(own))
    if there is None and METHOD not in ast.unparse(own):
        return f"{class_name}.step of env.py never calls self.{METHOD}(...)", ""
    if here is not None and there is not None and len(here.arguments) != len(there.arguments):
        return (
            f"step.py calls self.{METHOD}({', '.join(here.arguments)}), but env.py calls it with "
            f"({', '.join(there.arguments)}); a reward for one fails in the other"
        ), ""
    try:
        shown = parse(textwrap.dedent(step))
    except VetError:
        return "", "step.py is no Python, so it cannot be compared with env.py"
    other = next((n for n in ast.walk(shown) if isinstance(n, ast.FunctionDef) and n.name == "step"), None)
    if other is None:
        return "", "step.py has no def step, so it cannot be compared with env.py"
    lines = [ast.unparse(_bare(f)).split("\n") for f in (other, own)]
    for a, b in zip(*lines):
        if a != b:
            return "", f"step.py differs from {class_name}.step: it has {a.strip()[:80]!r}, env.py {b.strip()[:80]!r}"
    if len(lines[0]) != len(lines[1]):
        longer = max(lines, key=len)[min(map(len, lines))].strip()[:80]
        which = ("step.py", "env.py") if len(lines[0]) > len(lines[1]) else ("env.py", "step.py")
        return "", f"step.py differs from {class_name}.step: {longer!r} of {which[0]} is not in {which[1]}"
    return "", ""


def _step_of(env: str, class_name: str) -> ast.FunctionDef | None:
    """The step that the class itself defines; None: it has none here."""
    try:
        tree = parse(env)
    except VetError:
        return None  # importing it says more
    classes = [n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == class_name]
    return next((n for c in classes for n in c.body if isinstance(n, ast.FunctionDef) and n.name == "step"), None)


def _bare(function: ast.FunctionDef) -> ast.FunctionDef:
    """Without documentation and type hints, which mean nothing here."""
    function.returns, function.decorator_list = None, []
    for argument in ast.walk(function.args):
        if isinstance(argument, ast.arg):
            argument.annotation = None
    first = function.body[0]
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and len(function.body) > 1:
        function.body = function.body[1:]
    return function
