"""Numbers of the code get the names that they have there, and one variable is one parameter."""

from __future__ import annotations

from typing import Any

import pytest

from envolve.envs.graph import params as graph_params
from envolve.llm.vetting import literals
from envolve.llm.vetting.trace import calling
from envolve.llm.vetting.trace.tracer import trace_candidate
from tests.llm.accepted import ACCEPTED
from tests.llm.traced import probe, traced

REWARD = ("compute_reward",)


def lifted(text: str, task: str = "Ant", types: tuple[str, ...] = REWARD) -> dict[str, float]:
    """Names and values of the parameters of this code."""
    return params_of(trace_candidate(text, types, probe(task)), task)


def params_of(file: dict[str, Any], task: str) -> dict[str, float]:
    inputs = calling.make_inputs(probe(task), file["action_size"])
    names = literals.literal_names(file["literal_names"])
    _, params = graph_params.lift(file["functions"], names, example=inputs, only_named=True)
    return {p["name"]: p["value"] for p in params}


def reward(*lines: str, before: str = "") -> str:
    inside = "\n".join(f"    {line}" for line in lines)
    return f'{before}\ndef compute_reward(state):\n    v = state["forward_velocity"]\n{inside}\n'


@pytest.mark.parametrize(
    "code, names",
    [
        (reward("velocity_weight = 2.0", "return velocity_weight * v"), {"velocity_weight": 2.0}),
        (reward("weight: float = 2.0", "return v * weight"), {"weight": 2.0}),
        (reward("weight = 2", "return v * weight"), {"weight": 2.0}),
        (reward("return v * WEIGHT", before="WEIGHT = 0.5"), {"WEIGHT": 0.5}),
        (reward("scale = torch.tensor(0.25)", "return scale * v"), {"scale": 0.25}),
        (reward("return torch.exp(-v.abs() / temperature(0.25))", before="def temperature(x):\n    return x"),
         {}),
        (reward("return f(v, temperature=0.2)", before="def f(x, temperature):\n    return x / temperature"),
         {"temperature": 0.2}),
        (reward("return f(v)", before="def f(x, temperature: float = 0.2):\n    return x / temperature"),
         {"temperature": 0.2}),
        (reward("forward = 1.5 * v + 0.25", "return forward"), {}),
        (reward("weights = {'speed': 3.0}", "return weights['speed'] * v"), {"speed": 3.0}),
        (reward("terms = {}", "terms['speed'] = 3.0 * v", "return sum(terms.values())"), {}),
        (reward("w, s = 2.0, 3.0", "return v * w + s"), {"w": 2.0, "s": 3.0}),
        (reward("low = v.clamp(min=-0.5, max=0.75)", "return low"), {}),
        (reward("limit = 0.5", "return v.clamp(-limit, limit)"), {"limit": -0.5, "limit_2": 0.5}),
        (reward("w = 0.5", "a = v * w", "b = v.abs() * w", "return a + b"), {"w": 0.5}),
        (reward("r = v.clone()", "bonus = 4.0", "r[v > 0.1] = bonus", "return r"), {"bonus": 4.0}),
        (reward("fast = torch.where(v > 1.5, 2.0, 0.5)", "return fast"), {}),
        (reward("run = v * 1.0", "cost = v.abs()", "return run - 0.1 * cost"), {}),
        (reward("a = v * 0.5", "b = v * 0.5", "return a + b"), {}),
        (reward("return v * W[0] + W[1]", before="W = [2.0, -0.5]"), {"W_1": 2.0, "W_2": -0.5}),
        (reward("half = 0.5", "return v * (2.0 * half * 3.0)"), {}),
        (reward("run = v * 2 + 2", "return run"), {}),
        (reward("run = (v ** 2).clamp(-2, 2) * 2", "return run"), {}),
        (reward("w = 0.5", "return f(v, w) + f(v.abs(), w)", before="def f(x, k):\n    return x * k"), {"w": 0.5}),
        (reward("q = state['joint_position']", "return q[:, 2] * 2 + q.sum(dim=1)"), {}),
        (reward("return v / (v.abs() + 1e-6) + v ** 2"), {}),
    ],
)  # fmt: skip
def test_names(code: str, names: dict[str, float]) -> None:
    assert lifted(code) == pytest.approx(names)


def test_numbers_of_all_functions_are_named_apart() -> None:
    found = params_of(traced("all_kinds"), "Anymal")
    assert found["GROUND"] == pytest.approx(0.35) and "yaw_weight" not in found
    assert "tracking_1" not in found and "yaw_1" not in found  # in formulas


@pytest.mark.parametrize("name", ACCEPTED)
def test_names_are_names_and_those_of_the_code(name: str) -> None:
    found = params_of(traced(name), ACCEPTED[name][0])
    assert all(n.isidentifier() for n in found)
    assert not {n.rstrip("_0123456789") for n in found} & {"mul", "add", "sub", "div", "where", "clamp", "gt", "lt"}


def test_a_number_that_decides_what_is_done_is_named_by_its_line() -> None:
    code = reward("exact = 3.0", "half = 0.5", "if exact == 3.0:", "    return v * half", "return v")
    assert set(lifted(code)) <= {"half"}


def test_names_from_a_process_that_is_not_trusted_are_looked_at() -> None:
    listed = [
        ["compute_reward", 3, 1, "speed"], ["compute_reward", 3, "min", "low"], ["compute_reward", "3", 1, "x"],
        ["compute_reward", 4, 1, "not a name"], ["compute_reward", 4, [1], "x"], ["compute_reward", True, 1, "x"], [1],
        ["compute_reward", 4, 1, "x" * 99], 7,
    ]  # fmt: skip
    assert literals.literal_names(listed) == {("compute_reward", 3, 1): "speed", ("compute_reward", 3, "min"): "low"}
    assert literals.literal_names("speed") == {}
