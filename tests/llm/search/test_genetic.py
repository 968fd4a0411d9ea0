"""Genetic programming over graphs: valid children, typed changes, the same for the same seed, no copies."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from envolve.envs.graph.file import GraphFile
from envolve.envs.graph.ir import GraphFunction
from envolve.envs.graph.values import GraphError
from envolve.envs.physics.task import PHYSICS_TASKS
from envolve.llm.evolution import Evolution
from envolve.llm.models.chat import Chat
from envolve.llm.run import human_graph
from envolve.llm.search.genetic import SCALAR, Genetic
from envolve.llm.search.graphs import MOST_NODES, Input, Op, Param, decode, encode, is_reward, params_of, types, walk
from envolve.llm.search.individual import CROSSOVER, HUMAN, IMPROVE, INITIAL, Individual
from envolve.llm.settings import Settings
from envolve.llm.vetting.trace import calling
from tests.examples import some_slow
from tests.llm.test_evolution import TRAINING, Watched
from tests.llm.traced import probe, traced


def search(task: str = "Cartpole", samples: int = 6, seed: int = 0) -> Genetic:
    return Genetic(PHYSICS_TASKS[task], probe(task).state, samples, seed)


@pytest.mark.parametrize("task", PHYSICS_TASKS)
def test_the_graph_of_the_humans_reward_gives_the_bits_of_its_function(task: str) -> None:
    cls, given = PHYSICS_TASKS[task], probe(task)
    graph_file = human_graph(cls, given)
    assert GraphFile.from_text(graph_file.text()) == graph_file
    wanted = cls.compute_reward(calling.State(calling.make_inputs(given)))
    total = wanted[0] if isinstance(wanted, tuple) else wanted
    function = GraphFunction(graph_file["functions"]["compute_reward"], "compute_reward")
    params = torch.tensor([p["value"] for p in graph_file["params"]]).expand(len(total), -1)
    out = function(given.state, *[params] * bool(function.params))
    torch.testing.assert_close(out[0] if isinstance(out, tuple) else out, total)


@pytest.mark.parametrize("task", some_slow(PHYSICS_TASKS, ["Cartpole", "Ant"]))
def test_the_humans_reward_is_a_parent(task: str) -> None:
    """Its numbers can be changed."""
    cls, given = PHYSICS_TASKS[task], probe(task)
    s = Genetic(cls, given.state, 8, 0, human_graph(cls, given))
    human = Individual(0, 0, 0, HUMAN, (), "", -1, score=1.0)
    first = [Individual(k + 1, 0, 0, p.operator, p.parents, p.model, -1, graph_file=p.graph_file, score=-9.0)
             for k, p in enumerate(s.ask(0))]  # fmt: skip
    assert all(p.operator == INITIAL for p in s.ask(0)), "it has no score yet"
    s.tell([*first, human])
    assert any(0 in p.parents for p in s.ask(1)), "the best by far"
    s.human_graph = None
    assert not any(0 in p.parents for p in s.ask(1))


def told(s: Genetic, iterations: int) -> list[Individual]:
    """A run in which scores are drawn."""
    found: list[Individual] = []
    for iteration in range(iterations):
        new = []
        for k, p in enumerate(s.ask(iteration)):
            i = Individual(len(found) + k, iteration, 0, p.operator, p.parents, p.model, -1, graph_file=p.graph_file)
            i.score = float(np.random.default_rng([iteration, k]).normal())
            new.append(i)
        s.tell(new)
        found += new
    return found


@pytest.mark.parametrize("task", ["Cartpole", "Ant"])
def test_children_are_checked_rewards_and_no_copies(task: str) -> None:
    found = told(search(task), 5)
    for i in found:
        assert i.graph_file is not None
        assert GraphFile.from_text(i.graph_file.text()) == i.graph_file
        assert is_reward(i.graph_file, probe(task).state)
        assert len(i.graph_file["functions"]["compute_reward"]["nodes"]) <= MOST_NODES
        parents = {INITIAL: (0,), IMPROVE: (1,), CROSSOVER: (1, 2)}[i.operator]
        assert len(i.parents) in parents and all(p < i.id for p in i.parents)
    assert {i.operator for i in found} == {INITIAL, IMPROVE, CROSSOVER}
    assert len({i.graph_file.text() for i in found}) == len(found)


def test_the_same_seed_asks_the_same_whatever_was_asked_before() -> None:
    first, second = search(), search()
    found = told(first, 3)
    second.tell(found)
    assert [p.graph_file for p in second.ask(3)] == [p.graph_file for p in first.ask(3)]
    assert [p.graph_file for p in second.ask(2)] == [i.graph_file for i in found if i.iteration == 2]
    assert [p.graph_file for p in search(seed=1).ask(0)] != [p.graph_file for p in search().ask(0)]


@pytest.mark.parametrize("name", ["envcoderbench_reward", "eureka_named_arguments"])
def test_a_traced_reward_comes_back_as_it_was(name: str) -> None:
    """decode and encode against the graph's own evaluation."""
    from envolve.envs.graph.ir import GraphFunction
    from envolve.envs.graph.params import lift
    from envolve.llm.vetting.trace.calling import make_inputs

    graph_file = traced(name)
    example = make_inputs(probe(graph_file["task"]))
    functions, params = lift(graph_file["functions"], {}, example=example)
    whole = {"task": graph_file["task"], "functions": functions, "params": params}
    again = encode(decode(whole), graph_file["task"])
    outs = []
    for f in (whole, again):
        function = GraphFunction(f["functions"]["compute_reward"], "compute_reward")
        out = function.bind([p["value"] for p in f["params"]])(dict(probe(graph_file["task"]).state))
        outs.append(out[0] if isinstance(out, tuple) else out)
    assert torch.equal(*outs)


