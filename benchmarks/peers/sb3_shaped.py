"""Stable-Baselines3's PPO on a physics task with the human's shapers: the same simulator, environments, settings and
steps as this project's, judged by the same evaluation.

Runs in the peers' environment; ``benchmarks/shaped_learning.py`` starts it. Its learning rate is the same and constant:
it has none that adapts.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any, Dict, List, Optional

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import VecEnv, VecNormalize

from envolve.agents.shaped.training import evaluate, make_envs
from envolve.envs.shaping.candidate import Candidate
from envolve.envs.shaping.envs import ShapedEnvs


class Envs(VecEnv):
    """The N environments of one candidate."""

    def __init__(self, envs: ShapedEnvs) -> None:
        self.envs = envs
        F, A = envs.observation_sizes[0], envs.action_sizes[0]
        super().__init__(envs.N, spaces.Box(-np.inf, np.inf, (F,), np.float32), spaces.Box(-1.0, 1.0, (A,), np.float32))

    def reset(self) -> np.ndarray:
        return self.envs.begin()[0].numpy().copy()

    def step_async(self, actions: np.ndarray) -> None:
        self.actions = torch.from_numpy(actions)[None]

    def step_wait(self) -> Any:
        step = self.envs.step(self.actions)
        over = (step.terminated | step.truncated)[0].numpy()
        infos: List[Dict[str, Any]] = [{} for _ in range(self.num_envs)]
        for n in np.flatnonzero(over):
            infos[n]["terminal_observation"] = step.last_obs[0, n].numpy().copy()
            infos[n]["TimeLimit.truncated"] = bool(step.truncated[0, n])
        return step.obs[0].numpy().copy(), step.reward[0].numpy().copy(), over, infos

    def close(self) -> None:
        pass

    def get_attr(self, attr_name: str, indices: Any = None) -> List[Any]:
        return [getattr(self, attr_name, None)] * self.num_envs

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        raise NotImplementedError

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> List[Any]:
        raise NotImplementedError

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> List[bool]:
        return [False] * self.num_envs


class Judged:
    """The trained policy as ``agents.shaped.evaluate`` asks for it."""

    def __init__(self, model: PPO, normalised: VecNormalize) -> None:
        self.model, self.normalised = model, normalised

    def act(self, obs: torch.Tensor) -> torch.Tensor:
        action, _ = self.model.predict(self.normalised.normalize_obs(obs[0].numpy()), deterministic=True)
        return torch.from_numpy(action)[None]


def train(task: str, steps: int, seed: int, num_envs: int, s: Dict[str, Any]) -> Dict[str, float]:
    """s: the PPO settings of this project, as ``benchmarks/shaped_learning.py`` hands them over."""
    envs = make_envs(task, [Candidate("human")], num_envs, seed)
    normalised = VecNormalize(Envs(envs), gamma=s["gamma"])
    layers = [s["hidden_size"]] * s["hidden_layer"]
    model = PPO(
        "MlpPolicy",
        normalised,
        learning_rate=s["lr"],
        n_steps=s["rollout_steps"],
        n_epochs=s["ppo_epochs"],
        batch_size=num_envs * s["rollout_steps"] // s["minibatches"],
        gamma=s["gamma"],
        gae_lambda=s["gae_lambda"],
        ent_coef=s["ent_coef"],
        vf_coef=s["vf_coef"],
        max_grad_norm=s["max_grad_norm"],
        clip_range=s["eps_clip"],
        seed=seed,
        device="cpu",
        policy_kwargs={"net_arch": {"pi": layers, "vf": layers}, "log_std_init": float(np.log(s["action_std"]))},
    )
    cpu = time.process_time()
    model.learn(steps)
    cpu = time.process_time() - cpu
    normalised.training = False
    score = evaluate(envs, Judged(model, normalised))  # type: ignore[arg-type]
    return {"score": float(score.mean()), "steps": model.num_timesteps, "cpu_seconds": cpu}


def main(argv: Optional[List[str]] = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task")
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--num-envs", type=int, default=64)
    parser.add_argument("--settings", required=True, metavar="JSON")
    args = parser.parse_args(argv)
    torch.set_num_threads(1)
    print(json.dumps(train(args.task, args.steps, args.seed, args.num_envs, json.loads(args.settings))))


if __name__ == "__main__":
    main()
