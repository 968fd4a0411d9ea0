"""How many examples hypothesis tries: a few in the fast tests, all of them in ``make test-long``."""

from __future__ import annotations

import os

ALL = os.environ.get("ENVOLVE_EXAMPLES") == "all"
DEFAULT = 100  # hypothesis's own, for tests that name no number


def examples(number: int = DEFAULT) -> int:
    """Of ``number`` examples, those that are tried now: a fifth, and at least ten, unless ENVOLVE_EXAMPLES is "all"."""
    return number if ALL else min(number, max(10, number // 5))
