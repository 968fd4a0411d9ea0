"""The house rules that a reader cannot see from one file: which way imports run, what Python 3.8 can read."""

from __future__ import annotations

import ast
import functools
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

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
WITH_GYMNASIUM = {"envs/worlds/export.py", "envs/outside/functional.py"}  # imported only where it is installed
WORKER_OUTER = {
    "outer/__init__.py",
    "outer/exchange/messages.py",
    "outer/exchange/pairs.py",
    "outer/evaluate/networks.py",
    "outer/plugins.py",
}
EXECUTING = ("eval", "exec", "__import__", "builtins.eval", "builtins.exec")
UNSAFE = ("yaml.unsafe_load", "yaml.full_load", "yaml.FullLoader", "yaml.UnsafeLoader", "torch.export.load")
READING = ("open", "load", "read_text", "read_bytes", "loadtxt", "genfromtxt")
WATCHED = {called.split(".")[-1] for called in EXECUTING + UNSAFE + READING}  # last names of calls
MASTER_SIDE_LIBRARIES = {"pydantic", "gymnasium", "rich", "tyro", "tensorboard", "matplotlib", "yaml"}


def parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """How many a caller can give, self not among them."""
    a = function.args
    named = [p.arg for p in (*a.posonlyargs, *a.args, *a.kwonlyargs)]
    return len(named) - (named[:1] in (["self"], ["cls"]))


def of_a_user(path: Path) -> bool:
    """envs/<name>/env_code/ and step.py: a user's Gymnasium environment (docs/gym_envs.md), no part of the package."""
    return path.parent.name == "env_code" or path.name == "step.py"


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


class Facts(NamedTuple):
    """What the rules ask of a file. Its tree is not kept: 850 trees slow the garbage collector for all tests behind."""

    at_import: list[tuple[str, int]]  # module, line: of the imports that run when the file is imported
    imports: list[tuple[str, int]]
    functions: list[tuple[str, int, int]]  # name, line, parameters that a caller can give
    calls: list[tuple[str, ast.Call]]  # of a name in WATCHED


@functools.lru_cache(maxsize=None)
def facts(path: Path) -> Facts:
    tree = parse(path)
    first = [n for n in at_import(tree) if isinstance(n, (ast.Import, ast.ImportFrom))]
    found = Facts([(module, node.lineno) for node in first for module in modules(node)], [], [], [])
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            found.imports.extend((module, node.lineno) for module in modules(node))
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            found.functions.append((node.name, node.lineno, parameters(node)))
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) in WATCHED:
            found.calls.append((ast.unparse(node.func), node))
    return found


def of_all(check: Callable[[Path], Iterable[str]], paths: list[Path]) -> list[str]:
    """What is wrong with any of them: one test for all files, since a test each takes longer than the check."""
    return [f"{name(path)}:{complaint}" for path in paths for complaint in check(path)]


def modules(node: ast.Import | ast.ImportFrom) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    assert node.level == 0, f"line {node.lineno}: relative import"
    return [node.module or ""]


@functools.lru_cache(maxsize=None)
def worker_side() -> list[Path]:
    """agents, envs, core, GTN_worker.py, the worker's part of outer, and whatever of outer those import."""
    found = {p for p in SOURCES if p.relative_to(ROOT).parts[0] in ("agents", "core", "envs")}
    found -= {p for p in found if of_a_user(p) or name(p) in WITH_GYMNASIUM}
    found |= {p for p in SOURCES if name(p) in WORKER_OUTER}
    found |= {p for p in SOURCES if name(p) in ("GTN_worker.py", "experiments/worker.py")}
    todo = list(found)
    while todo:
        for module, _ in facts(todo.pop()).at_import:
            path = ROOT / (module.replace(".", "/").replace("envolve/", "", 1) + ".py")
            if module.startswith("envolve.outer.") and path not in found:
                found.add(path)
                todo.append(path)
    return sorted(found)


