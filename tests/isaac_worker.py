"""GTN_worker.py beside a fake of Isaac Gym, which MuJoCo computes: a new engine for every chunk. Python 3.8."""

from __future__ import annotations

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import pytest

from envolve.experiments.worker import main
from envolve.outer.evaluate.networks import evaluate
from tests.envs.sim.isaac.fake_isaacgym import install


def evaluate_in_a_new_engine(*arguments):
    with pytest.MonkeyPatch.context() as patch:
        install(patch)
        return evaluate(*arguments)


if __name__ == "__main__":
    sys.exit(main(evaluate=evaluate_in_a_new_engine))
