#!/usr/bin/env python3
"""Speed of tabular learning on the real Cliff (4 x 12): member-steps per second of one core, medians of five.

    python3 benchmarks/tabular.py [--json FILE]

Each run trains and tests agents from start to finish (published settings, no early stop); CPU time is counted, so that
other programs on the machine matter little. ``python`` is the usual loop over lists for one agent and one algorithm.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import time
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from agents.hyper import draw
from agents.sections import TabularSection
from agents.tabular import ALGORITHMS, train_tabular
from envs.gridworld import Cliff

REPEATS = 5
TASK = Cliff()


def train(backend: str, algorithm: str, members: int, episodes: int) -> int:
    """-> environment steps trained, all members together."""
    section = TabularSection(
        alpha=1.0, gamma=0.8, eps_init=0.1, eps_min=0.1, eps_decay=0.0, train_episodes=episodes, test_episodes=1
    )
    tables, keys = (TASK.next_state, TASK.reward, TASK.done), np.arange(members)
    result = train_tabular(
        algorithm, draw(section, keys), tuple(t[None] for t in tables),
        (*tables, TASK.start_state), "real", TASK.max_steps, 1e9, False, keys, backend,
    )  # fmt: skip
    return int(result.train_steps.sum())


def python_loop(episodes: int) -> int:
    """Q-learning for one agent in plain Python."""
    next_state, reward, done = TASK.next_state.tolist(), TASK.reward.tolist(), TASK.done.tolist()
    q = [[0.0] * 4 for _ in next_state]
    steps = 0
    for _ in range(episodes):
        s = TASK.start_state
        for _ in range(TASK.max_steps):
            a = random.randrange(4) if random.random() < 0.1 else q[s].index(max(q[s]))
            s2, r, end = next_state[s][a], reward[s][a], done[s][a]
            q[s][a] += 1.0 * (r + (0.0 if end else 0.8 * max(q[s2])) - q[s][a])
            s = s2
            steps += 1
            if end:
                break
    return steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", metavar="FILE", help="also write the figures to FILE")
    file = parser.parse_args().json
    torch.set_num_threads(1)

    started = time.perf_counter()
    train("compiled", "ql", 1, 1)
    figures = {"compile_or_load_s": time.perf_counter() - started}
    cases = {f"compiled.{name}": lambda name=name: train("compiled", name, 256, 1000) for name in ALGORITHMS}
    cases["torch.ql"] = lambda: train("torch", "ql", 256, 30)
    cases["torch.sarsa"] = lambda: train("torch", "sarsa", 256, 30)
    cases["python.ql"] = lambda: python_loop(5000)
    print(f"compile or load the kernel: {figures['compile_or_load_s']:.2f} s\n{'':16} member-steps/s per core")
    for name, run in cases.items():
        speeds = []
        for _ in range(REPEATS):
            started = time.process_time()
            speeds.append(run() / (time.process_time() - started))
        figures[f"{name}.steps_per_s"] = statistics.median(speeds)
        print(f"{name:16} {figures[f'{name}.steps_per_s']:>22,.0f}", flush=True)
    if file:
        with open(file, "w") as stream:
            json.dump(figures, stream, indent=1)


if __name__ == "__main__":
    main()
