"""Numbers in graphs: bounds that can be tuned and trained, numbers where torch takes tensors, signs as written."""

from __future__ import annotations

import json

import pytest
import torch

from envolve.envs.graph.file import GraphFile
from envolve.llm.vetting.checking import check
from envolve.llm.vetting.literals import as_written, signs
from envolve.llm.vetting.trace.tracer import trace_candidate
from tests.llm.traced import probe

TYPES = ("compute_reward",)


def graph_of(*lines: str) -> GraphFile:
    code = "def compute_reward(state):\n" + "".join(f"    {line}\n" for line in lines)
    found = trace_candidate(code, TYPES, probe("Cartpole"))
    told = {key: found[key] for key in ("functions", "action_size", "literal_names")}
    return GraphFile(check(json.dumps({"graph": told}).encode(), code, TYPES, probe("Cartpole")))


@pytest.mark.parametrize("function", ["minimum", "maximum", "max", "min"])
def test_a_bound_with_a_name_can_be_tuned_and_trained(function: str) -> None:
    """A lone candidate trains with its numbers in their places, where minimum takes no number."""
    graph_file = graph_of("limit = 0.01", "x = state['pole_angle']", f"return torch.{function}(x, torch.tensor(limit))")
    assert [p["name"] for p in graph_file["params"]] == ["limit"]
    given = dict(probe("Cartpole").state)
    wanted = getattr(torch, function)(given["pole_angle"], torch.tensor(0.01))
    assert torch.equal(graph_file.function("compute_reward")(given), wanted)
    moved = graph_file.with_values([-0.02]).function("compute_reward")(given)
    assert torch.equal(moved, getattr(torch, function)(given["pole_angle"], torch.tensor(-0.02)))


@pytest.mark.parametrize("mode", ["floor", "trunc"])
def test_a_quotient_is_rounded_by_a_number(mode: str) -> None:
    graph_file = graph_of("x = state['pole_angle'] * 100", f"return torch.div(x, 0.3, rounding_mode='{mode}')")
    given = dict(probe("Cartpole").state)
    wanted = torch.div(given["pole_angle"] * 100, 0.3, rounding_mode=mode)
    assert torch.equal(graph_file.function("compute_reward")(given), wanted)


def test_numbers_are_shown_with_the_signs_of_their_code() -> None:
    graph_file = graph_of(
        "w = 0.1", "k = -0.3", "t = 0.25", "weights = {'a': 0.11, 'b': -0.22}", "y = state['pole_angle'].abs()",
        "z = state['cart_position'].abs()",
        "return -w * y - z * k + torch.exp(y / -t) + torch.exp(-y / t) - weights['a'] * y + -weights['b'] * z",
    )  # fmt: skip
    params = {p["name"]: p["value"] for p in graph_file["params"]}
    assert params == {"w": -0.1, "k": -0.3, "t": -0.25, "t_2": 0.25, "a": 0.11, "b": 0.22}
    assert as_written(graph_file) == {"w": 0.1, "k": -0.3, "t": 0.25, "t_2": 0.25, "a": 0.11, "b": -0.22}
    assert signs("def f(:", graph_file["params"]) == [1] * 6  # a stranger's
