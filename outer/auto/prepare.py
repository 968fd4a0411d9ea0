"""From the name of an environment to a checked plan: measured, timed, planned."""

from __future__ import annotations

import copy
import itertools
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from envolve.agents import peers
from envolve.agents.common.learners import has_networks
from envolve.core.registry import unknown
from envolve.envs.outside.build import PREFIX, OutsideError, is_outside
from envolve.outer.auto.choice import AUTO, Choice
from envolve.outer.auto.facts import Facts, facts_of, probed
from envolve.outer.auto.plan import INITS, WORLDS, EvolvePlan, plan
from envolve.outer.auto.unseen import related, unseen_learners
from envolve.outer.config.distilled import DISTILLED
from envolve.outer.config.load import Config, ConfigError, config_of
from envolve.outer.config.outside import override_path
from envolve.outer.config.problem import gtn_section, split_agent_name
from envolve.outer.config.schema import agent_names
from envolve.outer.config.yaml_lines import override_value, split_override
from envolve.outer.search.turns import inner_learners

BOUNDS = (0.05, 100_000.0)  # minutes


@dataclass(frozen=True)
class Prepared:
    """A plan, and what was spent to make it."""

    plan: EvolvePlan
    config: Config  # the plan's, checked and resolved
    facts: Facts
    real_steps: int  # that measuring and timing took
    workers: int


def prepare(
    env: str,
    choice: Choice,
    *,
    overrides: Sequence[str] = (),
    wrappers: Sequence[Any] = (),
    env_kwargs: Mapping[str, Any] | None = None,
    learners: Sequence[str] = (),
    quick: bool = False,
) -> Prepared:
    """Makes the plan of ``envolve evolve``. env: ``gymnasium:ID``, or an ID. wrappers: as in a configuration. learners:
    the unseen ones of the report; default: all that fit. quick: all is timed for a shorter while, and the learners of
    the report are not. Raises ConfigError."""
    check_names(env, choice, learners)
    name = env if is_outside(env) else PREFIX + env
    section = {"wrappers": list(wrappers), "env_kwargs": dict(env_kwargs or {})}
    measured = _measured(name, section, choice.seed)
    facts = _as_set(facts_of(name, measured["measured"], len(os.sched_getaffinity(0))), overrides)
    library = peers.installed()
    fitting = unseen_learners(facts.continuous, [], library)
    for learner in learners:
        if learner not in fitting:
            words = unknown("--learners", learner, fitting)
            if learner in unseen_learners(facts.continuous, [], True) and not library:
                words += "; Stable-Baselines3, which has it, is not installed"
            raise ConfigError([words])
    init = _set(overrides, "agents", "gtn", "init")
    choice = replace(choice, init=init if init in INITS else choice.init, learners=tuple(learners))
    first = _unseen(plan(facts, choice, fitting, library), fitting, learners)
    data = _checked(plan(facts, choice, first, library), measured, overrides)[0].data
    kinds = _unseen_of(data, first, fitting, bool(learners))
    try:
        timed = probed(data, [k for k in kinds if library], quick)
    except OutsideError as e:
        raise ConfigError([str(e)]) from None
    steps = int(timed.pop("steps"))
    made = plan(replace(facts, **timed), choice, kinds, library)
    config, text = _checked(made, measured, overrides)
    changed = f"--set {shlex.join(overrides)} changes what is below; the lines above are of the plan before"
    made = replace(
        made,
        config=text,
        learner=config.data["agents"]["gtn"]["agent_name"],
        search=config.data["agents"]["gtn"]["search"],
        reasons=(*made.reasons, changed) if overrides else made.reasons,
    )
    return Prepared(made, config, facts, facts.measured_steps + steps, choice.workers)


def check_minutes(name: str, minutes: float) -> None:
    """Raises ConfigError."""
    least, most = BOUNDS
    if not least <= minutes <= most:
        raise ConfigError([f"{name}: found {minutes:g}, expected at least {least} and at most {most:g}"])


