"""What may be run in the jail: good code passes, everything else is refused with its line and advice."""

from __future__ import annotations

import ast
import random

import pytest

from envolve.llm.vetting.allow import allowed_names
from envolve.llm.vetting.allow.allowed_syntax import MODULE_NAMES
from envolve.llm.vetting.allow.allowlist import check_source
from envolve.llm.vetting.text.extract import VetError, extract_code
from tests.llm.accepted import ACCEPTED

REWARD = ("compute_reward",)


def refusal(code: str, types: tuple[str, ...] = REWARD) -> str:
    with pytest.raises(VetError) as e:
        check_source(code, types)
    assert e.value.stage == "allowlist"
    return e.value.message


def body(*lines: str) -> str:
    inside = "\n".join(f"    {line}" for line in lines)
    return f"def compute_reward(state):\n    x = state['x']\n{inside}\n    return x\n"


@pytest.mark.parametrize("name", ACCEPTED)
def test_what_good_models_write_is_allowed(name: str) -> None:
    _, types, code = ACCEPTED[name]
    check_source(extract_code(f"```python\n{code}\n```", types), types)


@pytest.mark.parametrize(
    "line, said",
    [
        ("while True: pass", "line 3: 'while' is not allowed; write torch.where, or a for over range(number)"),
        ("f = lambda y: y", "line 3: 'lambda' is not allowed; write a function with def"),
        ("class A: pass", "'class' is not allowed"),
        ("with torch.no_grad(): pass", "'with' is not allowed; leave it out"),
        ("x = sum(y for y in [x, x])", "a generator (... for ... in ...) is not allowed; write a list"),
        ("global y", "'global' is not allowed"),
        ("del x", "'del' is not allowed"),
        ("assert x.dim() == 1", "'assert' is not allowed"),
        ("import os", "line 3: import of 'os' is not allowed; torch, math and typing are there"),
        ("import numpy as np", "write torch instead of numpy"),
        ("from torch import load", "import of 'torch.load' is not allowed"),
        ("from torch import *", "import of 'torch.*' is not allowed"),
        ("from os import path", "import from 'os' is not allowed"),
        ("from . import a", "is not allowed"),
        ("import torch.hub", "import of 'torch.hub' is not allowed"),
        ("import math as torch", "'torch' stands for something else"),
        ("from torch import exp as range", "'range' stands for something else"),
        ("x = x.__class__", "'.__class__' is not allowed"),
        ("x = x._values()", "'._values' is not allowed"),
        ("x.div_trunc_(1)", "'.div_trunc_' is not allowed; leave it out"),
        ("x.unsqueeze_(1)", "'.unsqueeze_' is not allowed; write x = x.unsqueeze(...)"),
        ("x = x.shape_", "'.shape_' is not allowed"),
        ("x = __import__('os')", "'__import__' is not allowed"),
        ("x = __builtins__", "'__builtins__' is not allowed"),
        ("_y = x", "'_y': names may not begin or end with '_'; write 'y'"),
        ("lambda_ = x", "write 'lambda'"),
        ("torch = x", "'torch' may not be given another meaning"),
        ("sum = x", "'sum' may not be given another meaning; write 'sum_value'"),
        ("for F in [1]: pass", "'F' may not be given another meaning"),
        ("x = [math for math in [1]]", "'math' may not be given another meaning"),
        ("x = f'{x}'", "an f-string is not allowed"),
        ("x = '%s' % x", "text may not be computed"),
        ("x = 'a' + 'b'", "text may not be computed"),
        ("x = '{}'.format(x)", "'.format' is not allowed"),
        ("x = getattr(x, 'y')", "'getattr' is not allowed"),
        ("x = eval('x')", "'eval' is not allowed"),
        ("print(x)", "'print' is not allowed; leave it out"),
        ("x = np.abs(x)", "'np' is not allowed; write torch instead of numpy"),
        ("x = exp(x)", "'exp' is not defined; write torch.exp"),
        ("x = torch.sqtr(x)", "'torch.sqtr' is not allowed; nearest: 'sqrt'"),
        ("x = x.men()", "nearest: 'mean'"),
        ("x = stat['x']", "'stat' is not defined; nearest: 'state'"),
        ("x = x.item()", "'.item' is not allowed; a tensor has a value per environment"),
        ("x = x.mean", "must be called"),
        ("x = x.shape()", "cannot be called"),
        ("f = torch.exp", "the function torch.exp may only be called, not passed on"),
        ("f = abs", "the function 'abs' may only be called"),
        ("m = torch", "the module torch may only be used as in torch.exp(x)"),
        ("m = torch.linalg", "'torch.linalg' is not allowed"),
        ("m = torch.nn.functional", "'torch.nn.functional' is not allowed"),
        ("x = torch.nn.Linear(1, 1)", "'torch.nn.Linear' is not allowed"),
        ("x = torch.Tensor(3)", "'torch.Tensor' is not allowed"),
        ("x = torch.Tensor.set_(x, x)", "'.set_' is not allowed"),
        ("x = torch.rand(3)", "draw from random.uniform"),
        ("x = state['f'](x)", "only functions and methods may be called"),
        ("x = x(3)", "'x' is a variable, and only functions may be called"),
        ("x = torch.add(x, x, out=x)", "the argument 'out' is not allowed"),
        ("x = torch.zeros(3, device='cuda')", "a device may not be named"),
        ("x = torch.zeros(3, requires_grad=True)", "the argument 'requires_grad' is not allowed"),
        ("x = torch.add(**x)", "'**' is not allowed"),
        ("x = torch.stack([*x])", "'*' is not allowed"),
        ("x = torch.zeros(10**12)", "zeros with a size of 1e+12; at most 4096 is allowed"),
        ("x = torch.full((10**5, 2), 0.0)", "full with a size of 1e+05"),
        ("x = x * 9**9**9", "a power of this size is not allowed"),
        ("x = x ** (9**9**9)", "a power of this size is not allowed"),
        ("x = x ** 1000", "a power of this size is not allowed"),
        ("x = x * 1e300", "the number 1e+300 is too large"),
        ("x = x * 1j", "complex is not allowed"),
        ("x = b'a'", "bytes is not allowed"),
        ("x = [0.0] * 10**9", "a list may be repeated at most 1000 times"),
        ("x = x << 3", "'<<' is not allowed"),
        ("for i in range(10**6): pass", "a loop may have at most 1000 turns"),
        ("x = sum(range(10**12))", "a loop may have at most 1000 turns"),
        ("x = (y := x)", "':=' is not allowed"),
        ("x.grad = x", "'.grad = ...' is not allowed"),
        ("x = 'a' * 3 if x else " + repr("b" * 300), "a text of 300 characters"),
        ("x", "a statement without effect"),
        ("x = Tensor([1.0])", "'Tensor' is not defined"),
        ("x = Dict(a=1)", "'Dict' is not defined"),
        ("raise ValueError", "'raise' is not allowed"),
        ("x = {1, 2}", "a set is not allowed"),
    ],
)
def test_what_is_not_allowed_is_named_with_what_to_write(line: str, said: str) -> None:
    assert said in refusal(body(line))


