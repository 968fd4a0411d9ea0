#!/usr/bin/env python3
"""What a training step on any Gymnasium environment costs: compiled learners, the PyTorch path, Stable-Baselines3.

    python3 benchmarks/any_env/learners.py [--ids CartPole-v1 Pendulum-v1] [--members 1 16] [--worlds real se rn]

Two layers of 64 ReLU units and batches of 64; an update per step, of PPO ten epochs after each rollout of 2,048 steps;
the environment's own steps are in it. Microseconds of CPU time of one core per step and agent: the difference of
trainings of --steps and of 500 steps (PPO: three rollouts and one), which leaves out what is done once.
Stable-Baselines3 trains one agent at a time, and its DQN is not double: one network
chooses and values the action of a target.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import gymnasium  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402

from envolve.agents import peers  # noqa: E402
from envolve.agents.common.learners import LEARNERS  # noqa: E402
from envolve.agents.train import train  # noqa: E402
from envolve.envs.outside.define import define  # noqa: E402
from envolve.envs.outside.measure import measure  # noqa: E402
from envolve.envs.section import EnvSection  # noqa: E402
from envolve.envs.worlds.world import init_world  # noqa: E402

FIRST = 500  # steps of the shorter training
ROLLOUT = 2048  # of PPO
NETS: dict[str, Any] = {"hidden_size": 64, "hidden_layer": 2, "activation_fn": "relu"}
RUN = {"init_episodes": 0, "test_episodes": 1, "early_out_num": 10_000}
OFF_POLICY: dict[str, Any] = {"batch_size": 64}
PPO: dict[str, Any] = {
    "num_envs": 1,
    "rollout_steps": ROLLOUT,
    "ppo_epochs": 10,
    "minibatches": ROLLOUT // 64,
    "advantage": "gae",
    "norm_advantage": True,
}
PEERS = {"ddqn": "dqn", "sac": "sac", "td3": "td3", "ppo": "ppo"}  # of Stable-Baselines3


def per_step(training: Callable[[int], int], name: str, steps: int) -> float:
    """Microseconds per step. training: a function of the steps of each agent, which returns those of all."""
    seconds, taken = [], []
    short, long = (ROLLOUT, 3 * ROLLOUT) if name == "ppo" else (FIRST, steps)
    for length in (short, short, long):  # the first compiles and warms up
        began = time.process_time()
        taken.append(training(length))
        seconds.append(time.process_time() - began)
    return 1e6 * (seconds[2] - seconds[1]) / (taken[2] - taken[1])


def ours(name: str, env: str, kind: str, members: int, backend: str) -> Callable[[int], int]:
    section: dict[str, Any] = {"env_kwargs": {}, "wrappers": []}
    full = f"gymnasium:{env}"
    task = define(full, {**section, "measured": measure(full, section)})()
    task.test_steps = 1
    keys, world = np.arange(members), EnvSection(hidden_size=32, reward_env_type=2)
    worlds = torch.zeros(members, 1) if kind == "real" else init_world(kind, task, world, torch.arange(members))

    def training(steps: int) -> int:
        own = {**NETS, **RUN, **(PPO if name == "ppo" else OFF_POLICY)}
        learner = dataclasses.replace(LEARNERS[name].section(), train_steps=steps, train_episodes=steps, **own)
        result = train(name, learner, None, task, kind, world, worlds, keys, backend=backend)
        return int(result.train_steps.sum())

    return training


def library(name: str, env: str) -> Callable[[int], int]:
    def training(steps: int) -> int:
        own: dict[str, Any] = {"train_freq": 1, "gradient_steps": 1, "learning_starts": 1, "batch_size": 64}
        nets = {"net_arch": [64, 64], "activation_fn": torch.nn.ReLU}
        if name == "ppo":
            own = {}
        model = peers.algorithm(PEERS[name])(
            "MlpPolicy", gymnasium.make(env), policy_kwargs=nets, seed=0, device="cpu", **own
        )
        return int(model.learn(steps).num_timesteps)

    return training


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ids", nargs="+", default=["CartPole-v1", "Pendulum-v1"], metavar="ID")
    parser.add_argument("--members", nargs="+", type=int, default=[1, 16])
    parser.add_argument("--worlds", nargs="+", choices=("real", "se", "rn"), default=["real"])
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--json", type=Path, metavar="FILE")
    args = parser.parse_args()
    torch.set_num_threads(1)
    peer = peers.installed()
    print(
        "| environment, learner, world | agents | compiled | PyTorch path | Stable-Baselines3 |\n|---|---|---|---|---|"
    )
    found = []
    for env in args.ids:
        discrete = isinstance(gymnasium.make(env).action_space, gymnasium.spaces.Discrete)
        for name in ("ddqn", "ppo") if discrete else ("sac", "td3", "ppo"):
            other = per_step(library(name, env), name, args.steps) if peer and "real" in args.worlds else None
            for kind, members in itertools.product(args.worlds, args.members):
                compiled, readable = (
                    per_step(ours(name, env, kind, members, backend), name, args.steps)
                    for backend in ("compiled", "torch")
                )
                row: dict[str, Any] = {"env": env, "learner": name, "world": kind, "agents": members}
                found.append({**row, "compiled": compiled, "torch": readable, "stable_baselines3": other})
                last = f"{other:,.0f}" if other and kind == "real" else "-"
                print(f"| {env}, {name}, {kind} | {members} | {compiled:,.0f} | {readable:,.0f} | {last} |", flush=True)
    if args.json:
        args.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
