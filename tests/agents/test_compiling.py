"""What knows about kernels without importing numba agrees with them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from envolve.agents.common import compiling
from envolve.agents.common.learners import LEARNERS
from envolve.agents.kernels import tabular
from envolve.agents.kernels.building import without_torch
from envolve.agents.kernels.common import tasks

ROOT = Path(__file__).parents[2]


def test_tasks_and_tabular_learners_are_those_of_the_kernels():
    assert set(compiling.TASKS) == set(tasks.TASK_CODES)
    assert set(compiling.TABULAR) == set(tabular.TRAIN_MEMBERS)
    assert {*compiling.TABULAR, *without_torch.NEED_NONE} <= set(LEARNERS)


@pytest.mark.parametrize("module", ["envolve.agents.kernels.building.ahead", "envolve.outer.early"])
def test_who_has_kernels_compiled_starts_at_once(module):
    slow = "{'torch', 'numba', 'numpy', 'yaml'} & set(sys.modules)"
    program = f"import sys, {module}; sys.exit(' '.join({slow}) or 0)"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


PRETENDS = """
import sys
from envolve.agents.kernels.building.without_torch import pretend, pretended
pretend()
import torch, torch.nn.functional
from torch import Tensor, nn
class Net(nn.Module): pass
@torch.no_grad()
def f(x: "Tensor | None" = None): return 3
assert f() == 3 and pretended() and torch.float32 is nn.Linear
from envolve.agents.kernels.building.shortest import parts
for name in sys.argv[1:]:
    assert list(parts(name)) == ["training"]
"""


def test_the_modules_of_the_kernels_can_do_without_torch():
    command = [sys.executable, "-c", PRETENDS, *without_torch.NEED_NONE]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_it_does_not_pretend_where_torch_is():
    import torch

    without_torch.pretend()
    assert not without_torch.pretended() and sys.modules["torch"] is torch


@pytest.fixture
def started(monkeypatch, tmp_path):
    """What was started, as [kernels, "ends" once it was told to]."""
    seen = []

    def start(name):
        seen.append([name])
        return seen[-1]

    monkeypatch.setattr(compiling, "_start", start)
    monkeypatch.setattr(compiling, "_end", lambda process: process.append("ends"))
    monkeypatch.setattr(compiling, "mark", lambda name: tmp_path / name)
    return seen


def test_what_was_begun_goes_on(started, tmp_path):
    compiling.begin("ddqn")
    with compiling.beside("ddqn"):
        assert started == [["ddqn"]]
    assert started == [["ddqn", "ends"]]
    (tmp_path / "ddqn").touch()
    compiling.begin("ddqn")
    with compiling.beside("ddqn"):
        assert len(started) == 1, "compiled before"


def test_what_was_begun_for_nothing_ends(started):
    compiling.begin("ddqn")
    with compiling.beside("ppo"):
        assert started == [["ddqn", "ends"], ["ppo"]]
    assert started[1][1:] == ["ends"] and not compiling._begun


def test_names_of_kernels():
    kernels = compiling.kernels_of
    assert kernels("td3", "Pendulum-v0") == "td3" and kernels("td3", "HalfCheetah-v3") == "td3_steps"
    assert kernels("ppo", "gymnasium:CartPole-v1") == "ppo_steps" == kernels("ppo", "Swimmer-v5")
    assert kernels("ppo", "gymnasium:CartPole-v1", apart=True) == "ppo" and kernels("ql", "Cliff") == "ql"
