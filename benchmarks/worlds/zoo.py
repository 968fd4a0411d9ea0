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
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.vector.utils import batch_space
from torch import Tensor
from torch.nn.functional import leaky_relu, one_hot

from benchmarks.common.cells import check_counts
from envolve.worlds.bandit import LATENT_SCALE, LEAKY_SLOPE, OUTPUT_BOUND, Bandit, Net
from envolve.worlds.env import ZooEnv, ZooVectorEnv
from envolve.worlds.file import WorldError, ZooWorld
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


class TorchBandit:
    """What ``worlds/bandit.py`` computes, with torch."""

    def __init__(self, bandit: Bandit) -> None:
        assert isinstance(bandit.source, Net), "a table of contexts has nothing to time"
        self.bandit, self.shapes = bandit, (bandit.source, bandit.reward_net)
        self.nets = [
            [(torch.from_numpy(w), torch.from_numpy(b)) for w, b in zip(net.weights, net.biases)] for net in self.shapes
        ]

    def forward(self, number: int, x: Tensor) -> Tensor:
        """Output of init_net (0) or reward_net (1), clipped."""
        net = self.shapes[number]
        for i, (w, b) in enumerate(self.nets[number]):
            x = torch.addmm(b, activated(x, net.activation, net.slope) if i else x, w)
        return x.clamp_(-OUTPUT_BOUND, OUTPUT_BOUND)

    def contexts(self, u: Tensor) -> Tensor:
        """u: uniforms [N, F] -> contexts [N, F]."""
        s = self.forward(0, LATENT_SCALE * (u - 0.5))
        for start, stop in self.bandit.codes:
            s[:, start:stop] = one_hot(s[:, start:stop].argmax(1), stop - start)
        return s

    def pay(self, contexts: Tensor, code: Tensor) -> Tensor:
        """Rewards [N] of actions as reward_net reads them [N, A]."""
        return self.forward(1, torch.cat((code, contexts), 1))[:, 0]


def activated(z: Tensor, activation: str, slope: float) -> Tensor:
    if activation == "identity":
        return z
    if activation in ("tanh", "relu"):
        return torch.tanh(z) if activation == "tanh" else torch.relu(z)
    return leaky_relu(z, LEAKY_SLOPE if activation == "leakyrelu" else slope)


def torch_stepper(world: ZooWorld, count: int) -> Callable[[], int]:
    """A reset and a step of the whole batch at every call."""
    peer, generator = TorchBandit(world.bandit), torch.Generator().manual_seed(0)
    space = batch_space(world.action.space, count)
    space.seed(0)
    own = torch.as_tensor(world.action.codes(space.sample()))
    code = one_hot(own, world.action.inputs).float() if own.ndim == 1 else own

    def step() -> int:
        with torch.no_grad():
            for _ in range(100):
                s = peer.contexts(torch.rand(count, world.bandit.uniforms, generator=generator))
                peer.pay(s, code).numpy()
        return 100 * count

    return step


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--envs", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=0.5, help="CPU time of each peer in each round")
    parser.add_argument("--worlds", nargs="*", help="names; default: the first of every task")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args(argv)
    check_counts(parser, {"--envs": [args.envs]}, 10**6)
    torch.set_num_threads(1)
    chosen = args.worlds or [n for n in names() if n.endswith("-bandit")]
    try:
        worlds = {name: open_world(name) for name in chosen}
    except WorldError as e:
        print(f"zoo.py: {e}", file=sys.stderr)
        return 1
    table: dict[str, dict[str, float]] = {}
    print(f"{args.envs} environments, paying steps per second of CPU time, median of {ROUNDS} rounds")
    print(f"{'world':<36}{'NumPy, same':>14}{'NumPy, next':>14}{'torch':>14}{'SyncVectorEnv':>15}")
    for name, world in worlds.items():
        peers = {
            "same": stepper(ZooVectorEnv(world, args.envs, AutoresetMode.SAME_STEP), 1.0),
            "next": stepper(ZooVectorEnv(world, args.envs), 0.5),
            "torch": torch_stepper(world, args.envs),
            "sync": stepper(SyncVectorEnv([partial(ZooEnv, world)] * args.envs), 0.5),
        }
        rates: dict[str, list[float]] = {k: [] for k in peers}
        for _ in range(ROUNDS):
            for key, step in peers.items():
                rates[key].append(rate(step, args.seconds))
        row = {k: float(np.median(v)) for k, v in rates.items()}
        table[name] = row
        print(f"{name:<36}{row['same']:>14,.0f}{row['next']:>14,.0f}{row['torch']:>14,.0f}{row['sync']:>15,.0f}")
    if args.json:
        args.json.write_text(json.dumps(table, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
