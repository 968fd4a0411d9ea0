"""Which code this process evaluates members with: two checkouts may call themselves the same version. Python 3.8."""

from __future__ import annotations

import hashlib
import pkgutil
from functools import lru_cache
from pathlib import Path

import envolve

ROOMS = ("core", "worlds", "envs", "agents", "outer")  # whose code a result depends on


@lru_cache(maxsize=8)
def sources(*more: str) -> str:
    """Hash of the files that this process was started from, if it is called at its start. more: rooms beside
    ``ROOMS``. Raises OSError."""
    digest, root = hashlib.sha256(), Path(envolve.__file__).parent
    for room in (*ROOMS, *more):
        for path in sorted((root / room).rglob("*.py"), key=str):
            if "env_code" in path.parts or "user_functions" in path.parts or path.name == "step.py":
                continue  # of users
            name = path.relative_to(root).as_posix()
            digest.update(f"{name}\n".encode())
            digest.update(hashlib.sha256(pkgutil.get_data("envolve", name) or b"").digest())  # as it is imported
    return digest.hexdigest()[:12]
