"""The versions that a run's numbers depend on: written with a run, compared when it goes on."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import re
import subprocess
from pathlib import Path

from envolve.core.files import read_text
from envolve.core.places import CODE

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
    header = "\n".join(line for line in read_text(config).splitlines() if line.startswith("#"))
    now, changed = environment_info(), []
    for name in ("python", *PACKAGES):
        found = re.search(rf'^# {name}: (".*")$', header, re.MULTILINE)
        begun = json.loads(found[1]) if found else now[name]
        if begun != now[name]:
            changed.append(f"{name} {begun}, now {now[name]}")
    return f"begun with {'; '.join(changed)}: results may differ in the last digits" if changed else ""
