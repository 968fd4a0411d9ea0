"""Kernels are compiled in a process of their own, once, and what any process computes with them is the same."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from agents.kernels import ahead

ROOT = Path(__file__).parents[2]


@pytest.fixture
def children(tmp_path, monkeypatch):
    """The commands that were run instead of compiling; ``returncode`` is what they end with."""
    seen = SimpleNamespace(commands=[], returncode=0)

    def run(command, **kw):
        seen.commands.append(command)
        return SimpleNamespace(returncode=seen.returncode, stderr="no compiler in sight")

    monkeypatch.setattr(ahead, "cache_dir", lambda: tmp_path / "new")
    monkeypatch.setattr(ahead, "subprocess", SimpleNamespace(run=run))
    monkeypatch.delenv("ENVOLVE_COMPILES", raising=False)
    ahead.compiled_ahead.cache_clear()
    yield seen
    ahead.compiled_ahead.cache_clear()


def test_once_for_all_processes(children):
    for _ in range(2):
        ahead.compiled_ahead("ddqn")
        ahead.compiled_ahead.cache_clear()  # as a new process
    assert [command[1:] for command in children.commands] == [["-m", "agents.kernels.ahead", "ddqn"]]
    ahead.compiled_ahead("ppo")
    assert len(children.commands) == 2


def test_not_within_the_process_that_compiles(children, monkeypatch):
    monkeypatch.setenv("ENVOLVE_COMPILES", "1")
    ahead.compiled_ahead("ddqn")
    assert not children.commands


def test_a_failure_is_said_and_tried_again_by_the_next_process(children, caplog):
    children.returncode = 1
    ahead.compiled_ahead("ddqn")
    assert "results may differ" in caplog.text and "no compiler in sight" in caplog.text
    ahead.compiled_ahead.cache_clear()
    ahead.compiled_ahead("ddqn")
    assert len(children.commands) == 2


SCRIPT = """
import numpy as np, torch
from agents.kernels import off_policy
from agents.sections import TD3DiscreteSection
from agents.train import train
from envs.section import EnvSection
from envs.task import make_task
section = TD3DiscreteSection(train_steps=60, init_episodes=0, test_episodes=1, hidden_size=16)
result = train("td3_discrete", section, None, make_task("CartPole-v0"), "real", EnvSection(), torch.zeros(1, 1),
               np.zeros(1, np.int64), backend="compiled")
print(len(off_policy.train.stats.cache_misses), result.weights.tobytes().hex())
"""


@pytest.mark.slow
def test_the_first_process_computes_what_all_others_do(tmp_path):
    """Discrete TD3 with layer norm did not, in the process that compiled it."""
    environment = {**os.environ, "ENVOLVE_CACHE": str(tmp_path)}
    command = [sys.executable, "-c", SCRIPT]
    first, second = (
        subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    )
    assert first == second and first.startswith("0 ")
