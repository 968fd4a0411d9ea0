"""What an evaluation of shapers shows: the ranking, the lines of a run without a terminal, the curves."""

from __future__ import annotations

import io
import json
import math

import numpy as np
import pytest

from envolve.agents.shaped.training import Metrics
from envolve.envs.shaping.candidate import Candidate, Failure
from envolve.outer.reporting.display import wide_console
from envolve.outer.shapers.curves import curves
from envolve.outer.shapers.report import LiveRanking, outcomes


def progress(iteration, score):
    score = np.array(score)
    return Metrics(
        iteration, 64 * iteration, score, 2 * score, np.zeros(len(score), np.int64), [{"a": float(x)} for x in score]
    )


def test_a_candidate_one_of_whose_agents_failed_has_no_score():
    """The mean of the others would flatter it."""
    candidates = [(Candidate(name), None) for name in ("poor", "half", "rich")]
    curve = [progress(1, [0.0, 0.1, 0.5, math.nan, 0.7, 0.9])]
    failure = Failure("Diverged", "the agent's weights are not finite", "", 7)
    episodes = np.array([[0, 0.2], [0.1, 0.1], [5, 5], [math.nan] * 2, [1, 2], [3, 4]])
    rich, poor, half = outcomes(candidates, 2, curve, {3: failure}, episodes, ([1] * 6, [1] * 6))
    assert [o.name for o in (rich, poor, half)] == ["rich", "poor", "half"]
    assert rich.score == 2.5 and rich.score_curve == pytest.approx([0.8]) and rich.components == {"a": [0.8]}
    assert math.isnan(half.score) and half.interval is None and half.reason.startswith("1 of 2 agents: Diverged")
    as_json = half.as_json(None)
    assert as_json["agent_scores"] == [5.0, None] and as_json["failed"] and as_json["step"] == 7
    json.dumps([o.as_json(1) for o in (rich, poor, half)], allow_nan=False)


def test_an_interrupted_run_ranks_by_the_score_in_training():
    candidates = [(Candidate(name), None) for name in ("a", "b", "c")]
    ranking = outcomes(candidates, 1, [progress(1, [0.1, 0.9, 0.5])], {})
    assert [o.name for o in ranking] == ["b", "c", "a"]


def test_plain_lines_where_there_is_no_terminal(tmp_path):
    with open(tmp_path / "log", "w") as file, LiveRanking(
        ["a", "b"], 1, 200, "title", "m/s", wide_console(file)
    ) as live:
        for k in range(1, 201):
            live.update(progress(k, [0.1, math.nan] if k > 100 else [0.1, 0.25]))
    lines = (tmp_path / "log").read_text().splitlines()
    assert lines[0] == "title" and len(lines) == 51 and "\x1b" not in "".join(lines)
    assert "iteration 100/200" in lines[25] and "best b 0.25 m/s" in lines[25] and "ETA" in lines[25]
    assert "best a 0.1 m/s" in lines[-1] and "failed 1" in lines[-1]


def test_what_a_terminal_shows():
    console = wide_console(io.StringIO())
    with LiveRanking([f"c{i}" for i in range(14)], 1, 2, "title", "m/s", console) as live:
        console.print(live._render())
        assert "first iteration; kernels may have to be compiled" in console.file.getvalue()
        live.update(progress(2, [0.5, *range(1, 13), math.nan]))
        console.print(live._render())
    text = console.file.getvalue()
    assert "iteration 2/2" in text and "failed 1" in text
    rows = [line.split() for line in text.splitlines()]
    assert ["c12", "12", "24"] in rows and ["c0", "0.5", "1"] not in rows
    assert "... and 1 more" in text and "judging the final policies ..." in text


def test_curves_of_nobody_and_of_very_many_can_be_drawn(tmp_path):
    for count in (1, 40):
        candidates = [(Candidate(f"c{i}"), None) for i in range(count)]
        curve = [progress(1, [math.nan, *range(1, count)]), progress(2, [math.nan, *range(1, count)])]
        ranking = outcomes(candidates, 1, curve, {0: Failure("NotFinite", "", "", 0)})
        curves(tmp_path / f"{count}.png", ranking, "title", "m")
        assert (tmp_path / f"{count}.png").stat().st_size > 10_000
