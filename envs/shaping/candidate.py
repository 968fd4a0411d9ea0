"""Candidates: files with the shapers that replace a task's own, and their failures.

A candidate is a graph file, which is data (envs/graph/file.py), or a Python file of the user's own, imported like any
module of theirs (code of others must not be loaded this way: it runs with all rights of the process). Such a file
defines any subset of ``SHAPER_TYPES`` with the signatures that ``envs/physics/task.py`` gives, and may define

    ACTION_SIZE = 12                        # A, width of the actions its compute_torque takes; default: found by trying
    PARAMS = {"speed": 1.0, "energy": 0.1}  # for an outer loop: functions may take params [n, D] as last argument
    TERMS = {"rewards.upright.weight": 2.0}  # numbers of a task of managers (envs/shaping/term_file.py)
"""

from __future__ import annotations

import inspect
import logging
import os
import traceback
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

import torch
from torch import Tensor

from envolve.core.by_path import module_of
from envolve.core.files import TEXT_BYTES, UnfitFileError, read_plain
from envolve.envs.graph.check import GraphError
from envolve.envs.physics.task import SHAPER_TYPES, PhysicsTask

log = logging.getLogger("envolve")
GRAPH = ".graph.json"  # a candidate that is no code (envs/graph/file.py)
TERM_FILE = ".terms.json"  # numbers of a task of managers alone (envs/shaping/term_file.py)
ENDS = (".py", GRAPH, TERM_FILE)


class Failure(NamedTuple):
    """Reason why a candidate failed."""

    kind: str  # the exception's class, or: NotFinite, WrongOutput, ChangedState, TooSlow, CannotLoad
    reason: str  # one line
    traceback: str  # as Python prints it, of the candidate's own frames; empty where no exception was raised
    step: int  # control steps into the run; -1: before its start

    def __str__(self) -> str:
        return f"{self.kind}: {self.reason}" + (f" (step {self.step})" if self.step >= 0 else "")


class Shaper(NamedTuple):
    """One function of a candidate."""

    function: Callable[..., Any]
    takes_params: bool
    columns: Optional[Tuple[int, ...]] = None  # which of the candidate's params; None: all


@dataclass
class Candidate:
    """One way to shape a task. ``shapers`` holds the types it replaces; the others are the task's own."""

    name: str
    shapers: Dict[str, Shaper] = field(default_factory=dict)
    action_size: Optional[int] = None
    params: Optional[Tensor] = None  # float32 [D]
    param_names: Tuple[str, ...] = ()
    failure: Optional[Failure] = None  # it cannot even be loaded
    scales: Optional[Tensor] = None  # float32 [D], an outer loop's units; None: |params|, or 1 for 0
    term_names: Tuple[str, ...] = ()  # numbers of the task's own terms (envs/managers/paths.py), the last of ``params``
    made_for: Optional[Tuple[str, str]] = None  # a file that is data, and the task that it names

    def with_params(self, params: Tensor) -> Candidate:
        """Same functions with other parameter values; candidates that share functions are evaluated in one call."""
        return replace(self, params=params)

    def term_numbers(self) -> Dict[str, float]:
        """Numbers of the task's own terms, by path."""
        if not self.term_names:
            return {}
        assert self.params is not None
        return dict(zip(self.term_names, self.params[-len(self.term_names) :].tolist()))


def tell_other_task(candidates: Sequence[Candidate], task: str) -> None:
    """Logs a line for every file that was made for another task, once per process. It may still fit: state and terms
    often have the same names. Letters' case and the part before a colon do not matter."""
    for candidate in candidates:
        if candidate.made_for is not None:
            file, other = candidate.made_for
            if other.lower().rpartition(":")[2] != task.lower().rpartition(":")[2]:
                _tell_once(file, other, task)


@lru_cache(maxsize=1024)
def _tell_once(file: str, other: str, task: str) -> None:
    log.warning("%s: made for the task %s, used for %s: its numbers may mean something else there", file, other, task)


class WrongOutput(Exception):
    """Raised if a candidate's result has the wrong shape or type."""


