"""Where workers are: ``--workers-on files|ray[:ADDRESS]``. Costs nothing to import."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping

from envolve.outer.config.yaml_lines import ConfigError

OPEN = "r"  # Ray opens its folder of logs and sockets to every user; the one around it is its user's alone
FILES, RAY = "files", "ray"
WORKERS_ON = (  # help of the flag
    "files (default): workers share a folder with the master; ray: workers on a new Ray cluster on this machine; "
    "ray:HOST:PORT or ray:auto: workers on a running Ray cluster"
)
HERE = "here"
TRAINED_ON = (  # of the flag of commands that need no workers
    "here (default): all agents in this process; ray: workers on a new Ray cluster on this machine; ray:HOST:PORT or "
    "ray:auto: workers on a running Ray cluster"
)
PROGRAMS_ON = (
    "here (default): all programs in this process, or with --processes each in its own; ray: programs on a new Ray "
    "cluster on this machine; ray:HOST:PORT or ray:auto: programs on a running Ray cluster"
)
INSTALL = "pip install 'envolve[ray]'"


def address_of(workers_on: str, without: str = FILES) -> str | None:
    """``ray`` -> None, a cluster of its own; ``ray:ADDRESS`` -> ADDRESS. without: the value that means no Ray. Raises
    ValueError."""
    engine, colon, address = workers_on.partition(":")
    host, _, port = address.rpartition(":")
    fits = address == "auto" or (host and port.isascii() and port.isdigit() and 0 < int(port) < 65536)
    if engine != RAY or (colon and not fits):
        raise ValueError(f"found {workers_on!r}, expected {without}, ray, ray:auto or ray:HOST:PORT")
    return address or None


def installed() -> bool:
    """Whether the package ray is there."""
    return "ray" in sys.modules or importlib.util.find_spec("ray") is not None


def problem(workers_on: str, without: str = FILES) -> str:
    """What is wrong with the value, "" if nothing is."""
    if workers_on == without:
        return ""
    try:
        address_of(workers_on, without)
    except ValueError as e:
        return str(e)
    return "" if installed() else f"found no package ray, which {workers_on} needs; {INSTALL}"


def check_on_ray(workers_on: str, of_files: Mapping[str, object]) -> None:
    """The flag of a command. of_files: flags of the file exchange alone, with what was given. Raises ConfigError."""
    if wrong := problem(workers_on):
        raise ConfigError([f"--workers-on: {wrong}"])
    for name, used in of_files.items():
        if used and workers_on != FILES:
            raise ConfigError([f"{name} is of the file exchange: found it with --workers-on {workers_on}"])


def check_instead(workers_on: str, of_ray: Mapping[str, object], not_on_ray: Mapping[str, object]) -> None:
    """The flag of a command whose other value is ``HERE``. of_ray, not_on_ray: flags that are for Ray alone, or not for
    Ray, with what was given. Raises ConfigError."""
    if wrong := problem(workers_on, HERE):
        raise ConfigError([f"--workers-on: {wrong}"])
    on_ray = workers_on != HERE
    for name, used in (not_on_ray if on_ray else of_ray).items():
        if used:
            expected = "here" if on_ray else "ray or ray:ADDRESS"
            raise ConfigError([f"{name}: found it with --workers-on {workers_on}, expected --workers-on {expected}"])
