"""Replies that nobody would write but to stall who reads them: families of any length, one idea each."""

from __future__ import annotations

import itertools
import string
from collections.abc import Callable, Iterator

Family = Callable[[int], str]
HEAD = "def compute_reward(state):\n"
NAMES = ["".join(letters) for letters in itertools.product(string.ascii_lowercase, repeat=3)]


def fenced(code: str) -> str:
    return f"```python\n{code}\n```\n"


def full(unit: str, length: int) -> str:
    """The text again and again, up to this length, in whole pieces."""
    return unit * max(1, length // len(unit))


def counted(unit: str, length: int) -> str:
    """``unit`` with 0, 1, 2 ... for its {i}, up to this length."""
    out: list[str] = []
    size = 0
    for i in itertools.count():
        piece = unit.replace("{i}", str(i))
        size += len(piece)
        if size > length:
            return "".join(out)
        out.append(piece)
    raise AssertionError


def function(*lines: str) -> str:
    return HEAD + "".join(f"    {line}\n" for line in lines)


def nested(before: str, inside: str, after: str, depth: int) -> str:
    return before * depth + inside + after * depth


def deep_blocks(length: int, head: str) -> str:
    """Statements in statements, as deep as the length allows: every level is indented by one more."""
    depth = 1
    while depth * (depth + 2 * len(head)) / 2 < length:
        depth += 1
    return "".join(" " * k + head.replace("{i}", str(k)) + "\n" for k in range(depth)) + " " * depth + "pass\n"


def shaken(length: int) -> str:
    """Many names, none of which is defined and all of which resemble what is."""
    arguments = [f"value_{name}" for name in NAMES[: length // 40]]
    unknown = [f"valeu_{name}" for name in NAMES[: length // 60]]
    return f"def compute_reward(state, {', '.join(arguments)}):\n    return {' + '.join(unknown)}\n"


def families() -> Iterator[tuple[str, Family]]:
    """Names, and what makes a reply of about so many characters."""
    for name, family in _of_code():
        yield name, lambda n, family=family: fenced(family(n))
    yield from _of_replies()


def _of_code() -> Iterator[tuple[str, Family]]:
    for kind, (a, b) in {"round": "()", "square": "[]", "curly": "{}"}.items():
        yield f"{kind} brackets, closed", lambda n, a=a, b=b: function("return " + nested(a, "1", b, n // 2))
        yield f"{kind} brackets, open", lambda n, a=a: function("return " + a * n)
        yield f"{kind} brackets, 90 deep", lambda n, a=a, b=b: HEAD + full(f"    x = {nested(a, '1', b, 90)}\n", n)
        yield f"{kind} brackets, 90 open", lambda n, a=a: HEAD + full("    x = 1\n", n - 99) + f"    x = {a * 90}\n"
    yield "mixed brackets", lambda n: function("return " + nested("f([{a:", "1", "}])", min(60, n // 9))) * (n // 800)
    yield "a dict in a dict", lambda n: function("return " + nested("{1:", "1", "}", 90)) + "x = {1:" * 90
    yield "a lambda in a lambda", lambda n: function("return " + "lambda:" * (n // 7) + "1")
    yield "lambdas in brackets", lambda n: function("return " + nested("(lambda a=", "1", ":1)", min(90, n // 14)))
    yield "lambdas beside one another", lambda n: function("return [" + full("lambda a:a,", n) + "]")
    yield "calls of calls", lambda n: function("return " + "f" + "()" * (n // 2))
    yield "arguments of arguments", lambda n: function("return " + nested("f(", "1", ")", n // 3))
    yield "subscripts of subscripts", lambda n: function("return x" + "[0]" * (n // 3))
    yield "attributes of attributes", lambda n: function("return x" + ".a" * (n // 2))
    yield "900 attributes, often", lambda n: HEAD + full("    x" + ".ab" * 900 + ".y = 1\n", n)
    yield "methods of methods", lambda n: function("return x" + ".sun()" * (n // 6))
    yield "a sum", lambda n: function("return 1" + "+1" * (n // 2))
    yield "sums", lambda n: HEAD + full("    x = 1" + "+1" * 80 + "\n", n)
    yield "powers", lambda n: function("return 2" + "**2" * (n // 3))
    yield "900 powers", lambda n: HEAD + full("    x = 2" + "**2" * 400 + "\n", n)
    yield "repeated lists", lambda n: function("return " + nested("[0]*(", "2", ")", min(90, n // 6)))
    yield "comparisons", lambda n: function("return 1" + "<1" * (n // 2))
    yield "signs", lambda n: function("return " + "-" * n + "1")
    yield "nots", lambda n: function("return " + "not " * (n // 4) + "1")
    yield "ands", lambda n: function("return 1" + " and 1" * (n // 6))
    yield "ternaries", lambda n: function("return " + "1 if x else " * (n // 12) + "1")
    yield "if and elif", lambda n: HEAD + "    if x:\n        y = 1\n" + full("    elif x:\n        y = 1\n", n)
    yield "if in if", lambda n: HEAD + deep_blocks(n, "if 1:").replace("\n", "\n ")
    yield "def in def", lambda n: deep_blocks(n, "def f{i}(x):")
    yield "class in class", lambda n: deep_blocks(n, "class C{i}:")
    yield "99 levels, often", lambda n: full(deep_blocks(6_000, "if 1:"), n)
    yield "class in class beside a function", lambda n: HEAD + " return 1\n" + full(deep_blocks(6_000, "class C:"), n)
    yield "with in brackets", lambda n: function("with (" + "a, " * (n // 3) + "b): pass")
    yield "with in many brackets", lambda n: function("with " + nested("(", "a", ")", 90) + " as b: pass")
    yield "comprehensions", lambda n: function("return " + nested("[x for x in ", "y", "]", min(90, n // 14)))
    yield "fors in a comprehension", lambda n: function("return [x" + " for x in y" * (n // 11) + "]")
    yield "one line of assignments", lambda n: "x=0;" * (n // 4) + "\n" + HEAD + " return x\n"
    yield (
        "assignments to a thousand names",
        lambda n: (
            "".join(f"{a}=" for a in NAMES[:1000])
            + "+".join(NAMES[:1000])
            + "\n"
            + HEAD
            + " return "
            + "+".join(NAMES[:1000])
            + "\n"
            + full("#\n", n // 9)
        ),
    )
    yield "a chain of targets", lambda n: function("x=" * (n // 2) + "1")
    yield (
        "names that need one another",
        lambda n: "".join(f"{a} = [{', '.join(NAMES[:90])}]\n" for a in NAMES[: n // 500]) + HEAD + " return aaa\n",
    )
    yield "expressions alone", lambda n: full("a\n", n) + HEAD + " return 1\n"
    yield (
        "constants, all used",
        lambda n: counted("a{i}=0\n", n // 2) + HEAD + " return [" + counted("a{i},", n // 3) + "]\n",
    )
    yield "constants of one name", lambda n: full("a=0\n", n) + HEAD + " return a\n"
    yield "functions of the asked name", lambda n: full(HEAD + " return a\n", n)
    yield "helpers of one name", lambda n: full("def f(x):\n return f(x)\n", n) + HEAD + " return f(1)\n"
    yield (
        "helpers that call the next",
        lambda n: counted("def f{i}(x):\n return f{i}1(x)\n", n) + HEAD + " return f0(1)\n",
    )
    yield "functions of other names", lambda n: counted("def compute_rewart_{i}(s):\n return s\n", n)
    yield (
        "functions beside it",
        lambda n: HEAD + " return 1\n" + counted("def compute_observatiom_{i}(s):\n return s\n", n),
    )
    yield "a function with a long name", lambda n: f"def compute_rewar{'d' * n}(s):\n return s\n"
    yield (
        "a hundred long names",
        lambda n: "".join(f"def {'compute_reward' * (n // 1600)}{i}(s):\n return s\n" for i in range(99)),
    )
    yield "unknown names like arguments", shaken
    yield "unknown names", lambda n: HEAD + counted("    x{i} = y{i}\n", n)
    yield "long unknown names", lambda n: HEAD + "".join(f"    x = {'state' * (n // 500)}{i}\n" for i in range(90))
    yield "unknown attributes", lambda n: HEAD + counted("    x = state.meam{i}(1)\n", n)
    yield "unknown functions of torch", lambda n: HEAD + counted("    x = torch.sqtr{i}(1)\n", n)
    yield "arguments", lambda n: f"def compute_reward({counted('a{i}, ', n)}b):\n    return b\n"
    yield "arguments of a call", lambda n: function(f"return f({counted('a{i}=1, ', n)}b=1)")
    yield "default values", lambda n: f"def compute_reward({counted('a{i}=(1,2), ', n)}b=1):\n    return b\n"
    yield "annotations", lambda n: f"def compute_reward({counted('a{i}: Dict[str, Dict], ', n)}b):\n    return b\n"
    yield "decorators", lambda n: full("@a\n", n) + HEAD + " return 1\n"
    yield "harmless decorators", lambda n: full("@torch.jit.script\n", n) + HEAD + " return 1\n"
    yield (
        "decorators on many",
        lambda n: full("@torch.jit.script\n@b(1+2)\ndef f(x): return x\n", n) + HEAD + " return f(1)\n",
    )
    yield "imports", lambda n: full("import torch\n", n) + HEAD + " return torch.ones(3)\n"
    yield "imports of much", lambda n: "from torch import " + counted("a{i}, ", n) + "b\n" + HEAD + " return a1\n"
    yield "a long string", lambda n: function(f"x = '{'a' * n}'", "return x")
    yield "a long string without end", lambda n: function(f"x = '{'a' * n}")
    yield "quotes", lambda n: function("x = " + "'" * n)
    yield "strings beside one another", lambda n: function("x = " + "'a' " * (n // 4))
    yield "triple quotes without end", lambda n: function("x = '''" + "\\'''" * (n // 4))
    yield (
        "a docstring with fences",
        lambda n: HEAD + '    """\n' + full("~~~\ncode\n~~~\n", n) + '    """\n    return 1\n',
    )
    yield "f-strings", lambda n: function("x = f'" + "{a}" * (n // 3) + "'", "return x")
    yield "f-strings in f-strings", lambda n: HEAD + full("    x = f'{f\"{a}\"}'\n", n) + "    return x\n"
    yield "an f-string with a sum", lambda n: function("x = f'{" + "a+" * (n // 2) + "a}'")
    yield "a huge integer", lambda n: function("return " + "9" * n)
    yield "a huge hexadecimal integer", lambda n: function("return 0x" + "f" * n)
    yield "many huge integers", lambda n: HEAD + full("    x = " + "9" * 4000 + "\n", n)
    yield "a long name", lambda n: function("return " + "a" * n)
    yield "a dict", lambda n: function("return {" + "1:1," * (n // 4) + "}")
    yield "a list", lambda n: function("return [" + "1," * (n // 2) + "]")
    yield "a list of names", lambda n: function("return [" + counted("a{i},", n) + "]")
    yield "stars", lambda n: function("return [" + "*a," * (n // 3) + "]")
    yield "walruses", lambda n: function("return [" + "(a:=1)," * (n // 7) + "]")
    yield "backslashes", lambda n: function("return 1" + " \\\n" * (n // 3))
    yield "backslashes and sums", lambda n: function("return 1" + " + \\\n 1" * min(80, n // 6))
    yield "comments", lambda n: HEAD + full("    # x\n", n) + "    return 1\n"
    yield "one long comment", lambda n: HEAD + "    #" + "#" * n + "\n    return 1\n"
    yield "comments at the top", lambda n: full("# x\n", n) + HEAD + "    return 1\n" + full("# y\n", n // 9)
    yield "blank lines", lambda n: HEAD + "\n" * n + "    return 1\n"
    yield "blanks", lambda n: HEAD + " " * n + "return 1\n"
    yield "blanks within a line", lambda n: function("return" + " " * n + "1")
    yield "tabs and blanks", lambda n: HEAD + full("\t x = 1\n        x = 1\n", n)
    yield "null bytes", lambda n: function("return " + "\0" * n)
    yield "look-alikes", lambda n: function("return " + "\u0430" * (n // 2) + " \u2212 1" * (n // 8))
    yield "combining characters", lambda n: function("return a" + "\u0301" * n)
    yield "compatibility characters", lambda n: function("return " + "\ufb01" * n)
    yield "letters that grow when normalised", lambda n: function("return [" + "\ufdfa," * (n // 2) + "]")
    yield "match", lambda n: HEAD + "    match state:\n" + full("        case [a, {'b': c}, *_] if d: pass\n", n)
    yield (
        "patterns of patterns",
        lambda n: HEAD + "    match state:\n        case " + nested("[", "a", "]", 90) + ": pass\n",
    )
    yield "try", lambda n: HEAD + full("    try: pass\n    except A as b: pass\n    finally: pass\n", n)
    yield "type hints", lambda n: HEAD + full("    x: Dict[str, 'a'] = 1\n", n) + "    return x\n"
    yield "global", lambda n: HEAD + "    global " + counted("a{i}, ", n) + "b\n    return b\n"
    yield "semicolons", lambda n: function("return 1" + ";" * n)
    yield "commas", lambda n: function("return " + "," * n)
    yield "dots", lambda n: function("return " + "." * n)
    yield "colons", lambda n: function("return x[" + ":" * n + "]")
    yield "ats", lambda n: "@" * n + "\n" + HEAD
    loops = "".join(" " * (k + 1) + f"for a{k} in range(9):\n" for k in range(19))
    yield "loops in loops", lambda n: HEAD + loops + full(" " * 20 + "x = range(range(range(1*2)))\n", n)
    yield "sizes", lambda n: HEAD + full("    x = torch.zeros((((((1, 2), 3), 4), 5), 99**2))\n", n)


def _of_replies() -> Iterator[tuple[str, Family]]:
    good = HEAD + "    return state['x']\n"
    yield "letters", lambda n: "x" * n
    yield "words", lambda n: full("word ", n)
    yield "lines of words", lambda n: full("import is a word, def compute_reward is two\n", n)
    yield "names of the function", lambda n: full("compute_reward ", n)
    yield "fences", lambda n: full("```\n", n)
    yield "fences of Python", lambda n: full("```python\nx\n```\n", n)
    yield "fences of functions", lambda n: full(fenced(good), n)
    yield "fences of short functions", lambda n: full("```\ndef compute_reward(s):return s\n```\n", n)
    yield (
        "fences of different helpers",
        lambda n: counted("```\ndef h{i}(s):return h{i}+1\ndef compute_reward(s):return h{i}(s)\n```\n", n),
    )
    yield (
        "fences that share a helper",
        lambda n: full("```\ndef h(s):return s\n```\n", n - 99) + fenced("def compute_reward(s):\n return h(s)"),
    )
    yield "five fences of 40k", lambda n: full(fenced("a\n" * 19_900), max(n, 40_000))
    yield "five fences of constants", lambda n: fenced(counted("a{i}=0\n", 39_000)) * (n // 40_000) + fenced(good)
    yield "fences without an end", lambda n: full("```python\n", n) + good
    yield "one fence without an end", lambda n: "```python\n" + full("x = 1\n", min(n, 39_000))
    yield "broken fences", lambda n: full("```python\ndef compute_reward(s:\n  return\n```\n", n)
    yield "tildes", lambda n: "~" * n + "`"
    yield "tildes on many lines", lambda n: full("~" * 999 + "`\n", n)
    yield "backticks", lambda n: "`" * n
    yield "backticks that grow", lambda n: "".join("`" * (3 + k) + "\n" for k in range(int((2 * n) ** 0.5) - 4))
    yield "marks of lists before fences", lambda n: full("> - * 1. " * 20 + "```\n", n)
    yield "a quotation", lambda n: "> " * n + "```python\n" + good
    yield "quotations in a fence", lambda n: "> ```\n" + full("> > > x\n", n) + "> ```\n"
    yield "info of a fence", lambda n: "```python " + "a,b{c}." * (n // 7) + "\n" + good + "```"
    yield "blanks before a fence", lambda n: " " * n + "```python\n" + good + "```"
    yield "returns of a carriage", lambda n: full("a\r\nb\rc\n", n)
    yield "code with returns of a carriage", lambda n: fenced(good + full("# x\r", n))
    yield "bare code", lambda n: good + full("x = 1\n", n)
    yield "bare code, lines that almost assign", lambda n: good + full("A" * 500 + "   \n", n)
    yield "constants above bare code", lambda n: full("AB: int = 1\n", n) + good
    yield "constants that are none above bare code", lambda n: full("AB" + " " * 300 + ": x\n", n) + good
    yield "bare imports", lambda n: full("import a.b.c as d , e\n", n) + good
    yield "imports that are prose", lambda n: full("from a.b " + " " * 300 + "import\n", n) + good
    yield "bare quotes", lambda n: good + full("x = '\"'\"'\"'(\n", n)
    yield "bare brackets", lambda n: good + "x = " + "([{" * (n // 3)
    yield "defs in prose", lambda n: full("def f (\n", n)
    yield "ats in prose", lambda n: full("@a\n", n)
    yield "tags", lambda n: full("<code><![CDATA[ <a b='c'> ]]></code>\n", n) + "<python>" + good + "</python>"
    yield "thoughts without an end", lambda n: full("<think>", n)
    yield "thoughts", lambda n: full("<think>x</think>", n)
    yield "changes without a divider", lambda n: full("<<<<<SEARCH\n", n)
    yield "changes without an end", lambda n: full("<<<<<SEARCH\n=====\n", n)
    yield "changes", lambda n: full("<<<<< SEARCH\na\n=====\nb\n>>>>> REPLACE\n", n)
    yield "notes", lambda n: full("## NOTES: **a\n", n)
    yield "entities", lambda n: full("&lt;&amp;&quot;", n)
    yield "tables", lambda n: full("| a | b |\n| - | - |\n", n)
    yield "JSON", lambda n: "```json\n" + '{"a":' * (n // 5) + "```"
    yield "direction marks", lambda n: full("\u202e\u2066x\u200f\n", n) + fenced(good)
    yield "byte order marks", lambda n: "\ufeff" * n + fenced(good)
    yield "surrogates", lambda n: "\ud800" * n + fenced(good)
    yield "form feeds", lambda n: fenced(good + "\f\n" * (n // 2))
    yield "separators of lines", lambda n: full("\u2028\x85\x1c", n) + fenced(good)
    yield (
        "a class around it",
        lambda n: fenced("class A:\n" + full("    def compute_reward(self):\n        return 1\n", n)),
    )
    yield "classes around it", lambda n: full("class A:\n    def compute_reward(self, x):\n        return 1\n", n)
    yield (
        "an indented method after blanks",
        lambda n: "class A:\n" + full(" \t" * 200 + "\n", n) + " " * 900 + ("def compute_reward(self):\n return 1\n"),
    )
