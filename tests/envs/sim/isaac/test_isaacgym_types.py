"""The calls of Isaac Gym's gymapi against isaacgym-stubs, by mypy; the fake's functions and structures likewise."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest

from tests.envs.sim.isaac.fake_gymapi import CONSTANTS, STRUCTS
from tests.envs.sim.isaac.fake_isaacgym import FakeGym

ROOT = Path(__file__).parents[4]
FILES = ["isaacgym.py", "actors.py", "efforts.py"]
GYMTORCH = """from isaacgym import gymapi
from torch import Tensor
def wrap_tensor(gym_tensor: gymapi.Tensor) -> Tensor: ...
def unwrap_tensor(torch_tensor: Tensor) -> gymapi.Tensor: ...
"""


def stubs() -> str:
    """gymapi.pyi, with the one word that is no name in Python replaced."""
    try:
        found = [f for f in distribution("isaacgym-stubs").files or [] if f.name == "gymapi.pyi"]
    except PackageNotFoundError:
        found = []
    if not found:
        pytest.skip("isaacgym-stubs is not installed: pip install isaacgym-stubs==1.1rc4")
    text = Path(str(found[0].locate())).read_text(encoding="utf-8")
    return text.replace("def lambda(", "def lambda_(")


@pytest.fixture(scope="module")
def declared() -> dict[str, ast.ClassDef]:
    return {node.name: node for node in ast.parse(stubs()).body if isinstance(node, ast.ClassDef)}


MISTAKES = {  # in isaacgym.py -> what mypy says
    ("self.gym.simulate(self.sim)", "self.gym.simulat(self.sim)"): '"Gym" has no attribute "simulat"',
    ("params.dt, params", "params.delta, params"): '"SimParams" has no attribute "delta"',
    ("plane.restitution = 0.0", "plane.restitution = 'none'"): 'has type "str", variable has type "float"',
    ("fetch_results(self.sim, True)", "fetch_results(self.sim)"): 'Missing positional argument "arg1" in call',
}


def mypy(folder: Path, mistakes: Iterable[tuple[str, str]]) -> str:
    """What mypy says of a copy of the adapter, with mistakes put in."""
    source = folder / "source"
    source.mkdir(exist_ok=True)
    for name in FILES:
        text = (ROOT / "envs/sim/isaac" / name).read_text(encoding="utf-8")
        for right, wrong in mistakes if name == "isaacgym.py" else ():
            assert right in text
            text = text.replace(right, wrong)
        (source / f"checked_{name}").write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--config-file", "mypy.ini", *(f"source/checked_{n}" for n in FILES)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_adapter_calls_what_the_stubs_declare_and_mistakes_would_be_found(tmp_path):
    pytest.importorskip("mypy", reason="mypy is not installed: pip install mypy")
    typings = tmp_path / "typings" / "isaacgym"
    typings.mkdir(parents=True)
    (typings / "__init__.pyi").write_text("")
    (typings / "gymapi.pyi").write_text(stubs(), encoding="utf-8")
    (typings / "gymtorch.pyi").write_text(GYMTORCH)
    (tmp_path / "mypy.ini").write_text(
        "[mypy]\ncheck_untyped_defs = True\nfollow_imports = silent\n"
        f"mypy_path = {typings.parent}:{ROOT}\n"
        "[mypy-isaacgym.gymapi]\nignore_errors = True\n"
        "[mypy-mujoco.*]\nignore_missing_imports = True\nfollow_imports = skip\n"
    )
    assert "Success" in (said := mypy(tmp_path, ())), said
    said = mypy(tmp_path, MISTAKES)
    for error in MISTAKES.values():
        assert error in said, said
    assert f"Found {len(MISTAKES)} errors" in said


def test_every_function_of_the_fake_is_declared_with_as_many_arguments(declared):
    functions = {f.name: f.args for f in declared["Gym"].body if isinstance(f, ast.FunctionDef)}
    for name, function in inspect.getmembers(FakeGym, inspect.isfunction):
        if name.startswith("_"):
            continue
        assert name in functions, f"no {name} in the stubs"
        if functions[name].vararg is None:  # some are declared as (*args, **kwargs)
            count = len(functions[name].args)
            assert len(inspect.signature(function).parameters) == count, f"{name} takes {count} arguments with self"


@pytest.mark.parametrize("struct", STRUCTS, ids=lambda s: s.__name__)
def test_every_attribute_of_the_fakes_structures_is_declared(declared, struct):
    annotated = [n.target.id for n in declared[struct.__name__].body if isinstance(n, ast.AnnAssign)]
    assert set(struct.names) <= set(annotated)


def test_every_constant_of_the_fake_is_declared():
    declared_names = {
        n.target.id for n in ast.parse(stubs()).body if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)
    }
    assert set(CONSTANTS) <= declared_names