def test_only_expressions_of_one_type_stand_in_for_each_other() -> None:
    s = search("Ant")
    example = probe("Ant").state
    rng = np.random.default_rng(0)
    for _ in range(60):
        total = s.mutated(rng, s.terms(rng))
        total = s.crossed(rng, total, s.terms(rng))
        found = types(total, example)
        assert found[id(total)] == SCALAR
    x = Op("aten.add.Tensor", [Input("torso_position"), Input("joint_position")])  # [n, 3] + [n, 8]
    with pytest.raises(GraphError):
        types(x, example)


def test_numbers_with_one_name_are_told_apart() -> None:
    a, b = Param("w", 1.0), Param("w", 2.0)
    total = Op(
        "aten.add.Tensor",
        [Op("aten.mul.Tensor", [Input("pole_angle"), a]), Op("aten.mul.Tensor", [Input("cart_velocity"), b])],
    )
    assert [p["name"] for p in encode(total, "Cartpole")["params"]] == ["w", "w_2"]
    assert len(list(walk(total))) == 5 and params_of(total) == [a, b]


def test_a_run_without_a_model_is_resumed_to_the_same_bytes(tmp_path, remembered) -> None:
    def run(folder, iterations):
        folder.mkdir(exist_ok=True)
        with Chat({}, folder / "calls.jsonl") as chat:
            s = Settings(iterations, TRAINING, 0, novelty=2.0, finalists=1, retest=2)
            return Evolution(s, folder, search(samples=3), chat, None, Watched()).run()

    whole = run(tmp_path / "whole", 2)
    run(tmp_path / "cut", 1)
    again = run(tmp_path / "cut", 2)
    assert (tmp_path / "cut" / "individuals.jsonl").read_bytes() == (
        tmp_path / "whole" / "individuals.jsonl"
    ).read_bytes()
    assert whole.best is not None and again.best is not None
    assert whole.best.individual.to_json() == again.best.individual.to_json()
    assert all(i.call == -1 and i.code.startswith("import math") for i in whole.individuals)
