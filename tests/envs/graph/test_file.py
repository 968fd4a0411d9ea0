"""Graph files: numbers that became params, candidates that are data, and what the simulator makes of them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import envolve.envs.graph.file
import envolve.envs.graph.ir
from envolve.envs.graph.check import GraphError
from envolve.envs.graph.file import GraphFile, load_graph_file
from envolve.envs.graph.ir import GraphFunction
from envolve.envs.graph.params import lift
from envolve.envs.physics.cartpole import CartPole
from envolve.envs.shaping.candidate import Candidate, candidate_files, candidate_name, load_candidate
from envolve.envs.shaping.envs import ShapedEnvs
from envolve.envs.shaping.section import ShapedSection
from envolve.envs.shaping.section import candidates_of as load_of
from envolve.envs.sim.simulator import make_simulator
from tests.envs.graphs import Graph, flat, plainly, same, state_of

N = 5


def numbers() -> dict[str, Any]:
    """A graph with literals of every sort."""
    g = Graph()
    v, speed = g.input("velocity"), g.input("speed")
    wide = g("mul.Tensor", v, 0.5)  # 0
    g("exp.default", g("mul.Tensor", v, 7.0))  # 1, 2: read by nobody
    squares = g("pow.Tensor_Scalar", wide, 2)  # 3: an exponent
    norm = g("add.Tensor", g("sum.dim_IntList", squares, [1]), 1e-6)  # 4, 5: a guard
    share = g("div.Tensor", speed, norm)  # 6
    over = g("gt.Scalar", share, 0.25)  # 7
    one, two = g("scalar_tensor.default", 2.0, dtype={"dtype": "float32"}), g.constant(-1.5)  # 8, 9
    step = g("where.self", over, one, g("lift_fresh.default", two))  # 10, 11
    whole = g("mul.Tensor", g("_to_copy.default", over, dtype={"dtype": "int64"}), 3)  # 12, 13: integers
    table = g("mul.Tensor", g.constant([1.0, 2.0, 3.0]), 0.125)  # 14, 15: a row for no environment
    total = g("add.Tensor", step, g("sum.dim_IntList", g("mul.Tensor", v, table), [1]))  # 16, 17, 18
    total = g("add.Tensor", total, g("clamp.default", speed, 0, 0.75))  # 19, 20: zero stays
    total = g("add.Tensor", total, g("full.default", [{"batch": 1}], 0.0625))  # 21, 22
    total = g("add.Tensor", total, whole)  # 23
    return g.done("compute_reward", g("mul.Tensor", total, 1))  # 24: an integer that is no count


def test_numbers_become_params_where_that_changes_nothing() -> None:
    graph = numbers()
    names = {
        ("compute_reward", 0, 1): "gain",
        ("compute_reward", 8, 0): "bonus",
        ("compute_reward", 9, "constant"): "loss",
    }
    lifted, params = lift({"compute_reward": graph}, names, example=state_of(3))
    assert {p["name"]: p["value"] for p in params} == {
        "gain": 0.5,
        "gt": 0.25,
        "bonus": 2.0,
        "loss": -1.5,
        "clamp": 0.75,
        "full": 0.0625,
        "mul": 1.0,
    }
    assert all(p["scale"] == abs(p["value"]) for p in params)
    assert graph == numbers()  # its own copy
    function, values = GraphFunction(lifted["compute_reward"], "compute_reward"), [p["value"] for p in params]
    for n in (1, 6, 200):
        state = state_of(n)
        wanted = plainly(graph, "compute_reward", state)
        assert same(flat(function.bind(values)(state)), wanted)
        assert same(flat(function(state, torch.tensor(values).repeat(n, 1))), wanted)


def test_a_name_is_used_once() -> None:
    g = Graph()
    x = g("mul.Tensor", g("add.Tensor", g("mul.Tensor", g.input("speed"), 0.5), 0.1), 0.7)
    _, params = lift({"compute_reward": g.done("compute_reward", x)}, example=state_of(2))
    assert [p["name"] for p in params] == ["mul", "add", "mul_2"]


def cartpole(weight: float = 0.5, flip: bool = False, params: bool = True) -> str:
    """The text of a file with a reward and an observation."""
    g = Graph()
    angle = g("abs.default", g.input("pole_angle"))
    reward = g.done(
        "compute_reward", g("sub.Tensor", g("full.default", [{"batch": 1}], 1.0), g("mul.Tensor", angle, weight))
    )
    g = Graph()
    columns = [g.input("pole_angle"), g("mul.Tensor", g.input("pole_angular_velocity"), 0.1 + weight)]
    see = g.done("compute_observation", g("stack.default", columns[::-1] if flip else columns, 1))
    functions = {"compute_reward": reward, "compute_observation": see}
    if not params:
        return GraphFile.of("Cartpole", functions).text()
    example = {"pole_angle": torch.zeros(2), "pole_angular_velocity": torch.zeros(2)}
    lifted, params = lift(functions, example=example)
    return GraphFile.of("Cartpole", lifted, params, source="def compute_reward(state): ...").text()


def test_a_run_tells_once_that_a_file_was_made_for_another_task(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "mine.graph.json"
    path.write_text(cartpole())
    section = ShapedSection(shapers=str(path))
    for task, lines in (("cartpole", 0), ("Ant", 1), ("Ant", 1)):
        assert load_of(section, task)[0].failure is None
        assert len(caplog.messages) == lines
    assert caplog.messages[0].startswith(f"{path}: made for the task Cartpole, used for Ant: ")


def test_a_file_is_a_candidate_under_its_name(tmp_path: Path) -> None:
    (tmp_path / "good.graph.json").write_text(cartpole())
    (tmp_path / "_helper.graph.json").write_text("nothing")
    (tmp_path / "bad.graph.json").write_text('{"envolve_graph": 2}')
    (tmp_path / "code.py").write_text("def compute_reward(state): return state['pole_angle']\n")
    files = candidate_files(tmp_path)
    assert [candidate_name(p) for p in files] == ["bad", "code", "good"]
    bad, _, good = (load_candidate(p) for p in files)
    assert (
        good.name == "good" and good.failure is None and set(good.shapers) == {"compute_reward", "compute_observation"}
    )
    assert good.param_names == ("full", "mul", "mul_2") and torch.equal(good.params, torch.tensor([1.0, 0.5, 0.6]))
    assert torch.equal(good.scales, good.params)
    assert bad.failure.kind == "CannotLoad" and "bad.graph.json: graph file: 'task' is missing" in bad.failure.reason
    assert set(load_candidate(tmp_path / "good.graph.json", ["compute_reward"]).shapers) == {"compute_reward"}
    only = load_candidate(tmp_path / "good.graph.json", ["compute_goal"])
    assert "it defines compute_reward, compute_observation, expected some of compute_goal" in only.failure.reason
    (tmp_path / "good.py").write_text("")
    with pytest.raises(ValueError, match="two candidates of one name"):
        candidate_files(tmp_path)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"envolve_graph": 2}, "expected 1"),
        ({"action_size": 0}, "action_size"),
        ({"params": [{"name": "a", "value": 1.0}]}, "'scale' is missing"),
        ({"params": [{"name": "a", "value": 1.0, "scale": 0.0}] * 3}, "scale is 0.0"),
        ({"params": [{"name": "a", "value": 1.0, "scale": 1.0}] * 3}, "a name occurs twice"),
        ({"params": []}, "only 0 params"),
        ({"functions": {}}, "functions"),
        ({"functions": {"compute_rewards": 1}}, "expected one of compute_reward"),
        ({"more": 1}, "unknown key 'more'"),
        ({"source": 5}, "source"),
    ],
)
def test_what_a_file_must_not_say(change: dict[str, Any], said: str) -> None:
    data = {**json.loads(cartpole()), **change}
    with pytest.raises(GraphError, match="graph") as e:
        load_graph_file(json.dumps(data))
    assert said in str(e.value)


def test_dump_writes_what_can_be_loaded_and_nothing_else() -> None:
    file = GraphFile.from_text(cartpole())
    again = GraphFile.of(file["task"], file["functions"], file["params"], file["action_size"], file["source"])
    assert GraphFile.from_text(again.text()) == again == file and file.text() == cartpole()
    with pytest.raises(GraphError):
        GraphFile.of("Cartpole", {"compute_reward": {"inputs": [float("nan")]}})
    with pytest.raises(GraphError, match="more than"):
        GraphFile({**file.data, "source": "x" * 2**20}).text()


def test_a_file_is_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is made of it relies on the check: other numbers, candidates, functions."""
    file, parsed = GraphFile.from_text(cartpole()), []
    monkeypatch.setattr(envolve.envs.graph.file, "parse", lambda *a: parsed.append(a))
    monkeypatch.setattr(envolve.envs.graph.ir, "parse", lambda *a: parsed.append(a))
    moved = file.with_values([2.0 * p["value"] for p in file["params"]])
    assert moved["params"][0]["value"] == 2 * file["params"][0]["value"] and moved["functions"] is file["functions"]
    candidates = [file.candidate("a"), moved.candidate("b")]
    assert candidates[0].shapers == candidates[1].shapers, "one function, two columns of numbers"
    assert not torch.equal(candidates[0].params, candidates[1].params)
    state = {"pole_angle": torch.randn(5), "pole_angular_velocity": torch.randn(5)}
    assert moved.function("compute_reward")(state) is not None and not parsed
    with pytest.raises(GraphError, match=r"params\[0\]: value is inf"):
        file.with_values([float("inf")] * len(file["params"]))


