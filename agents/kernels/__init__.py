"""Compiled twins of the hot loops. Each has a readable PyTorch twin that it is tested against.

``JIT`` are the options of every kernel. Of LLVM's fast-math flags only those are set that keep NaN and infinity
meaningful: a kernel must notice that a member diverged, so ``nnan`` and ``ninf`` stay off.
"""

from __future__ import annotations

import os
import sys

from envolve.agents.common.kernel_cache import cache_dir
from envolve.agents.kernels.building.registry import AHEAD
from envolve.core.registry import Place

JIT = {
    "fastmath": {"reassoc", "contract", "nsz", "arcp"},
    "error_model": "numpy",
    "nogil": True,
    "cache": True,
    "no_cfunc_wrapper": True,  # nothing calls a kernel by a C pointer
}
# For functions that pass around tuples of arrays. Otherwise numba counts a reference to every array in it at every call
# and return, a third of the time of a DDQN step. Such a function cannot allocate: its caller does.
JIT_UNCOUNTED = {**JIT, "_nrt": False}
JIT_INNER = {**JIT_UNCOUNTED, "no_cpython_wrapper": True}  # as those, but only compiled code can call it

for _name in ("ql", "ql_cb", "sarsa", "sarsa_cb"):
    AHEAD.add(_name, Place("envolve.agents.kernels.tabular", "parts"))

# What has kernels compiled elsewhere need not wait until numba is imported.
os.environ["NUMBA_CACHE_DIR"] = str(cache_dir())
if "numba" in sys.modules:
    sys.modules["numba"].config.CACHE_DIR = os.environ["NUMBA_CACHE_DIR"]
