"""Folder of the compiled kernels. Nothing here imports numba, so a program can ask cheaply whether kernels are missing.

numba finds a cached binary by the source of the compiled function, not of the functions that it calls, so a binary can
be stale without notice. The folder name therefore contains a hash of all kernel sources. numba also uses the path of
the source: a second checkout would find the mark that everything is compiled and still compile again. The hash
therefore includes the path. What a kernel cannot depend on is left out, since an edit of it would mean waiting for all
kernels: ``compiles_nothing``.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
from pathlib import Path

from envolve.core.cleaning import warn_once
from envolve.core.files import read_plain
from envolve.core.places import CODE, private_folder

KERNELS = CODE / "agents" / "kernels"
WAITING = ("ahead.py", "foreman.py", "registry.py")  # they have kernels compiled, and no kernel depends on them
SOURCE_BYTES = 1_000_000  # a kernel has at most 300 lines
FROZEN = (  # their constants are compiled in
    "core/rng.py", "agents/common/result.py", "agents/common/normaliser.py", "agents/ppo/rate.py",
    "agents/shaped/ppo_policy.py",
)  # fmt: skip


def cache_base() -> Path:
    """``$ENVOLVE_CACHE`` or ``~/.cache/envolve``; where that cannot be written, a folder for temporary files. That one
    must be of this user alone, as numba unpickles what it finds there. Raises OSError if it is not."""
    named = os.environ.get("ENVOLVE_CACHE")
    base = Path(named) if named else Path.home() / ".cache" / "envolve"
    try:
        base.mkdir(parents=True, exist_ok=True)
        usable = os.access(base, os.W_OK)
    except OSError:
        usable = False
    if usable:
        return base
    other = private_folder(Path(tempfile.gettempdir()) / f"envolve-{os.getuid()}")
    if named:
        warn_once(f"ENVOLVE_CACHE: found {named}, where nothing can be written; kernels are kept in {other}")
    return other


def compiles_nothing(source: Path) -> bool:
    """Whether no kernel depends on this file of ``agents/kernels/``: it is in ``WAITING``, or a room's ``__init__.py``,
    which says what can be compiled ahead and no more. ``agents/kernels/__init__.py`` has the options of all."""
    return source.name in WAITING or (source.name == "__init__.py" and source.parent != KERNELS)


def cache_dir() -> Path:
    """Folder for kernels compiled from the present sources."""
    digest = hashlib.sha256(str(CODE).encode())
    sources = sorted(p for p in KERNELS.rglob("*.py") if not compiles_nothing(p))
    for source in sources + [CODE / name for name in FROZEN]:
        digest.update(read_plain(source, SOURCE_BYTES))
    return cache_base() / "numba" / digest.hexdigest()[:16]


def mark(name: str) -> Path:
    """Path of the file that marks the kernels of learner ``name`` as compiled for this machine."""
    from importlib.metadata import version

    from llvmlite import binding

    cpu = binding.get_host_cpu_name()
    return cache_dir() / f"{name}-{sys.implementation.cache_tag}-numba{version('numba')}-{cpu}.compiled"
