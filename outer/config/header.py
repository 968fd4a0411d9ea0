"""The comments at the head of a run's ``config.yaml``: what its numbers depend on, and how it was begun."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from envolve.core.files import read_text

_LINE = re.compile(r"# (\w+): (.*)")


def header_lines(values: Mapping[str, Any]) -> list[str]:
    """A comment per value, of one line whatever the value holds."""
    return [f"# {json.dumps(str(k))[1:-1]}: {json.dumps(str(v))[1:-1]}" for k, v in values.items()]


def header_of(config: Path) -> dict[str, str]:
    """Inverse of :func:`header_lines`: the values above the first line that is no comment. Raises OSError."""
    found: dict[str, str] = {}
    for line in read_text(config).splitlines():
        if not line.startswith("#"):
            break
        if match := _LINE.fullmatch(line):
            with contextlib.suppress(ValueError):  # a comment of somebody else's
                found[match[1]] = json.loads(f'"{match[2]}"')
    return found
