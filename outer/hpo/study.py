"""Study: which configuration is searched over which space, how trials are evaluated, and for how long.

A study is a YAML file (``configs/spaces/``); read, checked and written here.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path as FilePath
from typing import Any

import yaml

from envolve.core.places import shipped
from envolve.outer.config.check import Checker
from envolve.outer.config.header import header_lines, header_of
from envolve.outer.config.load import Config
from envolve.outer.config.yaml_lines import ConfigError
from envolve.outer.hpo.reading.goal_study import GoalStudyReader, goal_agent
from envolve.outer.hpo.reading.sections import Budget, applied
from envolve.outer.hpo.reading.study import StudyReader
from envolve.outer.hpo.space import Space
from envolve.outer.hpo.trial import Plain

STUDY_FILE = "study.yaml"  # in the folder of a search
SOURCE, BASE = "source", "base"  # its first lines name the study's file and its configuration's


@dataclass(frozen=True)
class Study:
    """Checked study."""

    path: str
    name: str  # the file's, without .yaml
    config: Config  # the base with ``set`` applied
    space: Space
    evaluate: str  # "nes", "agent" or "goal"
    loss: str
    repeats: int
    agents: int
    worlds: tuple[str, ...]  # files that agents are trained in; (): the task itself
    worlds_sha256: tuple[str, ...]  # of their bytes
    budget: Budget
    backend: str
    bracket: str
    seed: int
    parallel: int
    random_fraction: float
    full_evaluations: float | None
    trials: int | None
    digest: str = field(init=False)  # SHA-256 of all that decides results: not of paths, comments, nor of ``stop``

    def __post_init__(self) -> None:
        text = json.dumps(self._deciding(), sort_keys=True, separators=(",", ":"))
        object.__setattr__(self, "digest", hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest())

    @property
    def env_name(self) -> str:
        return str(self.config.data["env_name"])

    def written(self) -> dict[str, Any]:
        """Content that this study and its file share, in the form of the file."""
        own = ["repeats"] if self.evaluate == "nes" else ["agents"] * (self.budget.unit != "agents")
        search = ("backend", "bracket", "seed", "parallel", "random_fraction")
        return {
            **{key: getattr(self, key) for key in ("evaluate", "loss", *own)},
            "search": {key: getattr(self, key) for key in search},
            "budget": asdict(self.budget),
        }

    def _deciding(self) -> dict[str, Any]:
        envs = {name: dict(section) for name, section in self.config.data["envs"].items()}
        for section in envs.values():
            if section.get("shapers_sha256"):
                del section["shapers"]  # a path, and the candidates' contents are known
        # the order of choices decides what is drawn, that of parameters does not
        space = {p.name: p.written() for p in self.space.parameters}
        config = {**self.config.data, "envs": envs}
        return {**self.written(), "config": config, "space": space, "worlds": list(self.worlds_sha256)}

    def member_config(self, values: Mapping[str, Plain]) -> Config:
        """Configuration with a trial's values, checked as if it had been loaded. Raises ConfigError."""
        overrides = self.space.overrides(values)
        labels = {tuple(key.split(".")): f"trial of {self.name}" for key in overrides}
        checker = Checker(self.path, {(): 1}, labels)
        checked = checker.check(applied(self.config.data, overrides))
        if checker.problems:
            raise ConfigError(checker.problems, checker.warnings)
        return Config(checked, checker.warnings, self.path)


class GoalStudy(Study):
    """A study of a goal-conditioned run (``evaluate: goal``): its configuration has the sections run and learner."""

    @property
    def env_name(self) -> str:
        return str(self.config.data["run"]["env_name"])

    def _deciding(self) -> dict[str, Any]:
        space = {p.name: p.written() for p in self.space.parameters}
        return {**self.written(), "config": self.config.data, "space": space}

    def member_config(self, values: Mapping[str, Plain]) -> Config:
        """Settings of goal-conditioned agents with a trial's values, and with the longest training."""
        own = {"run.population": self.agents, "run.num_timesteps": round(self.budget.most), "run.threads": 1}
        data = applied(self.config.data, {**self.space.overrides(values), **own})
        return Config({**data, "per_member": {}}, [], self.path)


def read_study(path: str | FilePath, overrides: Sequence[str] = ()) -> Study:
    """Reads a study; overrides: ``search.seed=3``, or ``agents.gtn.num_workers=8`` for its section ``set``.

    Raises ConfigError with every problem found, and nothing else.
    """
    path = shipped(path)
    agent = goal_agent(str(path))
    if agent is not None:
        return _as_first(GoalStudy(**GoalStudyReader(str(path), agent).read(overrides)))
    return _as_first(Study(**StudyReader(str(path)).read(overrides)))


def _as_first(study: Study) -> Study:
    """A study that was read from the copy in a folder of results, by the names that it had at first: what is written of
    it does not change with every look at it."""
    path = FilePath(study.path)
    if path.name != STUDY_FILE:
        return study
    names = header_of(path)
    if SOURCE in names:
        study = replace(study, path=names[SOURCE], name=FilePath(names[SOURCE]).stem)
    return replace(study, config=replace(study.config, path=names[BASE])) if BASE in names else study


def dump_study(study: Study) -> str:
    """Self-contained YAML: :func:`read_study` reads it back, from any folder, to the same digest."""
    stop = {"full_evaluations": study.full_evaluations, "trials": study.trials}
    data = {
        **study.written(),
        **({"worlds": list(study.worlds)} if study.worlds else {}),
        "stop": {key: value for key, value in stop.items() if value is not None},
        "space": {p.key: p.written() for p in study.space.parameters},
        "config": study.config.data,
    }
    title = "# Resolved study: every value that it uses."
    head = [title, *header_lines({SOURCE: study.path, BASE: study.config.path, "digest": study.digest})]
    return "\n".join([*head, "", ""]) + yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=120)
