"""How an evolution is followed."""

from __future__ import annotations

import io
import math
from types import SimpleNamespace

import numpy as np
import pytest
from rich.console import Console

import envolve.envs.physics
import envolve.llm.reporting.live
from envolve.agents.shaped.training import Metrics
from envolve.envs.physics.task import physics_task
from envolve.llm.reporting.live import LiveEvolution
from envolve.outer.reporting.report import duration
from tests.llm.attempts import evolution, human


@pytest.fixture
def clock(monkeypatch):
    """Time that passes when it is told to."""
    now = SimpleNamespace(seconds=0.0)
    monkeypatch.setattr(envolve.llm.reporting.live.time, "monotonic", lambda: now.seconds)
    return now


def watch(width: int = 150) -> LiveEvolution:
    settings = SimpleNamespace(
        iterations=4, training=SimpleNamespace(iterations=100), tune=SimpleNamespace(generations=5)
    )
    console = Console(file=io.StringIO(), width=width)
    return LiveEvolution(physics_task("Ant"), settings, console, "results/x")


def progress(iteration: int, *score: float) -> Metrics:
    x = np.array(score)
    return Metrics(iteration, 64 * iteration, x, x, x, [{} for _ in score])


def iteration(live: LiveEvolution, clock, number: int, individuals) -> None:
    """10 s of asking, then a training of 100 s."""
    clock.seconds += 1
    live.asking(number, 8)
    clock.seconds += 9
    live.vetting(number, 8)
    for i in range(1, 101):
        clock.seconds += 1
        live.training(number, ["i000", "human", "i001"], progress(i, 1.0, 3.0, 2.0, 2.0, math.nan, 1.0), [0, 1, 2])
    live.finished(number, individuals)


def lines(live: LiveEvolution) -> list[str]:
    return live.console.file.getvalue().split("\n")


def test_plain_lines_where_the_output_is_no_terminal(clock):
    live = watch()
    with live:
        iteration(live, clock, 0, evolution(1, 8))
        live.note("lost a worker [x]")
    out = lines(live)
    assert out[0] == "Ant, results/x"
    assert "iteration 1/4  asking for 8 candidates  elapsed 0:01  ETA -" in out
    assert sum("vetting 8 replies" in line for line in out) == 1
    training = [line for line in out if "training" in line]
    assert 10 <= len(training) <= 13
    assert "best i000 2 per step  out 1" in training[0]  # halves of each are its agents; a mean with NaN is NaN
    assert any(line.startswith("iteration 1/4  8 candidates: ") and "best so far i" in line for line in out)
    assert "note: lost a worker [x]" in out


@pytest.mark.parametrize("compiling", [0, 600])
def test_the_time_that_is_left(clock, compiling):
    live = watch()
    with live:
        clock.seconds += 1
        live.asking(0, 8)
        clock.seconds += 9
        live.vetting(0, 8)
        clock.seconds += compiling
        for i in range(1, 51):
            clock.seconds += 1
            live.training(0, ["a"], progress(i, 1.0), [0])
        assert lines(live)[-2].endswith("ETA 6:17")  # 50 s, then three times 109 s
        clock.seconds += 50
        live.finished(0, evolution(1, 8))
        assert lines(live)[-2].endswith(f"elapsed {duration(110 + compiling)}  ETA 5:27")


def test_iterations_that_are_only_remembered_say_nothing_of_the_time_left(clock):
    live = watch()
    with live:
        live.finished(0, evolution(1, 8))
        live.finished(1, evolution(1, 8))
        assert lines(live)[-2].endswith("ETA -")
        iteration(live, clock, 2, evolution(1, 8))
        assert lines(live)[-2].endswith("ETA 1:49")


def test_a_tuning_has_an_end_of_its_own(clock):
    live = watch()
    with live:
        for generation in range(1, 4):
            clock.seconds += 20
            live.tuning(evolution(1, 1)[0], generation, 1.0, math.nan)
    assert "tuning i000: generation 3/5  mean 1  best - m/s  elapsed 1:00  ETA 0:40" in lines(live)


def test_the_table_of_a_terminal(clock):
    live = watch()
    individuals = [*evolution(2, 8, islands=2), human()]
    live.note("first")
    live.finished(0, individuals)
    live.asking(1, 8)
    live.training(1, ["i000", "i001"], progress(3, 1.0, 2.5), [0, 1])
    with live.console.capture() as seen:
        live.console.print(live._render())
    text = seen.get()
    for word in (
        "Ant, results/x",
        "iteration 2/4",
        "best so far",
        "human",
        "in training",
        "2.5",
        "note: first",
        "ETA -",
    ):
        assert word in text
