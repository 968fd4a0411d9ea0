"""What both readers of spaces check."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envolve.core.spaces import integers, read_codes
from tests.examples import examples

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 9) | st.floats() | st.text(max_size=2),
    lambda parts: st.lists(parts, max_size=4),
    max_leaves=8,
)


@given(st.lists(st.lists(st.integers(-1, 9), max_size=3) | JSON, max_size=4) | JSON, st.integers(0, 9))
@settings(max_examples=examples(200))
def test_parts_are_in_order_and_apart_or_refused(data: object, features: int) -> None:
    """Against the property written out: every feature belongs to one part at most."""
    try:
        parts = read_codes(data, features)
    except ValueError as e:
        assert str(e).startswith("codes: found ")
        return
    assert [list(pair) for pair in parts] == data
    covered = [i for start, stop in parts for i in range(start, stop)]
    assert covered == sorted(set(covered)) and all(0 <= i < features for i in covered)
    assert all(start < stop for start, stop in parts)


@pytest.mark.parametrize("data", [[[0, 2], [2, 5]], [], [[4, 5]]])
def test_parts_that_fit_are_taken(data: list[list[int]]) -> None:
    assert [list(pair) for pair in read_codes(data, 5)] == data


@pytest.mark.parametrize("values", [3, "12", [True], [1.0], [0], [2**31]])
def test_integers_are_integers(values: object) -> None:
    with pytest.raises(ValueError, match="nvec: found .* expected a list of integers of at least 1"):
        integers(values, "nvec", 1)
