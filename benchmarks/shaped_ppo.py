#!/usr/bin/env python3
"""What acting and learning of shaped tasks' PPO cost per environment step, beside the floor of their arithmetic.

    python3 benchmarks/shaped_ppo.py [--candidates 32] [--num-envs 64] [--threads 1] [--backend compiled]

Sizes are ANYmal's. No simulator: observations and rewards are the same random numbers at every step. CPU time.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
F, A = 48, 12  # observations, actions


def floor(s: Any) -> float:
    """Seconds per environment step: the FLOP at the rate of the largest product, and the tanh."""
    import numpy as np

    from envolve.agents.kernels.dense.activation import TANH, activate
    from envolve.agents.kernels.dense.mlp import affine, aligned

    H, W = s.hidden_size, 256
    p, x, out, z = aligned((H * H + H,)), aligned((H, W)), aligned((H, W)), aligned((H * W,))

    def seconds(call: Callable[[], None]) -> float:
        best = float("inf")
        for _ in range(10):
            began = time.process_time()
            for _ in range(500):
                call()
            best = min(best, (time.process_time() - began) / 500)
        return best

    zero, h, w = np.int64(0), np.int64(H), np.int64(W)
    per_flop = seconds(lambda: affine(p, zero, h, h, x, out, w)) / (2 * H * H * W)
    per_tanh = seconds(lambda: activate(z, np.int64(H * W), TANH, np.float32(0))) / (H * W)
    actor, critic = F * H + H * H + H * A, F * H + H * H + H
    epoch = 6 * (actor + critic) - 4 * F * H  # a forward pass, two products backward; none by the observations
    flop = s.ppo_epochs * epoch + 2 * actor + 2 * critic
    return flop * per_flop + (s.ppo_epochs * 4 * H + 4 * H) * per_tanh


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--candidates", type=int, default=32)
    parser.add_argument("--num-envs", type=int, default=64)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--backend", choices=("compiled", "torch"), default="compiled")
    args = parser.parse_args()
    import torch

    from envolve.agents.shaped.ppo import BACKENDS, defaults

    torch.set_num_threads(1)
    P, N, s = args.candidates, args.num_envs, dataclasses.replace(defaults(), num_envs=args.num_envs)
    keys = torch.zeros(P, dtype=torch.int64)
    agents = BACKENDS[args.backend](s, [(F, A)] * P, keys, torch.device("cpu"), args.threads)
    g = torch.Generator().manual_seed(0)
    obs, reward = torch.randn(P, N, F, generator=g), torch.randn(P, N, generator=g)
    no, over = torch.zeros(P, N, dtype=torch.bool), torch.rand(P, N, generator=g) < 0.01
    step = SimpleNamespace(reward=reward, terminated=no, truncated=over, last_obs=obs)

    clock, best, T = time.process_time, [float("inf")] * 3, s.rollout_steps
    for iteration in range(6):
        times = [0.0, 0.0, 0.0]
        for t in range(T):
            began = clock()
            agents.act(obs, iteration * T + t, t)
            acted = clock()
            agents.record(step, t)
            times[0] += acted - began
            times[1] += clock() - acted
        began = clock()
        agents.learn(iteration * T * N)
        times[2] = clock() - began
        if iteration:  # the first is for the normalisers only
            best = [min(a, b) for a, b in zip(best, times)]
    act, record, learn = (1e6 * x / (P * N * T) for x in best)
    print(
        f"us per environment step: act {act:.2f}, record {record:.2f}, learn {learn:.2f}, together "
        f"{act + record + learn:.2f}; floor of the arithmetic {1e6 * floor(s):.2f}"
    )


if __name__ == "__main__":
    main()
