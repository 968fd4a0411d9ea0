"""Graphs as Python, and best.py: ``envolve vet`` takes them, and they give the same bits."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from envolve.envs.graph.file import GraphFile
from envolve.envs.physics.task import PHYSICS_TASKS, SHAPER_TYPES
from envolve.envs.shaping.candidate import load_candidate
from envolve.llm.reporting.best_code import best_code, code_of_graph
from envolve.llm.reporting.report import _write_best
from envolve.llm.search.genetic import Genetic
from envolve.llm.search.individual import IMPROVE, Individual
from envolve.llm.vetting.allow.allowlist import check_source
from envolve.llm.vetting.checking import check
from envolve.llm.vetting.normal.normalise import normalise
from envolve.llm.vetting.text.extract import extract
from envolve.llm.vetting.trace import calling
from envolve.llm.vetting.trace.tracer import same_bits, trace_candidate
from tests.llm.accepted import ACCEPTED
from tests.llm.traced import code, outputs, probe

FEW = ("eureka_named_arguments", "in_place_accumulation", "masks_from_other_tensors", "gaussian_tolerance")


def vetted(text: str, types: Sequence[str], task: str) -> GraphFile:
    """As envolve vet does, without the jail: what is run here is this project's own. Raises VetError."""
    found = normalise(extract(text, types).code, types, task).code
    check_source(found, types)
    traced = trace_candidate(found, types, probe(task))
    told = {key: traced[key] for key in ("functions", "action_size", "literal_names")}
    return GraphFile(check(json.dumps({"graph": told}).encode(), found, types, probe(task)))


def values(graph_file: GraphFile) -> list[torch.Tensor]:
    given, out = calling.make_inputs(probe(graph_file["task"]), graph_file["action_size"]), []
    for kind in graph_file["functions"]:
        state = {name: t for name, t in given.items() if "." not in name}
        arguments: list[Any] = [given["action"]] * (kind == "compute_torque") + [state]
        for name in ("random", "rest"):
            arguments += [calling._given(name, given)] if name in calling.WANTED[kind] else []
        out += calling.flat(kind, graph_file.function(kind)(*arguments))[1]
    return out


def check_same(text: str, graph_file: GraphFile) -> None:
    again = vetted(text, SHAPER_TYPES, graph_file["task"])
    assert set(again["functions"]) == set(graph_file["functions"])
    ours, theirs = values(again), values(graph_file)
    assert len(ours) == len(theirs) and all(map(same_bits, ours, theirs)), text


@pytest.mark.parametrize("task", PHYSICS_TASKS)
def test_what_genetic_programming_leaves_is_vetted(task: str, tmp_path: Path) -> None:
    cls = PHYSICS_TASKS[task]
    for k, p in enumerate(Genetic(cls, probe(task).state, 3, 0).ask(0)):
        assert p.graph_file is not None
        folder = tmp_path / str(k)  # one each: Python would take the bytecode of a file of the same size and second
        folder.mkdir()
        made = Individual(
            k, 0, 0, p.operator, (), p.model, -1, "", code_of_graph(p.graph_file), graph_file=p.graph_file
        )
        _write_best(folder, made, [made], cls, None)
        text = (folder / "best.py").read_text()
        check_same(text, p.graph_file)
        assert text.count("import torch") == 1
        own = load_candidate(folder / "best.py")
        assert all(map(same_bits, outputs(own, dict(probe(task).state)), values(p.graph_file)))


@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n in FEW else pytest.mark.slow) for n in ACCEPTED])
def test_every_operation_of_a_graph_is_vetted(name: str) -> None:
    task, types, _ = ACCEPTED[name]
    graph_file = vetted(f"```python\n{code(name)}\n```", types, task)
    names = {*probe(task).state}
    check_same(code_of_graph(graph_file), graph_file)
    check_same(best_code(graph_file["source"], graph_file, graph_file, None, names, "About."), graph_file)
    tuned = graph_file.with_values([p["value"] * 1.25 for p in graph_file["params"]])
    check_same(
        best_code(graph_file["source"], graph_file, tuned, lambda c: vetted(c, types, task), names, "It."), tuned
    )


def test_named_arguments_keep_their_function_under_another_name() -> None:
    source = (
        "def named_compute_reward(x):\n    return x\n\n\n"
        "def twice(pole_angle):\n    return 2 * compute_reward(pole_angle)\n\n\n"
        "def compute_reward(pole_angle):\n    return named_compute_reward(pole_angle)\n"
    )
    graph_file = vetted(source, ["compute_reward"], "Cartpole")
    text = best_code(source, graph_file, graph_file, None, {"pole_angle"}, "About.")
    assert "return 2 * named_compute_reward_2(pole_angle)" in text and text.count("def compute_reward(state)") == 1
    check_same(text, graph_file)


def test_numbers_that_were_tuned_during_the_run_are_in_best_py(tmp_path: Path) -> None:
    """--tune_every leaves a tuned graph with the code as its author wrote it."""
    source = "def compute_reward(state):\n    weight = 0.5\n    return -weight * state['pole_angle'].abs()\n"
    written = vetted(source, ["compute_reward"], "Cartpole")
    tuned = written.with_values([-0.75])
    best = Individual(3, 1, 0, IMPROVE, (), "m", 0, "", source, graph_file=tuned, score=1.0, tuned={"weight": 0.75})
    _write_best(tmp_path, best, [best], PHYSICS_TASKS["Cartpole"], lambda c: vetted(c, ["compute_reward"], "Cartpole"))
    assert "weight = 0.75" in (tmp_path / "best.py").read_text()
    check_same((tmp_path / "best.py").read_text(), tuned)
    _write_best(tmp_path, best, [best], PHYSICS_TASKS["Cartpole"], None)  # without a jail
    text = (tmp_path / "best.py").read_text()
    assert "operation per line" in text and '"weight": -0.75' in text and "#     weight = 0.5" in text
    check_same(text, tuned)
