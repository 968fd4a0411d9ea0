"""Curricula as functions of the clock."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envolve.envs.shaping.schedule import Schedule, from_levels, schedule_from


def test_steps_hold_and_lines_join_the_knots() -> None:
    knots, ranges = (10, 20), ((0.0, 1.0), (2.0, 5.0))
    step, linear = Schedule(knots, ranges), Schedule(knots, ranges, "linear")
    assert [step(i) for i in (0, 10, 19, 20, 99)] == [(0, 1), (0, 1), (0, 1), (2, 5), (2, 5)]
    assert [linear(i) for i in (0, 10, 15, 20, 99)] == [(0, 1), (0, 1), (1, 3), (2, 5), (2, 5)]


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=6, unique=True), st.data())
def test_a_line_stays_between_its_knots(knots: list[int], data: st.DataObject) -> None:
    knots = sorted(knots)
    values = data.draw(st.lists(st.floats(-10, 10), min_size=len(knots), max_size=len(knots)))
    schedule = schedule_from({"iters": knots, "values": values, "mode": "linear"})
    low, high = schedule(data.draw(st.integers(0, 1200)))
    assert low == high and min(values) - 1e-9 <= low <= max(values) + 1e-9
    assert [schedule(k)[0] for k in knots] == pytest.approx(values)


def test_levels_are_those_of_the_distributed_sac_project() -> None:
    steps = from_levels([100, 0, 50, 150, 200], (1, 10), start=3)
    assert [steps(i)[0] for i in (0, 49, 50, 100, 150, 200, 999)] == [1, 1, 3, 5, 7, 10, 10]
    noise = from_levels([10, 20], (0.0, 1.0), start=1.0)
    assert [noise(i)[0] for i in (0, 9, 10, 19, 20)] == [1, 1, 0, 0, 1]


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"iters": [0]}, "expected iters, values"),
        ({"iters": [0], "values": [1], "kind": "x"}, "found keys"),
        ({"iters": [0, 0], "values": [1, 2]}, "expected rising iterations"),
        ({"iters": [0], "values": [1, 2]}, "1 knots and 2 values"),
        ({"iters": [0], "values": [[2, 1]]}, "expected low <= high"),
        ({"iters": [0], "values": ["a"]}, "expected a number or"),
        ({"iters": [0], "values": [1], "mode": "cubic"}, "expected step or linear"),
    ],
)
def test_what_cannot_be_a_schedule_is_refused(spec: dict, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        schedule_from(spec)
