"""Tuning of lifted numbers: NES and BOHB reach better ones, survive failures, and go on where they were stopped."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch

import envolve.llm.tune
from envolve.agents.shaped.halving import AgentRun, Training
from envolve.agents.shaped.training import default_section
from envolve.envs.shaping.candidate import Candidate, Failure
from envolve.llm.fitness import Worth
from envolve.llm.json_lines import JSONLinesError
from envolve.llm.tune import NumbersTarget, TuneSettings, make_tuner, read_generations, tune
from envolve.llm.tuners import BOHBTuner

TRAINING = Training("Cartpole", "ppo", default_section("ppo"), 8, 9)
WRITTEN = [2.0, -0.5, 0.0]
BEST = torch.tensor([1.0, 0.5, 0.4])  # u = -0.5, 2, 0.4
CANDIDATE = Candidate("c", params=torch.tensor(WRITTEN), param_names=("a", "b", "c"))


@pytest.fixture
def judged(monkeypatch):
    """In the place of training: how near the numbers are to BEST; every fifth candidate fails."""
    calls = []

    def judge(training, candidates, seed, numbers, stays=(), report=None):
        calls.append((training.iterations, len(candidates), numbers))
        worths = []
        for k, candidate in enumerate(candidates):
            score = -float((candidate.params - BEST).abs().sum())
            failure = Failure("NotFinite", "", "", 3) if k % 5 == 4 else None
            run = AgentRun(score, [score], failure, steps=[training.iterations])
            worths.append(Worth([run], True))
        return worths, None

    monkeypatch.setattr(envolve.llm.tune, "judge", judge)
    return calls


@pytest.mark.parametrize("method,generations", [("nes", 25), ("bohb", 25)])
def test_better_numbers_are_found(judged, tmp_path, method, generations):
    if method == "bohb":
        pytest.importorskip("hpbandster")
    s = TuneSettings(method, generations, 16)
    tuned = tune(TRAINING, CANDIDATE, s, 0, 7, tmp_path / "log.jsonl")
    before = float((CANDIDATE.params - BEST).abs().sum())
    after = float((tuned.params - BEST).abs().sum())
    assert before == pytest.approx(2.4) and after < (0.6 if method == "nes" else 1.6)
    assert len(tuned.history) == generations and tuned.steps == tuned.history[-1][0] > 0
    assert len({numbers for _, _, numbers in judged}) >= generations  # fresh random numbers in every generation
    if method == "bohb":
        assert {iterations for iterations, _, _ in judged} == {1, 3, 9}


@pytest.mark.parametrize("method", ["nes", "bohb"])
def test_an_interrupted_tuning_ends_as_an_uninterrupted_one(judged, tmp_path, method):
    if method == "bohb":
        pytest.importorskip("hpbandster")
    s, whole, cut = TuneSettings(method, 6, 8), tmp_path / "whole.jsonl", tmp_path / "cut.jsonl"
    expected = tune(TRAINING, CANDIDATE, s, 3, 0, whole)
    lines = whole.read_bytes().splitlines(keepends=True)
    cut.write_bytes(b"".join(lines[:3]) + lines[3][:10])  # killed in the middle of a line
    judged.clear()
    reports = []
    again = tune(TRAINING, CANDIDATE, s, 3, 0, cut, lambda *row: reports.append(row))
    assert torch.equal(again.params, expected.params) and again.steps == expected.steps
    assert cut.read_bytes() == whole.read_bytes() and [r[0] for r in reports] == [1, 2, 3, 4, 5, 6]
    assert len({numbers for _, _, numbers in judged}) == 3  # the other three were known
    assert any(None in json.loads(line)["scores"] for line in lines)  # failures are kept as such


@pytest.mark.parametrize(
    "line", ['{"steps": 3}', '{"scores": 1, "steps": 3}', '{"scores": ["a"], "steps": 3}', '{"scores": [1.0]}']
)
def test_a_wrong_line_of_a_log_is_named(tmp_path, line):
    log = tmp_path / "tune_3.jsonl"
    log.write_text('{"scores": [1.0, null], "steps": 3}\n' + line + "\n")
    with pytest.raises(JSONLinesError, match="tune_3.jsonl, line 2: found .*, expected .*scores"):
        read_generations(log)


def test_nes_begins_with_what_is_written():
    tuner = make_tuner(NumbersTarget(3), TuneSettings(population=8), 0)
    asked = tuner.ask()
    assert len(asked.worlds) == 7 and asked.shares == () and torch.equal(asked.worlds[0], torch.zeros(3))


def test_a_generation_of_failures_moves_nothing(judged, tmp_path, monkeypatch):
    """All fail in every generation: the written numbers stay, and each generation asks for the same points."""
    sound, seen = envolve.llm.tune.judge, []

    def judge(training, candidates, *args):
        worths, halved = sound(training, candidates, *args)
        seen.append([candidate.params.tolist() for candidate in candidates])
        for worth in worths:
            worth.runs[0].failure = Failure("NotFinite", "", "", 3)
        return worths, halved

    monkeypatch.setattr(envolve.llm.tune, "judge", judge)
    tuned = tune(TRAINING, CANDIDATE, TuneSettings("nes", 3, 8), 0, 0, tmp_path / "log.jsonl")
    assert torch.equal(tuned.params, CANDIDATE.params) and math.isnan(tuned.score) and tuned.steps > 0
    assert seen[0] == seen[1] == seen[2] and len({numbers for _, _, numbers in judged}) == 3


def test_bohb_begins_with_what_is_written():
    pytest.importorskip("hpbandster")
    tuner = BOHBTuner(3, 5, 0)
    asked = tuner.ask()
    assert torch.equal(asked.worlds[0], torch.zeros(3)) and asked.shares[0] == 1.0 and len(asked.worlds) == 5
    tuner.tell(np.full(5, math.nan))
    assert torch.equal(tuner.centre, torch.zeros(3))  # nothing has worked
    assert len(tuner.ask().worlds) == 5
