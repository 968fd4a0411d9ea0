"""The peers' own Python environment: .venv-peers in the root of the checkout, or the folder in $ENVOLVE_PEERS."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Dict

ROOT = Path(__file__).resolve().parents[2]
REQUIREMENTS = Path(__file__).with_name("requirements.txt")
TORCH_INDEX = "https://download.pytorch.org/whl/cpu"  # the small build; without a way there, pip takes its default
PACKAGES = ("torch", "numpy", "gymnasium", "stable-baselines3", "jax")


class Unavailable(Exception):
    """The environment could not be made. The message says why and what can be done."""


def folder() -> Path:
    return Path(os.environ.get("ENVOLVE_PEERS") or ROOT / ".venv-peers")


def ensure(install: bool = True) -> Path:
    """The interpreter of the environment, which is made on first use and when requirements.txt changes.

    A copy of requirements.txt says what was installed last. Raises Unavailable.
    """
    home = folder()
    python, stamp = home / "bin" / "python", home / "installed-requirements.txt"
    if python.exists() and stamp.exists() and stamp.read_text() == REQUIREMENTS.read_text():
        return python
    if not install:
        raise Unavailable(f"{home} does not hold what {REQUIREMENTS.name} asks for")
    print(f"Installing the peers into {home} (once; a few minutes, 1.5 GB). Without them: --no-peers", file=sys.stderr)
    pip = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    torch = next(line for line in REQUIREMENTS.read_text().splitlines() if line.startswith("torch=="))
    for command in (
        [sys.executable, "-m", "venv", str(home)],
        [*pip, "--no-deps", "--retries", "1", "--timeout", "30", "--extra-index-url", TORCH_INDEX, torch],
        [*pip, "-r", str(REQUIREMENTS)],
    ):
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        except OSError as error:
            raise Unavailable(f"{' '.join(command)}: {error}") from error
        if done.returncode:
            last = (done.stderr or done.stdout).strip().splitlines()[-1:] or ["no message"]
            raise Unavailable(f"{' '.join(command)}: {last[0]}")
    stamp.write_text(REQUIREMENTS.read_text())
    return python


def versions(python: Path) -> Dict[str, str]:
    """Versions of the peers' packages."""
    code = f"import json, importlib.metadata as m; print(json.dumps({{p: m.version(p) for p in {PACKAGES!r}}}))"
    done = subprocess.run([str(python), "-c", code], capture_output=True, text=True, check=False)
    found: Dict[str, str] = json.loads(done.stdout) if done.returncode == 0 else {}
    return found
