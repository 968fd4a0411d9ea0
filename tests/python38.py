"""What Python 3.8 cannot run although it can read it: found in a syntax tree, without a Python 3.8.

Only what is evaluated counts. With ``from __future__ import annotations`` that leaves out the annotations of functions
and variables; those of a class body count, for whoever asks a dataclass for its fields' types evaluates them.
"""

from __future__ import annotations

import ast
import builtins
import functools
import importlib
import re
import sys
import typing
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any

# what later Pythons have in modules that 3.8 has too
NEWER_NAMES = {
    "ast": "unparse",
    "asyncio": "to_thread TaskGroup timeout Runner",
    "collections.abc": "Buffer",
    "contextlib": "aclosing chdir",
    "datetime": "UTC",
    "enum": "StrEnum verify member nonmember global_enum property",
    "functools": "cache",
    "hashlib": "file_digest",
    "importlib.resources": "files as_file",
    "inspect": "get_annotations",
    "itertools": "pairwise batched",
    "math": "lcm nextafter ulp cbrt exp2 sumprod fma",
    "operator": "call",
    "os": "waitstatus_to_exitcode pidfd_open process_cpu_count EFD_CLOEXEC eventfd splice unshare setns",
    "random": "randbytes binomialvariate",
    "signal": "pidfd_send_signal",
    "statistics": "correlation covariance linear_regression",
    "sys": "orig_argv stdlib_module_names exception platlibdir monitoring",
    "threading": "gettrace getprofile setprofile_all_threads",
    "types": "EllipsisType GenericAlias NoneType NotImplementedType UnionType get_original_bases",
    "typing": "Annotated Concatenate LiteralString Never NotRequired ParamSpec ParamSpecArgs ParamSpecKwargs Required "
    "Self TypeAlias TypeAliasType TypeGuard TypeVarTuple Unpack assert_never assert_type clear_overloads "
    "dataclass_transform get_overloads is_typeddict override reveal_type",
}
NEWER_MODULES = {"graphlib", "tomllib", "zoneinfo"}
NEWER_METHODS = {"bit_count", "hardlink_to", "is_relative_to", "randbytes", "removeprefix", "removesuffix", "with_stem"}
NEWER_KEYWORDS = {
    "Popen": "group extra_groups user umask pipesize process_group",
    "TemporaryDirectory": "ignore_cleanup_errors delete",
    "basicConfig": "encoding errors",
    "bisect": "key", "bisect_left": "key", "bisect_right": "key", "insort": "key",
    "dataclass": "slots kw_only match_args weakref_slot",
    "dump": "indent",
    "glob": "root_dir dir_fd",
    "sample": "counts",
    "shutdown": "cancel_futures",
    "write_text": "newline",
    "zip": "strict",
}  # fmt: skip
RESOLVED = {"numpy"}  # beside the standard library: modules that are imported to see what a name is


_SKIPPED = {
    True: {ast.FunctionDef: ("returns",), ast.AsyncFunctionDef: ("returns",), ast.Lambda: (), ast.arg: ("annotation",)},
    False: {
        ast.FunctionDef: ("body", "returns"), ast.AsyncFunctionDef: ("body", "returns"), ast.Lambda: ("body",),
        ast.arg: ("annotation",),
    },
}  # fmt: skip


def at_import(node: ast.AST, functions: bool = False) -> list[ast.AST]:
    """What runs when a module is imported: no function bodies, no annotations (``from __future__``), no TYPE_CHECKING.

    The annotations of a class body are included: a dataclass's field types are evaluated by whoever asks for them.
    functions: what runs when its functions are called, too.
    """
    found: list[ast.AST] = []
    _collect(node, _SKIPPED[functions], found)
    return found


def _collect(node: ast.AST, skipped: Mapping[type, tuple[str, ...]], found: list[ast.AST]) -> None:
    found.append(node)
    kind = type(node)
    fields = skipped.get(kind, ())
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
        fields = ("body",)
    for field in kind._fields:
        if field in fields:
            continue
        value = getattr(node, field, None)
        for child in value if isinstance(value, list) else (value,):
            if isinstance(child, ast.AnnAssign) and kind is not ast.ClassDef:
                for part in (child.target, child.value):
                    if part is not None:
                        _collect(part, skipped, found)
            elif isinstance(child, ast.AST):
                _collect(child, skipped, found)


@functools.lru_cache(maxsize=1)
def _evaluated(tree: ast.Module) -> tuple[list[ast.AST], dict[str, Any]]:
    """What runs, and what its names stand for: of the last tree alone, since trees are large."""
    return at_import(tree, functions=True), _imported(tree)


def newer(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """(line, complaint) of all that was found."""
    nodes, bound = _evaluated(tree)
    for node in nodes:
        line = getattr(node, "lineno", 0)
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
            found = _resolved(node.value, bound)
            if isinstance(found, type) and hasattr(found, "__class_getitem__") and typing.Generic not in found.__mro__:
                yield line, f"{ast.unparse(node.value)}[...] needs Python 3.9: take the one of typing"
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
            if any(_is_type(side, bound) for side in (node.left, node.right)):
                yield line, f"{ast.unparse(node)} needs Python 3.10: take Union"
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func).split(".")[-1]
            keywords = set(NEWER_KEYWORDS.get(called, "").split()) & {str(k.arg) for k in node.keywords}
            if keywords:
                yield line, f"{called}({', '.join(sorted(keywords))}=) is newer than Python 3.8"
            if isinstance(node.func, ast.Attribute) and called in NEWER_METHODS:
                yield line, f".{called}() is newer than Python 3.8"
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            for module in {m.split(".")[0] for m in modules} & NEWER_MODULES:
                yield node.lineno, f"module {module} is newer than Python 3.8"
    for module, name in names(tree):
        if name in NEWER_NAMES.get(module, "").split():
            yield 0, f"{module}.{name} is newer than Python 3.8"


