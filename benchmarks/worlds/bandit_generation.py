#!/usr/bin/env python3
"""What a generation of bandit worlds costs on a MuJoCo task, beside what it must cost: CPU seconds of one core.

    python3 benchmarks/worlds/bandit_generation.py [--members 64] [--task Hopper-v5] [--episodes 1] [--horizon 1000]

Every learner trains one agent in each of --members bandits, 2 layers of 64, batches of 64, one update per step; PPO 10
epochs over 2,048 steps. Then all agents are tested side by side. The floor of training is its multiply-adds (each pass
through a net counted once, target nets left out) at the rate of torch's product of two matrices of 1,024. The floor of
the tests is their control steps at the rate of the bare simulator with as many simulations, measured here too.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from envolve.agents.common.learners import LEARNERS  # noqa: E402
from envolve.agents.train import train  # noqa: E402
from envolve.envs.classic.mujoco_task import simulations  # noqa: E402
from envolve.envs.section import EnvSection  # noqa: E402
from envolve.envs.task import make_task  # noqa: E402
from envolve.envs.worlds.world import init_world  # noqa: E402

SIZE: dict[str, Any] = dict(hidden_size=64, hidden_layer=2, activation_fn="relu")
OFF = {**SIZE, "batch_size": 64, "train_steps": 1000}
SETTINGS: dict[str, dict[str, Any]] = {
    "td3": {**OFF, "policy_delay": 2},
    "sac": OFF,
    "ppo": {**SIZE, "train_steps": 2048, "rollout_steps": 2048, "minibatches": 32, "ppo_epochs": 10,
            "advantage": "gae"},
}  # fmt: skip


def rate() -> float:
    """Multiply-adds per CPU second of one core in torch's products."""
    a = torch.rand(1024, 1024)
    best = 0.0
    for _ in range(5):
        began = time.process_time()
        for _ in range(3):
            a @ a
        best = max(best, 3 * 1024**3 / (time.process_time() - began))
    return best


def bare(task: Any, count: int) -> float:
    """Control steps per CPU second of the simulator alone."""
    pool = simulations(type(task), count)
    pool.ctrl[:] = np.random.default_rng(0).uniform(-1, 1, pool.ctrl.shape)
    began = time.process_time()
    for _ in range(40):
        pool.batch.step(ids=np.arange(count), nstep=task.substeps)
    return 40 * count / (time.process_time() - began)


def work(name: str, F: int, A: int) -> float:
    """Multiply-adds of training one agent."""
    s, H, outputs = SETTINGS[name], SIZE["hidden_size"], A * (2 if name == "sac" else 1)
    inner = H * H * (SIZE["hidden_layer"] - 1)
    actor, critic = F * H + inner + H * outputs, (F + A) * H + inner + H
    if name == "ppo":  # forward and backward of both nets, 10 epochs; acting; values
        critic = F * H + inner + H
        return float(s["train_steps"] * (s["ppo_epochs"] * 3 * (actor + critic) + actor + critic))
    batch, steps = s["batch_size"], s["train_steps"]
    if name == "td3":  # one critic; every second update the actor, through the critic
        return float(steps * (batch * (3 * critic + (3 * actor + 2 * critic) / 2) + actor))
    return float(steps * (batch * (2 * 3 * critic + 3 * actor + 2 * 2 * critic) + actor))


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--members", type=int, default=64)
    parser.add_argument("--task", default="HalfCheetah-v5")
    parser.add_argument("--episodes", type=int, default=1)
    parser.add_argument("--horizon", type=int, default=1000)
    parser.add_argument("--learners", nargs="+", choices=[*SETTINGS], default=[*SETTINGS])
    args = parser.parse_args(argv)
    torch.set_num_threads(1)
    task, section = make_task(args.task, args.horizon), EnvSection(contextual_bandit=True, hidden_size=32)
    keys = np.arange(args.members)
    worlds = init_world("se", task, section, torch.from_numpy(keys))
    flops, steps = rate(), bare(task, args.members * args.episodes)
    print(f"torch: {2 * flops / 1e9:.0f} GFLOP per CPU-s; bare simulator: {steps:,.0f} control steps per CPU-s")
    print("| learner | training | floor | tests | floor | control steps | of the floor |\n|---|" + 6 * "---|")
    for name in args.learners:
        train(name, _section(name, 0), None, task, "se", section, worlds[:2], keys[:2])  # loads the kernels
        spent, control = [], 0
        for episodes in (0, args.episodes):
            began = time.process_time()
            hyper = _section(name, episodes)
            if not episodes:
                task.test_steps = 1
            result = train(name, hyper, None, task, "se", section, worlds, keys)
            task.test_steps = task.max_steps
            spent.append(time.process_time() - began)
            control = int(result.real_steps.sum())
        training, tests = spent[0], spent[1] - spent[0]
        floors = args.members * work(name, task.observation_size, task.action_size) / flops, control / steps
        print(
            f"| {name} | {training:.2f} s | {floors[0]:.2f} s | {tests:.2f} s | {floors[1]:.2f} s | {control:,} | "
            f"{100 * sum(floors) / spent[1]:.0f} % |"
        )
    return 0


def _section(name: str, episodes: int) -> Any:
    steps = SETTINGS[name]["train_steps"]
    return LEARNERS[name].section(**{**SETTINGS[name], "train_episodes": steps, "test_episodes": max(1, episodes)})


if __name__ == "__main__":
    sys.exit(main())
