"""A user's two files, TrainParams in Python and the JSON of its environment, and their copies in a run's folder.

The Python file is the user's own, named on the command line, and imported with all rights of the process, like any
module of theirs; code of others must not be loaded this way.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import logging
import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from envolve.core.by_path import module_of
from envolve.core.files import TEXT_BYTES, read_plain
from envolve.core.registry import nearest
from envolve.distributed.files.params import HORIZON, ParamsError, TrainParamsBase
from envolve.envs.worlds.file import write_atomic
from envolve.outer.config.yaml_lines import ConfigError, parse_yaml, show

log = logging.getLogger("envolve")

PARAMS_FILE, CONFIG_FILE = "params.py", "config.json"
CLASS = "TrainParams"
OVERRIDES = "train_params"  # of the JSON: fields of TrainParams that get other values


def load_train_params(params_path: str | Path, config_path: str | Path | None = None) -> TrainParamsBase:
    """Loads TrainParams from a Python file, with env_config from the JSON file (empty without one). "train_params" in
    the JSON, a mapping of fields, overrides the class. Raises ParamsError, which names file, line, found and expected,
    and OSError."""
    config, lines = ({}, {}) if config_path is None else read_json(Path(config_path))
    return _made(Path(params_path), config, str(config_path), lines)


def _made(
    path: Path, config: dict[str, Any], config_name: str, lines: Mapping[tuple[str, ...], int]
) -> TrainParamsBase:
    cls = _class_of(path)
    values = config.get(OVERRIDES, {})

    def at(*key: str) -> str:
        line = next((f":{lines[key[:n]]}" for n in range(len(key), 0, -1) if key[:n] in lines), "")
        return f"{config_name}{line}: {'.'.join(key)}: found"

    def placed(problem: str) -> str:
        """Adds the file, and if known the line, of the value that a message begins with."""
        name, _, text = problem.partition(": found")
        key = tuple(name.split("."))
        key = (OVERRIDES, key[1]) if key[0] == CLASS and key[-1] in values else key
        return f"{at(*key)}{text}" if key[0] in config else f"{path}: {problem}"

    if not isinstance(values, dict):
        raise ParamsError(f"{at(OVERRIDES)} {show(values)}, expected fields of {CLASS} and their values")
    names = [f.name for f in dataclasses.fields(cls) if f.name != "env_config"]
    for name in values:
        if name not in names:
            near = nearest(name, names, cutoff=0.0)
            raise ParamsError(f"{at(OVERRIDES, name)} no such field of {CLASS}; nearest: {near}")
    if config.get(HORIZON, values.get(HORIZON)) != values.get(HORIZON, config.get(HORIZON)):
        raise ParamsError(f"{at(OVERRIDES, HORIZON)} {show(values[HORIZON])}, expected {config[HORIZON]}, as above it")
    try:
        with _in_users_words(path):
            return cls(env_config=config, **values)
    except ParamsError as e:
        raise ParamsError(*map(placed, e.problems)) from None


def freeze(
    exp_dir: str | Path,
    params_path: str | Path,
    config_path: str | Path | None,
    changes: Mapping[str, Any] | None = None,
) -> TrainParamsBase:
    """Copies both files into a run's folder and loads the copies, which stay valid until the end of the run. Existing
    copies are used; a given file that differs from its copy is logged. changes: fields to override, noted under
    "train_params" in the copy. Raises ParamsError, OSError."""
    exp_dir = Path(exp_dir)
    copies = exp_dir / PARAMS_FILE, exp_dir / CONFIG_FILE
    source = read_plain(params_path, TEXT_BYTES)
    config, lines = ({}, {}) if config_path is None else read_json(Path(config_path))
    if changes:
        config = {**config, OVERRIDES: {**config.get(OVERRIDES, {}), **changes}}
        if HORIZON in config and HORIZON in changes:
            config[HORIZON] = changes[HORIZON]
    if all(copy.exists() for copy in copies):
        for given, copy, differs in (
            (params_path, copies[0], source != read_plain(copies[0], TEXT_BYTES)),
            (config_path, copies[1], config != read_json(copies[1])[0]),
        ):
            if differs and given is None:
                log.warning("no JSON is given; the run continues with %s, with which it started", copy)
            elif differs:
                log.warning("%s differs from %s, which the run started and continues with", given, copy)
        return load_train_params(*copies)
    _made(Path(params_path), config, str(config_path), lines)  # what is wrong is said before there is any folder
    exp_dir.mkdir(parents=True, exist_ok=True)
    write_atomic(str(copies[1]), (json.dumps(config, indent=2) + "\n").encode())
    write_atomic(str(copies[0]), source)  # the last: with both there the run has begun
    return load_train_params(*copies)


def frozen(exp_dir: str | Path) -> TrainParamsBase:
    """Loads TrainParams from a run's folder. Raises ParamsError, OSError."""
    exp_dir = Path(exp_dir)
    if not (exp_dir / PARAMS_FILE).exists():
        raise ParamsError(f"{exp_dir}: found no {PARAMS_FILE}, expected the folder of a distributed run")
    return load_train_params(exp_dir / PARAMS_FILE, exp_dir / CONFIG_FILE)


