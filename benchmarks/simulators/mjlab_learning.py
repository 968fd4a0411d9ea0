"""This project's PPO over candidates beside rsl_rl's runner on one task of mjlab: same networks, settings and steps.

    .venv-mjlab/bin/python benchmarks/simulators/mjlab_learning.py --seeds 5 --iterations 60

The project trains all seeds as candidates of one process; rsl_rl trains one after the other. Both curves are the task's
own reward per second of the steps that training makes. The final policies are judged alike: their mean action, one
episode in every environment. Intervals are 95 % over seeds
(``core/statistics.py``). One difference remains: the project bounds the mean action by tanh.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np
import torch

from envolve.agents.shaped.ppo import defaults
from envolve.agents.shaped.training import make_envs, make_learner, train_shaped
from envolve.core.statistics import interval
from envolve.envs.managers.environment import quiet
from envolve.envs.managers.mjlab import Mjlab
from envolve.envs.shaping.candidate import Candidate

SETTINGS: dict[str, Any] = {
    "rollout_steps": 32, "ppo_epochs": 5, "minibatches": 4, "gamma": 0.99, "gae_lambda": 0.95, "eps_clip": 0.2,
    "lr": 1e-3, "desired_kl": 0.01, "kl_after": "update", "vf_coef": 1.0, "ent_coef": 0.01, "clip_value_loss": True,
    "max_grad_norm": 1.0, "hidden_size": 64, "hidden_layer": 2, "activation_fn": "tanh", "action_std": 1.0,
    "normalise_obs": False, "normalise_reward": False, "orthogonal_init": False,
}  # fmt: skip


def ours(task: str, seeds: int, N: int, iterations: int) -> tuple[np.ndarray, np.ndarray]:
    """Curves [seeds, iterations] and final scores [seeds]."""
    envs = make_envs("mjlab:" + task, [Candidate(f"seed{k}") for k in range(seeds)], N, list(range(seeds)))
    learner = make_learner("ppo", envs, defaults(**SETTINGS), np.arange(seeds), "auto", 1)
    result = train_shaped(envs, learner, iterations)
    return np.stack([p.score for p in result.curve], 1), result.score


def theirs(task: str, seed: int, N: int, iterations: int) -> tuple[np.ndarray, float]:
    """Curve [iterations] and final score of rsl_rl's runner."""
    from mjlab.envs import ManagerBasedRlEnv
    from mjlab.rl import MjlabOnPolicyRunner, RslRlVecEnvWrapper

    s, registry = SETTINGS, Mjlab().load()
    cfg = registry.load_env_cfg(task)
    cfg.scene.num_envs, cfg.seed = N, seed
    agent = dataclasses.asdict(registry.load_rl_cfg(task))
    for net in ("actor", "critic"):
        agent[net].update(hidden_dims=(s["hidden_size"],) * s["hidden_layer"], activation=s["activation_fn"])
    agent["num_steps_per_env"], agent["seed"], agent["logger"] = s["rollout_steps"], seed, "tensorboard"
    agent["algorithm"].update(
        num_learning_epochs=s["ppo_epochs"],
        num_mini_batches=s["minibatches"],
        gamma=s["gamma"],
        lam=s["gae_lambda"],
        clip_param=s["eps_clip"],
        learning_rate=s["lr"],
        desired_kl=s["desired_kl"],
        value_loss_coef=s["vf_coef"],
        entropy_coef=s["ent_coef"],
        max_grad_norm=s["max_grad_norm"],
        use_clipped_value_loss=s["clip_value_loss"],
    )
    with quiet():
        env = ManagerBasedRlEnv(cfg=cfg, device="cpu")
        paid: list[float] = []
        step = env.step

        def recorded(action: Any) -> Any:
            out = step(action)
            paid.append(float(out[1].mean()) / env.step_dt)
            return out

        env.step = recorded
        wrapped = RslRlVecEnvWrapper(env)
        runner = MjlabOnPolicyRunner(wrapped, agent, None, "cpu")
        runner.learn(num_learning_iterations=iterations, init_at_random_ep_len=True)
    curve = np.array(paid).reshape(iterations, -1).mean(1)
    policy = runner.get_inference_policy(device="cpu")
    env.reset(seed=1000 + seed)
    obs, total, limit = wrapped.get_observations(), 0.0, env.max_episode_length
    over = torch.zeros(N, dtype=torch.bool)
    for _ in range(limit):
        with torch.inference_mode():
            obs, reward, done, _ = wrapped.step(policy(obs))
        total += float(torch.where(over, 0.0, reward).mean()) / env.step_dt
        over |= done.bool()
    return curve, total / limit


def shown(values: np.ndarray) -> str:
    low, high = interval(values.tolist())
    return f"{values.mean():.3f} [{low:.3f}, {high:.3f}]"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", default="Mjlab-Cartpole-Balance")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--envs", type=int, default=64)
    parser.add_argument("--iterations", type=int, default=60)
    args = parser.parse_args()
    torch.set_num_threads(1)
    began = time.process_time()
    own, own_score = ours(args.task, args.seeds, args.envs, args.iterations)
    seconds = [time.process_time() - began]
    began = time.process_time()
    peers = [theirs(args.task, seed, args.envs, args.iterations) for seed in range(args.seeds)]
    seconds.append(time.process_time() - began)
    curves = np.stack([curve for curve, _ in peers])
    print(f"{args.task}, {args.seeds} seeds, {args.envs} environments each, reward per second")
    print(f"{'steps':>9}  {'candidates in one process':<28}  rsl_rl")
    for k in range(args.iterations // 6 - 1, args.iterations, args.iterations // 6):
        steps = (k + 1) * args.envs * SETTINGS["rollout_steps"]
        print(f"{steps:>9,}  {shown(own[:, k]):<28}  {shown(curves[:, k])}")
    print(f"{'judged':>9}  {shown(own_score):<28}  {shown(np.array([score for _, score in peers]))}")
    print(f"CPU seconds: {seconds[0]:.0f} and {seconds[1]:.0f}")


if __name__ == "__main__":
    main()