def names(tree: ast.Module) -> set[tuple[str, str]]:
    """(module of the standard library, name in it) of all that is imported or used, but under TYPE_CHECKING."""
    found = set()
    nodes, bound = _evaluated(tree)
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and _standard(node.module or "") and node.module != "__future__":
            found |= {(str(node.module), alias.name) for alias in node.names}
        if isinstance(node, ast.Attribute):
            module = _resolved(node.value, bound)
            if isinstance(module, ModuleType) and _standard(module.__name__):
                found.add((module.__name__, node.attr))
    return found


def _standard(module: str) -> bool:
    return module.split(".")[0] in sys.stdlib_module_names


def _imported(tree: ast.Module) -> dict[str, Any]:
    """What the imported names stand for; None for those of other modules, and for names that are assigned."""
    bound: dict[str, Any] = {}
    imports = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            bound[node.id] = None
        elif isinstance(node, ast.arg):
            bound[node.arg] = None
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            imports.append(node)
    for node in imports:
        if isinstance(node, ast.Import):
            for alias in node.names:
                local = alias.asname or alias.name.split(".")[0]
                bound[local] = _module(alias.name if alias.asname else local)
                if not alias.asname and bound[local] is not None:
                    _module(alias.name)  # import a.b makes b an attribute of a
        else:
            for alias in node.names:
                bound[alias.asname or alias.name] = getattr(_module(node.module or ""), alias.name, None)
    return bound


def _module(name: str) -> ModuleType | None:
    if not (_standard(name) or name in RESOLVED):
        return None
    try:
        return importlib.import_module(name)
    except ImportError:  # of another system
        return None


def _resolved(node: ast.AST, bound: dict[str, Any]) -> Any:
    """The object that a dotted name stands for, None if that is not known."""
    if isinstance(node, ast.Name):
        return bound[node.id] if node.id in bound else getattr(builtins, node.id, None)
    if isinstance(node, ast.Attribute):
        return getattr(_resolved(node.value, bound), node.attr, None)
    return None


def _is_type(node: ast.AST, bound: dict[str, Any]) -> bool:
    if isinstance(node, ast.Constant):
        return node.value is None
    if isinstance(node, ast.Subscript):
        found = _resolved(node.value, bound)
        return isinstance(found, type) or getattr(found, "__module__", "") == "typing"
    if isinstance(node, ast.Name) and re.fullmatch(r"_?[A-Z]\w*[a-z]\w*", node.id):
        return True  # by its spelling a class, of whatever module
    return isinstance(_resolved(node, bound), type)


# what the tests of this file's rules try
REFUSED = [
    ("from collections.abc import Callable\nUpdate = Callable[[int], None]", "Callable[...] needs Python 3.9"),
    ("import collections.abc as c\ndef f(x):\n    return cast(c.Sequence[int], x)", "c.Sequence[...] needs Python 3.9"),
    ("import collections.abc\nX = collections.abc.Mapping[str, int]", "collections.abc.Mapping[...] needs Python 3.9"),
    ("class A:\n    x: list[int]", "list[...] needs Python 3.9"),
    ("from collections import OrderedDict as O\nclass A(O[str, int]): pass", "O[...] needs Python 3.9"),
    ("import re\nX = re.Pattern[str]", "re.Pattern[...] needs Python 3.9"),
    ("import os\ndef f(x=os.PathLike[str]): pass", "os.PathLike[...] needs Python 3.9"),
    ("import numpy as np\nX = np.ndarray[int, float]", "np.ndarray[...] needs Python 3.9"),
    ("def f(x):\n    return isinstance(x, int | float)", "int | float needs Python 3.10"),
    ("from torch import Tensor\nX = Tensor | None", "Tensor | None needs Python 3.10"),
    ("from typing import List\nX = List[int] | str", "List[int] | str needs Python 3.10"),
    ("from functools import cache", "functools.cache is newer"),
    ("import math\ndef f(): return math.lcm(2, 3)", "math.lcm is newer"),
    ("from typing import Self", "typing.Self is newer"),
    ("import tomllib", "module tomllib is newer"),
    ("def f(a, b): return zip(a, b, strict=True)", "zip(strict=) is newer"),
    ("from dataclasses import dataclass\n@dataclass(slots=True)\nclass A: pass", "dataclass(slots=) is newer"),
    ("def f(s): return s.removeprefix('a')", ".removeprefix() is newer"),
]
ACCEPTED = [
    "from collections.abc import Sequence\ndef f(x: Sequence[int], y: int | None) -> list[str]:\n    z: dict[str] = {}",
    "from typing import Callable as C, Generic, TypeVar\nT = TypeVar('T')\nX = C[[T], int]\nclass A(Generic[T]): 1",
    "import os, sys\nX = os.environ['HOME'], sys.argv[1]\nlist = [1]\nY = list[0]",
    "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from typing import Self",
    "A, B = 1, 2\nX = A | B\nY = {1} | {2}\nclass C:\n    def cache(self): return self.cache()",
    "X: list[int] = []",
]
