"""Stable-Baselines3 at the settings of the benchmarks: DQN (it has no double DQN), TD3, SAC and PPO.

Runs in the peers' environment: .venv-peers/bin/python -m benchmarks.peers.sb3 ddqn_in_se [--json FILE]
"""

from __future__ import annotations

from typing import Any, Dict, Tuple

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3 import DQN, PPO, SAC, TD3
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.noise import NormalActionNoise

from benchmarks.common.harness import cpu_time, main, measure
from benchmarks.common.settings import GYM, SETTINGS, Setting
from benchmarks.plain.common import ACTIVATIONS, GymWorld, SyntheticWorld

FOREVER = 10**9


class World(gymnasium.Env):
    """The world of the plain scripts as a Gymnasium environment."""

    def __init__(self, s: Setting) -> None:
        F, A = s.sizes
        self.discrete = s.kind == "se"
        self.world: Any = SyntheticWorld(s) if self.discrete else GymWorld(s)
        self.observation_space = spaces.Box(-np.inf, np.inf, (F,), np.float32)
        self.action_space: Any = (
            spaces.Discrete(A) if self.discrete else spaces.Box(-s.max_action, s.max_action, (A,), np.float32)
        )
        self.code = torch.eye(A)

    def reset(self, *, seed: Any = None, options: Any = None) -> Tuple[np.ndarray, Dict[str, Any]]:
        super().reset(seed=seed)
        return self.world.reset().numpy(), {}

    def step(self, action: Any) -> Tuple[np.ndarray, float, bool, bool, Dict[str, Any]]:
        given = self.code[int(action)] if self.discrete else torch.as_tensor(action)
        obs, reward, terminated, truncated = self.world.step(given)
        return obs.numpy(), reward, terminated, truncated, {}


def model(s: Setting) -> BaseAlgorithm:
    h = s.learner
    net = {"activation_fn": ACTIVATIONS[h["activation_fn"]], "net_arch": [h["hidden_size"]] * h["hidden_layer"]}
    if s.agent == "ppo":
        p = s.ppo
        envs = make_vec_env(GYM[s.task], p["num_envs"])

        def annealed(progress: float) -> float:
            return p["learning_rate"] * progress

        return PPO(
            "MlpPolicy",
            envs,
            learning_rate=annealed,
            n_steps=p["num_steps"],
            n_epochs=p["update_epochs"],
            batch_size=p["num_steps"] * p["num_envs"] // p["num_minibatches"],
            gamma=p["gamma"],
            gae_lambda=p["gae_lambda"],
            clip_range=p["clip_coef"],
            clip_range_vf=p["clip_coef"],
            ent_coef=p["ent_coef"],
            vf_coef=p["vf_coef"],
            max_grad_norm=p["max_grad_norm"],
            policy_kwargs=net,
            device="cpu",
        )
    common = {
        "policy": "MlpPolicy", "env": World(s), "learning_rate": h["lr"], "batch_size": h["batch_size"],
        "tau": h["tau"], "gamma": h["gamma"], "train_freq": 1, "gradient_steps": 1, "learning_starts": 0,
        "buffer_size": 100_000, "policy_kwargs": net, "device": "cpu",
    }  # fmt: skip
    if s.agent == "ddqn":
        return DQN(
            **common,
            target_update_interval=1,
            exploration_initial_eps=h["eps_init"],
            exploration_final_eps=h["eps_min"],
        )
    if s.agent == "sac":
        return SAC(**common, ent_coef=f"auto_{h['alpha']}")
    return TD3(
        **common,
        policy_delay=h["policy_delay"],
        target_policy_noise=h["policy_std"],
        target_noise_clip=h["policy_std_clip"],
        action_noise=NormalActionNoise(np.zeros(s.sizes[1]), h["action_std"] * s.max_action * np.ones(s.sizes[1])),
    )


def sb3(case: str, members: int | None, quick: bool) -> Dict[str, Any]:
    s = SETTINGS[case]
    torch.manual_seed(0)
    agent = model(s)
    rollout = s.ppo["num_envs"] * s.ppo["num_steps"] if s.ppo else 1

    def learn(n: int) -> None:
        agent.learn(n * rollout, reset_num_timesteps=True, log_interval=FOREVER)

    timed = cpu_time(learn)
    return measure(lambda n: (n * rollout, timed(n)[1]), 1 if s.ppo else 20, quick=quick)


if __name__ == "__main__":
    main(__doc__, {"sb3": sb3})
