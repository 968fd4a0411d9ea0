"""Learners of Stable-Baselines3 (https://jmlr.org/papers/v22/20-1364.html), which this project's are compared with.

A learner's name here is that of its class there, in small letters. With NORMALISED behind it, the learner sees what
VecNormalize makes of observations (https://stable-baselines3.readthedocs.io/en/master/guide/vec_envs.html#vecnormalize):
each feature minus its running mean, over its running deviation. The package is optional: ask ``installed`` first.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import inspect
from collections.abc import Mapping
from typing import Any

from envolve.agents.common.result import AGENT_DIVERGED, OK, WORLD_DIVERGED

PACKAGE = "stable_baselines3"
NAMES = ("td3", "ddpg", "sac", "ppo", "a2c", "dqn")
NORMALISED = "_normalised"


def installed() -> bool:
    return importlib.util.find_spec(PACKAGE) is not None


def version() -> str:
    return importlib.metadata.version(PACKAGE)


def algorithm(name: str) -> Any:
    """Class of the learner. name: of NAMES, with or without NORMALISED. Raises ImportError: the package is missing."""
    return getattr(importlib.import_module(PACKAGE), plain(name).upper())


def plain(name: str) -> str:
    """The learner's name without NORMALISED."""
    return name.partition(NORMALISED)[0]


def normalises(name: str) -> bool:
    """Returns whether the learner of this name sees normalised observations."""
    return name.endswith(NORMALISED)


def defaults(name: str) -> dict[str, Any]:
    """The algorithm's arguments that have a default."""
    parameters = inspect.signature(algorithm(name).__init__).parameters.values()
    return {p.name: p.default for p in parameters if p.default is not p.empty}


def rollout(name: str, settings: Mapping[str, Any] | None = None) -> int:
    """Steps between updates of one environment, 1 where updates wait for episodes. settings: over the defaults.

    Its ``learn`` rounds the steps up to whole rollouts (PPO: 2048 steps, A2C: 5, DQN: 4).
    """
    known = {**defaults(name), **(settings or {})}
    found = known["train_freq" if "train_freq" in known else "n_steps"]
    return int(found) if isinstance(found, int) else 1


def whole_rollouts(name: str, steps: int) -> int:
    """Steps of as many rollouts as fit into ``steps``, so that an agent learns from all that it sees; at least one."""
    one = rollout(name)
    return max(one, steps // one * one)


def shown(name: str, env: Any) -> Any:
    """The environment as the learner of this name sees it. Rewards stay as they are."""
    if not normalises(name):
        return env
    from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

    return VecNormalize(DummyVecEnv([lambda: env]), norm_reward=False)


def pupil(model: Any) -> Any:
    """The model, whose ``predict`` takes observations as the task has them."""
    env = model.get_vec_normalize_env()
    return model if env is None else _Normalised(model, env)


class _Normalised:
    """A model that sees observations with the means and deviations of its training."""

    def __init__(self, model: Any, env: Any) -> None:
        self.model, self.env = model, env

    def predict(self, observation: Any, **options: Any) -> Any:
        return self.model.predict(self.env.normalize_obs(observation), **options)


def learn(model: Any, steps: int) -> int:
    """Trains a model -> its status (agents/common/result.py)."""
    try:
        model.learn(steps)
    except FloatingPointError:  # said by the world
        return WORLD_DIVERGED
    except ValueError:  # said by a policy's distribution
        if _finite(model):
            raise
    return OK if _finite(model) else AGENT_DIVERGED


def _finite(model: Any) -> bool:
    return all(bool(p.isfinite().all()) for p in model.policy.parameters())
