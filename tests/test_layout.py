"""The house rules that a reader cannot see from one file: which way imports run, what Python 3.8 can read."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import python38
from tests.python38 import at_import

ROOT = Path(__file__).parents[1]
# each may import those before it
PACKAGES = ("core", "worlds", "envs", "agents", "outer", "distributed", "llm", "experiments")
JAILED = {"llm/vetting/trace/tracer.py", "llm/gym/method.py"}  # run code of models
SOURCES = sorted(
    p
    for p in [*ROOT.glob("*.py"), *(f for d in (*PACKAGES, "benchmarks", "slurm") for f in (ROOT / d).rglob("*.py"))]
    if not any(part.startswith(".") for part in p.relative_to(ROOT).parts)
)
# read what they have made themselves, or what the system says; all else comes through core/files.py
OWN_READERS = {  # what the kernel itself offers, and logs of their own
    "core/files.py", "core/commands.py", "distributed/programs/launch.py", "distributed/memory/replay_log.py",
    "experiments/describe_tasks.py", "experiments/serve_small_model.py", "llm/gym/jailed.py",
    "llm/vetting/jail/locks.py",
    "llm/gym/guard.py", "core/descendants.py", "core/listener.py", "outer/exchange/machine.py",
}  # fmt: skip
MASTER_ONLY = {"envs/worlds/export.py"}
WORKER_OUTER = {
    "outer/__init__.py",
    "outer/exchange/messages.py",
    "outer/exchange/pairs.py",
    "outer/evaluate/networks.py",
    "outer/plugins.py",
}
MASTER_SIDE_LIBRARIES = {"pydantic", "gymnasium", "rich", "tyro", "tensorboard", "matplotlib", "yaml"}


def of_a_user(path: Path) -> bool:
    """envs/<name>/env_code/ and step.py: a user's Gymnasium environment (docs/gym_envs.md), no part of the package."""
    return path.parent.name == "env_code" or path.name == "step.py"


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def parse(path: Path, **options: tuple[int, int]) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path), **options)  # type: ignore[call-overload]


