"""A model's ``compute_reward`` as a method of the user's class. Runs code of both: only in the locked process."""

from __future__ import annotations

import ast
import builtins
import copy
import linecache
import math
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from envolve.core.by_path import module_of
from envolve.core.files import TABLE_BYTES, read_plain
from envolve.llm.gym.allowlist import BUILTINS
from envolve.llm.gym.reward import METHOD
from envolve.llm.gym.view import Self, copied

REWARD_FILE = "compute_reward.py"  # what tracebacks call the model's code
RESERVED = ("fitness_score", "reward", "episode_length")
MAX_COMPONENTS, MAX_ERROR = 64, 4_000


class UserError(Exception):
    """Raised if the user's environment violates docs/gym_envs.md, which no model can fix."""


class BadReward(Exception):
    """Raised if compute_reward's result is not a reward."""


def load_class(env_file: Path, class_name: str) -> tuple[type, dict[str, Any]]:
    """Class of env.py, and the plain values of its module that a reward may name (FPS, TERRAIN_LENGTH, ...)."""
    sys.path.insert(0, str(env_file.parent))  # other files and folders of env_code can be imported by their names
    try:
        module = module_of("user_env", str(env_file), read_plain(env_file, TABLE_BYTES))
    except Exception as e:
        raise UserError(f"{env_file}: {type(e).__name__}: {e}") from e
    found = getattr(module, class_name, None)
    if not isinstance(found, type):
        classes = [n for n, v in vars(module).items() if isinstance(v, type) and v.__module__ == "user_env"]
        raise UserError(f"{env_file}: found no class {class_name!r}, expected one of {', '.join(classes) or 'any'}")
    plain = (bool, int, float, str, tuple, np.ndarray)
    return found, {k: v for k, v in vars(module).items() if isinstance(v, plain) and not k.startswith("_")}


class _Runnable(ast.NodeTransformer):
    """Rewrites ``x += y`` as ``x = x + y``, which cannot change other references to x; removes annotations and
    imports."""

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        now = copy.deepcopy(node.target)
        now.ctx = ast.Load()
        return ast.copy_location(ast.Assign([node.target], ast.BinOp(now, node.op, node.value)), node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns, node.decorator_list = None, []
        for argument in ast.walk(node.args):
            if isinstance(argument, ast.arg):
                argument.annotation = None
        self.generic_visit(node)
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        return ast.copy_location(ast.Assign([node.target], node.value), node) if node.value else ast.Pass()

    def visit_Import(self, node: ast.Import) -> Any:
        """numpy and math are there; import math as m is another name for one of them."""
        names = [(a.asname, a.name) for a in node.names if a.asname]
        return [_bound(node, name, ast.Name(full.split(".")[0], ast.Load())) for name, full in names] or ast.Pass()

    def visit_ImportFrom(self, node: ast.ImportFrom) -> Any:
        if node.module not in ("numpy", "math"):  # of types, which nothing looks at
            return ast.copy_location(ast.Pass(), node)
        owner = node.module
        names = [(a.asname or a.name, a.name) for a in node.names]
        return [_bound(node, name, ast.Attribute(ast.Name(owner, ast.Load()), of, ast.Load())) for name, of in names]


def _bound(node: ast.AST, name: str, value: ast.expr) -> ast.AST:
    return ast.copy_location(ast.Assign([ast.Name(name, ast.Store())], value), node)


def _numpy_only(name: str, *rest: Any) -> Any:
    """Import for numpy itself: the first ``x.sum()`` of a process loads its Python part with the caller's builtins."""
    if name.split(".")[0] != "numpy":
        raise ImportError(f"{name} cannot be imported here")
    return builtins.__import__(name, *rest)


def compile_method(code: str, names: dict[str, Any]) -> Callable[..., Any]:
    """Runs the model's code -> its function compute_reward. Only in the jail."""
    linecache.cache[REWARD_FILE] = (len(code), None, code.splitlines(keepends=True), REWARD_FILE)
    tree = ast.fix_missing_locations(_Runnable().visit(ast.parse(code)))
    known = {name: copied(value) for name, value in names.items()}
    namespace: dict[str, Any] = {"__builtins__": {n: getattr(builtins, n) for n in BUILTINS}, **known}
    namespace["__builtins__"]["__import__"] = _numpy_only
    namespace.update(np=np, numpy=np, math=math)
    exec(compile(tree, REWARD_FILE, "exec"), namespace)
    function: Callable[..., Any] = namespace[METHOD]
    return function


def checked_reward(returned: Any) -> tuple[float, dict[str, float]]:
    """Checks for (total, components) as plain finite numbers. Raises BadReward."""
    if not isinstance(returned, tuple) or len(returned) != 2 or not isinstance(returned[1], dict):
        what = f"a {type(returned).__name__}" + (f" of {len(returned)}" if isinstance(returned, tuple) else "")
        raise BadReward(f"compute_reward returned {what}, expected (total, components): a number and a dict of numbers")
    total, parts = returned
    if len(parts) > MAX_COMPONENTS:
        raise BadReward(f"compute_reward returned {len(parts)} components, expected at most {MAX_COMPONENTS}")
    for name in parts:
        if not isinstance(name, str) or not name or len(name) > 64:
            raise BadReward(f"a component is called {name!r:.80}, expected a text of at most 64 characters")
        if name in RESERVED:
            raise BadReward(f"a component is called {name!r}, which has a meaning of its own: choose another name")
    return _number("the total reward", total), {k: _number(f"the component {k!r}", v) for k, v in parts.items()}


def _number(what: str, value: Any) -> float:
    try:
        array = np.asarray(value, dtype=float)
    except (TypeError, ValueError):
        raise BadReward(f"{what} is a {type(value).__name__}, expected a number") from None
    if array.size != 1:
        raise BadReward(f"{what} has shape {array.shape}, expected one number")
    number = float(array.reshape(()))
    if not math.isfinite(number):
        raise BadReward(f"{what} is {number}, expected a finite number")
    return number


def with_reward(base: type, code: str, names: dict[str, Any]) -> type:
    """Subclass of the user's class with the model's compute_reward, first run at the first reset: the process of a
    forked environment may not be locked before that."""

    class WithReward(base):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            self._reward_memory: dict[Any, Any] = {}
            self._reward: Callable[..., Any] | None = None
            super().__init__(*args, **kwargs)

        def reset(self, **kwargs: Any) -> Any:
            self._reward_memory.clear()
            if self._reward is None:
                self._reward = compile_method(code, names)
            return super().reset(**kwargs)

        def compute_reward(self, *args: Any, **kwargs: Any) -> tuple[float, dict[str, float]]:
            if self._reward is None:
                raise UserError("compute_reward was called before reset")
            seen = [copied(a) for a in args], {k: copied(v) for k, v in kwargs.items()}
            return checked_reward(self._reward(Self(self), *seen[0], **seen[1]))

    WithReward.__name__ = WithReward.__qualname__ = base.__name__
    return WithReward


def feedback(error: BaseException, env_file: str | None = None) -> str:
    """Message for the model: the part of the traceback in the model's or the user's code."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename in (REWARD_FILE, env_file)]
    for frame in frames:
        frame.filename = Path(frame.filename).name
    text = ["Traceback (most recent call last):\n", *traceback.format_list(frames)] if frames else []
    if isinstance(error, MemoryError) and not error.args:
        error = MemoryError("it needs more memory than it may have")
    text += traceback.format_exception_only(type(error), error)
    return "".join(text).replace("__main__.", "").replace("llm.gym.method.", "").strip()[:MAX_ERROR]
