"""Where workers are: ``--workers-on files|ray[:ADDRESS]``. Costs nothing to import."""

from __future__ import annotations

import importlib.util
import sys

FILES, RAY = "files", "ray"
INSTALL = "pip install 'envolve[ray]'"


def address_of(workers_on: str) -> str | None:
    """``ray`` -> None, a cluster of its own; ``ray:ADDRESS`` -> ADDRESS. Raises ValueError."""
    engine, colon, address = workers_on.partition(":")
    host, _, port = address.rpartition(":")
    fits = address == "auto" or (host and port.isascii() and port.isdigit() and 0 < int(port) < 65536)
    if engine != RAY or (colon and not fits):
        raise ValueError(f"found {workers_on!r}, expected files, ray, ray:auto or ray:HOST:PORT")
    return address or None


def installed() -> bool:
    """Whether the package ray is there."""
    return "ray" in sys.modules or importlib.util.find_spec("ray") is not None


def problem(workers_on: str) -> str:
    """What is wrong with the value, "" if nothing is."""
    if workers_on == FILES:
        return ""
    try:
        address_of(workers_on)
    except ValueError as e:
        return str(e)
    return "" if installed() else f"found no package ray, which {workers_on} needs; {INSTALL}"
