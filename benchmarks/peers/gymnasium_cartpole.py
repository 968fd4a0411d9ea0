"""Gymnasium's vector CartPole with random actions: SyncVectorEnv, and the one that steps all environments as arrays.

Runs in the peers' environment: .venv-peers/bin/python -m benchmarks.peers.gymnasium_cartpole 64 sync [--json FILE]
The case is the number of environments.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Dict

import gymnasium
import numpy as np

from benchmarks.common.harness import cpu_time, main, measure

MODES = {"sync": "sync", "vectorized": "vector_entry_point"}


def steps_of(case: str, members: int | None, quick: bool, mode: str) -> Dict[str, Any]:
    N = int(case)
    envs = gymnasium.make_vec("CartPole-v1", num_envs=N, vectorization_mode=MODES[mode])
    generator = np.random.default_rng(0)
    envs.reset(seed=0)

    def run(steps: int) -> None:
        for action in generator.integers(2, size=(steps, N)):
            envs.step(action)

    timed = cpu_time(run)
    return measure(lambda n: (n * N, timed(n)[1]), 20, quick=quick)


if __name__ == "__main__":
    main(__doc__, {mode: partial(steps_of, mode=mode) for mode in MODES})
