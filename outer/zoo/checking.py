"""``envolve worlds check``: a learner of a user's file, beside Stable-Baselines3's or another one."""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envolve.core import plugins
from envolve.core.files import read_text
from envolve.core.registry import nearest
from envolve.envs.worlds.file import write_atomic
from envolve.outer.checkpoint import RunError
from envolve.outer.config.yaml_lines import ConfigError
from envolve.worlds.check import REFERENCES, Act, LearnerCheck, Told, check_learner

FLAGS = {"like": "--like", "seeds": "--agents", "worlds": "--worlds"}  # of the arguments of check_learner
SHARES = ".json"  # ending of a file of an earlier check


@dataclass(frozen=True)
class Function:
    """``train`` of a user's file. Each process executes the file itself, if it is still what the first one has read."""

    path: str
    name: str
    sha256: str

    def __call__(self, env_id: str, steps: int, seed: int) -> Act:
        act = self._said(_in_file(self.path, self.name, self.sha256)[0], env_id, steps, seed)
        if not callable(act):
            raise RunError(f"{self.path}: {self.name}: found {type(act).__name__}, expected a function of observations")
        return lambda observation: self._said(act, observation)

    def _said(self, function: Callable[..., Any], *args: Any) -> Any:
        """Raises RunError with the traceback of what the user's code raises."""
        try:
            return function(*args)
        except Exception as e:
            where = f"{plugins.place(e, self.path)}: {plugins.said(e)}"
            raise RunError(f"{where}\n{traceback.format_exc().rstrip()}") from None


def _in_file(path: str, name: str, sha256: str | None = None) -> tuple[Callable[..., Any], str]:
    """A function of a file, and the file's SHA-256. The file may import its neighbours, as a script may. Raises
    PluginError."""
    folder = str(Path(path).resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    source = plugins.load(path, sha256)
    found = getattr(source.module, name, None)
    if not callable(found):
        near = nearest(name, [k for k, v in vars(source.module).items() if callable(v) and not k.startswith("_")], 0.0)
        mean = f", did you mean {near}" if near else ""
        raise plugins.PluginError(f"{path}: found no function {name}{mean}")
    return found, source.sha256


def function_of(text: str) -> Function:
    """FILE.py:FUNCTION. Raises ConfigError, PluginError."""
    parts = plugins.split(text)
    if parts is None:
        raise ConfigError([f"{text:.200}: found this, expected FILE.py:FUNCTION, as in my_ppo.py:train"])
    return Function(*parts, _in_file(*parts)[1])


def earlier(path: str) -> tuple[int, dict[str, list[float]]]:
    """Steps and shares by world that ``store`` has written. Raises RunError, OSError."""
    try:
        content = json.loads(read_text(path))
        steps, shares = content["steps"], content["shares"]
        right = type(steps) is int and all(type(x) is float for row in shares.values() for x in row)
    except (ValueError, KeyError, TypeError, AttributeError):
        right = False
    if not right:
        raise RunError(f"{path}: found another content than `envolve worlds check --out` writes")
    return steps, shares


def store(path: Path, found: LearnerCheck) -> None:
    content = {"steps": found.steps, "shares": {world: list(row) for world, row in found.shares.items()}}
    write_atomic(str(path), json.dumps(content, indent=2).encode())


def check(
    train: str, like: str, agents: int, workers: int, told: Told, worlds: Sequence[str], steps: int | None
) -> LearnerCheck:
    """train: FILE.py:FUNCTION. like: a name, FILE.py:FUNCTION or the file of an earlier check. worlds, steps: for
    another function; empty and None: the defaults. Raises ConfigError, RunError, PluginError, WorldError, OSError."""
    given: dict[str, Any] = {}
    other: Any = like
    if like.endswith(SHARES):
        given["steps"], other = earlier(like)
    elif like not in REFERENCES and (":" in like or like.endswith(".py")):
        other = function_of(like)
        given = {k: v for k, v in (("worlds", worlds), ("steps", steps)) if v}
    if not callable(other) and (worlds or steps):
        words = "says the worlds and the steps; --worlds and --steps are for FILE.py:FUNCTION"
        raise ConfigError([f"--like {like} {words}"])
    try:
        return check_learner(function_of(train), other, seeds=agents, workers=workers, told=told, **given)
    except ValueError as e:  # what check_learner refuses; the user's own errors are RunErrors
        name, _, words = str(e).partition(": ")
        if name not in FLAGS:  # an answer of the user's ``act``
            raise RunError(str(e)) from None
        raise ConfigError([f"{FLAGS[name]}: {words}"]) from None
    except BrokenProcessPool:
        raise RunError(f"{train}: the process of an agent ended; does the learner crash?") from None
