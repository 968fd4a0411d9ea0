#!/usr/bin/env python3
"""Steps per second of a world of the zoo: NumPy's batch, torch's batch, single environments side by side.

  python3 benchmarks/worlds/zoo.py                      64 environments, every world of the shelf that is a first one
  python3 benchmarks/worlds/zoo.py --envs 256 --seconds 2

A step is one that pays. CPU time of one core; the peers take turns in one run. ``SAME_STEP`` pays at every call,
``NEXT_STEP`` at every second one.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from envolve.worlds.env import ZooEnv, ZooVectorEnv
from envolve.worlds.shelf import names, open_world

ROUNDS = 5


def rate(step: Callable[[], int], seconds: float) -> float:
    """Paying steps per second of CPU time. step: makes some -> how many."""
    step()
    began, count = time.process_time(), 0
    while time.process_time() - began < seconds:
        count += step()
    return count / (time.process_time() - began)


def stepper(envs: ZooVectorEnv | SyncVectorEnv, paying: float) -> Callable[[], int]:
    """100 calls of ``step`` with the same actions. paying: the share of calls that pay."""
    envs.reset(seed=0)
    envs.action_space.seed(0)
    actions = envs.action_space.sample()

    def step() -> int:
        for _ in range(100):
            envs.step(actions)
        return int(100 * envs.num_envs * paying)

    return step


def torch_stepper(name: str, count: int) -> Callable[[], int]:
    """The same arithmetic with torch: a reset and a step of the whole batch at every call."""
    bandit, own = open_world(name).bandit, open_world(name).action
    nets = [
        [(torch.from_numpy(w), torch.from_numpy(b)) for w, b in zip(net.weights, net.biases)]
        for net in (bandit.init_net, bandit.reward_net)
    ]

    def forward(layers: list[tuple[torch.Tensor, torch.Tensor]], x: torch.Tensor) -> torch.Tensor:
        for i, (w, b) in enumerate(layers):
            x = torch.addmm(b, x, w)
            x = torch.tanh(x) if i < len(layers) - 1 else x
        return x

    generator = torch.Generator().manual_seed(0)
    code = torch.zeros(count, own.inputs)

    def step() -> int:
        with torch.no_grad():
            for _ in range(100):
                s = forward(nets[0], torch.rand(count, bandit.features, generator=generator) - 0.5)
                forward(nets[1], torch.cat((code, s), 1)).numpy()
        return 100 * count

    return step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--envs", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=0.5, help="CPU time of each peer in each round")
    parser.add_argument("--worlds", nargs="*", help="names; default: the first of every task")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    chosen = args.worlds or [n for n in names() if n.endswith("-bandit")]
    table: dict[str, dict[str, float]] = {}
    print(f"{args.envs} environments, paying steps per second of CPU time, median of {ROUNDS} rounds")
    print(f"{'world':<36}{'NumPy, same':>14}{'NumPy, next':>14}{'torch nets':>14}{'SyncVectorEnv':>15}")
    for name in chosen:
        world = open_world(name)
        peers = {
            "same": stepper(ZooVectorEnv(world, args.envs, AutoresetMode.SAME_STEP), 1.0),
            "next": stepper(ZooVectorEnv(world, args.envs), 0.5),
            "torch": torch_stepper(name, args.envs),
            "sync": stepper(SyncVectorEnv([lambda w=world: ZooEnv(w)] * args.envs), 0.5),
        }
        rates = {k: [] for k in peers}
        for _ in range(ROUNDS):
            for key, step in peers.items():
                rates[key].append(rate(step, args.seconds))
        row = {k: float(np.median(v)) for k, v in rates.items()}
        table[name] = row
        print(f"{name:<36}{row['same']:>14,.0f}{row['next']:>14,.0f}{row['torch']:>14,.0f}{row['sync']:>15,.0f}")
    if args.json:
        args.json.write_text(json.dumps(table, indent=1) + "\n")


if __name__ == "__main__":
    main()
