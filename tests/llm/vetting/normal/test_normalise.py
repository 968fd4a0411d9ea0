"""The pass before the allow-list: equal in meaning, allowed afterwards, and nothing that was refused for a reason."""

from __future__ import annotations

import ast
import math
from typing import Any

import numpy as np
import pytest
import torch

import envolve.envs.physics  # noqa: F401  registers the tasks
from envolve.envs.physics.aliases import DT, aliases
from envolve.envs.physics.task import PHYSICS_TASKS
from envolve.llm.gym.allowlist import check_method
from envolve.llm.search.task_facts import task_facts
from envolve.llm.vetting.allow.allowlist import check_source
from envolve.llm.vetting.normal.helpers import SOURCES, with_needed
from envolve.llm.vetting.normal.normalise import NOTE, normalise
from envolve.llm.vetting.text.parsing import VetError
from tests.llm.accepted import ACCEPTED
from tests.llm.traced import probe

TYPES = ("compute_reward",)
X = torch.linspace(-1.5, 2.0, 7)


def reward(*lines: str, top: str = "") -> str:
    body = "".join(f"    {line}\n" for line in lines)
    return f"{top}def compute_reward(state):\n    x = state['x']\n{body}"


def value(code: str) -> torch.Tensor:
    """What the code returns, run as plain Python: only code of this file."""
    space: dict[str, Any] = {"torch": torch, "math": math, "np": np, "numpy": np, "F": torch.nn.functional}
    exec(compile(ast.parse(code), "own", "exec"), space)
    out = space["compute_reward"]({"x": X.clone(), "y": X.clone() + 1})
    return out[0] if isinstance(out, tuple) else out