@pytest.mark.parametrize(
    "code, said",
    [
        ("def compute_reward(s):\n    try:\n        return x\n    except Exception as e:\n        return e\n", "'try'"),
        ("@torch.jit.script\ndef compute_reward(state):\n    return state\n", "line 1: decorators are not allowed"),
        ("async def compute_reward(state):\n    return state\n", "'async' is not allowed"),
        ("def compute_reward(state):\n    yield state\n", "'yield' is not allowed"),
        ("def compute_reward(*state):\n    return state\n", "*args and **kwargs"),
        ("def compute_reward(state, y=[1]):\n    return y\n", "a default value must be"),
        ("def compute_reward(state, y=open('a')):\n    return y\n", "a default value must be"),
        ("def compute_reward(state, sum):\n    return sum\n", "'sum' may not be given another meaning"),
        ("def compute_reward(state: print('x')):\n    return state\n", "a type hint may only name types"),
        ("def compute_reward(state) -> (lambda: 1)():\n    return state\n", "a type hint may only name types"),
        ("x: open('a') = 3\ndef compute_reward(state):\n    return x\n", "a type hint may only name types"),
        ("def compute_reward(state):\n    return compute_reward(state)\n", "compute_reward calls itself"),
        ("def a(x):\n    b(x)\ndef b(x):\n    a(x)\ndef compute_reward(s):\n    return a(s)\n", "calls itself"),
        ("def a(f):\n    return f(f)\ndef compute_reward(s):\n    return a(a)\n", "'f' is a variable"),
        ("print('x')\ndef compute_reward(s):\n    return s\n", "only imports, functions and constants"),
        ("for i in range(3): x = 1\ndef compute_reward(s):\n    return s\n", "only imports, functions and constants"),
        ("N = [0]\ndef compute_reward(s):\n    N[0] += 1\n    return s\n", "'N' is outside of the function"),
        ("SEEN = []\ndef compute_reward(s):\n    SEEN.append(s)\n    return s\n", "'SEEN' is outside of the function"),
        ("def reward(s):\n    return s\n", "none of compute_reward (found reward; nearest: compute_reward)"),
        ("def compute_reward(s):\n    return s\ndef compute_reward(s):\n    return s\n", "defined twice"),
        ("def compute_reward(s:\n    return s\n", "line 1 (def compute_reward(s:): SyntaxError"),
        ("x = 1\n" * 9000, "the code has 54000 characters"),
        ("def compute_reward(s):\n" + "    x = [s, s, s, s]\n" * 1200 + "    return s\n", "too long"),
    ],
)  # fmt: skip
def test_whole_modules_that_are_refused(code: str, said: str) -> None:
    assert said in refusal(code)


