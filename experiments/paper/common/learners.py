"""The agents of the published comparisons: per task the learner, its hyperparameters, and how many there are.

After the original's evaluation scripts (GTNC_evaluate_*_compare_reward_envs, ..._transfer_algo, syn_env_evaluate_*) and
their configurations. What is not named there has the value of the configuration that evolved the worlds.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import pydantic
import yaml

from envolve.agents.common.learners import LEARNERS, learners_for
from envolve.agents.common.sections import ICMSection, LearnerSection, TabularSection, VarySection
from envolve.core.registry import nearest
from envolve.envs.task import Task
from envolve.outer.config import problem
from envolve.outer.config.load import ConfigError
from envolve.outer.config.schema import defaults, expected, section_model

TABLE = dict(
    train_episodes=500,
    test_episodes=1,
    init_episodes=0,
    batch_size=1,
    alpha=1.0,
    gamma=0.8,
    eps_init=0.1,
    eps_min=0.1,
    eps_decay=0.0,
    rb_size=1,
    beta=0.005,
    bootstrap_time_limit=False,
)
CARTPOLE = dict(
    train_episodes=1000,
    test_episodes=1,
    init_episodes=1,
    batch_size=32,
    gamma=0.99,
    lr=2.5e-4,
    tau=0.01,
    eps_init=1.0,
    eps_min=0.1,
    eps_decay=0.9,
    rb_size=1_000_000,
    activation_fn="relu",
    hidden_size=64,
    hidden_layer=1,
    bootstrap_time_limit=False,
)
MOUNTAIN_CAR = dict(
    train_episodes=3000,
    test_episodes=1,
    init_episodes=50,
    batch_size=256,
    gamma=0.99,
    lr=3e-4,
    tau=0.005,
    policy_delay=2,
    rb_size=1_000_000,
    same_action_num=2,
    activation_fn="relu",
    hidden_size=128,
    hidden_layer=2,
    action_std=0.1,
    policy_std=0.2,
    policy_std_clip=0.5,
    bootstrap_time_limit=False,
)
CHEETAH = {**MOUNTAIN_CAR, "train_episodes": 1000, "init_episodes": 20, "same_action_num": 1}
PENDULUM = {
    **MOUNTAIN_CAR, "train_episodes": 50, "init_episodes": 20, "lr": 1e-3, "tau": 0.02, "same_action_num": 1,
}  # fmt: skip
PPO = dict(
    train_episodes=3000,
    test_episodes=1,
    update_episodes=10.0,
    ppo_epochs=80,
    gamma=0.99,
    lr=3e-4,
    vf_coef=1.0,
    ent_coef=0.01,
    eps_clip=0.2,
    same_action_num=5,
    activation_fn="relu",
    hidden_size=64,
    hidden_layer=2,
    action_std=0.5,
    test_noise=True,
    bootstrap_time_limit=False,
)
IN_SE = dict(  # agents in SEs
    train_episodes=1000,
    test_episodes=10,
    init_episodes=10,
    batch_size=128,
    gamma=0.99,
    lr=1e-3,
    tau=0.01,
    rb_size=100_000,
    activation_fn="relu",
    hidden_size=128,
    hidden_layer=2,
    early_out_num=10,
    early_out_virtual_diff=0.01,
    bootstrap_time_limit=False,
)
GREEDY = dict(eps_init=1.0, eps_min=0.01, eps_decay=0.9)

# (task, learner) -> hyperparameters; the first learner of a task is the one that RNs are compared with
PUBLISHED: dict[tuple[str, str], dict[str, Any]] = {
    ("Cliff", "ql"): TABLE,
    ("Cliff", "sarsa"): {**TABLE, "eps_init": 0.01, "eps_min": 0.01},
    ("CartPole-v0", "ddqn"): CARTPOLE,
    ("CartPole-v0", "duelingddqn"): {**CARTPOLE, "feature_dim": 128},
    ("MountainCarContinuous-v0", "td3"): MOUNTAIN_CAR,
    ("MountainCarContinuous-v0", "ppo"): PPO,
    ("HalfCheetah-v3", "td3"): CHEETAH,
    ("HalfCheetah-v3", "ppo"): {
        **PPO, "train_episodes": 5000, "update_episodes": 5.0, "lr": 1e-5, "same_action_num": 1, "hidden_size": 128,
        "action_std": 0.2,
    },
    ("Pendulum-v0", "td3"): PENDULUM,
}  # fmt: skip
PUBLISHED_IN_SE: dict[str, dict[str, Any]] = {
    "ddqn": {**IN_SE, **GREEDY},
    "duelingddqn": {**IN_SE, **GREEDY, "feature_dim": 128},
    "td3_discrete": {
        **IN_SE, "lr": 5e-4, "policy_delay": 2, "rb_size": 1_000_000, "action_std": 0.1, "policy_std": 0.2,
        "policy_std_clip": 0.5, "gumbel_softmax_temp": 1.0, "gumbel_softmax_hard": False, "use_layer_norm": False,
        "test_noise": True,
    },
}  # fmt: skip
SE_AGENTS = ("ddqn", "duelingddqn", "td3_discrete")
# RNs and agents in each of them
NUMBERS = {"HalfCheetah-v3": (5, 5), "Pendulum-v0": (5, 3)}
USUAL_NUMBERS, SE_NUMBERS = (10, 10), (40, 10)
QUICK_NUMBERS, QUICK_SE_NUMBERS = (2, 2), (2, 4)


@dataclass(frozen=True)
class LearnerSettings:
    """Learner settings for ``envolve.agents.train.train``."""

    name: str  # a key of agents.common.learners.LEARNERS
    section: LearnerSection
    vary: VarySection | None = None
    icm: ICMSection | None = None
    backend: str = "auto"
    device: str = "cpu"

    @property
    def title(self) -> str:
        return self.name + problem.CURIOUS_SUFFIX * (self.icm is not None) + problem.VARY_SUFFIX * bool(self.vary)


def published_name(data: dict[str, Any]) -> str:
    """The learner of the published comparison on this task; of a task without one that of the configuration."""
    names = [name for task, name in PUBLISHED if task == data["env_name"]]
    return names[0] if names else problem.learner(data)[0]


def rn_learner(
    data: dict[str, Any], task: Task, name: str, *, curious: bool, vary: bool, settings: list[str], quick: bool
) -> LearnerSettings:
    """Learner in RNs and, for comparison, on the task. Raises ConfigError."""
    values = PUBLISHED.get((data["env_name"], name))
    if values is None:
        values = data["agents"].get(problem.learner_key(data["agents"], name), {})
        values = {**values, "train_steps": 0}
        if name in ("ql", "sarsa") and not values.get("train_episodes"):
            values = TABLE
    if quick:
        values = {**values, **quick_values(task, name, values)}
    return learner(data, task, name, values, curious, vary, settings)


def se_learner(
    data: dict[str, Any],
    task: Task,
    name: str,
    *,
    published: bool,
    vary: bool,
    settings: list[str],
    budget: int,
    quick: bool,
) -> LearnerSettings:
    """Learner in SEs and, for comparison, on the task. Raises ConfigError."""
    if published:
        if name not in PUBLISHED_IN_SE:
            words = f"one of {', '.join(PUBLISHED_IN_SE)}: the others have no published settings"
            raise ConfigError([f"--published: found the agent {name!r}, expected {words}"])
        values = dict(PUBLISHED_IN_SE[name])
    else:
        own, section, _ = problem.learner(data)
        key = problem.learner_key(data["agents"], name)
        check_name(task, name)
        known = defaults(LEARNERS[name].section)
        shared = {f.name: getattr(section, f.name) for f in fields(section) if f.name in known}
        values = dict(data["agents"].get(key, shared if name != own else {}))
    values["train_steps"] = budget
    if quick:
        values["train_episodes"] = min(100, values.get("train_episodes", 100))
    return learner(data, task, name, values, False, vary, settings)


def check_name(task: Task, name: str) -> None:
    """Raises ConfigError."""
    fitting = learners_for(task)
    if name not in fitting:
        near = nearest(name, fitting)
        mean = f", did you mean {near}" if near else ""
        raise ConfigError([f"--agent: found {name!r}, expected a learner of {task.name}: {', '.join(fitting)}{mean}"])


def learner(
    data: dict[str, Any], task: Task, name: str, values: dict[str, Any], curious: bool, vary: bool, settings: list[str]
) -> LearnerSettings:
    """Checked. Raises ConfigError."""
    check_name(task, name)
    icm = None
    if curious and issubclass(LEARNERS[name].section, TabularSection):
        name += problem.COUNT_BASED_SUFFIX
    elif curious:
        icm = ICMSection(**data["agents"].get("icm", {"feature_dim": 64} if task.action_size else {}))
    cls: type = LEARNERS[name].section
    own = dict(read_setting(cls, name, text) for text in settings)
    try:
        checked = section_model(cls)(**{**values, **own}).model_dump()
    except pydantic.ValidationError as e:
        problems = [(str(x["loc"][0]), x["input"]) for x in e.errors(include_url=False)]
        raise ConfigError([f"agents.{name}.{k}: found {v!r}, expected {expected(cls, k)}" for k, v in problems]) from e
    backend = data["agents"]["gtn"]["backend"]
    return LearnerSettings(name, cls(**checked), VarySection() if vary else None, icm, backend, data["device"])


def read_setting(cls: type, name: str, text: str) -> tuple[str, Any]:
    """``lr=1e-4`` -> key and value. Raises ConfigError."""
    key, equals, value = text.partition("=")
    if not equals or key not in defaults(cls):
        near = nearest(key, defaults(cls), cutoff=0.0)
        words = f"found no hyperparameter of {name}, expected KEY=VALUE, e.g. {near}=..."
        raise ConfigError([f"--agent-set {text}: {words}"])
    return key, read_value(value)


def read_value(text: str) -> Any:
    """Value parsed as YAML; anything else is text."""
    try:
        parsed = yaml.safe_load(text)
    except yaml.YAMLError:
        parsed = text
    try:  # YAML 1.1 reads 1e-4 as text
        return float(parsed) if isinstance(parsed, str) else parsed
    except ValueError:
        return parsed


def quick_values(task: Task, name: str, values: dict[str, Any]) -> dict[str, Any]:
    """Settings for a quick look."""
    if issubclass(LEARNERS[name].section, TabularSection):
        return {"train_episodes": 150}
    continuous = name in ("td3", "sac", "ppo")
    return {
        "train_episodes": 4 if continuous else 100,
        "train_steps": 1500 if task.on_host else 0,
        "init_episodes": min(1, values.get("init_episodes", 1)),
        **({"update_episodes": 1.0, "ppo_epochs": 10} if name == "ppo" else {}),
    }


def without_budget(learner: LearnerSettings) -> LearnerSettings:
    """Settings for the task: train until it is solved."""
    return replace(learner, section=replace(learner.section, train_steps=0))
