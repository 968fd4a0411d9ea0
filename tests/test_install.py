"""requirements.txt in every Python that the README promises: pip finds versions that fit and tries few old ones.

torch, whose files are gigabytes, is said to be there already; it is pinned, so that there is nothing to choose.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.test_layout import ROOT, interpreter

PROMISED = ("3.10", "3.11", "3.12", "3.13")
# pip's "looking at multiple versions" is harmless where it is over soon; this it says after 13 of one package
BACKTRACKS = "This is taking longer than usual"


def pretend(venv: Path, name: str, version: str) -> None:
    """Makes pip believe that a package without requirements is installed."""
    (site,) = venv.glob("lib/python*/site-packages")
    folder = site / f"{name}-{version}.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (folder / "INSTALLER").write_text("pip\n")
    (folder / "RECORD").write_text("")


@pytest.mark.slow
@pytest.mark.parametrize("version", PROMISED)
def test_pip_finds_versions_at_once(tmp_path: Path, version: str) -> None:
    python = interpreter(version)
    if python is None:
        pytest.skip(f"no Python {version} on this machine")
    subprocess.run([python, "-m", "venv", str(tmp_path)], check=True)
    requirements = (ROOT / "requirements.txt").read_text()
    torch = re.search(r"^torch==(\S+)", requirements, re.MULTILINE)
    assert torch
    pretend(tmp_path, "torch", torch[1])
    command = f"{tmp_path}/bin/python -m pip install --dry-run --no-compile -r requirements.txt".split()
    said: list[str] = []
    with subprocess.Popen(command, cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as pip:
        assert pip.stdout
        for line in pip.stdout:  # as it comes: such a search may have no end
            said.append(line)
            if BACKTRACKS in line:
                pip.kill()
                pytest.fail("pip tries one old version after the other:\n" + "".join(said[-20:]))
    output = "".join(said)
    if pip.returncode and re.search("NewConnectionError|Temporary failure|Read timed out", output):
        pytest.skip("no package index can be reached")
    assert pip.returncode == 0, output[-2000:]
    assert re.search(r"^Would install .*mujoco-", output, re.MULTILINE)