def test_there_is_something_to_check() -> None:
    assert {"core/rng.py", "outer/config/section.py", "outer/exchange/worker.py"} <= {name(p) for p in worker_side()}
    assert "outer/reporting/report.py" not in {name(p) for p in worker_side()}


@functools.lru_cache(maxsize=None)
def as_python_3_8(path: Path) -> tuple[list[str], set[tuple[str, str]]]:
    """What Python 3.8 cannot run, and what the file uses of the standard library: module, name."""
    tree = ast.parse(path.read_text(encoding="utf-8"), str(path), feature_version=(3, 8))
    complaints = [f"{line}: {complaint}" for line, complaint in python38.newer(tree)]
    if any(isinstance(n, (ast.FunctionDef, ast.ClassDef, ast.AnnAssign)) for n in tree.body):
        if not any(isinstance(n, ast.ImportFrom) and n.module == "__future__" for n in tree.body):
            complaints.append("1: no `from __future__ import annotations`")
    return complaints, python38.names(tree)


def newer_than_3_8(path: Path) -> list[str]:
    return as_python_3_8(path)[0]


def test_worker_side_is_python_3_8() -> None:
    assert not of_all(newer_than_3_8, worker_side())


@pytest.mark.parametrize("code, complaint", python38.REFUSED)
def test_what_python_3_8_cannot_run_is_found(code: str, complaint: str) -> None:
    found = [text for _, text in python38.newer(ast.parse("from __future__ import annotations\n" + code))]
    assert found and complaint in found[0], found


@pytest.mark.parametrize("code", python38.ACCEPTED)
def test_what_python_3_8_runs_is_let_through(code: str) -> None:
    assert not list(python38.newer(ast.parse("from __future__ import annotations\n" + code)))


def libraries_of_the_master(path: Path) -> Iterator[str]:
    for module, line in facts(path).at_import:
        if module.split(".")[0] in MASTER_SIDE_LIBRARIES:
            yield f"{line} imports {module}"


def test_worker_side_needs_no_library_of_the_master() -> None:
    assert not of_all(libraries_of_the_master, worker_side())


@functools.lru_cache(maxsize=None)
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
    command = [str(python_3_8()), "-c", code, str(tmp_path), *map(name, worker_side())]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert len(list(tmp_path.glob("*.pyc"))) == len(worker_side())


@pytest.mark.skipif(python_3_8() is None, reason="no Python 3.8 on this machine")
def test_python_3_8_has_every_name_of_the_standard_library() -> None:
    names = {pair for path in worker_side() for pair in as_python_3_8(path)[1]}
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


def imports_upwards(path: Path) -> Iterator[str]:
    package = path.relative_to(ROOT).parts[0]
    if package not in PACKAGES:
        return
    forbidden = {*PACKAGES[PACKAGES.index(package) + 1 :], "tests", "benchmarks", "GTN_master", "GTN_worker"}
    for module, line in facts(path).imports:
        if module.removeprefix("envolve.").split(".")[0] in forbidden:
            yield f"{line}: {package} imports {module}"


def test_imports_run_one_way() -> None:
    assert not of_all(imports_upwards, SOURCES)


def executes_bytes(path: Path) -> Iterator[str]:
    for module, line in facts(path).imports:
        if module.split(".")[0] in ("pickle", "cloudpickle", "dill", "joblib", "shelve", "marshal"):
            yield f"{line} imports {module}"
    for called, node in facts(path).calls:
        keywords = {k.arg: ast.unparse(k.value) for k in node.keywords}
        if called in EXECUTING and name(path) not in JAILED:
            yield f"{node.lineno}: {called}"
        if called in UNSAFE or called.startswith("torch.jit.load"):
            yield f"{node.lineno}: {called}"
        if called == "torch.load" and keywords.get("weights_only") != "True":
            yield f"{node.lineno}: torch.load without weights_only=True"
        if called == "torch.load" and name(path) != "core/torch_file.py":
            yield f"{node.lineno}: torch.load, where read_torch looks first"
        if called in ("np.load", "numpy.load") and "allow_pickle" in keywords:
            yield f"{node.lineno}: np.load(allow_pickle=)"


