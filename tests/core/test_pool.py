"""A pool of processes that ends with what goes wrong in it, and leaves others alone."""

from __future__ import annotations

import multiprocessing
import os
import time

import pytest

from envolve.core.pool import pool


def test_an_exception_ends_its_own_processes_and_no_others():
    other = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(60,), daemon=True)
    other.start()
    try:
        with pytest.raises(ZeroDivisionError), pool(1) as executor:
            pid = executor.submit(os.getpid).result()
            executor.submit(time.sleep, 60)
            raise ZeroDivisionError
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
        assert other.is_alive()
    finally:
        other.kill()
        other.join()