def load_candidate(path: Path, types: Sequence[str] = tuple(SHAPER_TYPES)) -> Candidate:
    """Candidate in a file, with its functions among ``types``. A candidate that cannot be loaded has its ``failure``
    set. Raises ValueError for an unknown type."""
    unknown = sorted(set(types) - set(SHAPER_TYPES))
    if unknown:
        raise ValueError(f"shaper type {unknown[0]!r}: expected some of {', '.join(SHAPER_TYPES)}")
    name = candidate_name(path)
    try:
        if path.name.endswith(GRAPH):
            from envolve.envs.graph.file import load_graph_file  # which makes candidates

            return load_graph_file(path, types)
        from envolve.envs.shaping import term_file  # which makes candidates

        if path.name.endswith(TERM_FILE):
            return term_file.load_term_file(path)
        module = _import(path)
        shapers = {t: _shaper(module, t, path) for t in types if hasattr(module, t)}
        terms = term_file.check_numbers(module.TERMS, f"{path}: TERMS") if hasattr(module, "TERMS") else {}
        if not shapers and not terms:
            found = [t for t in SHAPER_TYPES if hasattr(module, t)]
            instead = f" (it defines {', '.join(found)})" if found else ""
            raise WrongOutput(f"{path} defines none of {', '.join(types)}{instead}")
        params = _params(module, path)
        if terms:  # functions see their own numbers only
            own = tuple(range(len(params)))
            shapers = {kind: shaper._replace(columns=own) for kind, shaper in shapers.items()}
        numbers = torch.tensor([float(v) for v in [*params.values(), *terms.values()]]) if params or terms else None
        return Candidate(name, shapers, _action_size(module, path), numbers, (*params, *terms), term_names=tuple(terms))
    except (WrongOutput, GraphError) as e:
        return Candidate(name, failure=Failure("CannotLoad", str(e), "", -1))
    except (Exception, SystemExit) as e:  # whatever a user's module raises while it is imported
        return Candidate(name, failure=failure_of(e, str(path), -1))


def candidate_files(path: Path) -> List[Path]:
    """The file itself, or all candidates' files of a folder, by name; names that begin with an underscore are helpers.
    Raises FileNotFoundError, and ValueError for two files of the same name."""
    found = [path] if path.is_file() else [p for end in ENDS for p in path.glob("*" + end)]
    files = sorted((p for p in found if p == path or not p.name.startswith("_")), key=lambda p: p.name)
    if not files:
        raise FileNotFoundError(
            f"{path}: found no *.py, *{GRAPH} or *{TERM_FILE}, expected a file or a folder with one file per candidate"
        )
    names = [candidate_name(p) for p in files]
    for name in names:
        if names.count(name) > 1:
            twins = [p.name for p in files if candidate_name(p) == name]
            raise ValueError(f"{path}: {' and '.join(twins)} are two candidates of one name")
    return files


def candidate_name(path: Path) -> str:
    """Name of a candidate, from its file."""
    end = next((end for end in (GRAPH, TERM_FILE) if path.name.endswith(end)), path.suffix)
    return path.name[: len(path.name) - len(end)]


def _import(path: Path) -> ModuleType:
    try:
        data = read_plain(path, TEXT_BYTES)
    except UnfitFileError as e:
        raise WrongOutput(f"{path}: {e.strerror}") from None
    if path.suffix != ".py":
        raise WrongOutput(f"{path}: not a Python file")
    return module_of(f"envolve_candidate_{path.stem}", str(path), data, listed=False)


def _shaper(module: ModuleType, name: str, path: Path) -> Shaper:
    function = getattr(module, name)
    if not isinstance(function, FunctionType):
        raise WrongOutput(f"{path}: {name} is {type(function).__name__}, expected a function")
    signature = inspect.signature(function)
    wanted = list(inspect.signature(getattr(PhysicsTask, name)).parameters)
    for takes_params in (False, True):
        try:
            signature.bind(*wanted, *["params"] * takes_params)
        except TypeError:
            continue
        if takes_params and not hasattr(module, "PARAMS"):
            raise WrongOutput(f"{path}: {name}{signature} takes params, but there is no PARAMS = {{name: value}}")
        return Shaper(function, takes_params)
    raise WrongOutput(f"{path}: found {name}{signature}, expected {name}({', '.join(wanted)}[, params])")


