"""Locks a process for good: limits, Landlock (``landlock.py``), seccomp (``seccomp.py``).

What each layer is for, and what is left: docs/security.md. Fails closed: where the kernel cannot do it, ``JailError``,
unless the user explicitly decided otherwise.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import resource
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from envolve.llm.vetting.jail import landlock, seccomp

log = logging.getLogger(__name__)
OPT_OUT = "ENVOLVE_UNSAFE_NO_JAIL"
SECRET_NAMES = ("KEY", "TOKEN", "SECRET", "PASSW", "CREDENTIAL")
KEPT_NAMES = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES")


class JailError(RuntimeError):
    """Raised if this machine cannot lock a process as requested."""


@dataclass(frozen=True)
class Protection:
    """Layers that lock a process."""

    landlock: int  # version of its ABI; 0: not there
    seccomp: bool
    missing: tuple[str, ...] = ()  # what should be there and is not

    def __str__(self) -> str:
        have = [f"Landlock {self.landlock}"] * bool(self.landlock) + ["seccomp"] * self.seccomp
        return ", ".join(have or ["nothing"]) + (f"; without {', '.join(self.missing)}" if self.missing else "")


def opted_out() -> bool:
    """True if the user set ENVOLVE_UNSAFE_NO_JAIL."""
    return os.environ.get(OPT_OUT, "") not in ("", "0")


def lock(
    read: Sequence[str | Path] = (),
    write: Sequence[str | Path] = (),
    memory: int | None = None,
    cpu_seconds: int | None = None,
    file_bytes: int | None = None,
    processes: bool = False,
    allow_unprotected: bool = False,
) -> Protection:
    """Lock up this process for training in an environment written by others.

    read, write: folders and files; everything else on disk is out of reach. memory: bytes of address space beyond what
    it has now (not with CUDA, which reserves more than it uses). cpu_seconds: beyond what it has used. file_bytes: the
    largest file it may write. processes: it may fork; it can never run another program, use a socket, or signal a
    process outside. Call it before there are threads, in a process whose environment ``scrubbed`` made.

    Raises JailError naming what is missing, unless allow_unprotected or ENVOLVE_UNSAFE_NO_JAIL=1: then it uses what
    there is, and logs a warning."""
    lacks = missing()
    if sys.platform == "linux" and len(os.listdir("/proc/self/task")) > 1:
        lacks += ("process of one thread (Landlock holds only the thread that asks for it)",)
    if lacks:
        demand(lacks, allow_unprotected or opted_out())
    limit(memory and memory + address_space(), cpu_seconds, file_bytes)
    signals = processes and landlock.abi() >= landlock.SCOPE_ABI
    return _close(read, write, lambda: seccomp.training(processes, signals), lacks)


def lock_tracing(space: int, cpu_seconds: int, allow_unprotected: bool = False) -> Protection:
    """Lock up this process to compute and to write to the pipes that it has, no more: nothing can be imported from now
    on. space: bytes of address space. Raises JailError as ``lock`` does."""
    lacks = missing()
    if lacks:
        demand(lacks, allow_unprotected)
    limit(space, cpu_seconds, 0)
    return _close((), (), seccomp.tracing, lacks)


def _close(
    read: Sequence[str | Path],
    write: Sequence[str | Path],
    program: Callable[[], list[seccomp.Instruction]],
    lacks: tuple[str, ...],
) -> Protection:
    version = landlock.restrict(read, write) if landlock.abi() else 0
    if seccomp.available():
        seccomp.install(program())
    return Protection(version, seccomp.available(), lacks)


def protection() -> Protection:
    """Layers that this kernel supports, as ``lock`` returns them."""
    return Protection(landlock.abi(), seccomp.available(), missing())


def missing() -> tuple[str, ...]:
    """Layers that this kernel lacks."""
    lacks = [] if landlock.abi() else ["Landlock (Linux 5.13 with CONFIG_SECURITY_LANDLOCK, and in lsm=)"]
    return tuple(lacks + ([] if seccomp.available() else ["seccomp filter (Linux 4.14 on x86_64 or aarch64)"]))


def demand(lacks: Sequence[str], allow_unprotected: bool) -> None:
    """Raises JailError for missing layers, or only logs a warning."""
    text = f"code that somebody else wrote cannot be locked up here: no {', no '.join(lacks)}"
    if not allow_unprotected:
        raise JailError(f"{text}. On your own responsibility: {OPT_OUT}=1")
    log.warning("%s. Running it anyway (%s)", text, OPT_OUT)


def limit(space: int | None, cpu_seconds: int | None, file_bytes: int | None) -> None:
    """Sets the limits of this process. space: bytes of address space; the others as in ``lock``. No core dumps."""
    limits = {resource.RLIMIT_CORE: 0, resource.RLIMIT_AS: space, resource.RLIMIT_FSIZE: file_bytes}
    if cpu_seconds is not None:
        used = resource.getrusage(resource.RUSAGE_SELF)
        limits[resource.RLIMIT_CPU] = cpu_seconds + int(used.ru_utime + used.ru_stime)
    for which, value in limits.items():
        if value is not None:
            hard = resource.getrlimit(which)[1]
            value = value if hard == resource.RLIM_INFINITY else min(value, hard)
            # where both are equal, the kernel sends SIGKILL, which says nothing of the reason; SIGXCPU comes first
            last = value + 1 if which == resource.RLIMIT_CPU and hard == resource.RLIM_INFINITY else value
            resource.setrlimit(which, (value, last))


def address_space() -> int:
    """Bytes of this process's address space; if Linux cannot be asked, more than any machine has."""
    if sys.platform != "linux":
        return 1 << 46
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[0]) * resource.getpagesize()


def scrubbed(**extra: str) -> dict[str, str]:
    """Environment of a process for foreign code: paths of libraries, one thread each, and nothing that could be a key;
    ``extra`` is added."""
    kept = {k: v for k, v in os.environ.items() if k in KEPT_NAMES and not any(s in k.upper() for s in SECRET_NAMES)}
    threads = {name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}
    return {**kept, **threads, "PYTHONDONTWRITEBYTECODE": "1", "HOME": "/nonexistent", **extra}


def library_folders() -> list[str]:
    """Folders of this Python's installed packages: every site-packages in its search path, and torch's."""
    kept = [p for p in sys.path if Path(p).name in ("site-packages", "dist-packages") and os.path.isdir(p)]
    spec = importlib.util.find_spec("torch")
    torch = [str(Path(spec.origin).resolve().parents[1])] if spec and spec.origin else []
    return list(dict.fromkeys(kept + torch))


def needed_to_import() -> list[str]:
    """Folders and files for ``lock``'s ``read`` if modules are imported later."""
    system = ["/usr", "/lib", "/lib64", "/etc/ld.so.cache", "/dev/null", "/dev/urandom", "/dev/zero"]
    return list(dict.fromkeys([sys.prefix, sys.base_prefix, *library_folders(), *system]))