def test_a_function_of_a_file_is_what_parsing_its_own_graph_gives() -> None:
    """Its params are numbered anew, in the JSON and in what was parsed."""
    g = Graph()
    x = g("mul.Tensor", g.input("speed"), {"param": 2})
    x = g("clamp.default", g("add.Tensor", x, {"param": 0}), min={"param": 2}, max={"param": 1})
    graph = g.done("compute_reward", x)
    names = [{"name": n, "value": v, "scale": 1.0} for n, v in (("a", 0.5), ("b", 3.0), ("c", -0.25))]
    shaper = GraphFile.of("Ant", {"compute_reward": graph}, names).candidate().shapers["compute_reward"]
    own = json.loads(json.dumps(graph))
    for node in own["nodes"]:
        for part in (node["args"], node.setdefault("kwargs", {})):
            for key, arg in part.items() if isinstance(part, dict) else enumerate(part):
                if isinstance(arg, dict) and "param" in arg:
                    part[key] = {"param": shaper.columns.index(arg["param"])}
    again = GraphFunction(own, "compute_reward")
    assert set(shaper.columns) == {0, 1, 2} and shaper.columns != (0, 1, 2)
    assert again == shaper.function and again._parsed == shaper.function._parsed


def make(*candidates: Candidate) -> ShapedEnvs:
    return ShapedEnvs(CartPole(make_simulator("mujoco", "cartpole.xml", N * len(candidates))), candidates, 3)


