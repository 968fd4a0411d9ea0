"""Agents of every kind that train for the same number of steps, in worlds and on the task."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

from envolve.agents import peers
from envolve.agents.common.learners import LEARNERS, learners_for
from envolve.agents.common.sections import PPOSection, TabularSection
from envolve.agents.ppo.training import rollout_length
from envolve.core.registry import nearest
from envolve.envs.task import Task
from envolve.experiments.paper.common import baselines3
from envolve.experiments.paper.common.baselines3 import KINDS, Baseline
from envolve.experiments.paper.common.learners import PUBLISHED, PUBLISHED_IN_SE, LearnerSettings, learner, read_value
from envolve.outer.config import problem
from envolve.outer.config.load import ConfigError
from envolve.outer.search.turns import inner_agents

# PPO, where the configuration has none. Published hyperparameters (learners.PPO), but an update after 200 steps
# instead of 2,000 to 4,000, of which 5,000 hold one or two
PPO_IN_SE = dict(
    ppo_epochs=80,
    gamma=0.99,
    lr=3e-4,
    vf_coef=1.0,
    ent_coef=0.01,
    eps_clip=0.2,
    activation_fn="relu",
    hidden_size=64,
    hidden_layer=2,
    rollout_steps=200,
    bootstrap_time_limit=False,
)
OURS = ("ddqn", "duelingddqn", "td3_discrete", "td3", "sac", "ppo", "ql", "sarsa")
ASKED = ("train_steps", "train_episodes", "test_episodes", "early_out_min_steps")  # by the command's own options


def known_kinds(task: Task) -> list[str]:
    return [*(name for name in OURS if name in learners_for(task)), *baselines3.fitting(task)]


def chosen_kinds(task: Task, names: list[str] | None) -> list[str]:
    """names: as asked for, None: all but sb3_a2c, without Stable-Baselines3 this project's own. Raises ConfigError."""
    known = known_kinds(task)
    install = f"found no Stable-Baselines3, expected it: pip install '{baselines3.REQUIREMENT}'"
    if names is None:
        kinds = [name for name in known if name != "sb3_a2c"]
        if peers.installed():
            return kinds
        print(f"{', '.join(k for k in kinds if k in KINDS)}: left out: {install}", file=sys.stderr)
        return [name for name in kinds if name not in KINDS]
    for name in names:
        if name not in known:
            words = f"expected agents that can learn {task.name}: {', '.join(known)}; nearest: {nearest(name, known)}"
            raise ConfigError([f"--learners: found {name!r}, {words}"])
        if name in KINDS and not peers.installed():
            raise ConfigError([f"--learners {name}: {install}"])
    return list(dict.fromkeys(names))


def seen_kinds(data: dict[str, Any]) -> list[str]:
    """The learners that the worlds of this configuration were evolved with."""
    return [problem.split_agent_name(name).learner for name in inner_agents(problem.gtn_section(data))]


def settings_of(texts: list[str], kinds: list[str]) -> dict[str, list[str]]:
    """``ppo.lr=1e-3`` -> kind: its KEY=VALUE texts. Raises ConfigError."""
    out: dict[str, list[str]] = {name: [] for name in kinds}
    for text in texts:
        name, dot, setting = text.partition(".")
        if not dot or name not in out:
            raise ConfigError([f"--agent-set {text}: expected NAME.KEY=VALUE with one of {', '.join(kinds)}"])
        if setting.partition("=")[0] in ASKED:
            raise ConfigError([f"--agent-set {text}: expected another key: --steps and --tests say this one"])
        out[name].append(setting)
    return out


def at_fixed_steps(
    data: dict[str, Any], task: Task, name: str, steps: int, tests: int, settings: list[str]
) -> LearnerSettings | Baseline:
    """Learner that trains for at most ``steps`` and is tested greedily. Raises ConfigError."""
    if name in KINDS:
        return baselines3.baseline(name, steps, dict(pair(name, text) for text in settings))
    values = data["agents"].get(problem.learner_key(data["agents"], name))
    if values is None:
        published = PPO_IN_SE if name == "ppo" else PUBLISHED_IN_SE.get(name, {})
        values = PUBLISHED.get((task.name, name), published)
    greedy = {"test_noise": False} if hasattr(LEARNERS[name].section, "test_noise") else {}
    # nothing ends early
    values = {**values, **greedy, "test_episodes": tests, "train_episodes": steps, "early_out_min_steps": steps + 1}
    who = learner(data, task, name, values, False, False, settings)
    if isinstance(who.section, TabularSection):
        return replace(who, section=replace(who.section, train_steps=steps))
    # the budget is looked at after every decision, PPO's after every rollout: the last one must end within it
    chunk = who.section.same_action_num
    if isinstance(who.section, PPOSection):
        chunk *= rollout_length(who.section, task.max_steps) * who.section.num_envs
    if chunk > steps:
        words = f"one rollout of {name}; a shorter one: --agent-set {name}.rollout_steps=... {name}.num_envs=1"
        raise ConfigError([f"--steps: found {steps}, expected at least {chunk}: {words}"])
    return replace(who, section=replace(who.section, train_steps=steps - chunk + 1))


def pair(name: str, text: str) -> tuple[str, Any]:
    """Raises ConfigError."""
    key, equals, value = text.partition("=")
    if not equals:
        raise ConfigError([f"--agent-set {name}.{text}: expected NAME.KEY=VALUE"])
    return key, read_value(value)
