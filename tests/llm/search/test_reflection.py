"""What an attempt is told of itself."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envolve.llm.search.individual import Individual, curves_of
from envolve.llm.search.reflection import REFLECTION_LIMIT, curve_line, points, reflect, shortened
from tests.llm.individuals import human, individual, individuals

RISING = [float(k) for k in range(101)]


def test_ten_points_maximum_mean_and_minimum() -> None:
    shown = "[0, 10, 20, 30, 40, 60, 70, 80, 90, 100]"
    curve = [10.0 * round(x / 10) for x in RISING]
    assert curve_line("speed", curve) == f"speed: {shown}, max 100, mean 50, min 0"


@given(st.lists(st.floats(-1e6, 1e6), max_size=300))
def test_points_are_of_the_curve_from_first_to_last(curve: list[float]) -> None:
    found = points(curve)
    assert len(found) == min(len(curve), 10)
    assert found[:1] == curve[:1] and found[-1:] == curve[-1:]
    places = [round(k * (len(curve) - 1) / 9) for k in range(10)]
    if len(curve) > 10:
        assert found == [curve[p] for p in places]


def test_every_component_has_a_line_and_the_human_is_beside() -> None:
    curves = curves_of(RISING, [2 * x for x in RISING], {"forward": RISING, "energy": [-x / 10 for x in RISING]})
    text = reflect(
        individual(score=3.25, interval=(3.0, 3.5), steps=64_000, curves=curves),
        human(4.0, curves={"score": [1.0, 4.0]}),
        "m/s",
    )
    assert "64,000 environment steps" in text and "score of 3.25 m/s (95 % interval 3 to 3.5)" in text
    assert "worse than the human's shaping, 4 m/s" in text
    lines = text.splitlines()
    for start in (
        "score: [0, ",
        "score with the human's shaping: [1, 4]",
        "total reward: [0, ",
        "component 'forward': [0, ",
        "component 'energy': [0, ",
    ):
        assert sum(line.startswith(start) for line in lines) == 1, start


@pytest.mark.parametrize("theirs, word", [(1.0, "better than"), (2.0, "the same as"), (3.0, "worse than")])
def test_the_comparison_has_the_right_sign(theirs: float, word: str) -> None:
    assert f"That is {word} the human's" in reflect(individual(score=2.0), human(theirs))


def test_without_a_human_nothing_is_said_of_one() -> None:
    assert "human" not in reflect(individual(score=2.0, curves={"score": RISING}), None)
    assert "human" not in reflect(individual(score=2.0), human(math.nan))


def advice(score: list[float], **components: list[float]) -> str:
    text = reflect(individual(score=1.0, curves=curves_of(score, score, components)), None)
    return text.partition("What stands out:\n")[2]


def test_advice_names_what_stands_out_and_nothing_else() -> None:
    other = [x / 50 for x in RISING]
    assert advice(RISING, forward=RISING, other=[100 - x for x in RISING]) == ""
    text = advice(RISING, forward=RISING, alive=[20.0] * 101, other=other)
    assert "'alive' hardly changed" in text and "'forward'" not in text and "'other'" not in text
    text = advice(RISING, forward=RISING, other=other)
    assert "'forward' makes up 98% of the reward's size" in text and "'other'" not in text
    text = advice([100 - x for x in RISING], spin=RISING, other=[60 - x / 2 for x in RISING])
    assert "'spin' rose while the score fell" in text and "'other'" not in text
    assert "The score itself hardly moved" in advice([1.0, 1.001, 1.0], a=[0.0, 1.0, 2.0], b=[2.0, 1.0, 1.5])
    assert "makes up" not in advice(RISING, only=RISING)
    assert "hardly moved" in advice([1.0] * 4, a=[1.0, 2.0, 3.0, 4.0], b=[4.0, 3.0, 2.0, 1.0])
    falling = [math.nan, *(100 - x for x in RISING)]
    assert "'spin' rose" in advice(falling, spin=[*RISING, math.nan], other=[-40.0, *(x / 2 - 40 for x in RISING)])
    assert "What stands out" not in reflect(individual(score=1.0, curves={"alive": [1.0] * 5}), None, advice=False)


def test_numbers_that_are_missing_are_said_to_be() -> None:
    assert curve_line("a", [math.nan, 1.0, 3.0]) == "a: [-, 1, 3], max 3, mean 2, min 1"
    assert curve_line("a", [math.nan]) == "a: nothing recorded"


def test_what_was_refused_or_failed_has_its_reason() -> None:
    refused = reflect(individual(rejection=("trace", "line 3: an if on a tensor")), None)
    assert "before training" in refused and "trace" in refused and "line 3: an if on a tensor" in refused
    failure = "NotFinite: compute_reward (step 7)\nTraceback\n  line 4"
    assert failure in reflect(individual(failure=failure), None)


@given(st.text(max_size=300), st.integers(0, 200))
def test_shortened_keeps_the_beginning_and_more_of_the_end(text: str, limit: int) -> None:
    short = shortened(text, limit)
    assert len(short) <= limit
    if len(text) <= limit:
        assert short == text
        return
    assert len(short) == limit
    if limit >= 30:
        head, _, tail = short.partition("\n[... cut ...]\n")
        assert text.startswith(head) and text.endswith(tail) and len(tail) >= len(head)


@given(individuals, st.none() | individuals)
def test_anything_can_be_reflected_on(i: Individual, reference: Individual | None) -> None:
    assert len(reflect(i, reference)) <= REFLECTION_LIMIT


def test_a_reflection_stays_bounded() -> None:
    components = {f"{k}" + "x" * 1000: RISING for k in range(1000)}
    long = individual(score=1.0, curves=curves_of(RISING, RISING, components))
    for i in (long, individual(failure="x" * 10**6), individual(rejection=("trace", "x" * 10**6))):
        assert len(reflect(i, long)) <= REFLECTION_LIMIT
    few = {f"c{k}": [float(k + 1)] for k in range(25)}
    text = reflect(individual(score=1.0, curves=curves_of([1.0], [1.0], few)), None)
    assert "(5 smaller components are left out)" in text and "'c24'" in text and "'c4'" not in text
