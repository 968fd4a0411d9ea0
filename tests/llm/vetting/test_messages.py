"""Refusals in words that somebody knows who writes Python: the line, what is wrong, what to write. No names of our own
syntax tree, and the right advice."""

from __future__ import annotations

import ast
import re

import pytest

from envolve.llm.gym.allowlist import check_method
from envolve.llm.vetting.allow.allowed_names import INSTEAD, INSTEAD_OF_ATTRIBUTES, METHODS, PROPERTIES, TORCH
from envolve.llm.vetting.allow.allowed_syntax import ALLOWED, PARTS, REFUSED
from envolve.llm.vetting.allow.allowlist import check_source
from envolve.llm.vetting.text.extract import VetError

EVERYTHING = """
with open(a) as b, c: pass
async def f(x):
    async with a as b: pass
    async for c in d: pass
    await e
    return [a async for a in b]
def g(*a, b=1, **c) -> d:
    yield a
    yield from b
    global h
    raise i from j
def k():
    x = 1
    def m():
        nonlocal x
        del x
    return f'{a!r:>{b}} {c}', {*d}, {e for e in f}, (g for g in h), [*i], lambda j: j, (n := 1), a if b else c
match a:
    case 1 | None | [b, *c] | {'d': e, **f} | C(g, h=i) | (j as k): pass
    case x.y: pass
    case _: pass
try: pass
except (A, B) as c: pass
except D: pass
else: pass
finally: pass
while a: break
else: pass
for a, (b, *c) in d: continue
class E(F, metaclass=G):
    h: int = 1
assert a, b
a << b >> c
a @ b // c % d ** e & f | g ^ ~h
not a and b or c
a < b <= c != d is e is not f in g not in h
import a.b as c, d
from . import e
from f import *
a[1:2, ..., None]
a.b.c = d
a += 1
a: int
b'a', 1j, 'a' 'b', True
@a
def n(x, /, y, *, z): pass
"""
NEWER = """
try: pass
except* A as b: pass
type X[T] = list[T]
def f[T: int, *U, **V](x): pass
t'{a}'
"""
PUBLIC = [name for name in dir(ast) if not name.startswith("_")]  # Python 3.12 keeps old names with an underscore
SYNTAX = {name for name in PUBLIC if isinstance(getattr(ast, name), type) and issubclass(getattr(ast, name), ast.AST)}
OWN_WORDS = {name for name in SYNTAX if re.search(r"[a-z][A-Z]|_", name)} | {"withitem", "excepthandler"}
WORD = re.compile(r"[A-Za-z_]+")


def refusals(code: str) -> list[str]:
    """Of both allow-lists, a line each."""
    said = []
    for check in (lambda: check_source(code, ("compute_reward",)), lambda: check_method(code)):
        try:
            check()
        except VetError as e:
            said += e.message.split("\n")
    return said


def statements() -> list[str]:
    """Of EVERYTHING and of what newer Pythons have, one by one: no problem hides another."""
    found = [ast.unparse(n) for n in ast.parse(EVERYTHING).body]
    for text in re.split(r"\n(?=[a-z])(?!except)", NEWER.strip()):
        try:
            found.append(ast.unparse(ast.parse(text)))
        except SyntaxError:  # an older Python
            continue
    return found


def test_no_refusal_has_the_syntax_trees_names() -> None:
    assert {type(n).__name__ for n in ast.walk(ast.parse(EVERYTHING))} >= {"FormattedValue", "withitem", "MatchStar"}
    for statement in statements():
        inside = (
            "def compute_reward(self, state):\n"
            + "\n".join("    " + line for line in statement.split("\n"))
            + "\n    return state\n"
        )
        for code in (statement + "\ndef compute_reward(self, state):\n    return state\n", inside):
            for line in refusals(code):
                assert not OWN_WORDS & {*WORD.findall(line), *WORD.findall(line.lower())} - {"is_not"}, line


def test_every_refusal_of_syntax_has_a_line_and_a_mend() -> None:
    for statement in statements():
        code = "def compute_reward(self, state):\n    x = 1\n" + "\n".join("    " + x for x in statement.split("\n"))
        for line in refusals(code + "\n    return state\n"):
            assert re.match(r"line \d+: |and \d+ more", line), line
            if "is not allowed" in line and "more" not in line:
                assert re.search("is not allowed[;:] ", line), line


def test_there_is_a_word_for_all_syntax() -> None:
    """Of this Python, and of those to come as far as they are known."""
    for name in SYNTAX:
        kind = getattr(ast, name)
        real = issubclass(kind, (ast.stmt, ast.expr, ast.operator)) and kind not in (ast.stmt, ast.expr, ast.operator)
        if real and not kind.__module__.startswith("_ast_") and name not in {"Num", "Str", "Bytes", "NameConstant"}:
            known = name in ALLOWED or name in REFUSED or name in PARTS
            assert known or name in ("Ellipsis", "AugLoad", "AugStore", "Param", "Index", "ExtSlice"), name
    assert not set(PARTS) & set(REFUSED)


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("state['x'].type(torch.float32)", "'.type' is not allowed; write x.float()"),
        ("state['x'].astype(float)", "write x.float()"),
        ("type(state)", "'type' is not allowed; leave it out: x.float()"),
        ("state['x'].half()", "write x.float()"),
        ("state['x'].cumsum(0)", "its order of summing is not fixed"),
        ("torch.type(state)", "'torch.type' is not allowed; write x.float()"),
        ("hasattr(state, 'x')", "code computes with tensors and looks at nothing else"),
        ("state['x'].map(f)", "'.map' is not allowed"),
        ("state['x'].eval()", "'.eval' is not allowed"),
        ("9 ** 9 ** 9 ** 9", "a power of this size is not allowed"),
        ("torch.zeros(10 ** 400)", "is not allowed"),
        ("torch.zeros(1" + "0" * 400 + ")", "the number of over 300 digits is too large"),
        ("1" + "0" * 400, "is too large"),
    ],
)
def test_advice_is_for_what_was_written(expression: str, said: str) -> None:
    (line, *_) = refusals(f"def compute_reward(state):\n    return {expression}\n")
    assert said in line and "candidates look at" not in line


def test_advice_never_names_what_is_refused_itself() -> None:
    for name, advice in {**INSTEAD, **INSTEAD_OF_ATTRIBUTES}.items():
        for called in re.findall(r"torch\.(\w+)", advice):
            assert called in TORCH | {"float32", "Tensor"}, (name, advice)
        for method in re.findall(r"\bx\.(\w+)\(", advice):
            assert method in METHODS, (name, advice)
    assert not INSTEAD_OF_ATTRIBUTES.keys() & (METHODS | PROPERTIES) - {"normal"}


def test_names_of_any_length_make_short_messages() -> None:
    long = "a" * 30_000
    for code in (
        f"    return {long}",
        f"    return state.{long}",
        f"    return torch.{long}(1)",
        f"    {long}_ = 1",
        f"    state.{long} = 1",
        f"    return f({long}=1, out={long})",
        f"    import {long}",
    ):
        for line in refusals(f"def compute_reward(state):\n{code}\n"):
            assert len(line) < 400, line[:200]