def check_names(env: str, choice: Choice, learners: Sequence[str]) -> None:
    """What can be said of a user's words before the environment is measured, which may take a minute. Raises
    ConfigError."""
    text = env.removeprefix(PREFIX)
    file, of_file, name = text.rpartition(".py:")
    if of_file and os.path.dirname(file):
        folder, file = os.path.split(file)
        raise ConfigError([f"ENV: found {text}, expected {file}.py:{name}, started in the folder {folder}"])
    if text.endswith(".py"):
        words = f"{text}:Class, or {text[:-3]}:ID for an id of Gymnasium's that the file registers"
        raise ConfigError([f"ENV: found {text}, expected {words}"])
    if of_file and "/" in name:
        raise ConfigError([f"ENV: found {text}, expected {file}:{name}, as a class has no / in its name and an id has"])
    with_networks = [name for name in agent_names() if has_networks(split_agent_name(name).learner)]
    tabular = choice.learner.lower() in agent_names() and choice.learner.lower() not in with_networks
    both = (False, True)
    seen = [name for of, library in itertools.product(both, both) for name in unseen_learners(of, [], library)]
    for option, value, known in (
        ("--world", choice.world, (AUTO, *WORLDS)),
        ("--init", choice.init, (AUTO, *INITS)),
        *(() if tabular else [("--learner", choice.learner.lower(), (AUTO, *with_networks))]),
        *(("--learners", learner, tuple(dict.fromkeys(seen))) for learner in learners),
    ):
        if value not in known:
            raise ConfigError([unknown(option, value, known)])
    if tabular:
        words = "a learner with networks, e.g. DDQN_vary: tables need a task with a finite set of states"
        raise ConfigError([f"--learner: found {choice.learner}, expected {words}"])
    if choice.init == DISTILLED and choice.world not in (AUTO, "bandit"):
        raise ConfigError([f"--init: found {DISTILLED}, expected random: an {choice.world} cannot hold a policy"])


def _set(overrides: Sequence[str], *path: str) -> Any:
    """What ``--set`` says of a key that the plan depends on; None: nothing. Raises ConfigError."""
    found = None
    for text in overrides:
        key, value = split_override(text)
        if override_path(key) == path:
            found = override_value(key, value)
    return found


def _as_set(facts: Facts, overrides: Sequence[str]) -> Facts:
    """The facts as ``--set`` changes them. Values that are none are refused with the configuration."""
    steps, solved = (_set(overrides, "envs", facts.env, key) for key in ("max_steps", "solved_reward"))
    if type(steps) is int and steps > 0:
        facts = replace(facts, max_steps=steps, random_length=min(facts.random_length, float(steps)))
    if type(solved) in (int, float):
        facts = replace(facts, solved_reward=float(solved))
    return facts


def _unseen(made: EvolvePlan, fitting: list[str], asked: Sequence[str]) -> list[str]:
    inner = split_agent_name(made.learner).learner
    return list(asked) or [k for k in fitting if k != inner]


def _unseen_of(data: Mapping[str, Any], kinds: list[str], fitting: list[str], asked: bool) -> list[str]:
    """Those that the world's own configuration does not name. asked: the user named ``kinds``. Raises ConfigError if
    none is left, or one of those that were asked for is not."""
    inner = inner_learners(gtn_section(data))
    left = [k for k in kinds if k not in inner]
    known = ", ".join(k for k in fitting if not related(k, inner))
    if not left or asked and left != kinds:
        found = ", ".join(k for k in kinds if k in inner)
        raise ConfigError([f"--learners: found {found}, which the world evolves with, expected some of {known}"])
    if all(related(k, inner) for k in left):
        words = f"--learners: found {', '.join(left)} alone, of a family that the world evolves with"
        raise ConfigError([f"{words}, expected one of {known} with it"])
    return left


def folder_name(env: str) -> str:
    """``gymnasium:minigrid:MiniGrid-Empty-5x5-v0`` -> ``evolve_MiniGrid-Empty-5x5-v0``."""
    return "evolve_" + re.sub(r"[^\w-]+", "_", env.rpartition(":")[2])


def _measured(name: str, section: dict[str, Any], seed: int) -> dict[str, Any]:
    """The section of the environment as it was measured. Raises ConfigError."""
    raw = {"env_name": name, "seed": seed, "agents": {"gtn": {"comparison_agents": 0}}, "envs": {name: dict(section)}}
    for agent in ("DDQN", "TD3"):  # whichever fits its actions
        raw["agents"]["gtn"]["agent_name"] = agent  # type: ignore[index]
        try:
            data = config_of(raw, (), name).data
        except ConfigError as e:
            if agent == "TD3" or not any("a learner for" in problem for problem in e.problems):
                raise ConfigError([p.partition("can be made: ")[2] or p for p in e.problems]) from None
            continue
        break
    found: dict[str, Any] = data["envs"][name]
    return {k: found[k] for k in ("env_kwargs", "wrappers", "measured", "sha256") if k in found}


def _checked(made: EvolvePlan, measured: dict[str, Any], overrides: Sequence[str]) -> tuple[Config, dict[str, Any]]:
    """The plan's configuration, resolved, and as short as a person writes it. Raises ConfigError."""
    raw, name = copy.deepcopy(made.config), made.config["env_name"]
    own = {k: v for k, v in measured.items() if k in ("env_kwargs", "wrappers") and v}
    raw["envs"][name] = {**own, **raw["envs"][name]}
    whole = copy.deepcopy(raw)
    whole["envs"][name].update(measured)
    config = config_of(whole, list(overrides), folder_name(name))
    for text in overrides:
        key, value = split_override(text)
        at: Any = raw
        path = override_path(key)
        for part in path[:-1]:
            at = at.setdefault(part, {})
        at[path[-1]] = override_value(key, value)
    return config, raw
