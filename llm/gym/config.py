"""Reads the YAML of an evolution on a user's own Gymnasium environment: the layout of stable-eureka.

https://github.com/rsanchezmo/stable-eureka is where the layout comes from; its files load as they are. All problems of
a file are reported together, each in one line: ``file:line key: found X, expected Y, did you mean Z``.
"""

from __future__ import annotations

import copy
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pydantic

from envolve.core.files import read_plain
from envolve.core.places import shipped
from envolve.core.registry import nearest
from envolve.llm.gym.sections import ALGO_PARAMS, HEADS, GymConfig, Section
from envolve.outer.config.yaml_lines import ConfigError, override_value, parse_yaml, show, show_key, split_override

MAX_BYTES = 1_000_000
Key = tuple[str, ...]


@dataclass
class _Problems:
    """Collector of problems that knows the line of every key."""

    name: str
    lines: Mapping[Key, int]
    overridden: frozenset[Key]

    def __post_init__(self) -> None:
        self.texts: list[str] = []

    def add(self, path: Key, found: str, expected: str, near: str | None = None) -> None:
        at = path
        while at not in self.lines and at not in self.overridden:
            at = at[:-1]
        where = "--set" if at in self.overridden else f"{self.name}:{self.lines[at]}"
        mean = f", did you mean {near}" if near else ""
        self.texts.append(f"{where} {show_key(path)}: found {found}, expected {expected}{mean}".replace(" : ", ": "))

    def validate(self, model: type[Section], raw: Any, prefix: Key = ()) -> Section | None:
        try:
            return model.model_validate(raw)
        except pydantic.ValidationError as e:
            seen: set[Key] = set()
            for error in e.errors(include_url=False):
                path = self._key(raw, error["loc"])
                if path in seen:  # a union reports every member
                    continue
                seen.add(path)
                self._report(model, raw, prefix, path, error)
            return None

    @staticmethod
    def _key(raw: Any, loc: tuple[int | str, ...]) -> Key:
        """Part of pydantic's location that is a key of the file: the rest names members of unions."""
        path: list[str] = []
        for i, part in enumerate(loc):
            if isinstance(raw, dict) and part in raw:
                raw = raw[part]
            elif isinstance(raw, list) and isinstance(part, int) and part < len(raw):
                raw = raw[part]
            elif isinstance(raw, dict) and i == len(loc) - 1 and "[" not in str(part):
                pass  # a missing key
            else:
                break
            path.append(str(part))
        return tuple(path)

    def _report(self, model: type[Section], raw: Any, prefix: Key, path: Key, error: Any) -> None:
        owner, field = model, None
        for part in path:
            field = owner.model_fields.get(part) if owner else None
            if field is None:
                break
            annotation = field.annotation
            owner = annotation if isinstance(annotation, type) and issubclass(annotation, Section) else None  # type: ignore[assignment]
        full = (*prefix, *path)
        if error["type"] == "extra_forbidden":
            names = list(_at(model, path[:-1]).model_fields)
            near = nearest(path[-1], names)
            self.add(full, "an unknown key", "a known one" if near else f"one of {', '.join(names)}", near)
        elif error["type"] == "missing":
            self.add(full, "nothing", "this key" + _description(field))
        else:
            value = error["input"]
            choices = [str(c) for c in _choices(field.annotation)] if field else []
            expected = f"one of {', '.join(choices)}" if choices else _words(error)
            near = nearest(value, choices) if choices and isinstance(value, str) else None
            self.add(full, show(value), expected + _description(field), near)


def _description(field: Any) -> str:
    return f" ({field.description})" if field is not None and field.description else ""


def _at(model: type[Section], path: Key) -> type[Section]:
    for part in path:
        model = typing.cast("type[Section]", model.model_fields[part].annotation)
    return model


def _choices(annotation: Any) -> tuple[Any, ...]:
    return typing.get_args(annotation) if typing.get_origin(annotation) is Literal else ()


def _words(error: Any) -> str:
    """pydantic's "Input should be a valid integer" -> "a valid integer"."""
    if error["type"] == "string_pattern_mismatch":
        return "other text"
    return str(error["msg"]).removeprefix("Input should be ").removeprefix("String should ")


