"""Real processes on real files: whoever is killed whenever, the run ends with the bytes of the undisturbed one."""

from __future__ import annotations

import time

import pytest

import envolve.outer.run
from tests.faults.supervisor import Supervisor
from tests.outer.small import CLIFF, GRIDWORLD_FILE, cliff
from tests.outer.test_run import files, go


def undisturbed(folder, overrides):
    """The bytes of the run that nobody disturbs, made in this process without any worker."""
    with pytest.MonkeyPatch.context() as m:
        m.setattr(envolve.outer.run, "learning_curve", lambda *args, **kwargs: None)
        go(cliff(*overrides), folder)
    return files(folder)


def survives(tmp_path, overrides, kills, workers, seed, single=False, seconds=600.0):
    supervisor = Supervisor(tmp_path, GRIDWORLD_FILE, (*CLIFF, *overrides), workers, seed, single)
    began = time.monotonic()
    folder = supervisor.run(kills, seconds)
    print(f"\n{time.monotonic() - began:.0f} s, {supervisor.report()}")
    assert files(folder) == undisturbed(tmp_path / "undisturbed", overrides)
    assert "Traceback" not in supervisor.log() and "given up" not in supervisor.log()
    return supervisor


@pytest.mark.slow
def test_a_few_kills(tmp_path):
    survives(tmp_path, ["agents.gtn.max_iterations=25"], kills=4, workers=2, seed=1)


@pytest.mark.slow
def test_a_hundred_kills(tmp_path):
    """Workers started by hand."""
    overrides = ["agents.gtn.max_iterations=600", "agents.ql.train_episodes=200", "agents.gtn.num_workers=16"]
    supervisor = survives(tmp_path, overrides, kills=100, workers=3, seed=5, seconds=1500.0)
    assert sum(n for who, n in supervisor.kills.items() if who.startswith("master")) >= 20
    assert "is sent again" in supervisor.log()


@pytest.mark.slow
def test_kills_with_local_workers(tmp_path):
    overrides = ["agents.gtn.max_iterations=300", "agents.ql.train_episodes=200", "agents.gtn.num_workers=16"]
    survives(tmp_path, overrides, kills=40, workers=2, seed=6, single=True, seconds=900.0)
