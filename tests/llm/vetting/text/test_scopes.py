"""Which names a statement takes from outside: what Python's own symtable says."""

from __future__ import annotations

import ast
import symtable
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envolve.llm.vetting.text.extract import extract, extract_code
from envolve.llm.vetting.text.scopes import outside_names

ROOT = Path(__file__).parents[4]


def by_symtable(code: str) -> set[str]:
    """Of a module of one statement: names that a function, class or comprehension in it looks up globally, and names
    that are read at its top."""
    found: set[str] = set()
    todo = [symtable.symtable(code, "m", "exec")]
    while todo:
        table = todo.pop()
        if table.get_type() == "module":
            found |= {s.get_name() for s in table.get_symbols() if s.is_referenced()}
        else:
            found |= {s.get_name() for s in table.get_symbols() if s.is_global()}
        todo += table.get_children()
    return found


def merged(code: str) -> bool:
    """Whether symtable merges names: from Python 3.12 on, the names of a comprehension outside of functions are put
    into the block around it (PEP 709), and what is read there cannot be told from what is bound in it."""
    todo: list[ast.AST] = [ast.parse(code)] if sys.version_info >= (3, 12) else []
    while todo:
        node = todo.pop()
        if isinstance(node, (ast.ListComp, ast.SetComp, ast.DictComp)):
            return True
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):  # its defaults and decorators are outside
            todo += [*node.decorator_list, *node.args.defaults, *(d for d in node.args.kw_defaults if d is not None)]
        else:
            todo += ast.iter_child_nodes(node)
    return False


def ours(code: str) -> set[str]:
    (statement,) = ast.parse(code).body
    return outside_names(statement)


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("def f(a, *b, c=d, **e):\n    g = a + h\n    return g, b, c, e", "d h"),
        ("def f():\n    x = 1\n    def g():\n        nonlocal x\n        x = y\n    return g", "y"),
        ("def f():\n    global x\n    x = 1", "x"),
        ("def f():\n    x = 1\n    def g():\n        global x\n        return x", "x"),
        ("def f(s):\n    return [a for a in s if b for c in a]", "b"),
        ("f = [x for x in x]", "x"),
        ("def f(s):\n    if (n := len(s)) > 1:\n        return n, [m := k for k in s], m", "len"),
        ("def f():\n    return lambda x, y=z: x + y + w", "z w"),
        ("class C(B):\n    a = 1\n    def f(self):\n        return a + self.b", "B a"),
        ("def f():\n    import a.b as c, d.e\n    from g import h as i\n    return a, c, d, h, i", "a h"),
        ("def f():\n    try:\n        pass\n    except E as e:\n        return e", "E"),
        ("def f(x):\n    match x:\n        case [a, *b] if c: return a, b\n        case {'k': d, **e}: return d, e\n"
         "        case C(g=h) as i: return h, i", "c C"),
        ("def f():\n    for i in range(n):\n        pass\n    with o() as w:\n        del w\n    x += i", "range n o"),
        ("@d(a)\ndef f(x: T = t) -> R:\n    y: U = 1\n    return y", "d a T t R U"),
        ("def f(x):\n    yield from x\n    return f", "f"),
        ("x += 1", "x"),
        ("x = y[z].w = v", "y z v"),
        ("def f():\n    class C:\n        x = 1\n        y = [x for _ in z]\n    return C", "x z"),
        ("async def f(s):\n    return [a async for a in s if await b(a)]", "b"),
    ],
)  # fmt: skip
def test_what_is_a_functions_own(code: str, names: str) -> None:
    assert ours(code) == set(names.split()) | (by_symtable(code) if code.startswith("x +=") else set())
    assert ours(code) >= by_symtable(code) and not (ours(code) - by_symtable(code) - {"x"})


NAMES = st.sampled_from(list("abcdefgh"))


def expressions() -> st.SearchStrategy[str]:
    def larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        pairs = st.tuples(inner, inner)
        return st.one_of(
            pairs.map(lambda p: f"({p[0]} + {p[1]})"),
            st.tuples(NAMES, inner, inner).map(lambda p: f"(lambda {p[0]}, *z, {p[0]}1={p[1]}: {p[2]})"),
            st.tuples(inner, NAMES, inner, inner).map(lambda p: f"[{p[0]} for {p[1]} in {p[2]} if {p[3]}]"),
            st.tuples(inner, NAMES, inner, NAMES, inner).map(
                lambda p: f"{{{p[0]}: {p[1]} for {p[1]} in {p[2]} for {p[3]}2 in {p[4]}}}"
            ),
            st.tuples(inner, NAMES, NAMES).map(lambda p: f"sum(({p[1]}, {p[0]}) for {p[2]}, {p[1]} in {p[0]})"),
            pairs.map(lambda p: f"{p[0]}.x[{p[1]}]"),
            st.tuples(NAMES, inner).map(lambda p: f"f'{{{p[0]}!r}}{{len([{p[1]}])}}'" if "'" not in p[1] else p[0]),
        )

    return st.recursive(NAMES, larger, max_leaves=5)