CASES = {
    "underscores": reward("_y = x + 1", "lambda_ = 2.0", "return _f(_y, t_=lambda_)",
                          top="_K = 0.5\ndef _f(v, t_):\n    return v * t_ + _K\n"),
    "lambda": reward("sq = lambda v, k=2.0: k * v * v", "return sq(x) + sq(x, 3.0)"),
    "lambda at the top": reward("return f(x)", top="f = lambda v: torch.exp(-v)\n"),
    "sum of a generator": reward("return sum(w * x for w in (1.0, 2.0)) + max(k for k in [1, 2])"),
    "requires_grad": reward("return x * torch.tensor(0.5, requires_grad=False)"),
    "type": reward("return (x > 0).type(torch.float32) + x.type(x.dtype) + (x > 1).type(torch.FloatTensor)"),
    "item": reward("k = torch.tensor(0.1)", "return x * k.item() + torch.tensor([0.3]).item() + float(k)"),
    "assert, print, raise, del": reward("assert x.dim() == 1, 'shape'", "print(f'{x}')", "if x is None:",
                                        "    raise ValueError('x')", "y = x", "del y", "return x"),
    "constant f-string": reward("c = {f'a{1}': x, f'b': x}", "return c['a1'] + c['b'], c"),
    "f-string of a loop": reward("c = {}", "for i, leg in enumerate(['l', 'r']):",
                                 "    c[f'{leg}_{i:02d}'] = x * i", "return c['r_01'] + c['l_00'], c"),
    "text and str": reward("c = {}", "for i in range(3):", "    c['leg_' + str(i)] = x + i", "return c['leg_2']"),
    "dataclass": reward("c = Config(b=3.0)", "return x * CONFIG.a + c.b + Config.b + Config().a",
                        top="from dataclasses import dataclass, field\n@dataclass(frozen=True)\nclass Config:\n"
                            "    '''Weights.'''\n    a: float = 1.5\n    b: float = field(default=2.0)\n"
                            "CONFIG = Config()\n"),
    "NamedTuple": reward("return x * W.a + W.b", top="from typing import NamedTuple\nclass Weights(NamedTuple):\n"
                         "    a: float = 1.5\n    b: float = 2.0\nW = Weights(2.5)\n"),
    "namespace": reward("return x * W.a", top="from types import SimpleNamespace\nW = SimpleNamespace(a=1.5)\n"),
    "a default that is an object": "from dataclasses import dataclass\n@dataclass\nclass C:\n    a: float = 1.5\n"
                                   "def compute_reward(state, c: C = C()):\n    return state['x'] * c.a\n",
    "a default that is a dict": "def compute_reward(state, w={'a': 2.0}):\n    return state['x'] * w['a']\n",
    "numpy constants": reward("return x * np.pi + np.sqrt(2.0) + np.deg2rad(90)", top="import numpy as np\n"),
    "no_grad": reward("with torch.no_grad():", "    y = x * 2", "    if True:", "        y = y + 1", "return y"),
    "decorators": "@torch.jit.ignore\ndef compute_reward(state):\n    return state['x']\n",
    "kwargs": "def compute_reward(state, *args, **kwargs):\n    return state['x']\n",
    "pow and device": reward("return pow(x, 2) + torch.ones(7, device='cpu') + x.cpu() + x.to('cpu')"),
    "rare": reward("m = torch.diag(torch.tensor([1.0, 2.0]))", "a = torch.stack([x, x + 1], dim=1)",
                   "return F.pairwise_distance(a @ m, a * 0.5)"),
    "names of types and of classes": reward("c = _C()", "return x * c.a + _C(a=2.0).a", top="from typing import Dict\n"
                                            "S = Dict[str, torch.Tensor]\nclass _C:\n    a: float = 1.5\n".replace(
                                                "class _C", "from dataclasses import dataclass\n@dataclass\nclass _C")),
    "data": reward("return x.data * 2"),
    "or in place": reward("m = x > 1", "m |= x < 0", "m &= x < 1.5", "return x * m"),
    "try": reward("try:", "    y = x * 2", "except KeyError:", "    y = x", "return y"),
    "reduce": reward("t = {'a': x, 'b': x * 2}", "m = functools.reduce(torch.minimum, [x, x * 2, -x])",
                     "k = reduce(lambda p, q: p * q, (x, x + 1), 2.0)",
                     "return reduce(lambda a, b: a + b, t.values()) + m + k",
                     top="import functools\nfrom functools import reduce\n"),
    "bound by a number": reward("return np.maximum(x, 0.0) + np.minimum(x, 1)", top="import numpy as np\n"),
    "in place": reward("y = x * 2", "y.add_(1).clamp_(min=0.0)", "y[0:2].mul_(3)", "return y"),
    "several at once": reward("_c = {}", "for _k in ('a', 'b'):", "    _c[f'r_{_k}'] = x",
                              "return sum(_v for _v in _c.values())"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_it_means_the_same_and_is_allowed(case: str) -> None:
    code = CASES[case]
    new, notes, _ = normalise(code, TYPES)
    assert torch.equal(value(code), value(new)), new
    check_source(new, TYPES)
    if case != "in place":
        assert len(notes) == 1 and notes[0].startswith(NOTE)
    again = normalise(new, TYPES)
    assert again.code == new and not again.notes  # it is done once


def test_code_that_needs_nothing_stays_as_it_is() -> None:
    for task, types, code in ACCEPTED.values():
        if "@" not in code and "import" not in code:
            assert normalise(code, types, task) == (code, (), ())


def test_what_did_not_change_keeps_its_layout_and_comments() -> None:
    code = (
        "# weights\nK = 2.0  # per m\n\n\ndef compute_reward(state):\n    # above\n    x = state['x']  # beside\n"
        "    print(x)\n    for i in range(2):  # twice\n        x = x + 1  # more\n        assert i < 3\n"
        "    return (\n        x\n        * K\n    )\n"
    )
    new, notes, _ = normalise(code, TYPES)
    assert new == code.replace("    print(x)\n", "").replace("        assert i < 3\n", "")
    assert notes == (NOTE + "assert and checks that raise left out; print and log left out",)


@pytest.mark.parametrize(
    "line",
    [
        "return (lambda v: v)(x)", "y = [f for f in [lambda v: v]]", "return f'{x}'", "return f'{state}'",
        "return x.__class__", "exec('1')", "f'{x.__class__}'", "while True: pass", "return np.load('f')",
        "return np.random.rand(3)", "y = x.item()", "return __import__('os')", "return getattr(x, 'a')",
        "c = f'{x:>{10**9}}'", "return x.numpy()", "print = exec; print('1')", "_o = open; _o('f')",
        "return torch.load('f')", "with open('f') as f: pass", "return torch.tensor(1.0).__reduce__()",
        "y = reduce(exec, ['1', '2'])", "y = reduce(lambda a, b: a * a * b, [x, x])",
        "return (_ for _ in ()).gi_frame", "class A: __slots__ = ()", "return sorted(x, key=lambda v: v)",
    ],
)  # fmt: skip
def test_it_lets_nothing_through_that_was_refused(line: str) -> None:
    code = reward(line, "return x")
    new = normalise(code, TYPES)
    with pytest.raises(VetError) as e:
        check_source(new.code, TYPES)
    assert e.value.stage == "allowlist"


@pytest.mark.parametrize("code", ["def f(:", "x = " + "(" * 99, "\0", "", "x = " + "1 + " * 30_000 + "1"])
def test_what_cannot_be_read_comes_back(code: str) -> None:
    assert normalise(code, TYPES) == (code, (), ())


# ------------------------------------------------------------------------------------- names and helpers of others


def test_every_alias_is_a_value_of_the_right_size() -> None:
    for task, cls in PHYSICS_TASKS.items():
        state = dict(probe(task).state)
        n = len(state["action"])
        space: dict[str, Any] = {"torch": torch, "math": math}
        for name in SOURCES:
            exec(SOURCES[name], space)
        for name, text in aliases(cls).items():
            assert name not in state
            found = eval(text.format(s="state"), {**space, "state": state})
            if isinstance(found, torch.Tensor) and found.dim() and not name.endswith("indices"):
                assert len(found) == n and found.isfinite().all(), (task, name)


OTHERWISE = {  # rewritten as their like are, these would mean something else
    "default reads a shadowed name": reward("return bonus(x, 0.1)", top="t = 0.5\ndef bonus(x, t, gain=2.0 * t):\n"
                                            "    return gain * x\n"),
    "default reads a name that changes": reward("return f(x)", top="S = 2.0\ndef f(x, s=-S):\n    return s * x\n"
                                                "S = 3.0\n"),
    "default reads a loop variable": reward("total = x", "for w in (1.0, 2.0):", "    f = lambda v, k=-w: v * k",
                                            "    total = total + f(x)", "w = 9.0", "return total + f(x)"),
    "field reads a field": reward("return Weights.angle * x", top="scale = 5.0\nclass Weights:\n    scale = 1.0\n"
                                  "    angle = 2.0 * scale\n"),
    "assert within try": reward("try:", "    assert x.dim() == 2", "    return -x", "except AssertionError:",
                                "    return 1.0 - x.abs()"),
    "raise within try": reward("try:", "    if 'z' not in state:", "        raise KeyError('z')", "    return -x",
                               "except KeyError:", "    return 1.0 - x.abs()"),
    "integer tensor": reward("return x * torch.tensor(2.9, dtype=torch.long).item()"),
    "tensor with a new part": reward("k = torch.tensor([1.0])", "k[0] = 5.0", "return x * k.item()"),
    "tensor changed in place": reward("k = torch.tensor([1.0])", "k.mul_(2.0)", "return x * k.item()"),
    "tensor changed by another name": reward("k = torch.tensor([1.0])", "m = k", "m[0] = 5.0", "return x * k.item()"),
    "tensor changed by a function": reward("k = torch.tensor([1.0])", "g(k)", "return x * k.item()",
                                           top="def g(v):\n    v[0] = 5.0\n"),
    "list that grows": reward("names = ['x']", "names.append('y')", "c = {}", "for n in names:",
                              "    c[f'a_{n}'] = state[n]", "return c['a_y'] * 1.0, c"),
    "dict that grows": reward("w = {'x': 1.0}", "w['y'] = 2.0", "c = {}", "for n, k in w.items():",
                              "    c[f'a_{n}'] = k * state[n]", "return c['a_y'] * 1.0, c"),
    "enumerate from one": reward("c = {}", "for i, w in enumerate([2.0], start=1):", "    c[f'p{i}'] = w * x",
                                 "return c['p1'] * 1.0, c"),
    "an add of its own": reward("return functools.reduce(add, [x, x, x])", top="import functools\n"
                                "def add(a, b):\n    return a + 0.5 * b\n"),
    "x |= y of a view": reward("flags = x > 1", "m = flags.view(-1)", "m |= x < 0", "return flags.float()"),
    "unpacked NamedTuple": reward("a, b = Flags()", "r = x * 1.0", "if a:", "    r = r + 5.0", "return r * b",
                                  top="from typing import NamedTuple\nclass Flags(NamedTuple):\n    a: bool = False\n"
                                  "    b: float = 2.0\n"),
    "searched NamedTuple": reward("w = Flags()", "return x * (1.0 if 3.0 in w else 2.0)",
                                  top="from typing import NamedTuple\nclass Flags(NamedTuple):\n    a: float = 3.0\n"),
    "print that changes": reward("v = x.clone()", "print(v.mul_(2).mean())", "return v"),
    "assert that changes": reward("c = []", "assert c.append(x) is None", "return c[0]"),
    "cross of matrices": reward("m = torch.stack([x[:3] + i * i for i in range(9)]).view(3, 3, 3)",
                                "n = m.flip(0) * m", "return np.cross(m, n)[0, 1, 2] * x", top="import numpy as np\n"),
}  # fmt: skip


@pytest.mark.parametrize("name", OTHERWISE)
def test_what_would_mean_something_else_is_refused_or_left_as_it_is(name: str) -> None:
    code = OTHERWISE[name]
    new = normalise(code, TYPES).code
    try:
        check_source(new, TYPES)
    except VetError:
        return
    np.testing.assert_allclose(np.asarray(value(new)), np.asarray(value(code)), rtol=1e-6)


@pytest.mark.parametrize(
    "body",
    [
        "np.std(k, axis=0) + np.var(k, axis=0, ddof=1)",
        "np.mod(k, 0.3).sum(0)",
        "np.remainder(k[2], 0.7)",
        "(k > 0).astype(float).sum(0) + (k > 1).astype(np.float32).sum(0) + (k[0] > 0).astype('int64')",
    ],
)
def test_twins_of_numpy_give_what_numpy_gives(body: str) -> None:
    code = reward("k = np.stack([x, 2.0 * x + 1.0, -x])", f"return {body}", top="import numpy as np\n")
    new = normalise(code, TYPES).code
    check_source(new, TYPES)
    np.testing.assert_allclose(np.asarray(value(new)), np.asarray(value(code)), rtol=1e-5, atol=1e-6)


def test_time_steps_are_those_of_the_simulators() -> None:
    assert set(DT) == set(PHYSICS_TASKS)
    for name, cls in PHYSICS_TASKS.items():
        assert task_facts(cls).dt == pytest.approx(DT[name])


@pytest.mark.parametrize(
    "code",
    [
        "def compute_reward(state):\n    return state['torques'].sum(1) + state.get('progress_buf')\n",
        "def compute_reward(torques, progress_buf, base_lin_vel):\n    return torques.sum(1) + progress_buf\n",
        "def compute_reward(state_dict):\n    return helper(state_dict)\n\ndef helper(s):\n    t = s\n"
        "    return t['torques'].sum(1) + s['progress_buf']\n",
        "def compute_reward(state):\n    return state['torques'].sum(1) + (state['progress_buf'] if 'actions' in state "
        "else 0.0)\n",
    ],
)
def test_names_of_other_simulators_are_understood(code: str) -> None:
    new, notes, _ = normalise(code, TYPES, "Anymal")
    assert "names of the state from other simulators" in notes[0]
    check_source(new, TYPES)
    assert "['torque']" in new and "['progress']" in new and "progress_buf']" not in new


def test_a_dict_of_its_own_is_no_state() -> None:
    code = "def compute_reward(state):\n    c = {'torques': state['torque']}\n    return c['torques'].sum(1), c\n"
    assert normalise(code, TYPES, "Anymal") == (code, (), ())


def test_helpers_are_those_of_the_original() -> None:
    """Against rotation matrices and compositions of them."""
    space: dict[str, Any] = {"torch": torch, "math": math}
    for name in SOURCES:
        exec(SOURCES[name], space)
        check_source(SOURCES[name] + "".join(SOURCES[n] for n in with_needed([name])[1:]), (name,))
    g = torch.Generator().manual_seed(0)
    q = torch.nn.functional.normalize(torch.randn(20, 4, generator=g), dim=-1)
    p = torch.nn.functional.normalize(torch.randn(20, 4, generator=g), dim=-1)
    v = torch.randn(20, 3, generator=g)
    x, y, z, w = q.T
    rows = [
        1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w),
        2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w),
        2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y),
    ]  # fmt: skip
    matrix = torch.stack(rows, 1).view(20, 3, 3)
    near = {"atol": 1e-5, "rtol": 1e-5}
    torch.testing.assert_close(space["quat_rotate"](q, v), (matrix @ v[:, :, None])[:, :, 0], **near)
    torch.testing.assert_close(space["quat_rotate_inverse"](q, v), (matrix.mT @ v[:, :, None])[:, :, 0], **near)
    both = space["quat_apply"](q, space["quat_apply"](p, v))
    torch.testing.assert_close(space["quat_apply"](space["quat_mul"](q, p), v), both, **near)
    torch.testing.assert_close(space["quat_axis"](q, 2), matrix[:, :, 2], **near)
    roll, pitch, yaw = space["get_euler_xyz"](q)
    again = space["quat_from_euler_xyz"](roll, pitch, yaw)
    torch.testing.assert_close(space["quat_apply"](again, v), space["quat_apply"](q, v), atol=2e-4, rtol=1e-3)
    assert space["wrap_to_pi"](torch.tensor([4.0, -4.0, 1.0])).abs().max() <= math.pi
    torch.testing.assert_close(space["quat_diff_rad"](q, q), torch.zeros(20), atol=2e-3, rtol=0.0)
    turned = space["quat_from_angle_axis"](torch.full((20,), 0.3), v)
    twice = space["quat_mul"](turned, turned)
    torch.testing.assert_close(space["quat_diff_rad"](turned, twice), torch.full((20,), 0.3), **near)