def _action_size(module: ModuleType, path: Path) -> Optional[int]:
    size = getattr(module, "ACTION_SIZE", None)
    if size is not None and not (isinstance(size, int) and 1 <= size <= 1024):
        raise WrongOutput(f"{path}: found ACTION_SIZE = {size!r}, expected an integer from 1 to 1024")
    return size


def _params(module: ModuleType, path: Path) -> Dict[str, float]:
    params = getattr(module, "PARAMS", None)
    if params is None:
        return {}
    if not isinstance(params, dict) or not params or not all(isinstance(v, (int, float)) for v in params.values()):
        raise WrongOutput(f"{path}: found PARAMS = {params!r}, expected {{name: number}}")
    return params


def failure_of(error: BaseException, where: str, step: int) -> Failure:
    """Failure from ``error`` with the candidate's own part of the traceback."""
    frames = traceback.extract_tb(error.__traceback__)
    there = os.path.abspath(where)  # Python 3.10 and later have an absolute path in a frame, whatever was asked for
    own = [f for f in frames if os.path.abspath(f.filename) == there]
    own = own or [f for f in frames if not any(ours in f.filename for ours in ("/envs/shap", "/core/by_path"))]
    lines = traceback.format_list(own) + traceback.format_exception_only(type(error), error)
    reason = traceback.format_exception_only(type(error), error)[-1].strip()
    kind = type(error).__name__
    reason = reason[len(kind) + 2 :] if reason.startswith(kind + ": ") else reason
    at = f" in line {own[-1].lineno} of {Path(own[-1].filename).name}" if own else ""
    if isinstance(error, SyntaxError) and error.filename and os.path.abspath(error.filename) == there:
        at = f" in line {error.lineno} of {Path(there).name}"
        reason = error.msg
    return Failure(kind, (reason or kind) + at, "".join(lines), step)


# --------------------------------------------------------------------------------------------------- what they return


def check_reward(out: Any, n: int) -> Tuple[Tensor, Dict[str, Tensor]]:
    """Rewards [n] and components from [n], or from both. Raises WrongOutput."""
    components: Any = {}
    if isinstance(out, tuple) and len(out) == 2:
        out, components = out
        if not isinstance(components, dict):
            raise WrongOutput(f"compute_reward returned a tuple with a {type(components).__name__}, expected a dict")
        for name, part in components.items():
            check_tensor(f"compute_reward's component {name!r}", part, (n,))
    return check_tensor("compute_reward", out, (n,)), components


def check_terminal(out: Any, n: int) -> Tensor:
    """Terminations bool [n] from [n] of bool, or of numbers where nonzero ones end an episode."""
    if isinstance(out, Tensor) and out.dtype == torch.bool and out.shape == (n,):
        return out
    return check_tensor("compute_terminal", out, (n,), any_type=True) != 0


def check_tensor(what: str, out: Any, shape: Tuple[Optional[int], ...], any_type: bool = False) -> Tensor:
    """Checks that ``out`` is a float tensor of this shape (None: any length). Raises WrongOutput."""
    if not isinstance(out, Tensor):
        raise WrongOutput(f"{what} returned {type(out).__name__}, expected a tensor {_text(shape)}")
    fits = len(out.shape) == len(shape) and all(want in (None, have) for have, want in zip(out.shape, shape))
    if not fits or (shape[-1] is None and out.shape[-1] == 0):
        raise WrongOutput(f"{what} returned shape {list(out.shape)}, expected {_text(shape)}")
    if not any_type and not out.is_floating_point():
        raise WrongOutput(f"{what} returned {out.dtype}, expected a floating-point tensor {_text(shape)}")
    return out


def _text(shape: Tuple[Optional[int], ...]) -> str:
    return "[" + ", ".join("any" if n is None else str(n) for n in shape) + "]"
