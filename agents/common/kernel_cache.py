"""Where compiled kernels are kept. Nothing here imports numba: a program asks whether there is anything to compile.

numba looks for a cached binary by the source of the function it compiles, not by what that function calls. A stale
binary would be silent, so the folder carries a hash of every kernel source. It looks for it by the path of that source,
too: a second checkout would find the mark that all is compiled and compile again in the process that computes. So the
hash is one of the path as well.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
from pathlib import Path

from envolve.core.files import read_plain
from envolve.core.places import CODE

WAITING = ("ahead.py", "foreman.py")  # they have kernels compiled, and no kernel depends on them
SOURCE_BYTES = 1_000_000  # a kernel has at most 300 lines
FROZEN = ("core/rng.py", "agents/common/result.py")  # their constants are compiled in


def cache_base() -> Path:
    """``$ENVOLVE_CACHE`` or ``~/.cache/envolve``, else a temporary folder."""
    base = Path(os.environ.get("ENVOLVE_CACHE") or Path.home() / ".cache" / "envolve")
    try:
        base.mkdir(parents=True, exist_ok=True)
        if os.access(base, os.W_OK):
            return base
    except OSError:
        pass  # a read-only home
    return Path(tempfile.gettempdir()) / f"envolve-{os.getuid()}"


def cache_dir() -> Path:
    """Of the kernels as their sources are now."""
    digest = hashlib.sha256(str(CODE).encode())
    sources = sorted(p for p in (CODE / "agents" / "kernels").rglob("*.py") if p.name not in WAITING)
    for source in sources + [CODE / name for name in FROZEN]:
        digest.update(read_plain(source, SOURCE_BYTES))
    return cache_base() / "numba" / digest.hexdigest()[:16]


def mark(name: str) -> Path:
    """The file that says, once it is there, that the kernels of learner ``name`` are compiled for this machine."""
    from importlib.metadata import version

    from llvmlite import binding

    cpu = binding.get_host_cpu_name()
    return cache_dir() / f"{name}-{sys.implementation.cache_tag}-numba{version('numba')}-{cpu}.compiled"
