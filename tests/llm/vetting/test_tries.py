"""A reply's ``try``: what it hid is told with the line, the reason and the ``try``; the mend that is named is one."""

from __future__ import annotations

import re

import pytest

from envolve.llm.vetting.allow.allowlist import check_source
from envolve.llm.vetting.jail import locks as jail
from envolve.llm.vetting.normal.normalise import TRIED, normalise
from envolve.llm.vetting.vet import Rejection, Vetted, Vetter
from tests.llm.traced import probe

needs_jail = pytest.mark.skipif(bool(jail.missing()), reason=f"no jail here: {', '.join(jail.missing())}")
TYPES = ("compute_reward",)
TRY = """
def compute_reward(state):
    angle = state["pole_angle"]
    try:
        {tried}
    except KeyError:
        other = -angle.abs()
    return angle.square() + other
"""


@needs_jail
def test_a_try_with_a_handler_is_named_where_it_hid_a_mistake() -> None:
    mends = {
        'other = state["foo"]': 'other = state["foo"] if "foo" in state else -angle.abs()',
        'other = {"a": 1.0}["b"] * angle': 'other = {"a": 1.0}.get("b", 2.0) * angle',
        "other = angle.reshape(3, 5, 7)": "other = angle.reshape(-1)",
    }
    with Vetter(probe("Cartpole"), TYPES) as vetter:
        for tried, mended in mends.items():
            verdict = vetter.vet_code(TRY.format(tried=tried), "hidden")
            assert isinstance(verdict, Rejection) and verdict.stage == "trace"
            line = int(re.match(r"line (\d+) \(", verdict.message)[1])  # type: ignore[index]
            assert "other = " in verdict.code.split("\n")[line - 1] and verdict.message.endswith(TRIED)
            plain = TRY.format(tried=mended).replace("    try:\n    ", "").split("    except")[0]
            mended_code = f"{plain}    return angle.square() + other\n"
            assert isinstance(vetter.vet_code(mended_code, "mended"), Vetted), mended_code
        fine = vetter.vet_code(TRY.format(tried='other = state["cart_position"]'), "fine")
        assert isinstance(fine, Vetted)
        elsewhere = TRY.format(tried='other = state["cart_position"]').replace("square()", "sqare()")
        verdict = vetter.vet_code(elsewhere, "elsewhere")
        assert isinstance(verdict, Rejection) and "'try'" not in verdict.message


@needs_jail
def test_a_node_that_no_graph_takes_is_told_by_its_line() -> None:
    code = (
        'def compute_reward(state):\n    steps = state["progress"].int()\n    turn = steps // 4\n'
        "    return turn.float()\n"
    )
    with Vetter(probe("Cartpole"), TYPES) as vetter:
        verdict = vetter.vet_code(code, "integers")
        assert isinstance(verdict, Rejection)
        assert verdict.message.startswith("line 3 (turn = steps // 4): torch's floor_divide: division of integers")
        assert "write x.float() before it, and torch.floor" in verdict.message
        mended = code.replace("steps // 4", "torch.floor(steps.float() / 4)")
        assert isinstance(vetter.vet_code(mended, "mended"), Vetted)


def test_lines_of_a_try_are_those_of_the_rewritten_code() -> None:
    code = (
        "def compute_reward(state):\n    x = state['x']  # beside\n    print(x)\n    for k in range(2):\n        try:\n"
        "            y = x\n            if k:\n                y = y + k\n        except ValueError:\n"
        "            y = 1.0\n    return y\n"
    )
    found = normalise(code, TYPES)
    lines = found.code.split("\n")
    assert [found.why(f"line {k}: no").endswith(TRIED) for k in range(1, len(lines))] == [
        line.strip() in ("y = x", "if k:", "y = y + k") for line in lines[:-1]
    ]
    check_source(found.code, TYPES)
    bare = code.replace("        except ValueError:\n            y = 1.0\n", "        finally:\n            pass\n")
    assert not any(normalise(bare, TYPES).why(f"line {k}: no") != f"line {k}: no" for k in range(12))
