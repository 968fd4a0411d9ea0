"""The best candidate as a file: the same bits as its graph."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest
import torch

from envolve.envs.graph.file import load_graph_file
from envolve.envs.shaping.candidate import load_candidate
from envolve.llm.reporting.best_code import best_code, code_of_graph, code_with_numbers, same_graphs, short
from tests.llm.attempts import CODE, graph_file
from tests.llm.traced import outputs

NAMES = {"forward_velocity", "torque", "progress", "action", "previous_action"}
STATE = {
    "forward_velocity": torch.linspace(-2, 3, 64),
    "torque": torch.randn(64, 8, generator=torch.Generator().manual_seed(0)),
    "progress": torch.arange(64).float(),
}


def same_bits(text: str, graph: dict, folder: Path) -> None:
    path = folder / "best.py"
    path.write_text(text)
    ours, theirs = outputs(load_candidate(path), STATE), outputs(load_graph_file(json.dumps(dict(graph))), STATE)
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs):
        assert a.dtype == b.dtype and torch.equal(a.nan_to_num(7.0), b.nan_to_num(7.0))


def test_numbers_go_back_to_their_literals(tmp_path):
    written, tuned = graph_file(1.5, 0.1), graph_file(2.2500002, -0.05)
    code = code_with_numbers(CODE, written["params"], tuned["params"])
    assert code == CODE.replace("1.5", "2.2500002").replace("0.1", "(-0.05)")
    text = best_code(CODE, written, tuned, lambda code: tuned, NAMES, "About.")
    assert text.startswith('"""About."""\n') and "speed_weight = 2.2500002" in text
    same_bits(text, tuned, tmp_path)


def test_what_was_not_tuned_is_the_authors_code(tmp_path):
    text = best_code(CODE, graph_file(1.5, 0.1), graph_file(1.5, 0.1), None, NAMES, "About.")
    assert CODE in text
    same_bits(text, graph_file(1.5, 0.1), tmp_path)


@pytest.mark.parametrize(
    "recheck",
    [None, lambda code: None, lambda code: graph_file(2.25, 0.06)],
    ids=["no jail", "refused", "another graph"],
)
def test_otherwise_the_graph_is_written_down(tmp_path, recheck):
    written, tuned = graph_file(1.5, 0.1), graph_file(2.25, 0.05)
    text = best_code(CODE, written, tuned, recheck, NAMES, "About.")
    assert '"speed_weight": 2.25' in text and "#     speed_weight = 1.5\n" in text
    same_bits(text, tuned, tmp_path)


def test_a_literal_that_two_params_share_cannot_hold_both():
    params = [{"name": "w", "value": 0.5, "scale": 0.5}, {"name": "w_2", "value": 0.5, "scale": 0.5}]
    moved = [{**p, "value": v} for p, v in zip(params, (0.6, 0.7))]
    assert code_with_numbers("def f(x):\n    w = 0.5\n    return w * x + w\n", params, moved) is None


def test_literals_are_found_in_their_order_behind_other_letters():
    code = "def compute_reward(state):\n    é = 'ß'; r = state['x'][:, 1] * 1.0 - 1.0\n    return r\n"
    params = [{"name": "r_1", "value": 1.0, "scale": 1.0}, {"name": "r_2", "value": 1.0, "scale": 1.0}]
    moved = [{**p, "value": v} for p, v in zip(params, (2.0, -3.0))]
    found = code_with_numbers(code, params, moved)
    assert found == code.replace("* 1.0 - 1.0", "* 2.0 - (-3.0)")


def test_a_minus_before_the_literal_stays():
    code = "def f(x):\n    w = -0.5\n    return w * x\n"
    old = [{"name": "w", "value": -0.5, "scale": 0.5}]
    assert "w = -0.75" in str(code_with_numbers(code, old, [{**old[0], "value": -0.75}]))
    assert "w = -(-0.25)" in str(code_with_numbers(code, old, [{**old[0], "value": 0.25}]))


def test_functions_that_name_quantities_are_given_them(tmp_path):
    code = (
        "from typing import Tuple\n\n\n"
        "def compute_reward(forward_velocity: Tensor, scale: float = 0.1) -> Tensor:\n"
        "    speed_weight = 1.5\n"
        "    return speed_weight * forward_velocity - scale\n"
    )
    graph = graph_file(1.5, 0.1)
    text = best_code(code, graph, graph, None, NAMES, "About.")
    assert 'forward_velocity=state["forward_velocity"]' in text
    same_bits(text, graph, tmp_path)


def test_code_with_more_shapers_than_the_graph_has_is_not_used():
    graph = graph_file(1.5, 0.1)
    code = CODE + "\n\ndef compute_terminal(state):\n    return state['progress'] > 10\n"
    assert "operation per line" in best_code(code, graph, graph, None, NAMES, "About.")


def test_every_kind_of_argument_becomes_python(tmp_path):
    """Constants, lists, {"batch"}, {"dtype"}, {"float"}, {"item"}, keywords, numbers in the place of tensors."""
    nodes = [
        {
            "op": "aten.full.default",
            "args": [[{"batch": 1}, 2], {"float": "-inf"}],
            "kwargs": {"dtype": {"dtype": "float32"}},
        },
        {"constant": [0.5, {"float": "inf"}], "dtype": "float32"},
        {"op": "aten.maximum.default", "args": [{"node": 0}, {"node": 1}]},
        {"op": "aten.unbind.int", "args": [{"node": 2}, 1]},
        {"op": "aten.gt.Scalar", "args": [{"in": 0}, {"param": 0}]},
        {"constant": 0.25, "dtype": "float32"},
        {"op": "aten.where.self", "args": [{"node": 4}, {"param": 1}, {"node": 5}]},
        {"op": "aten.sum.dim_IntList", "args": [{"in": 1}, [1]], "kwargs": {"dtype": None}},
        {"op": "aten.clamp.default", "args": [{"node": 7}, None, {"param": 1}]},
        {"op": "aten.mul.Tensor", "args": [{"node": 6}, {"node": 8}]},
    ]
    graph = graph_file(0.5, 1.5)
    graph["functions"]["compute_reward"] = {
        "inputs": ["forward_velocity", "torque"], "nodes": nodes,
        "outputs": [{"node": 9}, {"item": [3, 0]}], "names": ["total", 'a "part"'],
    }  # fmt: skip
    same_bits(code_of_graph(graph), graph, tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        lambda g: g["functions"]["compute_reward"]["nodes"][0].update(op="aten.mul.Tensor(0) or exit"),
        lambda g: g["functions"]["compute_reward"]["nodes"][0].update(kwargs={"x=exit()": 1}),
        lambda g: g["functions"].update(exit=g["functions"]["compute_reward"]),
        lambda g: g["functions"]["compute_reward"]["nodes"][0].update(constant=1, dtype="x; exit()"),
    ],
)
def test_what_was_not_checked_becomes_no_code(change):
    graph = graph_file(1.5, 0.1)
    change(graph)
    with pytest.raises(ValueError):
        code_of_graph(graph)


def test_names_become_strings_and_no_code(tmp_path):
    graph = graph_file(1.5, 0.1)
    graph["functions"]["compute_reward"]["names"] = ["total"]
    evil = copy.deepcopy(graph)
    evil["params"][0]["name"] = 'x": exit(), "'
    namespace_free = code_of_graph(evil)
    assert '"x\\": exit(), \\"": 1.5' in namespace_free
    assert same_graphs(graph, evil) and not same_graphs(graph, graph_file(1.5, 0.2))


def test_short_numbers_are_the_same_in_float32():
    for value in (0.1, 1e-7, 123456.7, 1 / 3):
        assert torch.tensor(float(short(value))) == torch.tensor(value)
    assert short(-0.5) == "(-0.5)"
