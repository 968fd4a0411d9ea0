"""Code out of replies: whatever stands around it, and what is said where there is none."""

from __future__ import annotations

import ast
import textwrap
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envolve.llm.vetting.text.extract import VetError, extract, extract_code, parse
from tests.examples import examples

REWARD = ("compute_reward",)
GOOD = """\
SCALE = 0.5


def squash(x, temperature: float = 0.25):
    # a comment with an f-string: f"{x}"
    return torch.exp(-x / temperature)


def compute_reward(state):
    \"\"\"Faster is better.\"\"\"
    reward = SCALE * squash(state["x"])
    return reward, {"reward": reward}
"""


def same(code: str, expected: str) -> bool:
    return ast.dump(ast.parse(code)) == ast.dump(ast.parse(expected))


def refusal(reply: str, types: tuple[str, ...] = REWARD) -> str:
    with pytest.raises(VetError) as e:
        extract_code(reply, types)
    assert e.value.stage == "extract"
    return e.value.message


@pytest.mark.parametrize(
    "reply",
    [
        GOOD,
        f"```python\n{GOOD}```",
        f"```py\n{GOOD}```",
        f"```Python3\n{GOOD}```\n",
        f"``` python title='a.py'\n{GOOD}```",
        f"```{{python}}\n{GOOD}```",
        f"```\n{GOOD}\n```",
        f"~~~python\n{GOOD}~~~",
        f"````python\n{GOOD}````",
        f"Sure! Here it is.\n\n```python\n{GOOD}```\n\nIt pays for x; from now on import torch as you like.",
        f"Here you are, from me to you:\n\n{GOOD}\nThis function squashes x.",
        "1. First the code:\n\n" + textwrap.indent(f"```python\n{GOOD}```", "   ") + "\n2. Then more.",
        "- The code:\n" + textwrap.indent(f"  ```python\n{GOOD}  ```", "  "),
        "> ```python\n" + textwrap.indent(GOOD, "> ", lambda _: True) + "> ```",
        '```json\n{"a": 1}\n```\n```bash\npip install torch\n```\n```python\n' + GOOD + "```",
        "```python\n" + GOOD + "```\nUse it so:\n```python\nprint(compute_reward({'x': torch.ones(3)}))\n```",
        "```python\n" + GOOD + "\nif __name__ == '__main__':\n    print(compute_reward({}))\n```",
        "```python\nimport torch\nimport numpy as np\nfrom typing import Dict\nfrom torch import Tensor\n"
        + GOOD
        + "```",
        "```python\n" + GOOD.replace("def compute_reward", "@torch.jit.script\ndef compute_reward") + "```",
        "```python\n" + GOOD.replace("\n", "\r\n") + "```",
        "```python\n" + GOOD.replace("    ", "\t") + "```",
        "```python\n" + GOOD,  # cut off, but nothing is missing
        "```python\ndef compute_reward(state):\n    return state['old']\n```\nBetter:\n```python\n" + GOOD + "```",
        "```python\n" + GOOD + "```\nAnother idea:\n```python\ndef compute_reward(state):\n    return (state['x'\n```",
        "```python\n" + GOOD + "\n\ndef compute_observation(state):\n    return state['x'][:, None]\n```",
        "\ufeff```python\n" + GOOD + "```",
    ],
)
def test_the_code_is_found_wherever_it_stands(reply: str) -> None:
    assert same(extract_code(reply, REWARD), GOOD)


def test_what_is_not_needed_is_dropped_and_the_order_kept() -> None:
    reply = "```python\nimport os\nimport torch.nn.functional as F\nUNUSED = 3\n" + GOOD + "ACTION_SIZE = 4\n```"
    code = extract_code(reply, REWARD)
    assert "os" not in code and "UNUSED" not in code and "ACTION_SIZE" not in code
    torque = "ACTION_SIZE = 4\n\ndef compute_torque(action, state):\n    return action\n"
    assert same(extract_code(torque, ("compute_torque",)), torque)


def test_functions_of_several_blocks_come_together() -> None:
    one = "```python\ndef half(x):\n    return x / 2\n\ndef compute_reward(state):\n    return half(state['x'])\n```"
    two = "```python\ndef compute_observation(state):\n    return half(state['y'])\n```"
    code = extract_code(f"First\n{one}\nthen\n{two}", ("compute_reward", "compute_observation"))
    assert [n.name for n in ast.parse(code).body if isinstance(n, ast.FunctionDef)] == [
        "half",
        "compute_reward",
        "compute_observation",
    ]
    other = two.replace("```python\n", "```python\ndef half(x):\n    return 0.5 * x\n\n")
    assert "define 'half' differently" in refusal(f"{one}\n{other}", ("compute_reward", "compute_observation"))
    assert "half(x):\n    return 0.5 * x" in extract_code(f"{one}\n{other}", ("compute_observation",))


