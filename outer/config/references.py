"""Names of files in a configuration, ``my_file.py:MyClass``, replaced by the names of what is in them.

``env_name``, ``agents.gtn.agent_name`` (also with ``_vary``), ``agents.gtn.other_agents`` and ``agents.gtn.search`` may
be such a reference. The resolved configuration has the plain name there, as if it were built in, and says under
``plugins`` which file it comes from, with its SHA-256 (``envolve.core.plugins``).
"""

from __future__ import annotations

from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any

from envolve.core import plugins
from envolve.core.plugins import PluginError
from envolve.envs.outside.build import is_outside
from envolve.outer import plugins as registry
from envolve.outer.config.yaml_lines import Path, show
from envolve.outer.names import VARY_SUFFIX

if TYPE_CHECKING:
    from envolve.outer.config.check import Checker

GTN = ("agents", "gtn")


class References:
    """What one raw configuration names. ``used``: the ``plugins`` of the resolved one."""

    def __init__(self, checker: Checker, raw: dict[str, Any]) -> None:
        self.checker, self.raw = checker, raw
        self.entries: list[registry.Own] = []
        self.used: dict[str, dict[str, str]] = {}

    def resolved(self) -> dict[str, Any]:
        """The configuration with plain names; what is wrong becomes a problem of the checker."""
        self._stored()
        raw = dict(self.raw)
        if "env_name" in raw:
            raw["env_name"] = self._name("task", ("env_name",), raw["env_name"])
        agents = raw.get("agents")
        if isinstance(agents, dict) and isinstance(agents.get("gtn"), dict):
            gtn = dict(agents["gtn"])
            for key, kind in (("search", "search"), ("agent_name", "learner")):
                if key in gtn:
                    gtn[key] = self._name(kind, (*GTN, key), gtn[key])
            if isinstance(gtn.get("other_agents"), str) and ".py:" in gtn["other_agents"]:
                words = gtn["other_agents"].split()
                gtn["other_agents"] = " ".join(self._name("learner", (*GTN, "other_agents"), word) for word in words)
            raw["agents"] = {**agents, "gtn": gtn}
        for kind, section in (("task", "envs"), ("learner", "agents")):
            if isinstance(raw.get(section), dict):
                raw[section] = self._sections(kind, section, raw[section])
        try:
            self.used = registry.used(self.entries)
        except PluginError as e:
            self.checker.problem((), "two files", str(e))
        return raw

    def _stored(self) -> None:
        """The ``plugins`` of a configuration that an earlier run resolved."""
        section = self.raw.get("plugins")
        if section is None:
            return
        for wrong in plugins.check_section(section):
            self.checker.problem(("plugins",), show(section), f"the files of a resolved configuration: {wrong}")
            return
        for file, entry in section.items():
            sha256 = entry[plugins.SHA256]
            for kind in plugins.KINDS:
                for name in entry.get(kind, "").split():
                    self._load(kind, ("plugins", file), file, name, sha256)

    def _load(self, kind: str, at: Path, file: str, name: str, sha256: str | None = None) -> registry.Own | None:
        folder = self.checker.folder
        try:
            if folder is None:
                source = plugins.find(file, str(sha256))
            else:
                source = plugins.load(FilePath(folder, file), sha256)
            entry = registry.named(kind, source, name)
        except PluginError as e:
            words = "the file as it was, or a new run" if sha256 else f"a {kind} of your own, my_file.py:MyClass"
            self.checker.problem(at, file if sha256 else f"{file}:{name}", f"{words}: {e}")
            return None
        self.entries.append(entry)
        return entry

    def _name(self, kind: str, at: Path, value: Any) -> Any:
        """The plain name for a reference; anything else as it is, noted if a script registered it."""
        vary = kind == "learner" and isinstance(value, str) and value.endswith(VARY_SUFFIX)
        text = value[: -len(VARY_SUFFIX)] if vary else value
        reference = None if is_outside(text) else plugins.split(text)  # outside.py reads what such a name says
        if reference is None:
            plain = text.lower() if kind == "learner" and isinstance(text, str) else text
            known = registry.own(kind, plain) if isinstance(plain, str) else None
            if known is not None and known not in self.entries:
                self.entries.append(known)
            return value
        if self.checker.folder is None:
            self.checker.problem(at, show(value), "a name: this configuration may name no files")
            return value
        entry = self._load(kind, at, *reference)
        return value if entry is None else entry.name + VARY_SUFFIX * vary

    def _sections(self, kind: str, key: str, sections: dict[str, Any]) -> dict[str, Any]:
        """Sections under the name that is registered: they may be called by the reference or by the class as well."""
        out: dict[str, Any] = {}
        for name, value in sections.items():
            reference = plugins.split(name)
            called = reference[1] if reference else name
            new = next((e.name for e in self.entries if e.kind == kind and called in (e.cls.__name__, e.name)), name)
            both = isinstance(out.get(new), dict) and isinstance(value, dict)
            out[new] = {**out[new], **value} if both else value  # what --set adds comes last
            if new != name:
                lines = self.checker.lines
                for path in [p for p in lines if p[:2] == (key, name)]:
                    lines[(key, new) + path[2:]] = lines[path]
        return out
