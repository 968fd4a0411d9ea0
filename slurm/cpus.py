"""Assignment of one machine's CPUs to masters and workers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Group:
    """One master and its workers. The master needs little: it shares the CPUs of its group."""

    master: frozenset[int]
    workers: tuple[frozenset[int], ...]


def parts(cpus: Sequence[int], count: int) -> list[list[int]]:
    """Splits CPUs into ``count`` blocks of neighbours of nearly equal size: disjoint and covering all. With fewer CPUs
    than blocks, every block has one CPU, and the numbers of blocks per CPU differ by at most one."""
    n = len(cpus)
    if n >= count:
        return [list(cpus[i * n // count : (i + 1) * n // count]) for i in range(count)]
    return [[cpus[i * n // count]] for i in range(count)]


def split(cpus: Sequence[int], masters: int, workers: int | None = None) -> list[Group]:
    """CPUs of all masters and workers. ``workers``: per master; None: one per CPU of its group."""
    if not cpus or masters < 1 or (workers is not None and workers < 1):
        raise ValueError(f"found {len(cpus)} CPUs, {masters} masters, {workers} workers each; expected one at least")
    groups = []
    for block in parts(sorted(cpus), masters):
        pinned = parts(block, len(block) if workers is None else workers)
        groups.append(Group(frozenset(block), tuple(map(frozenset, pinned))))
    return groups
