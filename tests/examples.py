"""How much of what a test can try is tried in the fast tests."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from typing import Any

import pytest

ALL = os.environ.get("ENVOLVE_EXAMPLES") == "all"  # in ``make test-long``
DEFAULT = 100  # hypothesis's own, for tests that name no number


def examples(number: int = DEFAULT) -> int:
    """Of ``number`` examples of hypothesis, those that are tried: a fifth, and at least ten, unless ``ALL``."""
    return number if ALL else min(number, max(10, number // 5))


def some_slow(cases: Iterable[Any], fast: Collection[Any]) -> list[Any]:
    """The cases as parameters of a test; those that are not ``fast`` are among the slow tests. A tuple
    has the values of several arguments."""
    return [
        case if case in fast else pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.slow)
        for case in cases
    ]
