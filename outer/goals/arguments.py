"""Arguments of train_goal.py: flags generated from the dataclasses of the sections, and the plan made from them."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pydantic
import yaml

from envolve.agents.goal.crl_train import GoalSection
from envolve.core import commands
from envolve.core.files import TEXT_BYTES, read_plain
from envolve.core.registry import nearest
from envolve.envs.goal.task import make_goal_task
from envolve.outer.config.load import environment_info
from envolve.outer.config.schema import expected, section_model
from envolve.outer.config.yaml_lines import ConfigError, parse_yaml, show
from envolve.outer.evaluate.device import unusable
from envolve.outer.goals.sections import AGENTS, RunSection
from envolve.outer.names import CONFIG_FILE

METAVARS = {int: "N", float: "X"}
FLAGS = {"env_name": "task"}  # a value's flag, where that is not its name; older spellings: core/command_table.py


@dataclass(frozen=True)
class GoalPlan:
    """Validated settings of a command. own: hyperparameter -> one value per member."""

    run: RunSection
    learner: GoalSection
    own: dict[str, list[float]]

    @property
    def agent_title(self) -> str:
        """SAC with hindsight"""
        return AGENTS[self.run.agent][1] + " with hindsight" * getattr(self.learner, "use_her", False)

    def to_yaml(self) -> str:
        parts = {
            "run": dataclasses.asdict(self.run),
            "learner": dataclasses.asdict(self.learner),
            "per_member": self.own,
        }
        head = "\n".join(f"# {name}: {json.dumps(value)[1:-1]}" for name, value in environment_info().items())
        return f"# Everything the run used.\n{head}\n\n{yaml.safe_dump(parts, sort_keys=False, width=120)}"


HELP = """\
Train a population of goal-conditioned agents side by side with contrastive RL (no rewards), SAC, TD3 or PPO. SAC and
TD3 can use hindsight (--use_her). Each member of the population may have its own hyperparameters (--per_member).

  envolve goal --task reacher --num-envs 32 --discounting 0.9 --num-timesteps 60000
  envolve goal --task simple_u_maze --population 4 --per-member policy_lr=1e-4,3e-4,1e-3,3e-3
  envolve goal --task reacher --agent sac --use-her --num-envs 32
  envolve goal --task reacher --agent ppo --normalize-observations --num-envs 32
  envolve goal --resume results/<run>

Flags may be written with - or _. Exit codes: 0 complete, 1 it cannot start or continue, or every member diverged,
2 wrong arguments, 130 Ctrl-C, 143 SIGTERM (resumable)."""


class Parser(argparse.ArgumentParser):
    """Takes today's flags and the old ones."""

    def __init__(self, script: str, **options: Any) -> None:
        super().__init__(prog=script, **options)
        self.script = script

    def parse(self, argv: Sequence[str] | None) -> argparse.Namespace:
        args: argparse.Namespace = commands.parse_with(self.script, self, argv)
        return args


def flag(name: str) -> str:
    """env_name -> --task"""
    return "--" + FLAGS.get(name, name).replace("_", "-")


