"""For all tests: one thread. They run beside other work, and two threads on a busy core wait for each other."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
import torch

torch.set_num_threads(1)


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
