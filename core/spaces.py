"""Parts of the description of a space that worlds of the zoo and environments from outside both read. Python 3.8."""

from __future__ import annotations

from typing import Any, Tuple

SHOWN = 80  # characters of what was found


def integers(values: Any, name: str, least: int) -> Tuple[int, ...]:
    """Checks a list of integers of at least ``least`` and below 2^31. Raises ValueError."""
    fits = isinstance(values, list) and not any(isinstance(n, bool) or not isinstance(n, int) for n in values)
    if not fits or not all(least <= n < 2**31 for n in values):
        raise ValueError(f"{name}: found {str(values):.{SHOWN}}, expected a list of integers of at least {least}")
    return tuple(values)


def read_codes(data: Any, features: int) -> Tuple[Tuple[int, int], ...]:
    """Checks and returns the one-hot parts [start, stop) of that many features. They are in order and do not overlap.
    Raises ValueError."""
    found = f"codes: found {str(data):.{SHOWN}}"
    pairs = [integers(pair, "codes", 0) for pair in data] if isinstance(data, list) else [()]
    if any(len(pair) != 2 for pair in pairs):
        raise ValueError(f"{found}, expected a list of pairs [start, stop]")
    ends = [end for pair in pairs for end in pair]
    apart = all(a < b for a, b in pairs) and ends == sorted(ends) and (not ends or ends[-1] <= features)
    if not apart:
        raise ValueError(
            f"codes: found {str(data):.{SHOWN}}, expected parts of {features} features, in order and apart"
        )
    return tuple((a, b) for a, b in pairs)