def candidates_of(*texts: str) -> list[Candidate]:
    return [load_graph_file(text, name=f"c{i}") for i, text in enumerate(texts)]


def play(envs: ShapedEnvs, steps: int) -> list[torch.Tensor]:
    envs.begin()
    rewards = []
    for t in range(steps):
        action = torch.randn(N, 1, generator=torch.Generator().manual_seed(t))
        rewards.append(envs.step(action.expand(envs.P, -1, -1)).reward.clone())
    return rewards


def test_neighbours_with_one_graph_are_one_call_and_live_as_if_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where only one of their functions is the same, and its numbers lie elsewhere in the file."""
    several = candidates_of(cartpole(0.5), cartpole(0.9), cartpole(0.7, flip=True))
    assert several[0].shapers["compute_reward"][:2] == several[2].shapers["compute_reward"][:2]
    envs = make(*several)
    members = {kind: [list(g.members) for g in envs.calls.groups[kind]] for kind in several[0].shapers}
    assert members == {"compute_reward": [[0, 1, 2]], "compute_observation": [[0, 1], [2]]}
    calls: list[tuple[str, bool]] = []
    run = GraphFunction.__call__
    monkeypatch.setattr(GraphFunction, "__call__", lambda f, *a: calls.append((f.kind, f.takes_params)) or run(f, *a))
    together = play(envs, 1)
    assert [takes for kind, takes in calls if kind == "compute_reward"] == [True]
    seen = [takes for kind, takes in calls if kind == "compute_observation"]
    assert seen.count(True) == seen.count(False) > 0  # the one alone has its numbers bound
    together += play(make(*several), 6)
    for i, candidate in enumerate(several):
        alone = play(make(candidate), 1) + play(make(candidate), 6)
        assert all(torch.equal(a[i], b[0]) for a, b in zip(together, alone))


def test_a_graph_that_fails_is_out_with_a_reason_and_harms_nobody() -> None:
    text = cartpole(params=False).replace('"pole_angle"', '"pole_angel"')
    envs = make(*candidates_of(text, cartpole()))
    failure = envs.failures[0]
    assert (failure.kind, failure.traceback) == ("GraphError", "")
    assert "the state has no 'pole_angel'; nearest: 'pole_angle'" in failure.reason
    assert play(envs, 3)[2][1].abs().sum() > 0 and list(envs.failures) == [0]


def test_work_of_loading_grows_with_the_nodes_and_not_faster() -> None:
    """Counted, not timed: calls of Python and C functions (13 ms for 119 nodes, mostly torch's meta functions)."""

    def calls(length: int) -> int:
        g = Graph()
        x = g.input("velocity")
        for _ in range(length):
            x = g("add.Tensor", g("mul.Tensor", g("tanh.default", x), 0.5), g("clamp.default", x, -1.0, 1.0))
        functions = {"compute_reward": g.done("compute_reward", g("sum.dim_IntList", x, [1]))}
        file, state = GraphFile.of("Ant", *lift(functions, example=state_of(2))), state_of(64)
        text, params = file.text(), [p["value"] for p in file["params"]]
        count = 0

        def counted(frame: object, event: str, arg: object) -> None:
            nonlocal count
            count += event in ("call", "c_call")

        before = sys.getprofile()
        sys.setprofile(counted)
        try:
            load_graph_file(text).shapers["compute_reward"].function.bind(params)(state)
        finally:
            sys.setprofile(before)
        return count

    calls(8)  # what is done once in a process
    assert calls(48) < 2.2 * calls(24)
