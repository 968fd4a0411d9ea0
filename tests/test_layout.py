"""The house rules that a reader cannot see from one file: which way imports run, what Python 3.8 can read."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("envs", "agents", "outer", "distributed", "llm", "experiments")  # each may import those before it
JAILED = {"llm/vetting/tracer.py", "llm/gym/method.py"}  # run code of models, in a locked process (docs/security.md)
SOURCES = sorted(
    p
    for p in [*ROOT.glob("*.py"), *(f for d in (*PACKAGES, "benchmarks", "slurm") for f in (ROOT / d).rglob("*.py"))]
    if not any(part.startswith(".") for part in p.relative_to(ROOT).parts)
)
MASTER_ONLY = {"envs/gym_export.py"}
WORKER_OUTER = {"__init__", "exchange", "pairs", "evaluate", "section", "problem"}
MASTER_SIDE_LIBRARIES = {"pydantic", "gymnasium", "rich", "tyro", "tensorboard", "matplotlib", "yaml"}
# what later Pythons have in modules that 3.8 has too: an import of it fails there, and no compiler says so
NEWER_NAMES = {
    "collections.abc": {"Buffer"},
    "functools": {"cache"},
    "itertools": {"pairwise", "batched"},
    "math": {"lcm", "nextafter", "ulp", "cbrt", "exp2", "sumprod", "fma"},
    "typing": {"Annotated", "Concatenate", "Never", "ParamSpec", "Self", "TypeAlias", "TypeGuard", "override"},
}
BUILTIN_GENERICS = {"Counter", "defaultdict", "deque", "dict", "frozenset", "list", "set", "tuple", "type"}


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


def at_import(node: ast.AST) -> Iterator[ast.AST]:
    """What runs when a module is imported: no function bodies, no annotations (``from __future__``), no TYPE_CHECKING.

    The annotations of a class body are included: a dataclass's field types are evaluated by whoever asks for them.
    """
    yield node
    for field, value in ast.iter_fields(node):
        function = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        if function and field in ("body", "returns"):
            continue
        if isinstance(node, ast.arg) and field == "annotation":
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test) and field == "body":
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from at_import(child)


def imported_at_import(path: Path) -> list[tuple[str, ast.stmt]]:
    statements = [n for n in at_import(parse(path)) if isinstance(n, (ast.Import, ast.ImportFrom))]
    return list(imports(ast.Module(statements, [])))  # type: ignore[arg-type]


def worker_side() -> list[Path]:
    """agents, envs, GTN_worker.py, the worker's part of outer, and whatever of outer those import."""
    found = {p for p in SOURCES if p.relative_to(ROOT).parts[0] in ("agents", "envs") and name(p) not in MASTER_ONLY}
    found -= {p for p in found if of_a_user(p)}
    found |= {p for p in SOURCES if p.parent == ROOT / "outer" and p.stem in WORKER_OUTER}
    found |= {p for p in SOURCES if name(p) == "GTN_worker.py"}
    todo = list(found)
    while todo:
        for module, _ in imported_at_import(todo.pop()):
            path = ROOT / (module.replace(".", "/") + ".py")
            if module.startswith("outer.") and path not in found:
                found.add(path)
                todo.append(path)
    return sorted(found)


WORKER_SIDE = worker_side()


def test_there_is_something_to_check() -> None:
    assert {"envs/rng.py", "outer/section.py"} <= {name(p) for p in WORKER_SIDE}
    assert "outer/report.py" not in {name(p) for p in WORKER_SIDE}