def test_no_untrusted_bytes_are_executed() -> None:
    assert not of_all(executes_bytes, SOURCES)


def reads_unseen(path: Path) -> Iterator[str]:
    if name(path) in OWN_READERS or name(path).startswith(("benchmarks/", "slurm/test/")) or of_a_user(path):
        return
    for called, node in facts(path).calls:
        method = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        if method in ("read_text", "read_bytes", "loadtxt", "genfromtxt"):
            yield f"{node.lineno}: {called}"
        if called in ("np.load", "numpy.load", "torch.jit.load"):
            yield f"{node.lineno}: {called}"
        if called in ("open", "io.open") or (method == "open" and called not in ("os.open", "webbrowser.open")):
            arguments = node.args[1:] if called in ("open", "io.open") else node.args
            mode = next((k.value for k in node.keywords if k.arg == "mode"), arguments[0] if arguments else None)
            of_files = mode is None or isinstance(mode, ast.Constant) or not method  # not a chunk that is open
            writes = isinstance(mode, ast.Constant) and isinstance(mode.value, str) and mode.value[0] in "wax"
            if of_files and not writes:
                yield f"{node.lineno}: {called} reads a file"


def test_files_are_looked_at_before_they_are_read() -> None:
    """A named pipe, a device or a file of 20 GB may lie wherever a file is expected: ``core/files.py`` opens them."""
    assert not of_all(reads_unseen, SOURCES)


@pytest.mark.parametrize(
    "check, where, line",
    [
        (newer_than_3_8, "core/a.py", "x: int = 1"),
        (libraries_of_the_master, "core/a.py", "import yaml"),
        (imports_upwards, "envs/a.py", "from envolve.outer import run"),
        (imports_upwards, "core/a.py", "def f():\n    import envolve.envs.task"),
        (executes_bytes, "core/a.py", "import pickle"),
        (executes_bytes, "outer/a.py", "exec(text)"),
        (executes_bytes, "outer/a.py", "torch.load(f)"),
        (executes_bytes, "outer/a.py", "torch.load(f, weights_only=True)"),
        (executes_bytes, "outer/a.py", "np.load(f, allow_pickle=True)"),
        (executes_bytes, "outer/a.py", "yaml.unsafe_load(f)"),
        (reads_unseen, "outer/a.py", "path.read_text()"),
        (reads_unseen, "outer/a.py", "open(path)"),
        (reads_unseen, "outer/a.py", "path.open('rb')"),
    ],
)
def test_a_file_that_breaks_a_rule_is_named(
    check: Callable[[Path], Iterable[str]], where: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    path = tmp_path / where
    path.parent.mkdir()
    path.write_text(line)
    complaints = of_all(check, [path])
    assert complaints and all(text.startswith(f"{where}:") for text in complaints)


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


def test_functions_have_few_parameters() -> None:
    several = ast.parse("class A:\n    def f(self, a, /, b, *, c): ...\n").body[0].body[0]  # type: ignore[attr-defined]
    assert parameters(several) == 3
    found = [(name(p), *f) for p in SOURCES if name(p) != PRODUCT for f in facts(p).functions]
    assert len(found) > 1000 and not [f for f in found if f[-1] > MOST_PARAMETERS]


def test_no_script_hides_a_module_of_python() -> None:
    """``python3 experiments/paper/X.py`` puts that folder first on the path: a queue.py beside it would be what torch
    gets when it imports queue."""
    folders = {p.parent for p in SOURCES if "__main__" in p.read_text(encoding="utf-8")} - {ROOT / "core"}
    hidden = [name(p) for p in SOURCES if p.parent in folders and p.stem in sys.stdlib_module_names]
    assert folders and hidden == []