def test_an_import_that_is_used_stays_for_the_allow_list_to_judge() -> None:
    code = extract_code("import numpy as np\ndef compute_reward(state):\n    return np.abs(state['x'])\n", REWARD)
    assert code.startswith("import numpy as np")
    aliased = "import torch as th\nfrom math import pi\ndef compute_reward(s):\n    return th.exp(s['x']) * pi\n"
    assert same(extract_code(aliased, REWARD), aliased)


@pytest.mark.parametrize(
    "reply, said",
    [
        ("", "no code was found"),
        ("I cannot help with that.", "no code was found: write compute_reward"),
        ("Define compute_reward as the velocity.", "no function compute_reward was found"),
        ("```python\nx = 1\n```", "no function compute_reward was found"),
        ("```python\ndef fast(state):\n    return state['x']\n```", "the code defines fast, expected compute_reward"),
        (
            "```python\ndef reward(s):\n    return s['x']\n\ndef get_reward(s):\n    return s['x']\n```",
            "rename reward to compute_reward",
        ),
        ("```python\ndef compute_reward(state):\n    return state['x\n```", "line 2 (return state['x): SyntaxError"),
        ("```python\ndef compute_reward(s):\n    return (s['x'] +\n", "ends in the middle of the code, at \"return (s"),
        ("```python\ndef compute_reward(state):\n    x = state['x']\n", "ends in the middle of the code, at"),
        ("```python\nclass P:\n    def compute_reward(self, state):\n        return self.x\n```", "method of class P"),
        ("def compute_reward(s):\n    return s[\u201cx\u201d]\n", "): found '\u201c' (U+201C); write"),
        ("def compute_reward(state):\n    return state['x'] \u2212 1\n", "(U+2212); write -"),
        ("def compute_reward(state):\n\tx = 1\n        return x\n", "tabs and spaces"),
        ("def compute_reward(state):\n    return \0\n", "null bytes"),
        ("def compute_reward(state):\n    return " + "(" * 3000 + ")" * 3000, "nested"),
        ("def compute_reward(state):\n    return " + "-" * 15000 + "1", "nested"),
        ("def compute_reward(state):\n    return " + "1 + " * 20000 + "1", "at most 40000 are allowed"),
        ("def compute_reward(state):\n    return " + "-" * 30000 + "1", "more than 20000 names, numbers and signs"),
        ("x" * 500_000, "at most 200000"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said(reply: str, said: str) -> None:
    assert said in refusal(reply)


def test_a_function_that_is_almost_another_is_not_dropped_in_silence() -> None:
    code = "def compute_reward(s):\n    return s['x']\n\ndef compute_observatons(s):\n    return s['y']\n"
    assert "rename it to compute_observation" in refusal(code, ("compute_reward", "compute_observation"))
    assert "compute_observatons" not in extract_code(code, REWARD)


@pytest.mark.parametrize(
    "name",
    "reward get_reward compute_rewards calculate_reward reward_fn compute_anymal_reward computeReward total_reward "
    "compute_dense_reward compute_bbot_reward".split(),
)
def test_a_synonym_is_taken_for_what_was_asked_for(name: str) -> None:
    code, notes = extract(f"# a comment\ndef {name}(state):\n    return state['x']  # speed\n", REWARD)
    assert code == "# a comment\ndef compute_reward(state):\n    return state['x']  # speed\n"
    assert notes == (f"{name} is taken as compute_reward",)


def test_of_several_synonyms_the_one_that_sums_the_others_up() -> None:
    parts = "def speed_reward(s):\n    return s['x']\n\ndef get_reward(s):\n    return 2 * s['x']\n\n"
    code = parts + "def reward(s):\n    return speed_reward(s) + get_reward(s)\n"
    found = extract(code, REWARD)
    assert "def compute_reward(s):\n    return speed_reward(s)" in found.code and "def get_reward" in found.code
    used = "def compute_done(s):\n    return s['x'] > 1\n\ndef compute_reward(s):\n    return 1.0 * compute_done(s)\n"
    assert extract(used, ("compute_reward", "compute_terminal")).code.count("def compute_done") == 1


def test_a_class_that_holds_constants_is_taken_apart() -> None:
    code, notes = extract(
        "class Pay:\n    K = 2.0\n    def __init__(self, w: float = 1.5):\n        self.w = w\n"
        "    def half(self, x):\n        return x / self.K\n"
        "    def compute_reward(self, state):\n        return self.w * self.half(state['x'])\n",
        REWARD,
    )
    assert notes == ("class Pay is taken apart into functions",)
    assert same(
        code,
        "K = 2.0\nw = 1.5\ndef half(x):\n    return x / K\ndef compute_reward(state):\n    return w * half(state['x'])",
    )


NAMES = st.sampled_from(["alpha", "beta", "gamma", "delta"])
PROSE = st.lists(
    st.sampled_from(
        [
            "Here is the code.",
            "",
            "- a point",
            "**Note:** from here on it is simple",
            "1. import is a word",
            "The function `compute_reward` pays.",
            "`x = 1`",
            "from the start: fine",
        ]
    ),
    max_size=4,
).map("\n".join)


@st.composite
def modules(draw: st.DrawFn) -> tuple[str, str]:
    """A module and what of it compute_reward needs."""
    constants = draw(st.dictionaries(NAMES.map(str.upper), st.floats(-9, 9), max_size=3))
    helpers = draw(st.lists(NAMES, unique=True, max_size=3))
    used = [h for h in helpers if draw(st.booleans())]
    read = [c for c in constants if draw(st.booleans())]
    parts = {c: f"{c} = {v!r}" for c, v in constants.items()}
    parts.update({h: f"def {h}(x):\n    # {h}\n    return x" for h in helpers})
    body = "".join(f"    x = {h}(x)\n" for h in used) + "".join(f"    x = x * {c}\n" for c in read)
    parts["compute_reward"] = f"def compute_reward(state):\n    x = state['x']\n{body}    return x"
    needed = [text for name, text in parts.items() if name in (*used, *read, "compute_reward")]
    return "\n\n".join(parts.values()) + "\n", "\n\n".join(needed) + "\n"


@settings(max_examples=examples(150), deadline=None)
@given(
    modules(), PROSE, PROSE, st.sampled_from(["```", "~~~", "````"]), st.sampled_from(["", "python", "py", "Python"]),
    st.sampled_from(["", "  ", "    ", "\t"]), st.sampled_from(["\n", "\r\n", "\r"]),
)  # fmt: skip
def test_any_module_in_any_fence(
    module: tuple[str, str], before: str, after: str, fence: str, language: str, indent: str, end: str
) -> None:
    whole, needed = module
    block = textwrap.indent(f"{fence}{language}\n{whole}{fence}", indent)
    code = extract_code(f"{before}\n{block}\n{after}".replace("\n", end), REWARD)
    assert same(code, needed)
    assert extract_code(code, REWARD) == code  # once more changes nothing
    assert extract_code(f"{before}\n```\n{code}```", REWARD) == code


@settings(max_examples=examples(150), deadline=None)
@given(st.one_of(
    st.text(max_size=300),
    st.text(alphabet="`~ \n\tdef compute_reward(state):return x=1#'\"[](){}@,.", max_size=300),
    st.lists(
        st.sampled_from([*GOOD.split("\n"), "```", "```python", "~~~", "Prose.", "class A:", "    pass", "@", "\x00"]),
        max_size=30,
    ).map("\n".join),
))  # fmt: skip
def test_any_text_gives_code_or_a_reason(reply: str) -> None:
    try:
        code = extract_code(reply, REWARD)
    except VetError as e:
        assert e.stage == "extract" and e.message
    else:
        functions = {n.name for n in ast.parse(code).body if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))}
        assert "compute_reward" in functions


@settings(max_examples=examples(100), deadline=None)
@given(modules(), st.integers(0, 400))
def test_a_reply_that_is_cut_off_is_whole_or_refused(module: tuple[str, str], length: int) -> None:
    whole, needed = module
    try:
        code = extract_code(("```python\n" + whole)[:length], REWARD)
    except VetError as e:
        assert e.stage == "extract"
    else:
        body = ast.parse(code).body[-1]
        assert isinstance(body, ast.FunctionDef) and isinstance(body.body[-1], ast.Return)


def test_one_thread_parses_at_a_time(monkeypatch) -> None:
    """Python 3.11's parser is not made for more, and seldom says so."""
    plain, inside = ast.parse, []

    def watched(code: str) -> ast.Module:
        inside.append(code)
        time.sleep(0.01)
        assert len(inside) == 1
        return plain(inside.pop())

    monkeypatch.setattr(ast, "parse", watched)
    with ThreadPoolExecutor(4) as pool:
        assert len(list(pool.map(parse, ["a = 1"] * 8))) == 8