def imports(tree: ast.AST) -> Iterator[tuple[str, ast.stmt]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: relative import"
            yield node.module or "", node


def imported_at_import(path: Path) -> list[tuple[str, ast.stmt]]:
    statements = [n for n in at_import(parse(path)) if isinstance(n, (ast.Import, ast.ImportFrom))]
    return list(imports(ast.Module(statements, [])))  # type: ignore[arg-type]


def worker_side() -> list[Path]:
    """agents, envs, core, GTN_worker.py, the worker's part of outer, and whatever of outer those import."""
    found = {p for p in SOURCES if p.relative_to(ROOT).parts[0] in ("agents", "core", "envs")}
    found -= {p for p in found if of_a_user(p) or name(p) in MASTER_ONLY}
    found |= {p for p in SOURCES if name(p) in WORKER_OUTER}
    found |= {p for p in SOURCES if name(p) in ("GTN_worker.py", "experiments/worker.py")}
    todo = list(found)
    while todo:
        for module, _ in imported_at_import(todo.pop()):
            path = ROOT / (module.replace(".", "/").replace("envolve/", "", 1) + ".py")
            if module.startswith("envolve.outer.") and path not in found:
                found.add(path)
                todo.append(path)
    return sorted(found)


WORKER_SIDE = worker_side()


def test_there_is_something_to_check() -> None:
    assert {"core/rng.py", "outer/config/section.py", "outer/exchange/worker.py"} <= {name(p) for p in WORKER_SIDE}
    assert "outer/reporting/report.py" not in {name(p) for p in WORKER_SIDE}


@pytest.mark.parametrize("path", WORKER_SIDE, ids=name)
def test_worker_side_is_python_3_8(path: Path) -> None:
    tree = parse(path, feature_version=(3, 8))
    if any(isinstance(n, (ast.FunctionDef, ast.ClassDef, ast.AnnAssign)) for n in tree.body):
        future = [n for n in tree.body if isinstance(n, ast.ImportFrom) and n.module == "__future__"]
        assert future, f"{name(path)}: no `from __future__ import annotations`"
    for line, complaint in python38.newer(tree):
        raise AssertionError(f"{name(path)}:{line}: {complaint}")


@pytest.mark.parametrize("code, complaint", python38.REFUSED)
def test_what_python_3_8_cannot_run_is_found(code: str, complaint: str) -> None:
    found = [text for _, text in python38.newer(ast.parse("from __future__ import annotations\n" + code))]
    assert found and complaint in found[0], found


@pytest.mark.parametrize("code", python38.ACCEPTED)
def test_what_python_3_8_runs_is_let_through(code: str) -> None:
    assert not list(python38.newer(ast.parse("from __future__ import annotations\n" + code)))


@pytest.mark.parametrize("path", WORKER_SIDE, ids=name)
def test_worker_side_needs_no_library_of_the_master(path: Path) -> None:
    for module, node in imported_at_import(path):
        assert module.split(".")[0] not in MASTER_SIDE_LIBRARIES, f"{name(path)}:{node.lineno} imports {module}"


def interpreter(version: str) -> str | None:
    """A Python of this machine, by its version ("3.8")."""
    pyenv = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
    for candidate in [*map(str, pyenv), shutil.which(f"python{version}")]:
        # a pyenv shim is found on the path even where it leads nowhere
        if candidate and subprocess.run([candidate, "-V"], capture_output=True, check=False).returncode == 0:
            return candidate
    return None


def python_3_8() -> str | None:
    return interpreter("3.8")


@pytest.mark.skipif(python_3_8() is None, reason="no Python 3.8 on this machine")
def test_python_3_8_compiles_the_worker_side(tmp_path: Path) -> None:
    code = (
        "import py_compile, sys\n"
        "assert sys.version_info[:2] == (3, 8), sys.version\n"
        "for i, path in enumerate(sys.argv[2:]):\n"
        "    py_compile.compile(path, cfile=sys.argv[1] + '/%d.pyc' % i, doraise=True)\n"
    )
    command = [str(python_3_8()), "-c", code, str(tmp_path), *map(name, WORKER_SIDE)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert len(list(tmp_path.glob("*.pyc"))) == len(WORKER_SIDE)


@pytest.mark.skipif(python_3_8() is None, reason="no Python 3.8 on this machine")
def test_python_3_8_has_every_name_of_the_standard_library() -> None:
    names = {pair for path in WORKER_SIDE for pair in python38.names(parse(path))}
    assert ("typing", "Callable") in names and len(names) > 100
    code = (
        "import importlib, sys\n"
        "for pair in sys.argv[1:]:\n"
        "    module, name = pair.split(':')\n"
        "    found = importlib.import_module(module)\n"
        "    if not hasattr(found, name):\n"
        "        importlib.import_module(module + '.' + name)\n"
    )
    command = [str(python_3_8()), "-c", code, *(":".join(pair) for pair in sorted(names))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_imports_run_one_way(path: Path) -> None:
    package = path.relative_to(ROOT).parts[0]
    if package not in PACKAGES:
        return
    forbidden = {*PACKAGES[PACKAGES.index(package) + 1 :], "tests", "benchmarks", "GTN_master", "GTN_worker"}
    for module, node in imports(parse(path)):
        room = module.removeprefix("envolve.").split(".")[0]
        assert room not in forbidden, f"{name(path)}:{node.lineno}: {package} imports {module}"


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_no_untrusted_bytes_are_executed(path: Path) -> None:
    tree = parse(path)
    for module, statement in imports(tree):
        assert module.split(".")[0] not in ("pickle", "cloudpickle", "dill", "joblib", "shelve", "marshal"), (
            f"{name(path)}:{statement.lineno} imports {module}"
        )
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called, where = ast.unparse(node.func), f"{name(path)}:{node.lineno}"
        if name(path) not in JAILED:
            assert called not in ("eval", "exec", "__import__", "builtins.eval", "builtins.exec"), f"{where}: {called}"
        assert not called.startswith("torch.jit.load") and called != "torch.export.load", f"{where}: {called}"
        if called == "torch.load":
            safe = [k.value for k in node.keywords if k.arg == "weights_only"]
            assert safe and ast.unparse(safe[0]) == "True", f"{where}: torch.load without weights_only=True"
            assert name(path) == "core/torch_file.py", f"{where}: torch.load, where read_torch looks first"
        if called in ("np.load", "numpy.load"):
            assert all(k.arg != "allow_pickle" for k in node.keywords), f"{where}: np.load(allow_pickle=)"
        if called.startswith("yaml."):
            assert called not in ("yaml.unsafe_load", "yaml.full_load", "yaml.FullLoader", "yaml.UnsafeLoader"), where


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_files_are_looked_at_before_they_are_read(path: Path) -> None:
    """A named pipe, a device or a file of 20 GB may lie wherever a file is expected: ``core/files.py`` opens them."""
    if name(path) in OWN_READERS or name(path).startswith(("benchmarks/", "slurm/test/")) or of_a_user(path):
        return
    for node in ast.walk(parse(path)):
        if not isinstance(node, ast.Call):
            continue
        called, where = ast.unparse(node.func), f"{name(path)}:{node.lineno}"
        method = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        assert method not in ("read_text", "read_bytes", "loadtxt", "genfromtxt"), f"{where}: {called}"
        assert called not in ("np.load", "numpy.load", "torch.jit.load"), f"{where}: {called}"
        if called in ("open", "io.open") or (method == "open" and called not in ("os.open", "webbrowser.open")):
            arguments = node.args[1:] if called in ("open", "io.open") else node.args
            mode = next((k.value for k in node.keywords if k.arg == "mode"), arguments[0] if arguments else None)
            of_files = mode is None or isinstance(mode, ast.Constant) or not method  # not a chunk that is open
            writes = isinstance(mode, ast.Constant) and isinstance(mode.value, str) and mode.value[0] in "wax"
            assert writes or not of_files, f"{where}: {called} reads a file"


def test_pyproject_and_requirements_agree() -> None:
    requirements = {
        line.strip() for line in (ROOT / "requirements.txt").read_text().splitlines() if line and line[0] not in "# "
    }
    # tomllib is in Python 3.11 and later; two lists of quoted names need no parser
    text = (ROOT / "pyproject.toml").read_text()
    core = re.search(r"^dependencies = \[(.*?)\]", text, re.DOTALL | re.MULTILINE)
    names = ("dev", "llm", "video", "baselines", "bohb", "cma")
    extras = [re.search(rf"^{name} = \[(.*?)\]", text, re.DOTALL | re.MULTILINE) for name in names]
    assert core and all(extras)
    named = {name for part in (core, *extras) if part for name in re.findall(r'"([^"]+)"', part[1])}
    pinned = {name for name in requirements if name.startswith("torch==")}  # a run promises the same bytes under one
    assert len(pinned) == 1 and requirements - pinned == {name for name in named if not name.startswith("torch>=")}


# ------------------------------------------------------------------------------------------------------------- density

MOST_FILES = 25  # Python files side by side
MOST_PARAMETERS = 12  # of a function
PRODUCT = "agents/kernels/dense/gemm.py"  # takes 13, as BLAS's takes 14: matrices with offsets and strides


def test_folders_are_small() -> None:
    rooms = (*PACKAGES, "benchmarks", "slurm", "tests", "envolve")
    files = [p for room in rooms for p in (ROOT / room).rglob("*.py")]
    sides = Counter(name(p.parent) for p in files)
    assert sides["experiments"] > 10 and sides["tests/outer/hpo"] > 5, "found fewer files than there are"
    assert not {folder: n for folder, n in sides.items() if n > MOST_FILES}


def parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """How many a caller can give, self not among them."""
    a = function.args
    named = [p.arg for p in (*a.posonlyargs, *a.args, *a.kwonlyargs)]
    return len(named) - (named[:1] in (["self"], ["cls"]))


def test_functions_have_few_parameters() -> None:
    several = ast.parse("class A:\n    def f(self, a, /, b, *, c): ...\n").body[0].body[0]  # type: ignore[attr-defined]
    assert parameters(several) == 3
    for path in SOURCES:
        if name(path) != PRODUCT:
            for node in ast.walk(parse(path)):
                if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                    n = parameters(node)
                    assert n <= MOST_PARAMETERS, f"{name(path)}:{node.lineno}: {node.name} has {n} parameters"


def test_no_script_hides_a_module_of_python() -> None:
    """``python3 experiments/paper/X.py`` puts that folder first on the path: a queue.py beside it would be what torch
    gets when it imports queue."""
    folders = {p.parent for p in SOURCES if "__main__" in p.read_text(encoding="utf-8")} - {ROOT / "core"}
    hidden = [name(p) for p in SOURCES if p.parent in folders and p.stem in sys.stdlib_module_names]
    assert folders and hidden == []
