"""compute_reward out of a reply, and what it may contain."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envolve.llm.gym.allowlist import check_method
from envolve.llm.gym.reward import StepCall, extract_method, step_call
from envolve.llm.vetting.text.extract import VetError
from tests.llm.gym.user import GOOD, method
from tests.test_layout import ROOT

CALL = StepCall(("pos", "action", "state"))
METHOD = "def compute_reward(self, x):\n    return x, {}\n"


@pytest.mark.parametrize(
    "reply",
    [
        f"Words.\n```python\nimport numpy as np\n{METHOD}```\nMore words.",
        f"```\n{METHOD}```",
        f"~~~py\n{METHOD}~~~",
        METHOD,
        f"Here it is:\n\n{METHOD}\nIt does what was asked.",
        f"```python\nprint(1)\n```\nand\n```python\n{METHOD}```",
        "```python\nclass E:\n    a = 1\n\n    def compute_reward(self, x):\n        return x, {}\n```",
        f"```python\n{METHOD}",
    ],
)  # fmt: skip
def test_the_method_is_found(reply: str) -> None:
    assert extract_method(reply) == METHOD


def test_helpers_and_constants_are_kept_and_the_last_block_counts() -> None:
    helper = "A = 2\n\ndef f(x):\n    return A * x\n\n"
    better = METHOD.replace("return x", "return f(x)")
    code = extract_method(f"```python\n{METHOD}```\nBetter:\n```python\n{helper}{better}```")
    assert "A = 2" in code and "def f(x)" in code and "return f(x)" in code


@pytest.mark.parametrize(
    "reply, message",
    [
        ("I cannot.", "no code was found"),
        ("```python\nx = 1\n```", "write def compute_reward(self, ...)"),
        ("```python\ndef compute_reward(self, x):\n    return (x,\n", "the reply ends in the middle"),
        ("```python\ndef compute_reward(self, x):\n    return x +\n```", "line 2"),
        ("```python\nclass E:\n    def compute_reward(self, x):\n        return x +\n```", "line 2"),
        ("```python\n" + METHOD + "x = 1\n" * 20_000 + "```", "characters"),
        ("```python\ndef compute_reward(self):\n    return " + "(" * 500 + ")" * 500 + "\n```", "nested"),
    ],
)
def test_why_there_is_no_method(reply: str, message: str) -> None:
    with pytest.raises(VetError) as error:
        extract_method(reply)
    assert error.value.stage == "extract" and message in error.value.message


@given(st.text(alphabet="`~ \n\tdefcomputrwa_(slf,x):python=+[]0\\'\"#", max_size=200))
def test_any_text_is_a_method_or_a_reward_error(text: str) -> None:
    for reply in (text, f"```python\n{METHOD}{text}```"):
        try:
            check_method(extract_method(reply))
        except VetError as e:
            assert e.message


ALLOWED = [
    "r = np.exp(-np.linalg.norm(state[:2]) / 0.5)",
    "parts = {}\nparts['a'] = 1.0\nparts['a'] += 2.0\nparts.update(b=1.0)",
    "before = self.reward_memory.get('x', 0.0)\nself.reward_memory['x'] = state[0]",
    "r = 10.0 if self.hull.angle > LIMIT else -1.0",
    "r = sum(abs(a) for a in action) + max(0.0, math.tanh(state[0]))",
    "for i, leg in enumerate(self.legs):\n    r = float(leg.ground_contact)",
    "a = action.copy()\na[0] = 1.0",
    "x: float = 3.0\nname = f'leg_{1}'",
    "import numpy as np",
    "r, parts = 0.0, {}\nparts['h'] = state[0]",
    "a = b = {}\nb['h'] = 1.0",
    "_, x = state[0], state[1]\nfor _ in range(3):\n    x = x + 1",
    "def g(v, k=2.0):\n    return k * v\nr = g(state[0])",
    "from math import sqrt, pi as p\nfrom numpy import clip\nimport numpy as q\nr = sqrt(p) + clip(q.exp(0.1), 0, 1)",
    "a, b = slice(0, 2), slice(2, None)\nr = state[a].sum() + state[b].sum()",
    "r = sum([x * y for x in state for y in action])",
]
REFUSED = [
    ("import os", "import of 'os' is not allowed"),
    ("from subprocess import run", "import from 'subprocess' is not allowed; np and math are there already"),
    ("open('/etc/passwd')", "'open' is not allowed"),
    ("eval('1')", "'eval' is not allowed"),
    ("x = __builtins__", "'__builtins__' is not allowed"),
    ("x = action.__class__.__bases__", "'.__bases__' is not allowed"),
    ("x = np.load('f')", "'np.load' is not allowed"),
    ("x = np.fromfile('f')", "'np.fromfile' is not allowed"),
    ("x = np.random.rand()", "'np.random' is not allowed; the same step"),
    ("action.tofile('f')", "'.tofile' is not allowed"),
    ("f = action.tofile\nf('x')", "'f' is a variable, and only functions may be called"),
    ("x = max([1], key=self.reset)", "the argument 'key'"),
    ("np.add(action, 1, out=state)", "the argument 'out'"),
    ("self.reset()", "self.reset() is not allowed"),
    ("self.world.Step(1.0, 1, 1)", "'.Step' is not allowed"),
    ("self.x = 3", "would change the environment; keep what you need"),
    ("self.hull.angle = 0.0", "would change the environment"),
    ("state[0] = 3", "may change the environment"),
    ("p = self.hull.position\np[0] = 3", "p[...] = ... may change"),
    ("c = {}\nc['p'] = self.hull.position\nc['p'][0] = 3", "may change the environment"),
    ("self.reward_memory['p'][0] = 3", "may change the environment"),
    ("self.items.append(1)", "may change the environment"),
    ("while True: pass", "'while' is not allowed; write a for over a range"),
    ("try:\n    x = 1\nexcept Exception:\n    x = 2", "'try' is not allowed"),
    ("f = lambda: 1", "'lambda' is not allowed"),
    ("a, b = {}, self.hull.position\nb[0] = 3", "b[...] = ... may change"),
    ("a = b = self.items\nb['x'] = 3", "b[...] = ... may change"),
    ("def g(q):\n    q[0] = 3\ng(state)", "q[...] = ... may change"),
    ("def __g__(): return 1", "names may not begin or end with '_'"),
    ("x = 1e300", "the number 1e+300 is too large"),
    ("print(1)", "'print' is not allowed"),
    ("x = self.env.unwrapped", "'.unwrapped' is not allowed; leave it out"),
    ("x = (1).real.__add__(2)", "__add__"),
    ("x = [].__iter__()", "__iter__"),
    ("np = 3", "'np' may not be given another meaning"),
    ("x = getattr(self, 'y')", "'getattr' is not allowed"),
    ("x = '{0.__class__}'.format(self)", "'.format' is not allowed"),
    ("import numpy as math", "'math' stands for something else"),
    ("from numpy import random", "import of 'numpy.random' is not allowed"),
    ("import numpy.lib as lib", "import of 'numpy.lib' is not allowed"),
    ("from numpy import load", "import of 'numpy.load' is not allowed"),
    ("from math import sqrt as np", "'np' stands for something else"),
    ("import numpy as q\nq.save('f', 1)", "'q.save' is not allowed"),
    ("m = np\nm.save('f', 1)", "the module np may only be used as in"),
    ("x = np.zeros(10**9)", "zeros with a size of 1e+09"),
    ("x = 9 ** 9 ** 9", "a power of this size is not allowed"),
    ("def g(v):\n    return g(v)\ng(1)", "g calls itself"),
    ("for a in range(999):\n    for b in range(999):\n        for c in range(999): r = 0", "too much work in loops"),
]


@pytest.mark.parametrize("body", ALLOWED)
def test_what_rewards_are_made_of_is_allowed(body: str) -> None:
    check_method("def compute_reward(self, pos, action, state):\n" + _indent(body) + "    return 0.0, {}\n", CALL)


@pytest.mark.parametrize("body, message", REFUSED)
def test_what_is_refused_says_the_line_and_what_to_do(body: str, message: str) -> None:
    with pytest.raises(VetError) as error:
        check_method("def compute_reward(self, pos, action, state):\n" + _indent(body) + "    return 0.0, {}\n", CALL)
    assert error.value.stage == "allowlist" and message in error.value.message
    assert error.value.message.startswith("line ")


def _indent(body: str) -> str:
    return "".join(f"    {line}\n" for line in body.splitlines())


def test_the_signature_is_what_step_calls() -> None:
    with pytest.raises(VetError, match="step calls self.compute_reward"):
        check_method("def compute_reward(self, a, b):\n    return 0.0, {}\n", CALL)
    with pytest.raises(VetError, match="first argument must be self"):
        check_method("def compute_reward(a, b, c):\n    return 0.0, {}\n", CALL)
    with pytest.raises(VetError, match="returns nothing"):
        check_method("def compute_reward(self, a, b, c):\n    a = b\n", CALL)
    check_method("def compute_reward(self, a, b, c, d=1):\n    return 0.0, {}\n", CALL)


def test_all_problems_at_once() -> None:
    with pytest.raises(VetError) as error:
        check_method(method("import os\nself.x = 1\nprint(2)\nreturn 0.0, {}"))
    assert len(error.value.message.splitlines()) == 3


def test_steps_of_shipped_environments_are_those_of_their_classes() -> None:
    folders = sorted(p.parent for p in (ROOT / "envs").glob("*/step.py"))
    assert len(folders) == 3
    for folder in folders:
        text = (folder / "step.py").read_text()
        assert _indent_all(text) in (folder / "env_code" / "env.py").read_text(), folder
        call = step_call(text)
        assert call is not None
        check_method((folder / "initial_reward_prompt.txt").read_text(), call)


def _indent_all(text: str) -> str:
    return "\n".join("    " + line if line else "" for line in text.rstrip("\n").splitlines())


@pytest.mark.parametrize("path", sorted((ROOT / "configs" / "recordings").glob("*.jsonl")), ids=lambda p: p.stem)
def test_shipped_recordings_have_good_and_broken_replies(path: Path) -> None:
    name = {"mountain_car_continuous": "mountain_car_continuous_gym"}.get(path.stem, path.stem)
    call = step_call((ROOT / "envs" / name / "step.py").read_text())
    verdicts = []
    for line in path.read_text().splitlines():
        entry = json.loads(line)
        try:
            check_method(extract_method(entry["reply"]), call)
            verdicts.append("ok")
        except VetError as e:
            verdicts.append(e.stage)
            assert entry["comment"].startswith("broken")
    assert verdicts.count("ok") >= 3 and {"allowlist", "extract"} <= set(verdicts)


def test_the_fixtures_reply_is_good() -> None:
    check_method(extract_method(GOOD))
