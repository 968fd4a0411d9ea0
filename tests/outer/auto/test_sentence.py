"""The one sentence: what it says follows from the figures alone."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from envolve.outer.auto.sentence import Figure, Findings, enough, helper, share, verdict


def f(mean: float, low: float | None = None, high: float | None = None, steps: int = 1000) -> Figure:
    return Figure(mean, None if low is None or high is None else (low, high), steps, 5, 0)


def alone(mean: float) -> Figure:
    return Figure(mean, None, 1000, 1, 0)


def found(world: Figure, real: Figure, more: Figure, random: Figure | None = None) -> Findings:
    """more: with ten times the steps of ``real``, if it has any."""
    more = replace(more, steps=10 * more.steps)
    return Findings(random or f(10, 8, 12), {"dqn": world}, {"dqn": real}, {"dqn": more}, 5000)


NONE = Figure(math.nan, None, 0, 0, 0)  # no agents were trained

CASES: list[tuple[str, Findings, list[str]]] = [
    ("helped", found(f(195, 190, 200), f(20, 15, 25), f(200, 195, 205)), ["The world helped: ", "97 %", "5,000 real"]),
    ("by its mean", found(f(185, 100, 200), f(20, 15, 25), f(200, 195, 205)), ["by its mean, not its interval"]),
    ("somewhat", found(f(100, 90, 110), f(20, 15, 25), f(200, 195, 205)), ["helped somewhat", "47 %", "equal steps"]),
    ("worse than random", found(f(-80, -80, -80), f(-90, -90, -90), f(200, 195, 205)), ["The world did not help: "]),
    ("fewer of equal steps", found(f(9, 8, 14), f(200, 195, 205), f(200, 195, 205)), ["dqn after 1,000 real steps"]),
    ("as random", found(f(9, 8, 14), f(20, 15, 25), f(200, 195, 205)), ["The world did not help: "]),
    ("too few", found(f(100, 8, 200), f(20, 15, 25), f(200, 195, 205)), ["It is not clear that the world helped: "]),
    ("all failed", found(f(math.nan), f(math.nan), f(math.nan)), ["No figure: every agent failed"]),
    ("as real", found(f(100, 60, 140), f(95, 70, 120), f(200, 195, 205)), ["did not help enough", "no clear gain"]),
    ("alone", found(f(100, 90, 110), f(10, 8, 12), f(11, 8, 13)), ["helped where the real environment did not"]),
    ("nobody", found(f(11, 8, 14), f(10, 8, 12), f(11, 8, 13)), ["It is not clear", "either"]),
    ("failed", found(f(math.nan), f(10, 8, 12), f(100, 90, 110)), ["did not help: every agent that trained in it"]),
    ("no baseline", found(f(90, 80, 99), f(math.nan), f(math.nan)), ["Nothing to compare with"]),
    ("no time", found(f(19, 18, 20), f(20, 15, 25), NONE), ["saved no steps: ", "90 %", "no time for ten times"]),
    ("no time, better", found(f(40, 38, 42), f(20, 15, 25), NONE), ["The world helped: ", "300 %"]),
    (
        "as fast",
        found(f(199), f(199), f(200), f(20, 15, 25)),
        ["saved no steps: ", "dqn on the", "takes 1,000"],
    ),
    ("one agent", found(alone(100), f(80, 78, 82), f(160, 150, 170)), ["not clear", "one agent is too few"]),
    (
        "one agent, far better",
        found(alone(190), f(80, 78, 82), f(160, 150, 170)),
        ["The world helped", "a single agent"],
    ),
    ("one agent, and nobody", found(alone(50), f(10, 8, 12), f(11, 8, 13)), ["It is not clear"]),
    ("one agent on the task", found(f(20, 15, 25), f(21, 15, 27), alone(200)), ["did not help enough"]),
    (
        "some failed",
        found(replace(f(60, 10, 99), failed=2), f(80, 78, 82), f(160, 150, 170)),
        ["(2 of 5 agents failed"],
    ),
    ("equal values", found(f(200), f(9), f(200), f(20, 15, 25)), ["The world helped: ", "100 %"]),
]


@pytest.mark.parametrize(("name", "of", "words"), CASES, ids=[c[0] for c in CASES])
def test_a_sentence(name: str, of: Findings, words: list[str]) -> None:
    text = verdict(of)
    assert text.endswith(".") and text.count("\n") == 0 and "nan" not in text
    for word in words:
        assert word in text, text


def test_the_share_counts_from_random_to_the_best_real_learner_at_any_steps() -> None:
    assert share(found(f(100), f(20), f(190))) == pytest.approx(0.5)
    assert share(found(f(100), f(190), f(20))) == pytest.approx(0.5)
    assert math.isnan(share(found(f(100), f(9), f(8))))


def test_a_learner_that_needs_a_quarter_of_the_steps_is_told_before_a_better_one_that_needs_more() -> None:
    of = found(f(195), f(20), f(200))
    slow = replace(of, world={"dqn": f(191, steps=2500), "ppo": f(199, steps=2501)})
    assert helper(slow) == ("dqn", slow.world["dqn"]) and "dqn trained for 2,500 steps" in verdict(slow)
    assert enough(slow) == ("dqn", 10_000)
    assert helper(replace(of, world={"ppo": f(199, steps=2501)})) is None
    nobody = found(f(199), f(9), f(8))
    assert helper(nobody) == ("dqn", nobody.world["dqn"]) and enough(nobody) is None
    assert helper(found(f(11, 8, 14), f(9), f(8))) is None


def test_negative_returns() -> None:
    of = Findings(
        f(-1200, -1300, -1100),
        {"sac": f(-180, -200, -160)},
        {"sac": f(-900, -1000, -800)},
        {"sac": f(-150, -160, -140)},
        None,
    )
    assert "97 % of the way from random (-1,200)" in verdict(of) and "real steps;" not in verdict(of)


def changed(of: Findings, **values: Any) -> Findings:
    return Findings(**{**vars(of), **values})


def test_the_best_agent_of_several_is_told() -> None:
    of = changed(CASES[0][1], world={"ppo": f(150, 140, 160), "a2c": f(199, 198, 200), "dqn": f(math.nan)})
    assert "a2c trained for" in verdict(of)