@st.composite
def statements(draw: st.DrawFn, depth: int = 0, inside: bool = True) -> str:
    """One statement, with others in it; nonlocal and walrus, which may not stand everywhere, in functions alone."""
    e, n = draw(expressions()), draw(NAMES)
    kinds = ["assign", "annotate", "for", "if", "with", "try", "import", "star", "delete", "match"]
    if depth < 3:
        kinds += ["def", "class", "async"] * 2
    if inside:
        kinds += ["return", "walrus", "augment"]
    kind = draw(st.sampled_from(kinds))
    body = ["pass"]
    if kind in ("for", "if", "with", "try", "def", "class", "async", "match") and depth < 4:
        within = kind in ("def", "async") or (inside and kind != "class")
        body = draw(st.lists(statements(depth + 1, within), min_size=1, max_size=3))
        if kind in ("def", "async") and draw(st.booleans()):
            own = draw(st.sampled_from([f"global {n}", "pass"]))
            body = [own, *body]
    inner = "\n".join("    " + line for part in body for line in part.split("\n"))
    return {
        "assign": f"{n} = {draw(NAMES)}.y = {e}",
        "annotate": f"{n}: {draw(NAMES)} = {e}",
        "for": f"for {n}, ({draw(NAMES)}1, *r) in {e}:\n{inner}\nelse:\n    pass",
        "if": f"if {e}:\n{inner}",
        "with": f"with {e} as {n}:\n{inner}",
        "try": f"try:\n{inner}\nexcept {draw(NAMES)} as {n}:\n    pass",
        "import": f"import {n}.x, y as {draw(NAMES)}",
        "star": f"{n}, *{draw(NAMES)} = {e}",
        "delete": f"del {n}1",
        "match": f"match {e}:\n    case [{n}, *_] if {draw(NAMES)}: pass\n    case {{'k': {n}1, **{n}2}}: pass\n"
        f"    case {draw(NAMES)}.x as {n}: pass",
        "return": f"return {e}",
        "walrus": f"print({n} := {e})",
        "augment": f"{n} += {e}",
        "def": f"@{draw(NAMES)}\ndef {n}(p, {draw(NAMES)}=({e}), *args, q: {draw(NAMES)} = 1, **kw) -> {n}:\n{inner}",
        "async": f"async def {n}({draw(NAMES)}):\n{inner}",
        "class": f"class {n}({draw(NAMES)}, k={e}):\n{inner}",
    }[kind]


def check_random_statements(count: int) -> None:
    read = []

    @settings(max_examples=count, deadline=None, database=None)
    @given(statements(inside=False))
    def check(code: str) -> None:
        try:
            expected = by_symtable(code)
        except SyntaxError:  # a name that is global after it was used, and the like
            return
        if merged(code):
            return
        assert ours(code) == expected
        read.append(code)

    check()
    assert len(read) > count / 3


def test_any_statement_is_read_as_python_reads_it() -> None:
    check_random_statements(40)


@pytest.mark.slow
def test_thousands_of_statements_are_read_as_python_reads_them() -> None:
    check_random_statements(3000)


def test_this_projects_own_code_is_read_as_python_reads_it() -> None:
    count = 0
    for path in [*(ROOT / "llm" / "vetting").rglob("*.py"), *(ROOT / "envs" / "graph").glob("*.py")]:
        text = path.read_text()
        for node in ast.parse(text).body:
            code = ast.unparse(node)
            if isinstance(node, ast.AugAssign) or "__" in code.replace("__init__", ""):  # mangled in classes
                continue
            if isinstance(node, ast.ClassDef) and "super()" in code:  # has __class__
                continue
            if merged(code):
                continue
            assert ours(code) == by_symtable(code), f"{path}: {code[:80]}"
            count += 1
    assert count > 300


@pytest.mark.skipif(sys.version_info < (3, 12), reason="type parameters came with Python 3.12")
def test_type_parameters_are_a_functions_own() -> None:
    assert ours("def f[T: B](x: T) -> U:\n    return T, V") == {"B", "U", "V"}
    assert ours("class C[T](D[T]):\n    x: T") == {"D"}


def test_a_functions_locals_take_nothing_from_other_blocks() -> None:
    """A snippet above that happens to use the same names is no part of the module."""
    reply = (
        "For example:\n```python\nreward = state['x']\nspeed = state['v']\ni = 3\nx = reward\n```\nSo:\n```python\n"
        "def compute_reward(state):\n    reward = state['v']\n    for i in range(3):\n        reward = reward + i\n"
        "    return sum([reward for x in range(2)])\n```"
    )
    code, notes = extract(reply, ("compute_reward",))
    assert [type(n).__name__ for n in ast.parse(code).body] == ["FunctionDef"] and notes == ()


def test_what_a_function_does_take_from_another_block_is_kept() -> None:
    above, function = "SCALE = 2.0\nmax = 3", "def compute_reward(state):\n    return max(SCALE, 1)"
    code = extract_code(f"```python\n{above}\n```\nand\n```python\n{function}\n```", ("compute_reward",))
    assert code.startswith("SCALE = 2.0\n") and "max = 3" not in code  # what Python has is Python's in another block
    own = "```python\ndef max(a, b):\n    return a\n\ndef compute_reward(state):\n    return max(state['x'], 1)\n```"
    assert "def max" in extract_code(own, ("compute_reward",))