def test_a_helper_of_ones_own_stays() -> None:
    own = "def quat_apply(q, v):\n    return v\n\n"
    code = own + "def compute_reward(state):\n    return quat_apply(1, state['progress'])\n"
    assert normalise(code, TYPES, "Anymal") == (code, (), ())


@pytest.mark.parametrize(
    "body",
    [
        "_k = 2.0\n    total, parts = 0.0, {}\n    parts['a'] = _k * state[0]\n    return sum(parts.values()), parts",
        "f = lambda v: np.exp(-v)\n    assert len(state) > 1\n    print(state)\n    return f(state[0]), {}",
        "w = dict(a=1.0)\n    def term(v):\n        return w['a'] * v\n    return term(state[0]), {}",
    ],
)
def test_rewards_of_gymnasium_environments_stay_numpy(body: str) -> None:
    code = f"import numpy as np\n\ndef compute_reward(self, state):\n    {body}\n"
    new = normalise(code, TYPES, torch=False).code
    check_method(new)
    assert "torch" not in new and ("np." in new) == ("np." in code)
    given = np.array([0.5, -1.0])
    results = []
    for text in (code, new):
        space: dict[str, Any] = {"np": np}
        exec(text, space)
        results.append(space["compute_reward"](None, given))
    assert results[0] == results[1]
