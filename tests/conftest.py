"""For all tests: one thread, since they run beside other work and two threads on a busy core wait for each other; few
examples of hypothesis unless all are asked for; and the longest files first, so that no process ends alone.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
import torch
from hypothesis import settings

from envolve.agents.kernels.building import ahead
from tests.examples import examples
from tests.warm.processes import Warm

os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")  # else it ends copies of this process (tests/warm) at a fork
torch.set_num_threads(1)
settings.register_profile("here", max_examples=examples(), deadline=None)
settings.load_profile("here")

# Files of several seconds of CPU time, the longest first: one that begins at the end keeps the other processes waiting.
# Neighbours need different kernels, so that neither waits until the other's process has compiled them.
LONGEST = [
    "agents/ppo/test_training.py", "test_master.py", "agents/off_policy/test_ddqn.py", "experiments/test_auto_shape.py",
    "agents/off_policy/test_td3.py", "agents/kernels/dense/test_kernels.py", "llm/vetting/test_vet.py",
    "agents/goal/test_off_policy.py", "agents/shaped/test_halving.py", "agents/tabular/test_training.py",
    "outer/distil/test_begin.py", "llm/gym/test_train.py", "outer/test_run.py", "experiments/test_optimize_params.py",
    "experiments/test_evaluate_policy.py", "llm/vetting/test_attacks.py", "agents/common/test_icm.py",
    "outer/hpo/test_importance.py", "test_layout.py", "experiments/test_eval_shapers.py", "outer/hpo/test_search.py",
    "outer/exchange/test_faults.py", "agents/kernels/common/test_worlds.py", "outer/evaluate/test_shapers.py",
    "experiments/test_train_goal.py", "test_examples.py", "distributed/programs/test_turns.py",
    "distributed/programs/test_supervisor.py", "envs/graph/test_fuzz.py", "envs/outside/test_outside.py",
    "distributed/engine/test_server.py", "outer/reporting/test_wandb_run.py", "outer/page/test_kinds.py",
    "experiments/paper/test_compare_proxies.py",
]  # fmt: skip


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keeps the order within a file."""
    rank = {f"tests/{name}": number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: rank.get(item.nodeid.partition("::")[0], len(rank)))


# Kernels of these take five to thirty seconds to compile, and are much like those of td3, ddqn, ddqn_steps, ppo_steps,
# sac_update and ql.
LATE = (
    "crl", "duelingddqn", "duelingddqn_steps", "ql_cb", "sac", "sac_steps", "sarsa", "sarsa_cb", "td3_discrete",
    "td3_discrete_steps", "td3_steps", "td3_update",
)  # fmt: skip
_why_not, _is_fast = ahead.why_not, False


def _compiled_soon(name: str) -> str | None:
    """Among the fast tests a learner in ``LATE`` takes the PyTorch path, and a test that asks for its kernels fails."""
    if _is_fast and name in LATE:
        return "compiled by the slow tests alone (tests/conftest.py)"
    return _why_not(name)


_compiled_soon.cache_clear = _why_not.cache_clear  # type: ignore[attr-defined]
ahead.why_not = _compiled_soon  # type: ignore[assignment]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Before the fixtures of its module."""
    global _is_fast
    _is_fast = "slow" not in item.keywords


@pytest.fixture(params=["warm", pytest.param("new", marks=pytest.mark.slow)])
def warm(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes of Envolve's commands begin as copies of this one, which has imported torch (tests/warm/processes.py).
    The same test is among the slow ones with new processes."""
    if request.param == "warm":
        monkeypatch.setattr(subprocess, "Popen", Warm)


PICTURES = ("outer.run.learning_curve", "outer.goals.run.learning_curve", "outer.shapers.run.curves")  # of runs


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs draw no pictures, which takes half of the time of a short run; each kind of run has a test that draws."""
    for name in PICTURES:
        monkeypatch.setattr(f"envolve.{name}", lambda *args, **more: None)


@pytest.fixture(scope="module", autouse=True)
def registered_names_end_with_their_module() -> Iterator[None]:
    """A task, learner or search that tests of one file register is unknown to those of the next."""
    yield
    plugins = sys.modules.get("envolve.outer.plugins")
    if plugins is not None:
        for kind, name in list(plugins._own):
            plugins.forget(kind, name)
