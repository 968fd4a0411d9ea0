"""Algorithms as types: each is compiled on its own, and another process finds it in the cache."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

MODULE = """
from typing import NamedTuple
import numpy as np
from numba import njit
from envolve.agents.kernels import JIT_UNCOUNTED
from envolve.agents.kernels.off_policy.dispatch import by_type, implement

@by_type
def learn(agent, x): "what an algorithm must have"

@njit(**JIT_UNCOUNTED)
def train(agent, steps):
    total = 0.0
    for i in range(steps):
        total += learn(agent, i)
    return total

class Adds(NamedTuple):
    p: np.ndarray
    rate: float

class Multiplies(NamedTuple):
    p: np.ndarray
    rate: float

class Broken(NamedTuple):
    p: np.ndarray

def add(agent, x):
    agent.p[0] += agent.rate * x
    return agent.p[0]

def multiply(agent, x):
    agent.p[0] *= agent.rate
    return agent.p[0]

def broken(agent, x):
    return agent.no_such_field

implement(Adds, learn=add)
implement(Multiplies, learn=multiply)
implement(Broken, learn=broken)
"""
SCRIPT = """
import numpy as np
from module import Adds, Multiplies, train
totals = [train(cls(np.ones(1), 2.0), 3) for cls in (Adds, Multiplies)]
print(totals, sum(train.stats.cache_hits.values()), sum(train.stats.cache_misses.values()))
"""


def test_each_algorithm_is_compiled_apart_and_cached(tmp_path):
    (tmp_path / "module.py").write_text(MODULE)
    path = os.pathsep.join([str(tmp_path), str(Path(__file__).parents[4])])
    env = {**os.environ, "ENVOLVE_CACHE": str(tmp_path / "cache"), "PYTHONPATH": path}

    def run():
        done = subprocess.run([sys.executable, "-c", SCRIPT], env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.split("]")

    (totals, first), (again, second) = run(), run()
    assert totals == again == "[11.0, 14.0"  # 1 + 3 + 7 and 2 + 4 + 8
    assert (first, second) == (" 0 2\n", " 2 0\n")
