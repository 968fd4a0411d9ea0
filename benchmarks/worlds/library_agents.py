"""Agents of Stable-Baselines3 in a world or on its task, with its defaults or with RL Zoo's hyperparameters.

A name is sb3_<learner> for the defaults, sb3_<learner>_normalised for these behind VecNormalize (observations only),
and sb3_<learner>_rl_zoo for what RL Zoo tuned for the task (rl_zoo.yaml).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
import yaml

from envolve.agents import peers
from envolve.agents.peers import NORMALISED, normalises, plain
from envolve.envs.task import Task
from envolve.outer.checkpoint import RunError

RL_ZOO_FILE = Path(__file__).with_name("rl_zoo.yaml")
KINDS = ("td3", "ddpg", "sac", "ppo", "a2c")
RL_ZOO = "_rl_zoo"
NAMES = [f"sb3_{name}" for name in KINDS]
NAMES += [f"{name}{NORMALISED}" for name in NAMES] + [f"sb3_{name}{RL_ZOO}" for name in ("ppo", "a2c")]
ACTIVATIONS = {"relu": torch.nn.ReLU}


def rl_zoo(task: str, learner: str) -> dict[str, Any]:
    """RL Zoo's settings of a task's learner. task: its id, e.g. "Hopper-v5". Raises RunError: it has none."""
    known = yaml.safe_load(RL_ZOO_FILE.read_text())
    name = task.partition(":")[2] or task
    own = known.get(name.rpartition("-v")[0], {})
    if learner not in own:
        has = ", ".join(n for n, learners in known.items() if learner in learners)
        raise RunError(f"{RL_ZOO_FILE.name}: found no {learner} for {name}, expected one of {has}")
    return dict(own[learner])


def linear(start: float) -> Callable[[float], float]:
    """A schedule from ``start`` to 0. Its argument falls from 1 to 0 while an agent learns."""
    return lambda left: start * left


def mean_return(
    name: str, make: Callable[[], gymnasium.Env[Any, Any]], task: Task, task_id: str, seed: int, steps: int, tests: int
) -> float:
    """Trains one agent -> its mean greedy return on the task.

    name: of NAMES. make: an environment to train in. task_id: e.g. "Hopper-v5". steps: it trains for as many whole
    rollouts as fit into them. tests: episodes on the task.
    """
    from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

    from envolve.experiments.paper.common.baselines3 import tested

    torch.set_num_threads(1)
    learner = plain(name).removeprefix("sb3_").removesuffix(RL_ZOO)
    settings = rl_zoo(task_id, learner) if name.endswith(RL_ZOO) else {}
    normalise = settings.pop("normalize", False) or normalises(name)
    envs = DummyVecEnv([make] * settings.pop("envs", 1))
    reward = {"gamma": settings.get("gamma", 0.99)} if name.endswith(RL_ZOO) else {"norm_reward": False}
    env = VecNormalize(envs, **reward) if normalise else envs

    if isinstance(settings.get("learning_rate"), str):
        settings["learning_rate"] = linear(float(settings["learning_rate"].removeprefix("lin_")))
    policy = settings.pop("policy", {})
    if "activation_fn" in policy:
        policy["activation_fn"] = ACTIVATIONS[policy["activation_fn"]]
    model = peers.algorithm(learner)("MlpPolicy", env, seed=seed, device="cpu", policy_kwargs=policy, **settings)
    rollout = getattr(model, "n_steps", 1) * envs.num_envs
    model.learn(steps // rollout * rollout)
    return float(np.mean(tested(peers.pupil(model), task, seed, tests)))
