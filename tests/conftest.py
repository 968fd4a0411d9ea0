"""For all tests: one thread, since they run beside other work and two threads on a busy core wait for each other; few
examples of hypothesis unless all are asked for; and the longest files first, so that no process ends alone.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
import torch
from hypothesis import settings

from envolve.agents.kernels.building import ahead
from tests.examples import examples

torch.set_num_threads(1)
settings.register_profile("here", max_examples=examples(), deadline=None)
settings.load_profile("here")

# Files of ten seconds and more, the longest first: one that is begun at the end keeps the other processes waiting.
LONGEST: list[str] = []


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keeps the order within a file."""
    rank = {f"tests/{name}": number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: rank.get(item.nodeid.partition("::")[0], len(rank)))

# Kernels of these take ten to thirty seconds to compile, and are much like those of td3, ddqn and sac_update.
LATE = ("crl", "duelingddqn", "sac", "td3_discrete", "td3_update")


@pytest.fixture(autouse=True)
def only_slow_tests_compile_all(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Among the fast tests a learner in ``LATE`` takes the PyTorch path, and a test that asks for its kernels fails."""
    if "slow" not in request.keywords:
        why_not = ahead.why_not

        def soon(name: str) -> str | None:
            return "compiled by the slow tests alone (tests/conftest.py)" if name in LATE else why_not(name)

        soon.cache_clear = why_not.cache_clear  # type: ignore[attr-defined]
        monkeypatch.setattr(ahead, "why_not", soon)


@pytest.fixture(scope="module", autouse=True)
def registered_names_end_with_their_module() -> Iterator[None]:
    """A task, learner or search that tests of one file register is unknown to those of the next."""
    yield
    plugins = sys.modules.get("envolve.outer.plugins")
    if plugins is not None:
        tables = {"task": plugins.TASKS, "learner": plugins.LEARNERS, "search": plugins.SEARCHES}
        for kind, name in list(plugins._own):
            tables[kind].pop(name, None)
            del plugins._own[kind, name]
