#!/usr/bin/env python3
"""Speed of tabular learning on the real Cliff (4 x 12): member-steps per second of one core, medians of five.

    python3 benchmarks/tabular.py [--json FILE]

Each run trains and tests agents from start to finish (published settings, no early stop); CPU time is counted, so that
other programs on the machine matter little. ``compiled`` and ``torch`` are this project's two back ends, ``plain`` is
the usual loop over lists for one agent, ``numpy`` the same rules for 4,096 agents at once.

The floor of Q-learning. From one state to the next there are two loads, each waiting for the one before (the greedy
pair, its next state): 10 cycles, 2.4 ns at 4.1 GHz, 410 million steps per second. No processor gets there,
because it cannot foresee which tenth of the steps explores, where they lead and when an episode of 13 steps ends: at
eps 0.01 a bare C++ loop of the same rules, without any option, makes 280 million steps, at eps 0.1 194, and 216 with
two agents in one loop (four: 176 to 197; all on an AMD EPYC, Zen 5). The compiled back end is at 147 to 159, 0.7 of
that, with options, counters and the logged returns. While the values still change, in the first hundred episodes, it
makes 85 and the C++ loop 84 to 100, or 157 with eight agents in one loop, which has not seemed worth its complexity.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from envolve.agents.common.hyper import draw
from envolve.agents.common.sections import TabularSection
from envolve.agents.tabular.training import ALGORITHMS, train_tabular
from envolve.envs.classic.gridworld import Cliff

REPEATS = 5
TASK = Cliff()
TABLES = TASK.next_state, TASK.reward, TASK.done
EPS, GAMMA = 0.1, 0.8  # alpha is 1


def train(backend: str, algorithm: str, members: int, episodes: int) -> int:
    """-> environment steps trained, all members together."""
    section = TabularSection(
        alpha=1.0,
        gamma=GAMMA,
        eps_init=EPS,
        eps_min=EPS,
        eps_decay=0.0,
        train_episodes=episodes,
        test_episodes=1,
        bootstrap_time_limit=False,
    )
    keys = np.arange(members)
    result = train_tabular(
        algorithm,
        draw(section, keys),
        (TABLES[0][None], TABLES[1][None], TABLES[2][None]),
        (*TABLES, TASK.start_state),
        "real",
        TASK.max_steps,
        1e9,
        False,
        keys,
        backend,
    )
    return int(result.train_steps.sum())


def plain(episodes: int) -> int:
    """Q-learning for one agent in plain Python."""
    next_state, reward, done = (t.tolist() for t in TABLES)
    q = [[0.0] * 4 for _ in next_state]
    steps = 0
    for _ in range(episodes):
        s = TASK.start_state
        for _ in range(TASK.max_steps):
            a = random.randrange(4) if random.random() < EPS else q[s].index(max(q[s]))
            s2, r, end = next_state[s][a], reward[s][a], done[s][a]
            q[s][a] += 1.0 * (r + (0.0 if end else GAMMA * max(q[s2])) - q[s][a])
            s = s2
            steps += 1
            if end:
                break
    return steps


def vectorised(members: int, steps: int) -> int:
    """Q-learning for many agents in NumPy, one step of all of them at a time."""
    next_state, reward, done = TABLES
    draws, each = np.random.default_rng(0), np.arange(members)
    q = np.zeros((members, len(next_state), 4), np.float32)
    s, t = np.full(members, TASK.start_state), np.zeros(members, np.int64)
    for _ in range(steps):
        explore = draws.random(members, np.float32) < EPS
        a = np.where(explore, draws.integers(0, 4, members), q[each, s].argmax(1))
        s2, r, end = next_state[s, a], reward[s, a], done[s, a]
        q[each, s, a] += 1.0 * (r + GAMMA * q[each, s2].max(1) * ~end - q[each, s, a])
        t += 1
        over = end | (t >= TASK.max_steps)
        s, t = np.where(over, TASK.start_state, s2), np.where(over, 0, t)
    return members * steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", metavar="FILE", help="also write the figures to FILE")
    file = parser.parse_args().json
    torch.set_num_threads(1)

    started = time.perf_counter()
    for name in ALGORITHMS:
        train("compiled", name, 1, 1)
    figures: dict[str, Any] = {"compile_or_load_s": time.perf_counter() - started}
    cases: dict[str, tuple[int, Callable[[], int]]] = {
        f"compiled.{name}": (256, partial(train, "compiled", name, 256, 1000)) for name in ALGORITHMS
    }
    cases["torch.ql"] = 4096, partial(train, "torch", "ql", 4096, 15)
    cases["torch.sarsa"] = 4096, partial(train, "torch", "sarsa", 4096, 15)
    cases["numpy.ql"] = 4096, partial(vectorised, 4096, 1000)
    cases["plain.ql"] = 1, partial(plain, 5000)
    print(f"compile or load the kernels: {figures['compile_or_load_s']:.2f} s")
    print(f"{'':16}{'members':>8} {'member-steps/s per core':>24}")
    for name, (members, run) in cases.items():
        runs = []
        for _ in range(REPEATS):
            started = time.process_time()
            runs.append(run() / (time.process_time() - started))
        median = statistics.median(runs)
        figures.update({f"{name}.steps_per_s": median, f"{name}.runs": runs, f"{name}.members": members})
        print(f"{name:16}{members:>8,} {median:>24,.0f}", flush=True)
    if file:
        with open(file, "w") as stream:
            json.dump(figures, stream, indent=1)


if __name__ == "__main__":
    main()
