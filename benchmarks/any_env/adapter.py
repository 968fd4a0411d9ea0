#!/usr/bin/env python3
"""What a step of a Gymnasium environment costs on top of its own: the adapter for any environment, and SyncVectorEnv.

    python3 benchmarks/any_env/adapter.py [ID ...] [--rounds 15] [--members 8] [--json FILE]

A round is one episode in each of 4 x --members environments, cut at 200 steps, with random actions drawn before.
``plain`` calls each environment's own reset and step. ``adapter`` is what tests of P = --members x N = 4 episodes call
(``envolve.envs.outside.task``), ``vector`` is Gymnasium's SyncVectorEnv, which goes on for as many steps. All step the
environments in turn. Figures are medians over rounds of CPU time per step; resets are in them. Returns of ``plain``
and ``adapter`` must be equal.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any, Dict, List, Tuple

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import gymnasium  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402

from envolve.core import plugins  # noqa: E402
from envolve.envs.outside.build import canonical  # noqa: E402
from envolve.envs.outside.define import define  # noqa: E402
from envolve.envs.outside.measure import measure  # noqa: E402
from envolve.envs.outside.task import AGE, RUNNING, SEED, STATUS, OutsideTask  # noqa: E402

IDS = ("CartPole-v1", "Pendulum-v1", "Acrobot-v1", "FrozenLake-v1", "InvertedPendulum-v5")
N, LIMIT = 4, 200
Round = Tuple[np.ndarray, int, float]  # return of each episode, steps, CPU seconds


def plain(task: OutsideTask, envs: List[Any], seeds: np.ndarray, actions: np.ndarray) -> Round:
    """Every environment in turn, by itself. actions: what learners choose, [LIMIT, P N, ...]."""
    returns, steps = np.zeros(len(envs)), 0
    of = task.actions
    converted = [[of.of_index(int(a)) if of.n else of.of_numbers(a) for a in row] for row in actions]
    began = time.process_time()
    for env, seed in zip(envs, seeds):
        env.reset(seed=int(seed))
    alive = list(range(len(envs)))
    for t in range(LIMIT):
        steps, row, left = steps + len(alive), converted[t], []
        for i in alive:
            _, reward, terminated, truncated, _ = envs[i].step(row[i])
            returns[i] += reward
            if not (terminated or truncated):
                left.append(i)
        alive = left
    return returns, steps, time.process_time() - began


def adapter(task: OutsideTask, u: torch.Tensor, actions: np.ndarray) -> Round:
    """All of them in one call of ``step``, the actions as the learners' tensors."""
    chosen = [torch.from_numpy(row).reshape(*u.shape[:2], *row.shape[1:]) for row in actions]
    rewards = []
    began = time.process_time()
    state = task.reset(u)
    task.observe(state)
    for row in chosen:
        state, reward, _ = task.step(state, row)
        task.observe(state)
        rewards.append(reward)
        if (state[..., STATUS] != RUNNING).all():
            break
    task.release(state)
    seconds = time.process_time() - began
    returns = np.zeros(u.shape[:2])
    for reward in rewards:
        returns += reward.numpy()
    return returns.reshape(-1), int(state[..., AGE].sum()), seconds


def vector(envs: Any, seeds: np.ndarray, actions: np.ndarray, count: int, task: OutsideTask) -> Round:
    """count: steps, in whole steps of all environments."""
    discrete = task.actions.n > 0
    shaped = [row if discrete else np.stack([task.actions.of_numbers(a) for a in row]) for row in actions]
    began = time.process_time()
    envs.reset(seed=[int(s) for s in seeds])
    rounds = max(1, count // envs.num_envs)
    for t in range(rounds):
        envs.step(shaped[t % LIMIT])
    return np.zeros(0), rounds * envs.num_envs, time.process_time() - began


def compare(name: str, rounds: int, members: int) -> Dict[str, Any]:
    """Microseconds of CPU time per step of the three."""
    section: Dict[str, Any] = {"env_kwargs": {}, "wrappers": []}
    full = f"gymnasium:{name}"
    plugins.trust(canonical(full, section))
    task = define(full, {**section, "measured": measure(full, section)})(max_steps=LIMIT)
    make = lambda: gymnasium.make(name, disable_env_checker=True)  # noqa: E731
    count = members * N
    envs, vectorised = [make() for _ in range(count)], gymnasium.vector.SyncVectorEnv([make] * count)
    found: Dict[str, List[float]] = {"plain": [], "adapter": [], "vector": []}
    random = np.random.default_rng(0)
    for r in range(rounds + 1):
        u = torch.from_numpy(random.random((members, N, 2)))
        seeds = task.reset(u)[..., SEED].reshape(-1).numpy()
        if task.actions.n:
            actions = random.integers(task.actions.n, size=(LIMIT, count))
        else:
            actions = random.uniform(-1, 1, (LIMIT, count, task.actions.size)).astype(np.float32)
        one = plain(task, envs, seeds, actions)
        two = adapter(task, u, actions)
        if not np.array_equal(one[0], two[0]) or one[1] != two[1]:
            raise SystemExit(f"{name}: the adapter's returns are not those of a plain loop")
        three = vector(vectorised, seeds, actions, one[1], task)
        if r:  # the first warms up
            for key, (_, steps, seconds) in zip(found, (one, two, three)):
                found[key].append(1e6 * seconds / steps)
    out: Dict[str, Any] = {key: statistics.median(values) for key, values in found.items()}
    for key in ("adapter", "vector"):
        out[f"{key}_overhead"] = statistics.median(np.subtract(found[key], found["plain"]).tolist())
    return {"steps": one[1], **out}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ids", nargs="*", default=list(IDS), metavar="ID")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--members", type=int, default=8)
    parser.add_argument("--json", type=Path, metavar="FILE")
    args = parser.parse_args()
    torch.set_num_threads(1)
    found = {}
    print(f"{'microseconds per step':34}  plain  adapter  (on top)  SyncVectorEnv  (on top)")
    for name in args.ids:
        f = found[name] = compare(name, args.rounds, args.members)
        print(
            f"{name:34}{f['plain']:7.1f}{f['adapter']:9.1f}{f['adapter_overhead']:10.1f}{f['vector']:15.1f}"
            f"{f['vector_overhead']:10.1f}",
            flush=True,
        )
    if args.json:
        args.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
