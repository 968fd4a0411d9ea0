"""Which sources the folder of the compiled kernels depends on."""

from __future__ import annotations

import ast
import importlib
import os
import shutil
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from envolve.agents.common import kernel_cache

LEFT_OUT = [p for p in sorted(kernel_cache.KERNELS.rglob("*.py")) if kernel_cache.compiles_nothing(p)]


def test_some_are_left_out_and_the_options_are_not() -> None:
    names = {p.relative_to(kernel_cache.KERNELS).as_posix() for p in LEFT_OUT}
    assert {"ppo/__init__.py", "off_policy/__init__.py", "building/ahead.py"} <= names
    assert not names & {"__init__.py", "building/shortest.py", "building/whole.py", "tabular.py", "ppo/training.py"}


@pytest.mark.parametrize("path", LEFT_OUT, ids=lambda p: p.relative_to(kernel_cache.KERNELS).as_posix())
def test_what_is_left_out_holds_nothing_that_is_compiled(path: Path) -> None:
    tree = ast.parse(path.read_text())
    imported = {n.module or "" for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
    imported |= {a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
    made = [n for n in tree.body if isinstance(n, (ast.FunctionDef, ast.ClassDef, ast.Assign, ast.AnnAssign))]
    if path.name == "__init__.py":
        assert not made and all(name.endswith((".registry", ".compiling", "__future__")) for name in imported)
    # numba itself, to warm it up, is imported within functions; a kernel is made at the top
    outside = {n.module or "" for n in tree.body if isinstance(n, ast.ImportFrom)}
    assert not any(name.split(".")[0] == "numba" for name in outside)


def test_an_edit_gives_another_folder_unless_it_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("agents/kernels", "core", "agents/common", "agents/ppo", "agents/shaped"):
        shutil.copytree(kernel_cache.CODE / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(kernel_cache, "CODE", tmp_path)
    monkeypatch.setattr(kernel_cache, "KERNELS", tmp_path / "agents" / "kernels")
    monkeypatch.setenv("ENVOLVE_CACHE", str(tmp_path / "cache"))
    seen = [kernel_cache.cache_dir()]
    sources = (
        "kernels/ppo/__init__.py",
        "kernels/ppo/update.py",
        "kernels/__init__.py",
        "common/result.py",
        "ppo/rate.py",
    )
    for name in sources:
        with (tmp_path / "agents" / name).open("a") as file:
            file.write("\n# another word\n")
        seen.append(kernel_cache.cache_dir())
    assert seen[0] == seen[1] and len(set(seen[1:])) == len(sources)


def _used(tree: ast.Module) -> set[str]:
    """Names and attributes, such as ``RATE_MIN`` and ``rng.TEST``, outside of classes: a class's ``create`` hands its
    numbers to the kernel as data."""
    parts = [n for part in tree.body if not isinstance(part, ast.ClassDef) for n in ast.walk(part)]
    found = {n.id for n in parts if isinstance(n, ast.Name)}
    dotted = (n for n in parts if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name))
    return found | {f"{n.value.id}.{n.attr}" for n in dotted if isinstance(n.value, ast.Name)}


def test_whose_numbers_are_compiled_in_is_part_of_the_folders_name() -> None:
    """numba takes a module's number as a constant, so a binary is stale once the number changes."""
    needed: dict[str, set[str]] = {}
    for path in sorted(set(kernel_cache.KERNELS.rglob("*.py")) - set(LEFT_OUT)):
        tree = ast.parse(path.read_text())
        used = _used(tree)
        for n in ast.walk(tree):
            if not isinstance(n, ast.ImportFrom) or not (n.module or "").startswith("envolve."):
                continue
            for alias in n.names:
                name, module = alias.asname or alias.name, importlib.import_module(str(n.module))
                value = getattr(module, alias.name, None)
                numbers = {name: value} if name in used else {}
                if isinstance(value, ModuleType):
                    module = value
                    names = {u.partition(".")[2] for u in used if u.startswith(f"{name}.")}
                    numbers = {u: getattr(value, u, None) for u in names}
                for u, v in numbers.items():
                    if u.isupper() and isinstance(v, (int, float, np.number)):
                        file = Path(str(module.__file__)).resolve().relative_to(kernel_cache.CODE.resolve()).as_posix()
                        needed.setdefault(file, set()).add(u)
    outside = {file: names for file, names in needed.items() if not file.startswith("agents/kernels/")}
    assert {"RATE_STEP", "RATE_MIN", "RATE_MAX"} <= outside["agents/ppo/rate.py"], "the finder finds"
    assert not {file: names for file, names in outside.items() if file not in kernel_cache.FROZEN}


def test_a_folder_that_cannot_be_written_is_replaced_and_that_is_said_once(tmp_path, monkeypatch, caplog) -> None:
    monkeypatch.setattr(kernel_cache.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setenv("ENVOLVE_CACHE", str(Path(__file__) / "below"))
    other = tmp_path / f"envolve-{os.getuid()}"
    for _ in range(2):
        assert kernel_cache.cache_base() == other
    assert other.stat().st_mode & 0o777 == 0o700
    assert [r.getMessage() for r in caplog.records] == [
        f"ENVOLVE_CACHE: found {Path(__file__) / 'below'}, where nothing can be written; kernels are kept in {other}"
    ]


@pytest.mark.parametrize("kind", ["of others", "link", "file"])
def test_numba_unpickles_nothing_that_another_user_may_have_put_there(tmp_path, monkeypatch, kind) -> None:
    monkeypatch.setattr(kernel_cache.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setenv("ENVOLVE_CACHE", str(Path(__file__) / "below"))
    other = tmp_path / f"envolve-{os.getuid()}"
    if kind == "file":
        other.touch()
    elif kind == "link":
        (tmp_path / "elsewhere").mkdir(mode=0o700)
        other.symlink_to(tmp_path / "elsewhere")
    else:
        other.mkdir()
        other.chmod(0o777)
    with pytest.raises(FileExistsError):
        kernel_cache.cache_base()
