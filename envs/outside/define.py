"""From the section of a resolved configuration to a task (``task.py``): what was measured is checked and made into a
class, which ``make_task`` finds by the environment's name. The section may come from elsewhere.
"""

from __future__ import annotations

import math
from typing import Any, Mapping, Optional, Type

import numpy as np
import torch

from envolve.envs.outside.build import is_outside, read_wrappers
from envolve.envs.outside.measure import MOST_WORDS, RAISED
from envolve.envs.outside.spaces import read_action, read_observation
from envolve.envs.outside.task import OutsideTask
from envolve.envs.task import NEVER_SOLVED, TASKS, mark_of

OUTSIDE_KEYS = ("env_kwargs", "wrappers", "measured", "sha256")  # of a section, beside those of every task
MEASURED = (
    "observation", "action", "max_steps", "own_limit", "solved_reward", "info_names", "observation_mean",
    "observation_scale", "reward_scale", "first_observations", "random_return", "random_episodes", "steps",
    "deterministic", "versions",
)  # fmt: skip


class _Defined(OutsideTask):
    """Rewards have any size here, so without a mark it is infinite: a return of NEVER_SOLVED solves nothing."""

    def __init__(self, max_steps: Optional[int] = None, solved_reward: Optional[float] = None) -> None:
        super().__init__(max_steps, solved_reward)
        if mark_of(self.solved_reward) is None:
            self.solved_reward = math.inf


def define(name: str, section: Mapping[str, Any]) -> Type[OutsideTask]:
    """The task of one environment. section: with ``env_kwargs``, ``wrappers`` and ``measured``, of a resolved
    configuration, which may come from elsewhere. Raises ValueError with the key, what was found and expected."""
    where = f"envs.{name}"
    measured = section.get("measured")
    if not isinstance(measured, dict) or set(measured) - {RAISED} != set(MEASURED):
        raise ValueError(f"{where}.measured: found {str(measured):.80}, expected what measuring the environment writes")
    for key in ("env_kwargs", "wrappers"):
        try:
            read_wrappers(section[key]) if key == "wrappers" else _mapping(section[key])
        except (KeyError, ValueError) as e:
            raise ValueError(f"{where}.{key}: {e}") from None
    try:
        observation, action = read_observation(measured["observation"]), read_action(measured["action"])
        F = observation.size
        mean, scale = _vector(measured, "observation_mean", F), _vector(measured, "observation_scale", F)
        first = measured["first_observations"]
        if not isinstance(first, list) or not 1 <= len(first) <= 10_000:
            raise ValueError(f"first_observations: found {str(first):.80}, expected 1 to 10000 lists")
        rows = np.stack([_vector({"first_observations": row}, "first_observations", F) for row in first])
        names = measured["info_names"]
        if not isinstance(names, list) or len(names) > 64 or not all(isinstance(n, str) for n in names):
            raise ValueError(f"info_names: found {str(names):.80}, expected at most 64 names")
        if not (scale > 0).all():
            raise ValueError("observation_scale: found a number that is not positive, expected positive ones")
        raised = measured.get(RAISED, "")
        if not isinstance(raised, str) or len(raised) > MOST_WORDS or not raised.isprintable():
            raise ValueError(f"{RAISED}: found {raised!r:.80}, expected one line")
        reward_scale = _number(measured, "reward_scale", least=1e-30)
        max_steps = int(_number(measured, "max_steps", least=1, most=10**6))
        solved = NEVER_SOLVED if measured["solved_reward"] is None else _number(measured, "solved_reward")
        random = None if measured["random_return"] is None else _number(measured, "random_return")
    except ValueError as e:
        raise ValueError(f"{where}.measured.{e}") from None
    content = dict(
        name=name,
        section=dict(section),
        observations=observation,
        codes=observation.codes,
        actions=action,
        mean=mean,
        scale=scale,
        observation_size=F,
        num_actions=action.n,
        action_size=action.size,
        info_names=tuple(names),
        default_max_steps=max_steps,
        default_solved_reward=solved,
        reward_scale=reward_scale,
        random_return=random,
        first=torch.from_numpy((rows - mean) / scale).to(torch.float32),
    )
    return type("OutsideTask", (_Defined,), content)


def register_outside(name: str, section: Mapping[str, Any]) -> None:
    """Makes the environment of a resolved section available to ``make_task``. Raises ValueError."""
    known = TASKS.get(name)
    if known is not None and all(known.section.get(k) == section.get(k) for k in OUTSIDE_KEYS):  # type: ignore[attr-defined]
        return
    TASKS.register(name, define(name, section))


def register_of(config: Mapping[str, Any]) -> None:
    """The same for the task of a resolved configuration, if it is from outside."""
    name = config.get("env_name")
    if is_outside(name):
        envs = config.get("envs")
        section = envs.get(name) if isinstance(envs, Mapping) else None
        if not isinstance(section, Mapping):
            raise ValueError(f"envs.{name}: found {str(section):.80}, expected the section of the task")
        register_outside(str(name), section)


def _mapping(value: Any) -> None:
    if not isinstance(value, dict) or not all(isinstance(k, str) for k in value):
        raise ValueError(f"found {str(value):.80}, expected a mapping")


def _vector(values: Mapping[str, Any], key: str, size: int) -> np.ndarray:
    found = values[key]
    fits = isinstance(found, list) and len(found) == size
    if not fits or not all(isinstance(x, (int, float)) and math.isfinite(x) for x in found):
        raise ValueError(f"{key}: found {str(found):.80}, expected {size} finite numbers")
    return np.array(found, np.float64)


def _number(values: Mapping[str, Any], key: str, least: float = -1e300, most: float = 1e300) -> float:
    found = values[key]
    if isinstance(found, bool) or not isinstance(found, (int, float)) or not least <= found <= most:
        raise ValueError(f"{key}: found {found!r:.80}, expected a number of at least {least:g} and at most {most:g}")
    return float(found)
