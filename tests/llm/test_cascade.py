"""A short training first."""

from __future__ import annotations

import math

import pytest

from envolve.llm import cascade
from envolve.llm.cascade import evaluate_in_two, go_on, shorter
from tests.llm.individuals import human, individual
from tests.llm.test_evolution import REPLIES, TRAINING, evolve, recording


def scored(number: int, score: float, width: float = 0.0):
    return individual(number, score=score, interval=(score - width, score + width))


def test_who_goes_on() -> None:
    new = [scored(0, 3.0), scored(1, 2.0), scored(2, 4.0, 2.5), scored(3, 1.0), individual(4, failure="no")]
    chosen, median = go_on(new, [])
    assert median == 2.5 and [i.id for i in chosen] == [0, 2]  # the best, though its lower bound is below
    chosen, median = go_on(new, [9.0] * 5)
    assert median == 9.0 and [i.id for i in chosen] == [2]
    assert go_on([individual(0, failure="no")], [1.0])[0] == []


def test_shares() -> None:
    assert shorter(TRAINING, 0.25).iterations == 1 and shorter(TRAINING, 0.001).iterations == 1


def test_steps_and_scores(monkeypatch) -> None:
    calls = []

    def evaluate(training, individuals, seed, report=None):
        calls.append((training.iterations, [i.id for i in individuals]))
        for i in individuals:
            i.score = i.id + (0.5 if training.iterations == 1 else -2.0)
            i.interval = (i.score, i.score)
            i.steps += training.iterations

    monkeypatch.setattr(cascade, "evaluate", evaluate)
    new = [individual(k) for k in range(4)] + [human(math.nan)]
    evaluate_in_two(TRAINING, new, 0, 0.25, [])
    assert calls == [(1, [0, 1, 2, 3]), (4, [2, 3, 10_000])]
    assert [i.short for i in new[:4]] == [0.5, 1.5, 2.5, 3.5] and [i.steps for i in new] == [1, 1, 5, 5, 4]
    assert [i.score for i in new[:4]] == [0.0, 0.0, 0.0, 1.0]  # never better than the worst that went on
    assert [bool(i.notes) for i in new[:4]] == [True, True, False, False]


@pytest.mark.slow
def test_a_run_with_a_cascade_spends_less_and_resumes_alike(tmp_path) -> None:
    """The first iteration is on disk; the second decides by the short scores of both."""
    llm = recording(tmp_path / "r.jsonl", REPLIES)
    _, whole = evolve(tmp_path / "whole", llm, cascade=0.25)
    _, full = evolve(tmp_path / "full", llm)
    assert whole.steps < full.steps
    evolve(tmp_path / "cut", llm, iterations=1, cascade=0.25)
    _, again = evolve(tmp_path / "cut", llm, cascade=0.25)
    assert [i.to_json() for i in again.individuals] == [i.to_json() for i in whole.individuals]
    assert (tmp_path / "cut" / "individuals.jsonl").read_bytes() == (
        tmp_path / "whole" / "individuals.jsonl"
    ).read_bytes()
