"""Names of a task's observations and actions, with units, and what its returns can be, for pictures and pages."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

FEATURES = {
    "CartPole": ("cart position, m", "cart velocity, m/s", "pole angle, rad", "pole velocity, rad/s"),
    "LunarLander": (
        "x",
        "height",
        "velocity along x",
        "velocity upwards",
        "angle, rad",
        "angular velocity",
        "left leg on the ground",
        "right leg on the ground",
    ),
    "Acrobot": (
        "cos of joint 1",
        "sin of joint 1",
        "cos of joint 2",
        "sin of joint 2",
        "velocity of joint 1, rad/s",
        "velocity of joint 2, rad/s",
    ),
    "Pendulum": ("cos of the angle", "sin of the angle", "angular velocity, rad/s"),
    "InvertedPendulum": ("cart position, m", "pole angle, rad", "cart velocity, m/s", "pole velocity, rad/s"),
    "MountainCar": ("position", "velocity"),
    "MountainCarContinuous": ("position", "velocity"),
}
ACTIONS = {
    "CartPole": ("push left", "push right"),
    "Acrobot": ("-1 N m", "no torque", "+1 N m"),
    "MountainCar": ("push left", "nothing", "push right"),
    "FrozenLake": ("left", "down", "right", "up"),
    "LunarLander": ("nothing", "left engine", "main engine", "right engine"),
}


OBJECTIVES = {  # of a reward network -> what its score is (outer/evaluate/networks.py)
    "reward_threshold": "score by training steps and return",
    "auc": "score, area under the learning curve",
    "mean_return": "test return on the real task",
}


def objective(name: str) -> str:
    """Title of an axis of scores of reward networks."""
    return OBJECTIVES.get(name, f"score ({name})")


LEARNERS = re.compile(r"\b(ddqn|dqn|ppo|sac|td3|a2c|sarsa)\b")


def learners_said(text: str) -> str:
    """A text with learners as the field writes them: PPO of ppo."""
    return LEARNERS.sub(lambda found: found[0].upper(), text)


def plain_name(task: str) -> str:
    """CartPole of CartPole-v0 and of gymnasium:CartPole-v1."""
    return task.removeprefix("gymnasium:").partition("-v")[0]


def feature(task: str, i: int) -> str:
    """Name of number i of an observation, with its unit."""
    names = FEATURES.get(plain_name(task), ())
    return names[i] if i < len(names) else f"observation {i}"


def action(task: str, i: int) -> str:
    names = ACTIONS.get(plain_name(task), ())
    return names[i] if i < len(names) else f"action {i}"


ENDS = {  # worst and best reward of a step, and Gymnasium's own time limit
    "CartPole-v0": (0.0, 1.0, 200), "CartPole-v1": (0.0, 1.0, 500), "Acrobot-v1": (-1.0, 0.0, 500),
    "MountainCar-v0": (-1.0, 0.0, 200),
}  # fmt: skip


def return_range(config: Mapping[str, Any]) -> tuple[float, float] | None:
    """Worst and best possible return of the task of a configuration (or of ``{"env_name": name}``), by its name; for
    :func:`envolve.core.statistics.within`. None: not known, or wrappers or arguments may change the reward."""
    name = str(config.get("env_name", ""))
    envs = config.get("envs")
    section = envs.get(name) if isinstance(envs, Mapping) else None
    own: Mapping[str, Any] = section if isinstance(section, Mapping) else {}
    known = ENDS.get(name.removeprefix("gymnasium:"))
    steps = own.get("max_steps")
    if known is None or own.get("wrappers") or own.get("env_kwargs"):
        return None
    most = float(steps) if isinstance(steps, (int, float)) and steps > 0 else float(known[2])
    return known[0] * most, known[1] * most