def read_json(path: Path) -> tuple[dict[str, Any], dict[tuple[str, ...], int]]:
    """Reads a JSON file -> its content, and the line of every key. Raises ParamsError, OSError."""
    raw = read_plain(path, TEXT_BYTES)
    try:
        value = json.loads(raw.decode())
    except json.JSONDecodeError as e:
        raise ParamsError(f"{path}:{e.lineno}:{e.colno}: found malformed JSON: {e.msg}, expected JSON") from None
    except (UnicodeDecodeError, RecursionError) as e:
        raise ParamsError(f"{path}: found malformed JSON: {e}, expected JSON in UTF-8") from None
    try:  # JSON is YAML, but for tabs between values; the reader knows lines and says which key is there twice
        lines = parse_yaml(raw.replace(b"\t", b" "), str(path))[1]
    except ConfigError as e:
        raise ParamsError(*e.problems) from None
    if not isinstance(value, dict):
        raise ParamsError(f"{path}: found {show(value)}, expected an object: {{...}}")
    return value, lines


def _class_of(path: Path) -> type[TrainParamsBase]:
    """Loads the class TrainParams. Raises ParamsError, OSError."""
    module = _module(path)
    found = getattr(module, CLASS, None)
    if not isinstance(found, type):
        classes = [n for n, v in vars(module).items() if isinstance(v, type) and v.__module__ == module.__name__]
        near = nearest(CLASS, classes, cutoff=0.0)
        raise ParamsError(
            f"{path}: found no class {CLASS}{f' (but {near})' if near else ''}, expected class {CLASS}(TrainParamsBase)"
        )
    if not issubclass(found, TrainParamsBase):
        raise ParamsError(
            f"{path}: found {CLASS}, which is not a {TrainParamsBase.__name__}, expected one derived from it"
        )
    return found


def _module(path: Path) -> ModuleType:
    """Imports a file under a unique name, so that the params.py of two runs are two modules. Modules beside the file
    cannot be imported: a run's folder keeps a copy of this one file only."""
    data = read_plain(path, TEXT_BYTES)
    name = f"envolve_params_{hashlib.sha256(str(path.resolve()).encode() + data).hexdigest()[:16]}"
    if path.suffix != ".py":
        raise ParamsError(f"{path}: found no Python file, expected one that ends in .py")
    with _in_users_words(path):
        return module_of(name, str(path), data)


@contextlib.contextmanager
def _in_users_words(path: Path) -> Iterator[None]:
    """Converts an exception in a user's file to a ParamsError with the last executed line of that file."""
    try:
        yield
    except (ParamsError, OSError):
        raise
    except ModuleNotFoundError as e:
        beside = (path.parent / f"{(e.name or '').split('.')[0]}.py").exists()
        hint = "; it lies beside the file, but a run keeps a copy of that one alone: put its folder on PYTHONPATH"
        raise ParamsError(f"{path}{_line(e, path)}: {e}{hint if beside else ''}") from e
    except (Exception, SystemExit) as e:
        text = e.msg if isinstance(e, SyntaxError) else str(e)
        raise ParamsError(f"{path}{_line(e, path)}: {type(e).__name__}: {text}") from e


def _line(e: BaseException, path: Path) -> str:
    if isinstance(e, SyntaxError) and e.filename == str(path):
        return f":{e.lineno}"
    lines = [f.lineno for f in traceback.extract_tb(e.__traceback__) if f.filename == str(path)]
    return f":{lines[-1]}" if lines else ""