def load_gym_config(path: str | Path, overrides: Sequence[str] = ()) -> GymConfig:
    """Read a YAML file, apply overrides such as ``rl.training.total_timesteps=20000`` (values are YAML), check it all.

    Raises ConfigError with every problem found, and nothing else.
    """
    path = shipped(path)
    try:
        data = read_plain(path, MAX_BYTES)
    except OSError as e:
        folder = Path(path).parent
        there = [p.name for p in folder.glob("*.yml") if p.is_file() and p != Path(path)] if folder.is_dir() else []
        near = nearest(Path(path).name, there, cutoff=0.0)
        mean = f", did you mean {folder / near}" if near else ""
        raise ConfigError(
            [f"{path}: found no readable file ({e.strerror}), expected a YAML configuration{mean}"]
        ) from e
    return parse_gym_config(data, str(path), overrides)


def parse_gym_config(data: bytes, name: str, overrides: Sequence[str] = ()) -> GymConfig:
    """Same as :func:`load_gym_config`, from the YAML text. name: of the source in messages."""
    raw, found_lines = parse_yaml(data, name)
    if not isinstance(raw, dict):
        expected = "a mapping with eureka, environment, experiment and rl"
        raise ConfigError([f"{name}:1: found {'an empty file' if raw is None else show(raw)}, expected {expected}"])
    raw, lines = _evaluation_inside(raw, found_lines)
    problems: list[str] = []
    overridden = frozenset(filter(None, [_override(raw, text, problems) for text in overrides]))
    check = _Problems(name, lines, overridden)
    config = check.validate(GymConfig, raw)
    rl = raw.get("rl")
    algo, params = (rl.get("algo"), rl.get("algo_params")) if isinstance(rl, dict) else (None, None)
    if isinstance(algo, str) and algo in ALGO_PARAMS and isinstance(params, dict):
        check.validate(ALGO_PARAMS[algo], params, ("rl", "algo_params"))
    if isinstance(config, GymConfig):
        _together(check, config)
    if problems or check.texts:
        raise ConfigError(problems + check.texts)
    assert isinstance(config, GymConfig)
    return config


def _evaluation_inside(raw: dict[str, Any], lines: Mapping[Key, int]) -> tuple[dict[str, Any], Mapping[Key, int]]:
    """Moves ``evaluation``, which may stand beside ``rl`` or in it, into it."""
    raw = copy.deepcopy(raw)
    if "evaluation" in raw and isinstance(raw.get("rl"), dict) and "evaluation" not in raw["rl"]:
        raw["rl"]["evaluation"] = raw.pop("evaluation")
        lines = {(("rl", *key) if key[:1] == ("evaluation",) else key): line for key, line in lines.items()}
    return raw, lines


def _override(raw: dict[str, Any], text: str, problems: list[str]) -> Key | None:
    """Applies ``eureka.samples=2`` in place -> its path. The key is checked with the rest of the file."""
    try:
        key, value = split_override(text)
        parsed = override_value(key, value)
    except ConfigError as e:
        problems.extend(e.problems)
        return None
    path = tuple(key.split("."))
    if path[0] == "evaluation":
        path = ("rl", *path)
    at: Any = raw
    for part in path[:-1]:
        at = at.setdefault(part, {})
        if not isinstance(at, dict):
            problems.append(f"--set {show(key)}: found a key below {part!r}, expected a section there")
            return None
    at[path[-1]] = parsed
    return path


def _together(check: _Problems, config: GymConfig) -> None:
    """Checks across keys."""
    rl, eureka = config.rl, config.eureka
    widths, architecture = rl.architecture.net_arch, ("rl", "architecture", "net_arch")
    heads = HEADS[rl.algo]
    if isinstance(widths, dict) and set(widths) != heads:
        wanted = f"a mapping with {' and '.join(sorted(heads))} or a list" if heads else "a list"
        check.add(architecture, f"a mapping with {', '.join(widths) or 'nothing'}", f"{wanted} for {rl.algo}")
    if rl.architecture.activation_fn is not None:
        import torch

        names = [n for n in dir(torch.nn) if isinstance(getattr(torch.nn, n), type)]
        if rl.architecture.activation_fn not in names:
            near = nearest(rl.architecture.activation_fn, names)
            where = ("rl", "architecture", "activation_fn")
            check.add(where, show(rl.architecture.activation_fn), "a class of torch.nn", near)
    if rl.training.total_timesteps < rl.training.eval.num_evals:
        wanted = f"at least num_evals ({rl.training.eval.num_evals})"
        check.add(("rl", "training", "total_timesteps"), str(rl.training.total_timesteps), wanted)
    if eureka.backend == "replay" and eureka.model.startswith("replay:"):
        check.add(("eureka", "model"), show(eureka.model), "a file name: backend says 'replay' already")
