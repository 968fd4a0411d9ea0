"""Landlock: a process gives up, for good, all of the file system but what it names (https://docs.kernel.org/userspace-api/landlock.html).

Through ctypes: glibc has no wrappers. It needs no rights; children inherit it; rights are never regained. What it does
not govern (metadata: stat, chmod, chown, times) is left to ``seccomp.py``.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from collections.abc import Sequence
from pathlib import Path

LIBC = ctypes.CDLL(None, use_errno=True)
CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446  # system calls, the same numbers on all machines
VERSION = 1  # flag of CREATE_RULESET: only say which ABI the kernel has
PATH_BENEATH = 1  # type of rule
PR_SET_NO_NEW_PRIVS = 38

# Rights on files, bit numbers.
WRITE_FILE, READ_FILE, READ_DIR, REMOVE_DIR, REMOVE_FILE = 1, 2, 3, 4, 5
MAKE_DIR, MAKE_REGULAR, REFER, TRUNCATE, IOCTL_DEVICE = 7, 8, 13, 14, 15
FIRST_ABI = {REFER: 2, TRUNCATE: 3, IOCTL_DEVICE: 5}  # of rights that came later; the others (0 to 12): 1
NETWORK_ABI, SCOPE_ABI = 4, 6
NETWORK = 0b11  # bind and connect of TCP
SCOPE = 0b11  # abstract Unix sockets, and signals, of processes outside
# Nothing may be run, and a jailed process can make no link, pipe or device for somebody outside to fall into.
READ = (READ_FILE, READ_DIR)
WRITE = (*READ, WRITE_FILE, REMOVE_DIR, REMOVE_FILE, MAKE_DIR, MAKE_REGULAR, REFER, TRUNCATE)
OF_A_FILE = (READ_FILE, WRITE_FILE, TRUNCATE)  # what can be said of a path that is no folder


def abi() -> int:
    """Version of Landlock that this kernel offers; 0: none."""
    return max(0, LIBC.syscall(CREATE_RULESET, None, ctypes.c_size_t(0), VERSION)) if sys.platform == "linux" else 0


def restrict(read: Sequence[str | Path], write: Sequence[str | Path]) -> int:
    """From now on this thread, and what it starts, sees only the folders and files ``read``, changes only those in
    ``write``, uses no TCP and signals no process outside -> the ABI that enforces it. Paths that do not exist are none
    of its business. Raises OSError."""
    version = abi()
    handled = _bits(range(16), version)
    network, scope = NETWORK * (version >= NETWORK_ABI), SCOPE * (version >= SCOPE_ABI)
    size = 24 if version >= SCOPE_ABI else 16 if version >= NETWORK_ABI else 8
    attributes = struct.pack("=QQQ", handled, network, scope)[:size]
    rules = _check(LIBC.syscall(CREATE_RULESET, attributes, ctypes.c_size_t(size), 0), "landlock_create_ruleset")
    try:
        for paths, rights in ((read, READ), (write, WRITE)):
            for path in paths:
                if os.path.exists(path):
                    _allow(rules, path, rights, version)
        _check(LIBC.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "prctl(PR_SET_NO_NEW_PRIVS)")
        _check(LIBC.syscall(RESTRICT_SELF, rules, 0), "landlock_restrict_self")
    finally:
        os.close(rules)
    return version


def _allow(rules: int, path: str | Path, rights: Sequence[int], version: int) -> None:
    kept = rights if os.path.isdir(path) else [right for right in rights if right in OF_A_FILE]
    at = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        rule = struct.pack("=Qi", _bits(kept, version), at)
        _check(LIBC.syscall(ADD_RULE, rules, PATH_BENEATH, rule, 0), f"landlock_add_rule of {path}")
    finally:
        os.close(at)


def _bits(rights: Sequence[int], version: int) -> int:
    return sum(1 << right for right in rights if FIRST_ABI.get(right, 1) <= version)


def _check(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result
