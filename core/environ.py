"""Environment variables for a while. Python 3.8."""

from __future__ import annotations

import contextlib
import os
from typing import Iterator, Mapping


@contextlib.contextmanager
def added(values: Mapping[str, str]) -> Iterator[None]:
    """Adds variables to this process's environment; afterwards it is as it was."""
    before = dict(os.environ)
    os.environ.update(values)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
