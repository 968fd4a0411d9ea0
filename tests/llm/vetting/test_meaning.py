"""Replies whose idioms have a second meaning: what is accepted computes what plain Python computes, or it is refused.

Nothing here is jailed: the replies are this file's own."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from envolve.llm.vetting.allow.allowlist import check_source
from envolve.llm.vetting.normal.normalise import normalise
from envolve.llm.vetting.text.extract import VetError, extract

TYPES = ("compute_reward",)
X = torch.linspace(-1.5, 2.0, 7)


def reward(*lines: str, top: str = "") -> str:
    body = "".join(f"    {line}\n" for line in lines)
    return f"{top}\n\ndef compute_reward(state):\n    x = state['x']\n{body}"


def result(code: str) -> torch.Tensor:
    """What the code returns, run as plain Python; of a class, what its method returns."""
    space: dict[str, Any] = {"torch": torch, "math": math, "F": torch.nn.functional}
    exec(compile(code, "own", "exec"), space)
    state = {"x": X.clone(), "y": X.clone() + 1}
    function = space.get("compute_reward") or space["Reward"]().compute_reward
    out = function(state)
    return (out[0] if isinstance(out, tuple) else out).float()


def accepted(code: str) -> str:
    """The code that would be run. Raises VetError."""
    found = normalise(extract(f"```python\n{code}```", TYPES).code, TYPES).code
    check_source(found, TYPES)
    return found


REDUCE = "from functools import reduce\n"
CASES = {
    # a second name for a tensor whose number is taken out
    "alias += 1": reward("k = torch.tensor([1.0])", "m = k", "m += 4.0", "return x * k.item()"),
    "alias in a tuple": reward("k = torch.tensor([1.0])", "m, n = k, 2.0", "m += 4.0", "return x * k.item()"),
    "alias in a dict": reward("k = torch.tensor([1.0])", "d = {'k': k}", "d['k'] += 4.0", "return x * k.item()"),
    "alias of a loop": reward("k = torch.tensor([1.0])", "for m in [k]:", "    m += 4.0", "return x * k.item()"),
    "float of it": reward("k = torch.tensor([1.0])", "m = k.float()", "m += 4.0", "return x * k.item()"),
    "view of it": reward("k = torch.tensor([1.0])", "m = k.view(-1)", "m += 4.0", "return x * k.item()"),
    # x |= y where something else sees x
    "mask in a list": reward("s = []", "m = x > 0", "s.append(m)", "m |= x < -1", "return s[0].float()"),
    "view of a mask": reward("m = x > 0", "n = m.view(-1)", "m |= x < -1", "return n.float()"),
    "slice of a mask": reward("m = x > 0", "n = m[:]", "m |= x < -1", "return n.float()"),
    "mask given back": reward("m = x > 0", "n = same(m)", "m |= x < -1", "return n.float()",
                              top="def same(v):\n    return v\n"),
    "mask of a tuple": reward("t = torch.stack([x > 0, x > 1])", "a, b = t.unbind()", "a |= x < -1",
                              "return t.float().sum(0)"),
    # functools.reduce of truth values
    "reduce of masks": reward("return reduce(torch.add, [x > 0, x > 1]).float()", top=REDUCE),
    "reduce of a list of masks": reward("m = [x > 0, x > 1]", "return reduce(lambda a, b: a + b, m).float()",
                                        top=REDUCE),
    "reduce of values": reward("d = {'a': x > 0, 'b': x > 1}", "return reduce(torch.add, d.values()).float()",
                               top=REDUCE),
    "pairwise_distance of a choice": reward("a = torch.stack([x, x + 1], dim=1)", "flip = True",
                                            "return F.pairwise_distance(a if flip else -a, a * 0.5)"),
    # try
    "finally after return": reward("try:", "    return x", "finally:", "    x.add_(1.0)"),
    "finally after continue": reward("y = x * 0", "for i in range(4):", "    try:", "        if i == 2:",
                                     "            continue", "        y = y + x", "    finally:",
                                     "        y = y + 1", "return y"),
    "assert of a function": reward("try:", "    y = check(x)", "except AssertionError:", "    y = 1.0 - x",
                                   "return y", top="def check(v):\n    assert v.dim() == 2\n    return v\n"),
    "raise of a function's function": reward(
        "try:", "    y = second(x)", "except ValueError:", "    y = 1.0 - x", "return y",
        top="def first(v):\n    if v.dim() != 2:\n        raise ValueError('no')\n    return v\n"
            "def second(v):\n    return first(v)\n"),
    # what happens to a constant after it is made
    "append": reward("return sum(K) * x", top="K = [1.0, 2.0]\nK.append(3.0)\n"),
    "entry": reward("return K['a'] * x", top="K = {'a': 1.0}\nK['a'] = 3.0\n"),
    "another name": reward("return K[0] * x", top="K = [1.0, 2.0]\nL = K\nL[0] = 7.0\n"),
    "attribute": reward("return c.a * x", top="class C:\n    a = 1.5\nc = C()\nc.a = 3.0\n"),
    "loop": reward("return K['b'] * x", top="K = {'a': 1.0, 'b': 2.0}\nfor k in K:\n    K[k] *= 2.0\n"),
    "rebound": reward("return K * x", top="K = 1.0\nK = K * 2\n"),
    "augmented": reward("return K * x", top="K = 1.0\nK += 2\n"),
    "default of then": reward("return f(x) * K", top="K = 1.0\ndef f(v, k=-K):\n    return k * v\nK = 2.0\n"),
    "constant of a function": reward("return K * x", top="def f():\n    return 2.0\nK = f() * 3\n"),
    "choice": reward("return K * x", top="K = 1.0\nif K > 0.5:\n    K = 2.0\n"),
    # names of a class
    "variable like an attribute": "class Reward:\n    k = 2.0\n    def compute_reward(self, state):\n"
                                  "        k = state['x']\n        return self.k * k\n",
    "constant like an attribute": "k = 9.0\nclass Reward:\n    k = 2.0\n    def compute_reward(self, state):\n"
                                  "        return self.k * state['x'] + k\n",
    "function like a method": "def f(v):\n    return v * 100\nclass Reward:\n    def f(self, v):\n"
                              "        return v * 2\n    def compute_reward(self, state):\n        x = state['x']\n"
                              "        return self.f(x) + f(x)\n",
    "attribute of another": "class Reward:\n    a = 1.0\n    b = 2 * a\n    def __init__(self):\n        self.a = 5.0\n"
                            "    def compute_reward(self, state):\n        return self.b * state['x'] + self.a\n",
    "list that grows": "class Reward:\n    def __init__(self):\n        self.w = [1.0]\n        self.w.append(2.0)\n"
                       "    def compute_reward(self, state):\n        return sum(self.w) * state['x']\n",
    "default of the class": "class Reward:\n    k = 2.0\n    def f(self, v, k=k):\n        return v * k\n"
                            "    def compute_reward(self, state):\n        k = 7.0\n"
                            "        return self.f(state['x']) + k\n",
}  # fmt: skip
REFUSED = {  # all that may be; the others are accepted, too
    "alias += 1", "alias in a tuple", "alias in a dict", "alias of a loop", "view of it", "float of it",
    "finally after return", "finally after continue", "assert of a function", "raise of a function's function",
    "append", "attribute", "loop", "augmented", "choice", "attribute of another", "list that grows",
    "default of then",
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_what_is_accepted_means_what_was_written(name: str) -> None:
    wanted = result(CASES[name])
    try:
        code = accepted(CASES[name])
    except VetError:
        assert name in REFUSED
        return
    assert torch.equal(result(code), wanted), code
    assert name not in REFUSED


def test_a_keyword_with_an_underscore_is_one_that_is_passed() -> None:
    """Before, the argument was written into the function, because the call was looked up under its new name."""
    top = "_w = 2.0\ndef _term(v_, scale_=_w):\n    return v_ * scale_\n"
    code = reward("return _term(x) + _term(v_=x, scale_=1.0)", top=top)
    with pytest.raises(VetError, match="a default value must be a number"):
        accepted(code)
    code = code.replace("=_w", "=2.0")
    assert torch.equal(result(accepted(code)), result(code))


def test_what_was_written_in_its_order_stays_so() -> None:
    """Constants come first, as before, where nothing depends on it."""
    plain = "def f(v):\n    return v * K\n\n\nK = 2.0\n" + reward("return f(x)")
    assert extract(plain, TYPES).code.startswith("K = 2.0\n")
    computed = "def f(v):\n    return v * 2\n\n\nK = f(2.0)\n" + reward("return x * K")
    assert extract(computed, TYPES).code.startswith("def f(v)")
    shown = reward("return x * K", top="K = 2.0\n") + "\nif __name__ == '__main__':\n    K = 5.0\n    print(K)\n"
    assert "__main__" not in extract(shown, TYPES).code
