"""Reads a study of a goal-conditioned run. Its configuration is the config.yaml of train_goal.py, or the parts of it
that differ from the defaults; parameters are keys of its section ``learner``."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from envolve.envs.goal.task import make_goal_task
from envolve.outer.config.check import Checker
from envolve.outer.config.load import Config, read_bytes
from envolve.outer.config.yaml_lines import ConfigError, Path, parse_yaml, show
from envolve.outer.goals.sections import AGENTS, RunSection
from envolve.outer.hpo.reading.sections import applied
from envolve.outer.hpo.reading.space import Keys
from envolve.outer.hpo.reading.study import StudyReader
from envolve.outer.hpo.space import Space


def goal_agent(path: str) -> str | None:
    """Learner of a study with ``evaluate: goal``; None for another study or an unreadable one."""
    try:
        raw, _ = parse_yaml(read_bytes(path, "*.yaml"), path)
        if not isinstance(raw, dict) or raw.get("evaluate") != "goal":
            return None
        config, _, _ = _content(raw.get("config"), path, {})
        agent = {**config["run"], **{k.partition(".")[2]: v for k, v in (raw.get("set") or {}).items()}}.get("agent")
    except (ConfigError, KeyError, TypeError, AttributeError):
        agent = None  # the reader will report the problem
    return agent if agent in AGENTS else "crl"


def _content(raw: Any, path: str, lines: dict[Path, int]) -> tuple[Any, str, dict[Path, int]]:
    """Resolves ``config`` of the study in ``path``: the value itself or the file that it names; the file's name, its
    lines. Raises ConfigError."""
    if not isinstance(raw, str):
        own = {key[1:]: line for key, line in lines.items() if key[:1] == ("config",)}
        return raw, path, {(): 1, **own}
    name = os.path.normpath(os.path.join(os.path.dirname(path), raw))
    content, there = parse_yaml(read_bytes(name, "*.yaml"), name)
    return content, name, there


class GoalStudyReader(StudyReader):
    """Reads one file."""

    def __init__(self, path: str, agent: str) -> None:
        """agent: a key of AGENTS."""
        super().__init__(path)
        self.section_of_learner = AGENTS[agent][0]
        self.keys = Keys({"run": RunSection, "learner": self.section_of_learner}, {})

    def load_own_searches(self, raw: dict[str, Any], overrides: Sequence[str]) -> None:
        """Nothing: such a run has no search."""

    def base(self, raw: Any, fixed: dict[str, Any], space: Space) -> tuple[Config, str, dict[Path, int]] | None:
        try:
            content, name, lines = _content(raw, self.path, self.checker.lines)
        except ConfigError as e:
            self.problems.extend(e.problems)
            return None
        if not isinstance(content, dict):
            expected = "the sections run and learner, as train_goal.py writes them, or the path of such a file"
            self.checker.problem(("config",), show(content), expected)
            return None
        checker = Checker(name, lines, {tuple(key.split(".")): self.where(("set", key)) for key in fixed})
        for key in [key for key in content if key not in ("run", "learner", "per_member")]:
            checker.unknown((key,), ("run", "learner"), "a section of a goal-conditioned run")
        own = content.get("per_member")
        if own:
            checker.problem(("per_member",), show(own), "none: agents of a trial have the same values")
        content = applied({"run": {}, "learner": {}, **content}, fixed)
        data = {}
        for part, cls in self.keys.sections.items():
            data[part] = checker.section(checker.mapping(content, (part,)), (part,), cls, "study")
        if not checker.problems:
            self._check_tasks(checker, data["run"])
        self.problems.extend(checker.problems)
        return None if checker.problems else (Config(data, checker.warnings, name), name, lines)

    def _check_tasks(self, checker: Checker, run: dict[str, Any]) -> None:
        for key in ("env_name", "eval_env"):
            try:
                make_goal_task(run[key] or run["env_name"])
            except ValueError as e:
                checker.problem(("run", key), show(run[key]), str(e))

    def check_space(
        self,
        config: Config,
        name: str,
        lines: dict[Path, int],
        study: dict[str, Any],
        budget: dict[str, Any],
        space: Space,
    ) -> None:
        for p in space.parameters:
            if not p.key.startswith("learner."):
                self.checker.problem(("space", p.key), "a key of the run", "one of learner")
