"""A pool of fresh processes, which ends with this process however that ends. Torch, if installed, has one thread."""

from __future__ import annotations

import importlib.util
import multiprocessing
import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager

from envolve.core.child import ends_with_parent


@contextmanager
def pool(count: int) -> Iterator[ProcessPoolExecutor]:
    """``count`` spawned processes. Submit the first jobs within ``core.interrupt.deaf_children``: that starts them. An
    exception kills them: nothing of a job under way is kept."""
    others = multiprocessing.active_children()
    executor = ProcessPoolExecutor(count, multiprocessing.get_context("spawn"), _begin, (os.getpid(),))
    try:
        yield executor
    except BaseException:
        for process in multiprocessing.active_children():
            if process not in others:
                process.kill()
        raise
    finally:
        executor.shutdown(wait=True)


def _begin(parent: int) -> None:
    ends_with_parent(parent=parent)()
    if importlib.util.find_spec("torch") is None:
        return  # the zoo does without it
    import torch

    torch.set_num_threads(1)