@pytest.mark.parametrize("path", WORKER_SIDE, ids=name)
def test_worker_side_is_python_3_8(path: Path) -> None:
    tree = parse(path, feature_version=(3, 8))
    if any(isinstance(n, (ast.FunctionDef, ast.ClassDef, ast.AnnAssign)) for n in tree.body):
        future = [n for n in tree.body if isinstance(n, ast.ImportFrom) and n.module == "__future__"]
        assert future, f"{name(path)}: no `from __future__ import annotations`"
    for node in at_import(tree):
        where = f"{name(path)}:{getattr(node, 'lineno', 0)}"
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and isinstance(node.ctx, ast.Load):
            assert node.value.id not in BUILTIN_GENERICS, f"{where}: {node.value.id}[...] needs Python 3.9"
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
            types = {"None", *BUILTIN_GENERICS, "int", "float", "str", "bool", "Tensor"}
            assert not {ast.unparse(node.left), ast.unparse(node.right)} & types, f"{where}: X | Y needs Python 3.10"
    for node in ast.walk(tree):
        where = f"{name(path)}:{getattr(node, 'lineno', 0)}"
        if isinstance(node, ast.Call):
            keywords = {k.arg for k in node.keywords}
            called = ast.unparse(node.func)
            assert not (called == "zip" and "strict" in keywords), f"{where}: zip(strict=) needs Python 3.10"
            assert not (called.endswith("dataclass") and keywords & {"slots", "kw_only"}), f"{where}: needs Python 3.10"
            assert called.split(".")[-1] not in ("removeprefix", "removesuffix", "is_relative_to", "bit_count"), where
        if isinstance(node, ast.ImportFrom):
            newer = NEWER_NAMES.get(node.module or "", set()) & {alias.name for alias in node.names}
            assert not newer, f"{where}: {newer} is not in Python 3.8's {node.module}"


@pytest.mark.parametrize("path", WORKER_SIDE, ids=name)
def test_worker_side_needs_no_library_of_the_master(path: Path) -> None:
    for module, node in imported_at_import(path):
        assert module.split(".")[0] not in MASTER_SIDE_LIBRARIES, f"{name(path)}:{node.lineno} imports {module}"


def python38() -> str | None:
    pyenv = sorted(Path.home().glob(".pyenv/versions/3.8*/bin/python"))
    for candidate in [*map(str, pyenv), shutil.which("python3.8")]:
        # a pyenv shim is found on the path even where it leads nowhere
        if candidate and subprocess.run([candidate, "-V"], capture_output=True, check=False).returncode == 0:
            return candidate
    return None


@pytest.mark.skipif(python38() is None, reason="no Python 3.8 on this machine")
def test_python_3_8_compiles_the_worker_side(tmp_path: Path) -> None:
    code = (
        "import py_compile, sys\n"
        "assert sys.version_info[:2] == (3, 8), sys.version\n"
        "for i, path in enumerate(sys.argv[2:]):\n"
        "    py_compile.compile(path, cfile=sys.argv[1] + '/%d.pyc' % i, doraise=True)\n"
    )
    command = [str(python38()), "-c", code, str(tmp_path), *map(name, WORKER_SIDE)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert len(list(tmp_path.glob("*.pyc"))) == len(WORKER_SIDE)


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_imports_run_one_way(path: Path) -> None:
    package = path.relative_to(ROOT).parts[0]
    if package not in PACKAGES:
        return
    forbidden = {*PACKAGES[PACKAGES.index(package) + 1 :], "tests", "benchmarks", "GTN_master", "GTN_worker"}
    for module, node in imports(parse(path)):
        assert module.split(".")[0] not in forbidden, f"{name(path)}:{node.lineno}: {package} imports {module}"


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
        if called in ("np.load", "numpy.load"):
            assert all(k.arg != "allow_pickle" for k in node.keywords), f"{where}: np.load(allow_pickle=)"
        if called.startswith("yaml."):
            assert called not in ("yaml.unsafe_load", "yaml.full_load", "yaml.FullLoader", "yaml.UnsafeLoader"), where


def test_pyproject_and_requirements_agree() -> None:
    requirements = {
        line.strip() for line in (ROOT / "requirements.txt").read_text().splitlines() if line and line[0] not in "# "
    }
    # tomllib is in Python 3.11 and later; two lists of quoted names need no parser
    text = (ROOT / "pyproject.toml").read_text()
    core = re.search(r"^dependencies = \[(.*?)\]", text, re.DOTALL | re.MULTILINE)
    names = ("dev", "llm", "video", "baselines", "bohb")
    extras = [re.search(rf"^{name} = \[(.*?)\]", text, re.DOTALL | re.MULTILINE) for name in names]
    assert core and all(extras)
    assert requirements == {name for part in (core, *extras) if part for name in re.findall(r'"([^"]+)"', part[1])}
