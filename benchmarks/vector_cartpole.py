"""CartPole alone: random actions, episodes reset where they end, for N environments. No agent, no learning.

    python -m benchmarks.vector_cartpole 64 compiled [--json FILE]

The case is N, and a population of one. Gymnasium's counterpart is benchmarks/peers/gymnasium_cartpole.py.
"""

from __future__ import annotations

from typing import Any, Dict, Optional

import numpy as np
import torch
from numba import njit

from benchmarks.common.harness import cpu_time, main, measure
from envolve.agents.kernels import JIT
from envolve.agents.kernels.common import rng as kernel_rng
from envolve.agents.kernels.common import tasks
from envolve.core import rng
from envolve.envs.classic.cartpole import CartPole

MAX_STEPS, RESETS = 500, np.uint64(2**40)  # counters from RESETS on are for resets
BLOCK = 32  # steps whose actions are drawn at once


@njit(**{**JIT, "cache": False})
def many(state, t, episode, observation, keys, begin, steps):
    one, four, two = np.uint64(1), np.uint64(4), np.uint64(2)
    for step in range(begin, begin + steps):
        counter = np.uint64(step)
        for n in range(len(t)):
            action = kernel_rng.integer(keys[n], counter, two)
            _, over = tasks.step(tasks.CARTPOLE, state[n], action)
            t[n] += 1
            if over or t[n] >= MAX_STEPS:
                tasks.reset(tasks.CARTPOLE, state[n], keys[n], RESETS + four * episode[n])
                episode[n] += one
                t[n] = 0
            tasks.observe(tasks.CARTPOLE, state[n], observation[n])


def compiled(case: str, members: Optional[int], quick: bool) -> Dict[str, Any]:
    N = int(case)
    state, observation = np.zeros((N, 4)), np.zeros((N, 4), np.float32)
    t, episode, keys = np.zeros(N, np.int64), np.zeros(N, np.uint64), np.arange(N).astype(np.uint64)
    done = 0

    def run(steps: int) -> None:
        nonlocal done
        many(state, t, episode, observation, keys, done, steps)
        done += steps

    timed = cpu_time(run)
    return measure(lambda n: (n * N, timed(n)[1]), 100, quick=quick)


def pytorch(case: str, members: Optional[int], quick: bool) -> Dict[str, Any]:
    N, task = int(case), CartPole(max_steps=MAX_STEPS)
    keys = torch.arange(N)[None]
    resets, uniforms, two = rng.fold(keys, rng.RESET)[..., None], torch.arange(task.reset_uniforms), torch.tensor(2)
    state = task.reset(rng.uniform(resets, uniforms.expand(1, N, -1)))
    t = torch.zeros(1, N, dtype=torch.int64)
    done = 0

    def run(steps: int) -> None:
        nonlocal state, t, done
        for step in range(done, done + steps):
            if step % BLOCK == 0 or step == done:
                counter = torch.arange(step - step % BLOCK, step - step % BLOCK + BLOCK)[:, None, None]
                actions = rng.integer(keys, counter, two)
            state, _, terminated = task.step(state, actions[step % BLOCK])
            t += 1
            over = terminated | (t >= task.max_steps)
            if over.any():
                # an environment's resets are numbered by the steps at which they happen
                fresh = task.reset(rng.uniform(resets[over], (step + 1) * task.reset_uniforms + uniforms)[None])
                state[over], t[over] = fresh[0], 0
            task.observe(state)
        done += steps

    timed = cpu_time(run)
    return measure(lambda n: (n * N, timed(n)[1]), 20, quick=quick)


if __name__ == "__main__":
    main(__doc__, {"compiled": compiled, "torch": pytorch})
