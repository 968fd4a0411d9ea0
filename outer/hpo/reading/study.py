"""Reads a study: its file, the configuration that it starts from, and whether every value of its space is one.

All problems of all files are reported together, as those of a configuration are.
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import os
from collections.abc import Sequence
from pathlib import Path as FilePath
from typing import Any

from envolve.core import plugins
from envolve.core.files import TORCH_BYTES, read_plain
from envolve.core.plugins import PluginError
from envolve.core.registry import nearest
from envolve.envs.worlds.file import WorldFileError, read_world
from envolve.outer.config.check import Checker
from envolve.outer.config.load import Config, read_bytes
from envolve.outer.config.schema import defaults
from envolve.outer.config.yaml_lines import ConfigError, Path, override_value, parse_yaml, show, split_override
from envolve.outer.hpo.reading.checks import check_fit, check_values, corner_problems
from envolve.outer.hpo.reading.sections import Budget, BudgetSection, SearchSection, StopSection, StudySection, applied
from envolve.outer.hpo.reading.space import SpaceReader, configuration_keys
from envolve.outer.hpo.space import Space
from envolve.outer.plugins import named as own_class

SECTIONS: dict[str, type] = {"search": SearchSection, "budget": BudgetSection, "stop": StopSection}
MAPPINGS = ("set", "space")
NEEDED = ("config", "evaluate", "loss", "budget", "stop", "space")
KEYS = ("config", "worlds", *defaults(StudySection), *MAPPINGS, *SECTIONS)
DOTTED = ["config", "worlds", *defaults(StudySection)]  # what --set can change in the study itself
DOTTED += [f"{name}.{key}" for name, cls in SECTIONS.items() for key in defaults(cls)]
SEARCH = "agents.gtn.search"
MAX_WORLDS = 10_000


class StudyReader:
    """Reads one file."""

    def __init__(self, path: str) -> None:
        self.keys = configuration_keys()
        self.path, self.folder = path, os.path.dirname(os.path.abspath(path))
        self.problems: list[str] = []
        self.checker = Checker(path, {(): 1}, {})

    def read(self, overrides: Sequence[str]) -> dict[str, Any]:
        """Fields of a Study. Raises ConfigError."""
        raw, lines = parse_yaml(read_bytes(self.path, "*.yaml"), self.path)
        if not isinstance(raw, dict):
            found = "an empty file" if raw is None else show(raw)
            raise ConfigError([f"{self.path}:1: found {found}, expected a study: a mapping with {', '.join(NEEDED)}"])
        checker = self.checker
        checker.lines = lines
        self.load_own_searches(raw, overrides)
        for text in overrides:
            self.override(raw, text)
        for key in [key for key in raw if key not in KEYS]:
            if at := [name for name in DOTTED if name.endswith(f".{key}")]:  # a key of a section, outside of it
                checker.problem((key,), "an unknown key", "a key of a study", at[0])
            else:
                checker.unknown((key,), KEYS, "a key of a study")
        for key in [key for key in NEEDED if key not in raw]:
            checker.problem((key,), "nothing", f"a value: a study needs {', '.join(NEEDED)}")
        own = {key: raw[key] for key in defaults(StudySection) if key in raw}
        study = checker.section(own, (), StudySection, "study")
        parts = {name: self.section(raw, name, cls) for name, cls in SECTIONS.items()}
        entries = checker.mapping(raw, ("space",)) if "space" in raw else {}
        fixed = checker.mapping(raw, ("set",)) if "set" in raw else {}
        fixed = {key: value for key, value in fixed.items() if self.keys.check(key, ("set", key), checker)}
        for key in [key for key in fixed if key in entries]:
            checker.problem(("space", key), "a key that is under set, too", "it in one of them")
        space = SpaceReader(checker, self.keys).read(entries)
        if not entries:
            checker.problem(("space",), "no key", "at least one that varies")
        if not checker.problems:  # else these values may be defaults in the place of what was found
            check_values(checker, raw, study, parts["budget"], parts["stop"])
        base = self.base(raw["config"], fixed, space) if "config" in raw else None
        worlds, digests = self.worlds(raw.get("worlds", "real"), base[0].data.get("env_name") if base else None)
        if base is not None and not checker.problems:
            self.check_space(*base, {**study, "worlds": worlds}, parts["budget"], space)
        if self.problems or checker.problems or base is None:
            raise ConfigError(checker.problems + self.problems)
        name = FilePath(self.path).name
        return {
            "path": self.path, "name": name[: -len(".yaml")] if name.endswith(".yaml") else name, "config": base[0],
            "space": space, **study, "worlds": worlds, "worlds_sha256": digests, "budget": Budget(**parts["budget"]),
            **parts["search"], **parts["stop"],
        }  # fmt: skip

    def load_own_searches(self, raw: dict[str, Any], overrides: Sequence[str]) -> None:
        """Loads the file of a search of the user's own, so that the keys of its settings are known. What is wrong with
        it is reported where the configuration is checked."""
        base, folder = raw.get("config"), self.folder
        if isinstance(base, str) and base:
            file = os.path.join(self.folder, base)
            folder = os.path.dirname(file)
            with contextlib.suppress(ConfigError):
                base, _ = parse_yaml(read_bytes(file), file)
        at: Any = base
        for part in ("agents", "gtn", "search"):
            at = at.get(part) if isinstance(at, dict) else None
        named = [at, raw["set"].get(SEARCH) if isinstance(raw.get("set"), dict) else None]
        named += [text.partition("=")[2] for text in overrides if text.partition("=")[0] == SEARCH]
        references: list[tuple[str, str, str | None]] = [(*r, None) for r in map(plugins.split, named) if r]
        stored = base.get("plugins") if isinstance(base, dict) else None  # of a study that was resolved before
        if isinstance(stored, dict) and not plugins.check_section(stored):
            for file, entry in stored.items():
                references += [(file, cls, entry[plugins.SHA256]) for cls in entry.get("search", "").split()]
        for file, cls, sha256 in references:
            with contextlib.suppress(PluginError):
                own_class("search", plugins.load(FilePath(folder, file), sha256), cls)
        self.keys = configuration_keys()

    def section(self, raw: dict[str, Any], name: str, cls: type) -> dict[str, Any]:
        return self.checker.section(self.checker.mapping(raw, (name,)) if name in raw else {}, (name,), cls, "study")

    def check_space(
        self,
        config: Config,
        name: str,
        lines: dict[Path, int],
        study: dict[str, Any],
        budget: dict[str, Any],
        space: Space,
    ) -> None:
        """Checks the space against the configuration, in the file ``name``."""
        check_fit(self.checker, config.data, study, budget, space)
        if not self.checker.problems:
            labels = {tuple(p.key.split(".")): self.where(("space", p.key)) for p in space.parameters}
            self.problems += corner_problems(config.data, name, lines, labels, space)

    def override(self, raw: dict[str, Any], text: str) -> None:
        """Applies ``key=value``: a key of the study, or of the configuration, which goes under ``set``."""
        try:
            key, value = split_override(text)
            parsed = override_value(key, value)
        except ConfigError as e:
            self.problems.extend(e.problems)
            return
        path: Path = tuple(key.split("."))
        if key in self.keys.valid:
            path = ("set", key)
        elif key not in DOTTED:
            near = nearest(key, [*DOTTED, *self.keys.valid], cutoff=0.0)
            found = "an unknown key"
            self.problems.append(f"--set {show(key)}: found {found}, expected a dotted key, did you mean {near}")
            return
        if key in ("config", "worlds") and parsed != "real":  # a path that was typed: from here, not from the file
            listed = isinstance(parsed, list)
            texts = [os.path.abspath(p) if isinstance(p, str) else p for p in (parsed if listed else [parsed])]
            parsed = texts if listed else texts[0]
        at = raw
        for part in path[:-1]:
            at = at.setdefault(part, {})
            if not isinstance(at, dict):
                return  # which is reported as such
        at[path[-1]] = parsed
        self.checker.overrides[path] = "--set"

    def base(self, raw: Any, fixed: dict[str, Any], space: Space) -> tuple[Config, str, dict[Path, int]] | None:
        """Configuration with ``set`` applied, its name in messages, and the lines of its keys there. None if it has
        problems."""
        if isinstance(raw, dict):
            name = self.path
            lines = {path[1:]: line for path, line in self.checker.lines.items() if path[:1] == ("config",)}
            lines.setdefault((), 1)
        elif isinstance(raw, str) and raw:
            name = os.path.normpath(os.path.join(os.path.dirname(self.path), raw))
            try:
                raw, lines = parse_yaml(read_bytes(name), name)
            except ConfigError as e:
                self.problems.extend(e.problems)
                return None
        else:
            self.checker.problem(("config",), show(raw), "the path of a configuration, from this file, or itself")
            return None
        if not isinstance(raw, dict):
            found = "an empty file" if raw is None else show(raw)
            self.problems.append(f"{name}:1: found {found}, expected a configuration: env_name, agents and envs")
            return None
        raw = applied(raw, fixed)
        for key in space.by_key:  # a section of which only these keys are given is no missing one
            at: Any = raw
            for part in key.split(".")[:-1]:
                at = at.setdefault(part, {}) if isinstance(at, dict) else None
        labels = {tuple(key.split(".")): self.where(("set", key)) for key in fixed}
        checker = Checker(name, lines, labels, FilePath(name).parent)  # the user's own, whose files it may name
        data = checker.check(raw)
        self.problems.extend(checker.problems)
        return None if checker.problems else (Config(data, checker.warnings, name), name, lines)

    def where(self, path: Path) -> str:
        """File and line of a key of the study."""
        return self.checker.overrides.get(path) or f"{self.path}:{self.checker.lines[path]}"

    def worlds(self, given: Any, env_name: str | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Files named by ``worlds``, and the SHA-256 of each. env_name: of the configuration, None: unknown."""
        if given == "real":
            return (), ()
        patterns = given if isinstance(given, list) else [given]
        if not patterns or not all(isinstance(p, str) and p and "\0" not in p for p in patterns):
            self.checker.problem(("worlds",), show(given), "real, or a file of a world, a pattern, or a list of them")
            return (), ()
        files: list[str] = []
        for pattern in patterns:
            whole = os.path.normpath(os.path.join(self.folder, pattern))
            found = [whole] if os.path.exists(whole) else sorted(glob.glob(whole))
            if not found:
                self.checker.problem(("worlds",), show(pattern), "files that exist, from this file's folder")
            files += [file for file in found if file not in files]
        if len(files) > MAX_WORLDS:
            self.checker.problem(("worlds",), f"{len(files)} files", f"at most {MAX_WORLDS}")
            return (), ()
        digests = []
        for file in files:
            wrong = None
            try:
                task = read_world(file).env_name
                digests.append(hashlib.sha256(read_plain(file, TORCH_BYTES)).hexdigest())
                if env_name is not None and task != env_name:
                    wrong = f"found a world of {task} in {file}, expected {env_name}, the task of the configuration"
            except (WorldFileError, OSError) as e:
                wrong = str(e)
            if wrong:
                self.problems.append(f"{self.where(('worlds',))} worlds: {wrong}")
        return tuple(files), tuple(digests)
