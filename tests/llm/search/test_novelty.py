"""Similarity of graphs: what is ignored, what is not, and the laws of the measure."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envolve.envs.graph.params import lift
from envolve.llm.search.novelty import features, most_similar, similarity
from envolve.llm.vetting.probe import make_probe
from envolve.llm.vetting.trace.tracer import trace_candidate
from tests.llm.individuals import individual

INPUTS = ["speed", "height", "torque"]
BINARY = ["aten.add.Tensor", "aten.mul.Tensor", "aten.sub.Tensor", "aten.maximum.default"]
UNARY = ["aten.exp.default", "aten.abs.default"]


def file(nodes: list[Any], outputs: list[Any], names: list[str] | None = None, **more: Any) -> dict[str, Any]:
    names = names or ["total", *(f"c{k}" for k in range(1, len(outputs)))]
    graph = {"inputs": INPUTS, "nodes": nodes, "outputs": outputs, "names": names}
    content = {"envolve_graph": 1, "task": "Ant", "action_size": None, "params": [], "source": ""}
    return {**content, "functions": {"compute_reward": graph}, **more}


def op(name: str, *args: Any, **kwargs: Any) -> dict[str, Any]:
    return {"op": name, "args": list(args), "kwargs": kwargs}


def node(k: int) -> dict[str, int]:
    return {"node": k}


def given_input(k: int) -> dict[str, int]:
    return {"in": k}


@st.composite
def files(draw: st.DrawFn) -> dict[str, Any]:
    """Rewards over three inputs, of a few operations, some of them dead or repeated."""
    nodes: list[Any] = []
    numbers = st.sampled_from([0.5, 2.0, {"param": 0}, {"param": 1}])
    for k in range(draw(st.integers(1, 6))):
        operand = st.integers(0, 2).map(given_input) | (st.integers(0, k - 1).map(node) if k else st.nothing())
        kind = draw(st.integers(0, 3))
        if kind == 0:
            nodes.append(op(draw(st.sampled_from(UNARY)), draw(operand)))
        elif kind == 1:
            nodes.append(op("aten.select.int", draw(operand), 1, draw(st.integers(0, 1))))
        else:
            nodes.append(op(draw(st.sampled_from(BINARY)), draw(operand), draw(operand | numbers)))
    params = [{"name": f"p{k}", "value": draw(st.sampled_from([0.1, 3.0])), "scale": 1.0} for k in range(2)]
    return file(nodes, [node(len(nodes) - 1), node(0)], params=params)


def expression(content: dict[str, Any], numbers: bool) -> str:
    """The total written out, by plain recursion: the normal form for graphs of ``files``."""
    graph = content["functions"]["compute_reward"]

    def text(a: Any) -> str:
        if isinstance(a, dict) and "node" in a:
            n = graph["nodes"][a["node"]]
            name, args = n["op"].split(".")[1], n["args"]
            if name in ("clone", "alias"):
                return text(args[0])
            if name == "select":
                return f"select({text(args[0])},{args[1:]})"
            parts = [text(x) for x in args]
            return f"{name}({','.join(sorted(parts) if name in ('add', 'mul', 'maximum') else parts)})"
        if isinstance(a, dict) and "in" in a:
            return INPUTS[a["in"]]
        value = content["params"][a["param"]]["value"] if isinstance(a, dict) else a
        return str(value) if numbers else "number"

    return text(graph["outputs"][0])


@given(files(), files(), st.booleans())
@settings(deadline=None)
def test_it_is_a_similarity(a: dict[str, Any], b: dict[str, Any], numbers: bool) -> None:
    s = similarity(a, b, numbers)
    assert 0 <= s <= 1 and s == similarity(b, a, numbers)
    assert similarity(a, a, numbers) == 1
    assert (s == 1) == (expression(a, numbers) == expression(b, numbers))


@given(files(), st.data())
@settings(deadline=None)
def test_what_does_not_matter_is_ignored(a: dict[str, Any], data: st.DataObject) -> None:
    b = copy.deepcopy(a)
    graph = b["functions"]["compute_reward"]
    nodes: list[Any] = []
    place: dict[int, int] = {}  # old -> new

    def moved(x: Any) -> Any:
        return node(place[x["node"]]) if isinstance(x, dict) and "node" in x else x

    for k, n in enumerate(graph["nodes"]):
        if data.draw(st.booleans()):
            nodes.append(op("aten.tanh.default", given_input(0)))  # dead
        args = [moved(x) for x in n["args"]]
        if n["op"].split(".")[1] in ("add", "mul", "maximum") and data.draw(st.booleans()):
            args.reverse()
        nodes.append({**n, "args": args})
        place[k] = len(nodes) - 1
        if data.draw(st.booleans()):
            nodes.append(op("aten.clone.default", node(place[k])))
            place[k] = len(nodes) - 1
    graph["nodes"], graph["outputs"] = nodes, [moved(graph["outputs"][0])]  # and without its component
    graph["names"] = ["total"]
    assert similarity(a, b) == 1 and similarity(a, b, numbers=True) == 1
    for p in b["params"]:
        p["value"] += 1.0
    b["source"] = "# written differently"
    assert similarity(a, b) == 1


X, Y = given_input(0), given_input(1)


@pytest.mark.parametrize(
    "a, b, same",
    [
        (op("aten.mul.Tensor", X, 2), op("aten.mul.Tensor", X, 3.5), True),
        (op("aten.mul.Tensor", X, 2), op("aten.mul.Tensor", Y, 2), False),
        (op("aten.sub.Tensor", X, Y), op("aten.sub.Tensor", Y, X), False),
        (op("aten.add.Tensor", X, Y, alpha=2), op("aten.add.Tensor", X, Y, alpha=3), True),
        (op("aten.add.Tensor", X, Y, alpha=2), op("aten.add.Tensor", X, Y), False),
        (op("aten.pow.Tensor_Scalar", X, 2), op("aten.pow.Tensor_Scalar", X, 2.0), True),
        (op("aten.pow.Tensor_Scalar", X, 2), op("aten.pow.Tensor_Scalar", X, 3), False),
        (op("aten.select.int", X, 1, 0), op("aten.select.int", X, 1, 2), False),
        (op("aten.sum.dim_IntList", X, [1], True), op("aten.sum.dim_IntList", X, [1]), False),
        (op("aten.view.default", X, [{"batch": 1}, 3]), op("aten.view.default", X, [{"batch": 3}, 1]), False),
        ({"constant": [1.0, 0.0], "dtype": "float32"}, {"constant": [0.0, 9.0], "dtype": "float32"}, True),
        ({"constant": [1.0, 0.0], "dtype": "float32"}, {"constant": [1.0], "dtype": "float32"}, False),
        ({"constant": [0, 2], "dtype": "int64"}, {"constant": [0, 3], "dtype": "int64"}, False),
        (op("aten.clamp.default", X, None, 1.0), op("aten.clamp.default", X, 1.0, None), False),
        (op("aten.where.self", X, {"float": "inf"}, Y), op("aten.where.self", X, {"float": "nan"}, Y), False),
    ],
)
def test_structure_and_numbers_are_told_apart(a: Any, b: Any, same: bool) -> None:
    s = similarity(file([a], [node(0)]), file([b], [node(0)]))
    assert (s == 1) == same


def test_more_in_common_is_more_similar() -> None:
    speed = [op("aten.mul.Tensor", X, 2.0), op("aten.exp.default", node(0)), op("aten.neg.default", node(1))]
    base = file(speed, [node(2)])
    near = file([*speed[:2], op("aten.tanh.default", node(1))], [node(2)])
    far = file([op("aten.select.int", Y, 1, 0), op("aten.sqrt.default", node(0))], [node(1)])
    assert 1 > similarity(base, near) > similarity(base, far) == 0


def test_what_is_seen_grows_with_the_depth() -> None:
    def chain(x: Any, *names: str) -> dict[str, Any]:
        nodes = [op(f"aten.{name}.default", node(k - 1) if k else x) for k, name in enumerate(names)]
        return file(nodes, [node(len(nodes) - 1)])

    # other inputs of the same chain: seen from one more operation at each further depth, and in full always
    assert similarity(chain(X, "exp"), chain(Y, "exp")) == pytest.approx(1 / 5)
    assert similarity(chain(X, "abs", "exp"), chain(Y, "abs", "exp")) == pytest.approx((1 + 2 / 4) / 5)
    assert similarity(chain(X, *["exp"] * 4), chain(Y, *["exp"] * 4)) == pytest.approx((1 + 4 / 6 + 3 / 7 + 2 / 8) / 5)


def test_several_results_of_an_operation_are_different() -> None:
    unbind = op("aten.unbind.int", X, 1)
    assert similarity(file([unbind], [{"item": [0, 0]}]), file([unbind], [{"item": [0, 1]}])) < 1


def test_other_functions_and_other_actions_are_different() -> None:
    a = file([op("aten.exp.default", X)], [node(0)])
    torque = {"compute_torque": a["functions"]["compute_reward"]}
    assert similarity(a, {**a, "functions": torque}) == 0
    assert similarity({**a, "functions": torque}, {**a, "functions": torque, "action_size": 4}) < 1
    both = {**a["functions"], **torque}
    assert 0 < similarity(a, {**a, "functions": both}) < 1


def test_of_an_observation_all_outputs_count_and_their_order() -> None:
    graph = {"inputs": INPUTS, "nodes": [], "outputs": [X, Y], "names": ["root_state", "joint_position"]}
    a = file([], [X], functions={"compute_initial_state": graph})
    b = file([], [X], functions={"compute_initial_state": {**graph, "outputs": [Y, X]}})
    assert similarity(a, b) < 1


def test_the_most_similar_is_the_earliest_of_equals() -> None:
    a, b = file([op("aten.exp.default", X)], [node(0)]), file([op("aten.exp.default", Y)], [node(0)])
    known = [individual(4, graph_file=b), individual(3, graph_file=a), individual(2, graph_file=a), individual(1)]
    assert most_similar(individual(9, graph_file=a), known) == (known[2], 1.0)
    near, alike = most_similar(individual(9, graph_file=a), known[:1])
    assert near is known[0] and alike == similarity(a, b) < 1
    assert most_similar(known[2], [known[2], known[3]]) == (None, 0.0)  # itself, and one without a graph
    assert most_similar(individual(9), known) == (None, 0.0)


def test_without_tuning_other_numbers_are_news() -> None:
    def reward(weight: float) -> dict[str, Any]:
        params = [{"name": "w", "value": weight, "scale": 1.0}]
        return file([op("aten.mul.Tensor", X, {"param": 0})], [node(0)], params=params)

    one, two, again = (individual(k, graph_file=reward(w)) for k, w in enumerate((1.0, 2.0, 2.0)))
    assert most_similar(two, [one])[1] == 1 and most_similar(two, [one], numbers=True)[1] < 1
    assert most_similar(two, [again], numbers=True) == (again, 1.0)


CODE = """
def compute_reward(state):
    speed_weight = 1.5
    speed = speed_weight * state["forward_velocity"]
    effort = -0.05 * (state["torque"] / 150.0).square().sum(dim=1)
    return speed + effort, {"speed": speed, "effort": effort}
