"""Checks a raw configuration: names and values, section by section; ``together.py`` has the rest."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping
from pathlib import Path as FilePath
from typing import Any

import pydantic

from envolve.agents.common.learners import LEARNERS
from envolve.agents.common.sections import ICMSection, VarySection
from envolve.core.plugins import PluginError
from envolve.core.registry import nearest
from envolve.envs.outside.build import is_outside
from envolve.envs.physics.task import is_shaped
from envolve.envs.section import EnvSection
from envolve.envs.shaping.section import ShapedSection
from envolve.envs.task import ARGUMENTS_KEY, TASKS, make_task
from envolve.outer.config import problem
from envolve.outer.config.legacy import LEGACY_AGENTS, LEGACY_KEYS, LEGACY_TASKS
from envolve.outer.config.outside import outside_section
from envolve.outer.config.references import References
from envolve.outer.config.schema import agent_names, defaults, expected, section_model
from envolve.outer.config.searching import check_search
from envolve.outer.config.sections import agent_sections, env_sections
from envolve.outer.config.together import check_together
from envolve.outer.config.yaml_lines import Path, show, show_key
from envolve.outer.plugins import own, set_arguments

OWN_VARY = "td3_discrete_vary"
_DEVICE = re.compile(r"cpu|cuda(:\d{1,3})?")


class Checker:
    """Checker of one raw configuration; collects problems (errors) and warnings (ignored keys)."""

    def __init__(
        self, name: str, lines: dict[Path, int], overrides: dict[Path, str], folder: FilePath | None = None
    ) -> None:
        """folder: of the user's own configuration, whose files it may name as ``my_file.py:MyClass``; None: what is
        checked came from elsewhere, and no file is executed but those that are allowed or loaded already."""
        self.name, self.lines, self.overrides, self.folder = name, lines, overrides, folder
        self.problems: list[str] = []
        self.warnings: list[str] = []
        self.ignored: dict[str, list[str]] = {}
        self.env_name, self.seed = "", 0
        self.reported: set[Path] = set()  # one problem per key: what follows from it is not reported too

    def problem(self, path: Path, found: str, expected: str, near: str | None = None) -> None:
        if path in self.reported:
            return
        self.reported.add(path)
        at = path
        while at not in self.lines and at not in self.overrides:
            at = at[:-1]  # a missing key is reported at its section
        where = self.overrides[at] if at in self.overrides else f"{self.name}:{self.lines[at]}"
        mean = f", did you mean {near}" if near else ""
        self.problems.append(f"{where} {show_key(path)}: found {found}, expected {expected}{mean}")

    def mapping(self, raw: Mapping[str, Any], path: Path) -> dict[str, Any]:
        """raw[path[-1]] if it is a mapping, else {} and a problem."""
        value = raw.get(path[-1])
        if isinstance(value, dict):
            return value
        self.problem(path, show(value), f"a mapping: the section {path[-1]!r}")
        return {}

    def unknown(self, path: Path, names: Iterable[str], what: str) -> None:
        names = list(names)
        near = nearest(path[-1], names)
        self.problem(path, "an unknown key", what if near else f"{what}: one of {', '.join(names)}", near)

    def section(self, raw: dict[str, Any], path: Path, cls: type, kind: str) -> dict[str, Any]:
        """Checks one section against its dataclass -> its values with defaults filled in."""
        known = defaults(cls)
        clean: dict[str, Any] = {}
        for key, value in raw.items():
            if key in known:
                clean[key] = value
            elif key in LEGACY_KEYS[kind]:
                self.ignored.setdefault(LEGACY_KEYS[kind][key], []).append(show_key((*path, key)))
            else:
                self.unknown((*path, key), known, f"a key of {show_key(path)}" if path else "a top-level key")
        try:
            return section_model(cls)(**clean).model_dump()
        except pydantic.ValidationError as e:
            bad = {error["loc"][0] for error in e.errors(include_url=False)}
            for key in [k for k in clean if k in bad]:
                choices = next(f for f in dataclasses.fields(cls) if f.name == key).metadata["choices"]
                near = nearest(clean[key], map(str, choices)) if choices and isinstance(clean[key], str) else None
                self.problem((*path, key), show(clean[key]), expected(cls, key), near)
            return {**known, **{k: v for k, v in clean.items() if k not in bad}}

    def agents(self, raw: dict[str, Any]) -> dict[str, Any]:
        sections = agent_sections()
        missing: list[str] = []
        out: dict[str, Any] = {}
        for key in raw:
            path = ("agents", key)
            if key in sections:
                mapping = self.mapping(raw, path)
                if key == OWN_VARY and "td3_discrete" not in raw:
                    # the original's discrete TD3 always varied: its one section held what are two here
                    mine = {k: v for k, v in mapping.items() if k not in defaults(VarySection)}
                    mapping = {k: v for k, v in mapping.items() if k not in mine}
                    if mine:
                        out["td3_discrete"] = self.section(mine, path, *sections["td3_discrete"])
                out[key] = self.section(mapping, path, *sections[key])
            elif key in LEGACY_AGENTS:
                missing.append(key)
            else:
                self.unknown(path, [*sections, *LEGACY_AGENTS], "the name of an agent")
        if missing:
            self.warnings.append(f"ignored: sections of agents that do not exist here yet: {', '.join(missing)}")
        return out

    def envs(self, raw: dict[str, Any]) -> dict[str, Any]:
        missing: list[str] = []
        out: dict[str, Any] = {}
        for key in raw:
            path = ("envs", key)
            if is_shaped(key):
                out[key] = self.section(self.mapping(raw, path), path, ShapedSection, "env")
            elif is_outside(key):
                if key == self.env_name:  # others are not measured: nothing reads their sections
                    section = outside_section(self, self.mapping(raw, path), path, self.seed)
                    out.update({} if section is None else {key: section})
            elif key in TASKS:
                section = self.ranges(self.mapping(raw, path), path)
                mine = own("task", key) is not None
                arguments = {ARGUMENTS_KEY: section.pop(ARGUMENTS_KEY)} if mine and ARGUMENTS_KEY in section else {}
                try:
                    set_arguments(key, arguments) if mine else None
                except PluginError as e:
                    self.problem((*path, ARGUMENTS_KEY), show(arguments.get(ARGUMENTS_KEY)), f"its arguments: {e}")
                out[key] = self.section(section, path, EnvSection, "env") | arguments
                task = make_task(key)
                for name, usual in (("max_steps", task.max_steps), ("solved_reward", task.solved_reward)):
                    out[key][name] = usual if out[key][name] is None else out[key][name]
            elif key in LEGACY_TASKS:
                missing.append(key)
            else:
                self.unknown(path, [*env_sections(), *LEGACY_TASKS], "the name of a task")
        if missing:
            self.warnings.append(f"ignored: sections of tasks that do not exist here yet: {', '.join(missing)}")
        return out

    def ranges(self, raw: dict[str, Any], path: Path) -> dict[str, Any]:
        """Middle value of the original's range syntax [minimum, default, maximum], as in the original."""
        out = dict(raw)
        for key, value in raw.items():
            if isinstance(value, list) and len(value) == 3:
                out[key] = value[1]
                self.warnings.append(f"{show_key((*path, key))} is a range; its middle value {show(value[1])} is used")
        return out

    def check(self, raw: dict[str, Any]) -> dict[str, Any]:
        """The whole configuration -> resolved data; only meaningful if no problem was found."""
        named = References(self, raw)
        raw = named.resolved()
        top = {k: v for k, v in raw.items() if k not in ("agents", "envs", "plugins")}
        known = [*defaults(problem.RunSection), "agents", "envs", "plugins"]
        for key in [k for k in top if k not in known and k not in LEGACY_KEYS["run"]]:
            self.unknown((key,), known, "a top-level key")
            del top[key]
        run = self.section(top, (), problem.RunSection, "run")
        self.env_name, self.seed = run["env_name"], run["seed"]
        if is_outside(self.env_name) and isinstance(raw.get("envs", {}), dict):
            raw = {**raw, "envs": {self.env_name: {}, **raw.get("envs", {})}}
        data: dict[str, Any] = {
            **{key: run[key] for key in ("seed", "env_name", "device")},
            "agents": self.agents(self.mapping(raw, ("agents",))),
            "envs": self.envs(self.mapping(raw, ("envs",))),
        }
        if named.used:
            data["plugins"] = named.used
        self.check_names(raw, data)
        for reason, keys in self.ignored.items():
            self.warnings.append(f"ignored: {', '.join(keys)} ({reason})")
        if not self.problems:
            check_together(self, data)
        return data

    def check_names(self, raw: Mapping[str, Any], data: dict[str, Any]) -> None:
        """Checks that the task and the agent exist and are configured."""
        name, device = data["env_name"], data["device"]
        if not _DEVICE.fullmatch(device):
            self.problem(("device",), show(device), "cpu, cuda or cuda:<index>")
        tasks = env_sections()
        if is_outside(name):
            pass  # outside_section has said what is wrong with it
        elif is_shaped(name):
            if isinstance(raw.get("envs"), dict) and name not in data["envs"]:
                self.problem(("envs", name), "nothing", f"the section of the task env_name, {name}")
        elif name not in tasks:
            late = " (this task of the original does not exist here yet)" if name in LEGACY_TASKS else ""
            near = None if late else nearest(name, tasks)
            found = show(name) if "env_name" in raw else "nothing"
            words = f"{', '.join(t for t in tasks if not is_outside(t))}, or gymnasium:ID of any Gymnasium environment"
            self.problem(("env_name",), found, f"a task that exists{late}: one of {words}", near)
        elif isinstance(raw.get("envs"), dict) and name not in data["envs"]:
            self.problem(("envs", name), "nothing", f"the section of the task env_name, {name}")
        if "gtn" not in data["agents"]:
            if isinstance(raw.get("agents"), dict):
                self.problem(("agents", "gtn"), "nothing", "the section of the outer loop; no search without it")
            return
        check_search(self, raw["agents"]["gtn"], data["agents"])
        self.check_agent("agent_name", data["agents"]["gtn"]["agent_name"], data)
        for agent in data["agents"]["gtn"]["other_agents"].split():
            self.check_agent("other_agents", agent, data)

    def check_agent(self, key: str, agent: str, data: dict[str, Any]) -> None:
        """Checks the name of a learner; fills in the sections that it reads."""
        learner, curious, vary = problem.split_agent_name(agent)
        if agent.lower() not in agent_names():
            late = " (this agent of the original does not exist here yet)" if agent.lower() in LEGACY_AGENTS else ""
            near = None if late else nearest(agent, agent_names())
            words = f"an agent that exists{late}: one of {', '.join(agent_names())}"
            self.problem(("agents", "gtn", key), show(agent), words, near)
            return
        wanted: list[tuple[str, type]] = [(problem.learner_key(data["agents"], learner), LEARNERS[learner].section)]
        wanted += [("icm", ICMSection)] if curious else []
        wanted += [(learner + problem.VARY_SUFFIX, VarySection)] if vary else []
        for key, cls in wanted:
            if key not in data["agents"]:
                self.warnings.append(f"agents.{key} is missing; every value of it is the default")
                data["agents"][key] = defaults(cls)
