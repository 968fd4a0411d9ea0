"""Peak memory of a population of DDQN members whose replay buffers are full, in a process of its own.

    python -m benchmarks.memory 256 torch [--json FILE]

The case is P. Members (4-57-2, rb_size 100,000, as published for the CartPole SE) fill their buffers and learn in the
last episode only, because a full training would take minutes and hold no more. The size that the published
CartPole agent on the real task has, a million rows, is ten times the replay part of the growth.
"""

from __future__ import annotations

import resource
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any, Dict, Optional

import numpy as np
import torch

from benchmarks.common.harness import main
from benchmarks.common.settings import SE_HIDDEN, SETTINGS
from benchmarks.learners import TestedAtOnce
from envolve.agents.common.sections import DDQNSection
from envolve.agents.train import train
from envolve.envs.section import EnvSection
from envolve.envs.worlds.world import init_world

ROWS, EPISODE = 100_000, 200
MIB = 2**20
ROOT = Path(__file__).resolve().parent.parent


def peak() -> float:
    """Most memory that this process ever held, MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024) / MIB


def population(case: str, members: Optional[int], quick: bool, backend: str) -> Dict[str, Any]:
    P, rows = int(case), 1000 if quick else ROWS
    task, keys = TestedAtOnce(max_steps=EPISODE), np.arange(P)
    env = EnvSection(hidden_size=SE_HIDDEN, done_bias=-2.0)  # episodes run to their limit

    def run(rows: int) -> None:
        section = DDQNSection(
            **SETTINGS["ddqn_in_se"].learner,
            rb_size=rows,
            train_steps=rows,
            train_episodes=1000,
            test_episodes=1,
            init_episodes=rows // EPISODE - 1,
            early_out_min_steps=10**9,
        )
        worlds = init_world("se", task, env, torch.as_tensor(keys))
        result = train("ddqn", section, None, task, "se", env, worlds, keys, backend=backend)
        if not (result.train_steps == rows).all() or not result.updates.all():
            raise RuntimeError(f"expected {rows} steps and some updates, got {result.train_steps}, {result.updates}")

    if backend == "compiled" and not quick:
        # compiling takes more memory than anything here: another process does it, and leaves its work in the cache
        subprocess.run([sys.executable, "-m", "benchmarks.memory", "1", backend, "--quick"], check=True, cwd=ROOT)
    keys, everyone = keys[:1], keys
    run(2 * EPISODE)  # one member: what the libraries and compiled code hold
    before, keys = peak(), everyone
    run(rows)
    after = peak()
    return {"figures": {"peak_mib": after, "mib_per_member": (after - before) / P}, "members": P, "rows": rows}


if __name__ == "__main__":
    main(__doc__, {backend: partial(population, backend=backend) for backend in ("compiled", "torch")})