def build_parser() -> Parser:
    parser = Parser(
        "train_goal.py", description=HELP, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument(
        "--resume",
        metavar="DIR",
        help="continue the run in this folder with its stored arguments; you may add only --video and --wandb",
    )
    parser.add_argument("--run-dir", metavar="DIR", help="folder of the run (default: a new folder in --results-dir)")
    parser.add_argument(
        "--video",
        nargs="?",
        const="",
        metavar="FILE",
        help="film the final policy of the best member in FILE, .mp4 or .gif; without FILE: video.mp4 (or .gif) in the "
        "folder of the run",
    )
    parser.add_argument(
        "--results-dir", default="results", metavar="DIR", help="parent folder of new runs (default: results)"
    )
    parser.add_argument("--wandb", metavar="PROJECT", help=commands.WANDB_HELP)
    parser.add_argument(
        "--per-member",
        nargs="+",
        action="extend",
        default=[],
        metavar="NAME=V,V,...",
        help="hyperparameters with one value per member, e.g. policy_lr=1e-4,3e-4; names for "
        + "; ".join(f"{agent}: {', '.join(names)}" for agent, (_, _, names) in AGENTS.items()),
    )
    add_section(parser, "run", RunSection)
    sections = {agent: section for agent, (section, _, _) in AGENTS.items()}
    for agent, (section, title, _) in AGENTS.items():
        add_section(parser, f"learner: {title} (--agent {agent})", section, sections)
    return parser


def add_section(parser: Parser, title: str, section: type, others: Mapping[str, type] = {}) -> None:
    """Flags of a section; those that the parser has already are left as they are. others: name -> all sections that
    share flags, whose defaults are said too."""
    known = {action.dest for action in parser._actions}
    group, hints = parser.add_argument_group(title), typing.get_type_hints(section)
    for f in dataclasses.fields(section):
        if f.name in known:
            continue
        text = (f.metadata["help"] + _others_help(f, others) + _default(f, others)).replace("%", "%%")
        if hints[f.name] is bool:
            group.add_argument(flag(f.name), dest=f.name, action="store_true", default=None, help=text)
        else:
            choices = f.metadata["choices"]
            metavar = METAVARS.get(hints[f.name], "NAME")
            metavar = "{" + ",".join(choices) + "}" if choices and len(choices) < 5 else metavar
            text = f"{text}; one of {', '.join(choices)}" if choices and len(choices) >= 5 else text
            group.add_argument(flag(f.name), dest=f.name, metavar=metavar, help=text)


def _others_help(f: dataclasses.Field[Any], others: Mapping[str, type]) -> str:
    """Help text of a shared flag for the agents that describe it differently."""
    helps: dict[str, list[str]] = {}
    for agent, section in others.items():
        for g in dataclasses.fields(section):
            if g.name == f.name and g.metadata["help"] != f.metadata["help"]:
                helps.setdefault(g.metadata["help"], []).append(agent)
    return "".join(f"; {', '.join(agents)}: {text}" for text, agents in helps.items())


def _default(f: dataclasses.Field[Any], others: Mapping[str, type]) -> str:
    """Default values in brackets, e.g. (default: 0.99; sac, td3: 0.9)."""
    defaults = {agent: g.default for agent, s in others.items() for g in dataclasses.fields(s) if g.name == f.name}
    own = [agent for agent, value in defaults.items() if value != f.default]
    texts = [] if f.default in ("", False) else [f"default: {f.default}"]
    for value in dict.fromkeys(defaults[agent] for agent in own):
        texts.append(f"{', '.join(agent for agent in own if defaults[agent] == value)}: {value}")
    return f" ({'; '.join(texts)})" if texts else ""


# --------------------------------------------------------------------------------------------------- checking values


def _number(text: Any, kind: type) -> Any:
    """Reads a number; 1e6 and 1_000_000 are integers, too. Other text is returned as it is, to be reported."""
    try:
        value = float(str(text))
    except ValueError:
        return text
    if kind is int and value.is_integer() and abs(value) < 2**53:
        return int(str(text)) if str(text).lstrip("+-").replace("_", "").isdigit() else int(value)
    return value


def read_section(cls: type, values: Mapping[str, Any], problems: list[str], where: str) -> Any:
    """Section with ``values`` over its defaults. On errors, appends to ``problems`` and returns the defaults."""
    hints = typing.get_type_hints(cls)
    values = {n: _number(v, hints[n]) if hints.get(n) in (int, float) else v for n, v in values.items()}
    try:
        return cls(**section_model(cls)(**values).model_dump())
    except pydantic.ValidationError as e:
        for error in e.errors():
            name = str(error["loc"][0])
            if name not in hints:
                near = nearest(name, hints, cutoff=0.0)
                problems.append(f"{where}{name}: found an unknown name, expected e.g. {near}")
            else:
                spelt = flag(name) if where == "--" else where + name
                problems.append(f"{spelt}: found {show(values[name])}, expected {expected(cls, name)}")
    return cls()


def _own(texts: Sequence[str], run: RunSection, problems: list[str]) -> dict[str, list[float]]:
    """--per-member's words, e.g. policy_lr=1e-4,3e-4."""
    own: dict[str, list[float]] = {}
    section, _, names = AGENTS[run.agent]
    for text in texts:
        name, _, listed = text.partition("=")
        name = name.replace("-", "_")
        if name not in names:
            near = nearest(name, names, cutoff=0.0)
            problems.append(
                f"--per-member {show(text)}: found {show(name)}, expected one of {', '.join(names)}; nearest: {near}"
            )
            continue
        before, values = len(problems), []
        for value in listed.split(","):
            values.append(getattr(read_section(section, {name: value}, problems, "--per-member "), name))
        if len(values) != run.population and len(problems) == before:
            problems.append(
                f"--per-member {name}: found {len(values)} values, expected one for each of "
                f"{run.population} members (--population)"
            )
        own[name] = values
    return own


def read_learner(given: Mapping[str, Any], agent: str, problems: list[str]) -> GoalSection:
    """Section of the agent. Flags that only other agents have are reported in ``problems``."""
    section, title, _ = AGENTS[agent]
    names = {f.name for f in dataclasses.fields(section)}
    others = {f.name for cls, _, _ in AGENTS.values() for f in dataclasses.fields(cls)} - names
    for name in sorted(others & set(given)):
        whose = ", ".join(a for a, (cls, _, _) in AGENTS.items() if name in {f.name for f in dataclasses.fields(cls)})
        near = nearest(name, names, cutoff=0.0)
        problems.append(f"{flag(name)}: {title} has no such value (--agent {whose} has); nearest: {flag(str(near))}")
    learner: GoalSection = read_section(section, {n: v for n, v in given.items() if n in names}, problems, "--")
    return learner


def _check(plan: GoalPlan, problems: list[str]) -> None:
    """Checks across values: the tasks exist and the device is usable."""
    for name in ("env_name", "eval_env"):
        if not getattr(plan.run, name):
            continue  # the same as the task
        try:
            make_goal_task(getattr(plan.run, name))
        except ValueError as e:
            problems.append(f"{flag(name)}: {e}")
    problems += unusable(plan.run.device)


def make_plan(args: argparse.Namespace) -> GoalPlan:
    """Plan of a parsed command line. Raises ConfigError with every problem found."""
    problems: list[str] = []
    given = {name: value for name, value in vars(args).items() if value is not None}
    names = {f.name for f in dataclasses.fields(RunSection)}
    run = read_section(RunSection, {n: v for n, v in given.items() if n in names}, problems, "--")
    learner = read_learner(given, run.agent, problems)
    if not run.threads:
        run = dataclasses.replace(run, threads=len(os.sched_getaffinity(0)))
    plan = GoalPlan(run, learner, _own(args.per_member, run, problems))
    _check(plan, problems)
    if problems:
        raise ConfigError(problems)
    return plan


def stored_plan(folder: Path) -> GoalPlan:
    """Plan stored in the folder of a run. Raises ConfigError."""
    path = folder / CONFIG_FILE
    try:
        raw, _ = parse_yaml(read_plain(path, TEXT_BYTES), str(path))
    except OSError as e:
        found = f"found no {CONFIG_FILE} in {str(folder)!r} ({e.strerror})"
        raise ConfigError([f"--resume: {found}, expected the folder of a run: results/<run>"]) from None
    problems: list[str] = []
    if not isinstance(raw, dict) or set(raw) != {"run", "learner", "per_member"}:
        raise ConfigError([f"{path}: expected the sections run, learner and per_member, as train_goal.py writes them"])
    run = read_section(RunSection, raw["run"] or {}, problems, f"{path} run.")
    learner = read_section(AGENTS[run.agent][0], raw["learner"] or {}, problems, f"{path} learner.")
    texts = [f"{name}={','.join(map(str, values))}" for name, values in (raw["per_member"] or {}).items()]
    plan = GoalPlan(run, learner, _own(texts, run, problems))
    _check(plan, problems)
    if problems:
        raise ConfigError(problems)
    return plan
