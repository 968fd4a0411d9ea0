"""Locks of files and folders."""

from __future__ import annotations

import errno
import fcntl
import os

import pytest

from envolve.core import locks


def test_one_at_a_time(tmp_path):
    first, second = (os.open(tmp_path, os.O_RDONLY) for _ in range(2))
    locks.lock(first, tmp_path)
    with pytest.raises(BlockingIOError):
        locks.lock(second, tmp_path)
    os.close(first)
    locks.lock(second, tmp_path)
    os.close(second)


@pytest.mark.parametrize("number", sorted(set(locks.WITHOUT)))
def test_a_file_system_without_locks_is_said_once(tmp_path, monkeypatch, caplog, number):
    monkeypatch.setattr(fcntl, "flock", refuses(number))
    for _ in range(2):
        locks.lock(0, tmp_path / str(number))
    assert [r.getMessage().partition(":")[0] for r in caplog.records] == [str(tmp_path / str(number))]


def test_other_errors_do_not_pass_as_a_lock(tmp_path, monkeypatch):
    """Two processes would write into one run."""
    monkeypatch.setattr(fcntl, "flock", refuses(errno.EIO))
    with pytest.raises(OSError, match=f"Input/output error: '{tmp_path}'"):
        locks.lock(0, tmp_path)


def refuses(number):
    def flock(*args):
        raise OSError(number, os.strerror(number))

    return flock
