"""Compiled twins of the hot loops. Each has a readable PyTorch twin that it is tested against.

``JIT`` are the options of every kernel. Of LLVM's fast-math flags only those are set that keep NaN and infinity
meaningful: a kernel must notice that a member diverged, so ``nnan`` and ``ninf`` stay off.

numba looks for a cached binary by the source of the function it compiles, not by what that function calls. A stale
binary would be silent, so the cache folder carries a hash of every kernel source. It looks for it by the path of that
source, too: a second checkout would find the mark that all is compiled (``ahead.py``) and compile again in the process
that computes. So the hash is one of the path as well.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path

import numba

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


def cache_dir() -> Path:
    """Where compiled kernels are kept: ``$ENVOLVE_CACHE`` or ``~/.cache/envolve``, else a temporary folder."""
    root = Path(__file__).resolve().parents[2]
    digest = hashlib.sha256(str(root).encode())
    frozen = [root / "envs" / "rng.py", root / "agents" / "result.py"]  # their constants are compiled in
    for source in sorted(Path(__file__).parent.glob("*.py")) + frozen:
        digest.update(source.read_bytes())
    base = Path(os.environ.get("ENVOLVE_CACHE") or Path.home() / ".cache" / "envolve")
    folder = base / "numba" / digest.hexdigest()[:16]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if os.access(folder, os.W_OK):
            return folder
    except OSError:
        pass  # a read-only home: compile into the temporary folder instead
    return Path(tempfile.gettempdir()) / f"envolve-{os.getuid()}" / digest.hexdigest()[:16]


numba.config.CACHE_DIR = str(cache_dir())
