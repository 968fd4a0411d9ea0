"""The wheel, installed beside packages of others with the names that this project's folders have."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.test_layout import ROOT

STAND_INS = ("agents", "distributed", "llm")  # openai-agents, Dask's, Simon Willison's
CONFIG = "default_config_gridworld_reward_env.yaml"
SMALL = ["agents.gtn.max_iterations=1", "agents.gtn.num_workers=2", "agents.ql.train_episodes=5"]


def run(*words: object, cwd: Path, **more: str) -> str:
    environ = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run([str(w) for w in words], cwd=cwd, env={**environ, **more}, capture_output=True, text=True)
    assert done.returncode == 0, f"{words}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("setuptools", minversion="77")
    folder = tmp_path_factory.mktemp("wheel")
    tree = folder / "tree"  # setuptools leaves build/ and *.egg-info where it builds
    run("git", "clone", "-q", ROOT, tree, cwd=folder) if (ROOT / ".git").exists() else pytest.skip("no checkout")
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", folder, tree]
    run(*command, cwd=folder)
    (built,) = folder.glob("envolve-*.whl")
    return built


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with the wheel, stand-ins of others' packages, and this one's libraries."""
    venv = tmp_path_factory.mktemp("venv")
    run(sys.executable, "-m", "venv", venv, cwd=venv)
    (site,) = venv.glob("lib/python*/site-packages")
    for name in STAND_INS:
        (site / name).mkdir()
        (site / name / "__init__.py").write_text(f"raise SystemExit('{name} of somebody else')\n")
    (site / "libraries.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    before = {p.name for p in site.iterdir()}
    run(venv / "bin/python", "-m", "pip", "install", "-q", "--no-deps", wheel, cwd=venv)
    added = {p.name for p in site.iterdir()} - before
    assert "envolve" in added and all(n == "envolve" or n.startswith("envolve-") for n in added - {"__pycache__"}), (
        added
    )
    return venv / "bin/python"


@pytest.mark.slow
def test_a_run_beside_packages_of_the_same_names_and_a_clean_end(python: Path, tmp_path: Path) -> None:
    (site,) = python.parents[1].glob("lib/python*/site-packages")
    (tmp_path / "envs").mkdir()
    (tmp_path / "envs" / "__init__.py").write_text("raise SystemExit('envs of the user')\n")
    command = [python.parent / "envolve", "run", CONFIG, "--single", "--results-dir", "here", "--set", *SMALL]
    run(*command, cwd=tmp_path, ENVOLVE_CACHE=str(tmp_path / "cache"))
    (world,) = tmp_path.glob("here/*/model.pt")
    code = f"import envolve; env = envolve.load_world({str(world)!r}); print(env.reset(seed=0)[1], envolve.__file__)"
    assert str(site) in run(python, "-c", code, cwd=tmp_path)
    run(python, "-m", "pip", "uninstall", "-q", "-y", "envolve", cwd=tmp_path)
    assert not (site / "envolve").exists() and all((site / name / "__init__.py").exists() for name in STAND_INS)
