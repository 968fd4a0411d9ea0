"""The versions that a run's numbers depend on: written with a run, compared when it goes on."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path

from envolve.core.places import CODE
from envolve.outer.config.header import header_of

PACKAGES = ("torch", "numpy", "numba", "gymnasium", "mujoco")


def environment_info() -> dict[str, str]:
    """The versions that a run's numbers depend on, and this project's commit (``+dirty``: with local changes)."""
    info = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            info[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            info[package] = "unknown"
    return {**info, "git": _git_hash()}


def _git_hash() -> str:
    if not (CODE / ".git").exists():  # not a checkout, perhaps inside another project's
        return "unknown"
    command = [
        "git",
        "--no-optional-locks",
        "-C",
        str(CODE),
        "describe",
        "--always",
        "--abbrev=40",
        "--exclude=*",
        "--dirty=+dirty",
    ]
    env = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}  # a git hook sets GIT_DIR
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, env=env)
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"
    return done.stdout.strip() if done.returncode == 0 else "unknown"


def changed_versions(config: Path) -> str:
    """A note for a run that goes on under other versions than the ones in the header of its ``config.yaml``; "" if they
    are the same or unknown. Raises OSError."""
    if not config.exists():
        return ""
    begun, now = header_of(config), environment_info()
    names = [name for name in ("python", *PACKAGES) if begun.get(name, now[name]) != now[name]]
    changed = [f"{name} {begun[name]}, now {now[name]}" for name in names]
    return f"begun with {'; '.join(changed)}: results may differ in the last digits" if changed else ""
