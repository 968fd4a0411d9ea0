"""The worker side of physics is imported by Python 3.8, which Isaac Gym is bound to; libraries are stood in for."""

from __future__ import annotations

import subprocess

import pytest

from tests.test_layout import ROOT, python_3_8

CODE = """
import importlib, sys
from unittest.mock import MagicMock

assert sys.version_info[:2] == (3, 8), sys.version
for name in ("torch", "numpy", "mujoco"):  # any attribute of theirs is there
    sys.modules[name] = MagicMock()
sys.path.insert(0, ".")
for module in sys.argv[1:]:
    importlib.import_module(module)
print("imported", len(sys.argv) - 1)
"""


@pytest.mark.skipif(python_3_8() is None, reason="no Python 3.8 on this machine")
def test_python_3_8_imports_the_adapter_of_isaac_gym_and_the_tasks():
    files = [f"envs/sim/{name}.py" for name in ("simulator", "rotations", "mujoco_model", "isaac/isaacgym")]
    files += [p.relative_to(ROOT).as_posix() for p in sorted((ROOT / "envs/physics").glob("[!_]*.py"))]
    modules = ["envolve." + f[:-3].replace("/", ".") for f in files]
    command = [str(python_3_8()), "-c", CODE, *modules]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"imported {len(modules)}\n"
