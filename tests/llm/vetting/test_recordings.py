"""The recordings that come with the project: the good are accepted, the broken are refused where they say."""

from __future__ import annotations

import contextlib
import copy
import functools
import json
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

import envolve.envs.physics  # noqa: F401  registers the tasks
from envolve.envs.graph.file import load_graph_file
from envolve.envs.physics.task import physics_task
from envolve.envs.shaping.candidate import load_candidate
from envolve.llm.models.record import read_recording
from envolve.llm.reporting.best_code import best_code, recheck_with
from envolve.llm.search.individual import Individual
from envolve.llm.search.novelty import most_similar
from envolve.llm.vetting.probe import make_probe
from envolve.llm.vetting.vet import Rejection, Vetted, Vetter
from tests.llm.traced import outputs

FOLDER = Path(__file__).parents[3] / "experiments" / "recordings"
TYPES = {"Cartpole": ["compute_reward"], "Ant": ["compute_reward"], "Anymal": ["compute_reward", "compute_observation"]}
TASKS = [pytest.param(task, marks=[pytest.mark.slow] * (task != "Cartpole")) for task in TYPES]


@pytest.fixture(scope="module")
def vetters() -> Iterator[Callable[[str, type], Vetter]]:
    """One per task, and per way to start a process."""
    with contextlib.ExitStack() as stack:
        yield functools.cache(lambda task, start: stack.enter_context(Vetter(make_probe(task), TYPES[task])))


@pytest.fixture
def vetter_of(vetters: Callable[[str, type], Vetter], warm: None) -> Callable[[str], Vetter]:
    return lambda task: vetters(task, subprocess.Popen)


def recording(name: str) -> list[tuple[str, str, str]]:
    """(reply, comment, what becomes of it: "accepted" or the stage that refuses it)"""
    lines = [json.loads(line) for line in (FOLDER / f"{name.lower()}.jsonl").read_text().splitlines()]
    return [(line["reply"], line["comment"], line["expect"]) for line in lines]


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.jsonl")), ids=lambda p: p.stem)
def test_they_can_be_replayed(path):
    entries = read_recording(path).entries
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert sorted(entries) == list(range(len(lines)))
    for line in lines:
        assert re.match(r"good: |mediocre: |broken: ", line["comment"])
        assert line["comment"].startswith("broken") == (line["expect"] in ("extract", "allowlist", "trace", "smoke"))


def test_there_is_variety():
    for name, least in (("cartpole", 7), ("ant", 20), ("anymal", 20)):
        comments = [comment for _, comment, _ in recording(name)]
        for word in ("good", "mediocre", "broken"):
            assert sum(comment.startswith(word) for comment in comments) >= 2
        assert sum(not comment.startswith("broken") for comment in comments) >= least


@pytest.mark.parametrize("task", TASKS)
def test_verdicts_are_those_of_the_comments_and_the_best_can_be_written_down(task, vetter_of, tmp_path):
    """Structures differ; tuned numbers give files with the bits of the graph, most of them in the author's own code."""
    rng, probe = np.random.default_rng(0), vetter_of(task).probe
    names = {*physics_task(task).described(1), "action", "previous_action"}
    accepted: list[Individual] = []
    own = 0
    vetter = vetter_of(task)
    for k, (reply, comment, expect) in enumerate(recording(task)):
        verdict = vetter.vet(reply, f"r{k}")
        if expect != "accepted":
            assert isinstance(verdict, Rejection) and verdict.stage == expect, (comment, verdict)
            continue
        assert isinstance(verdict, Vetted), (comment, verdict)
        accepted.append(Individual(k, 0, 0, "initial", (), "", k, graph_file=verdict.graph_file))
        near, similarity = most_similar(accepted[-1], accepted[:-1])
        assert similarity < 1, (comment, near and near.id)
        tuned = copy.deepcopy(verdict.graph_file)
        for param in tuned["params"]:
            param["value"] = float(np.float32(param["value"] * (1 + 0.3 * rng.normal())))
        text = best_code(verdict.code, verdict.graph_file, tuned, recheck_with(vetter), names, "About.")
        own += "operation per line" not in text
        path = tmp_path / f"best_{k}.py"
        path.write_text(text)
        graph = load_graph_file(json.dumps(tuned.data))
        for a, b in zip(outputs(load_candidate(path), probe.state), outputs(graph, probe.state), strict=True):
            assert a.dtype == b.dtype and torch.equal(a, b), comment
    assert own >= len(accepted) // 2


def test_the_numbers_of_the_wrong_cartpole_can_be_tuned(vetter_of):
    ((reply, _, _),) = recording("cartpole_wrong_numbers")
    verdict = vetter_of("Cartpole").vet(reply, "wrong")
    assert isinstance(verdict, Vetted)
    values = {p["name"]: p["value"] for p in verdict.graph_file["params"]}
    assert values == {
        "alive_bonus": 0.3,
        "angle_weight": 8.0,
        "spin_weight": 0.5,
        "position_weight": 0.5,
        "speed_weight": 1.0,
        "effort_weight": 0.1,
    }