def test_a_sum_of_five_thousand_is_refused() -> None:
    """How deep a tree may be for the parser differs between versions of Python."""
    said = refusal("def compute_reward(s):\n    x = 1" + " + 1" * 5000 + "\n    return x\n")
    assert "nested too deeply" in said or "too long" in said


def test_work_is_bounded_through_calls_and_loops() -> None:
    levels = "".join(
        f"def f{k}(x):\n    for i in range(100):\n        x = f{k - 1}(x)\n    return x\n" for k in range(1, 9)
    )
    code = "def f0(x):\n    return x\n" + levels + "def compute_reward(s):\n    return f8(s)\n"
    assert "too much work in loops" in refusal(code)
    check_source(code.replace("range(100)", "range(2)"), REWARD)


def test_all_problems_are_told_at_once_in_order() -> None:
    code = "import os\n\ndef compute_reward(state):\n    while True:\n        print(state)\n    return os.getcwd()\n"
    lines = refusal(code).split("\n")
    assert [line.split(":")[0] for line in lines] == ["line 1", "line 4", "line 5", "line 6", "line 6"]
    many = body(*(f"print({i})" for i in range(40)))
    assert refusal(many).split("\n")[-1] == "and 20 more"


def test_a_list_may_have_two_loops_and_its_work_is_counted() -> None:
    check_source(body("x = torch.stack([x * a * b for a in [1, 2] for b in [1, 2]]).sum(0)"), REWARD)
    loops = " ".join(f"for a{k} in range(100)" for k in range(4))
    assert "too much work in loops" in refusal(body(f"x = [x {loops}]"))


def test_a_loop_variable_that_nobody_reads_may_be_an_underscore() -> None:
    check_source(body("for _ in range(3):", "    x = x + 1"), REWARD)
    check_source(body("_, i = x.max(1)"), REWARD)


def test_names_that_are_allowed_exist_and_none_reaches_out() -> None:
    import math

    import torch

    for module, (functions, constants, _) in MODULE_NAMES.items():
        if module != "typing":
            where = eval(module, {"torch": torch, "math": math})  # a name of our own table
            assert [n for n in functions | constants if not hasattr(where, n)] == []
    x = torch.zeros(2, 2)
    containers = {"append", "copy", "extend", "get", "insert", "items", "keys", "update", "values"}
    assert [n for n in allowed_names.METHODS - containers if not hasattr(x, n)] == []
    assert [n for n in allowed_names.IN_PLACE if not hasattr(x, n)] == []
    for name in allowed_names.TORCH | allowed_names.METHODS | allowed_names.FUNCTIONAL | allowed_names.LINALG:
        assert not name.startswith("_") and not name.endswith("_")
    reaching = (
        "save load from_file from_numpy numpy ops hub jit compile package serialization os sys empty as_strided set_ "
    )
    reaching += (
        "map_ apply_ storage untyped_storage data_ptr rand randn item tolist requires_grad backward register_hook"
    )
    assert not (allowed_names.TORCH | allowed_names.METHODS | allowed_names.PROPERTIES) & set(reaching.split())


def test_mutated_good_code_is_never_a_crash() -> None:
    """Nodes of good code put in other places: allowed, or refused with a reason, in no other way."""
    draw = random.Random(0)
    trees = [ast.parse(code) for _, _, code in ACCEPTED.values()]
    for _ in range(300):
        tree = ast.parse(ast.unparse(draw.choice(trees)))
        expressions = [n for n in ast.walk(tree) if isinstance(n, ast.expr)]
        for node in draw.sample(expressions, 3):
            other = draw.choice(expressions)
            for field, value in ast.iter_fields(node):
                if (
                    isinstance(value, ast.expr)
                    and other not in set(ast.walk(node))
                    and node not in set(ast.walk(other))
                ):
                    setattr(node, field, other)
        try:
            code = ast.unparse(tree)
        except (ValueError, RecursionError):
            continue
        try:
            check_source(code, ("compute_reward", "compute_torque"))
        except VetError as e:
            assert e.stage == "allowlist" and e.message