"""
SAME = """
GEAR = 100.0
def cost(torque):
    return (torque / GEAR) ** 2
def compute_reward(state):
    v = state["forward_velocity"] * 0.7
    return -0.1 * cost(state["torque"]).sum(dim=1) + v
"""


def test_code_that_is_written_differently_and_computes_the_same_is_the_same() -> None:
    probe = make_probe("Ant")

    def traced(code: str) -> dict[str, Any]:
        content = trace_candidate(code, ["compute_reward"], probe)
        functions, params = lift(content["functions"], example=probe.state)
        return {**content, "functions": functions, "params": params}

    same, other = traced(SAME), traced(SAME.replace("forward_velocity", "progress"))
    assert len(same["params"]) == 3 and similarity(traced(CODE), same) == 1 > similarity(traced(CODE), other) > 0
    assert similarity(traced(CODE), same, numbers=True) < 1


def test_a_chain_as_long_as_graphs_may_be_takes_no_recursion() -> None:
    nodes = [op("aten.exp.default", X)] + [op("aten.exp.default", node(k)) for k in range(1999)]
    full = features(file(nodes, [node(1999)]))[-1]
    assert len(full) == 2001 and similarity(file(nodes, [node(1999)]), file(nodes, [node(1998)])) < 1
    assert json.dumps(full)
