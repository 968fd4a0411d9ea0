"""The processes of a run on one machine, for ``envolve.distributed.programs.supervisor``."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from envolve.core.cleaning import one_line
from envolve.core.places import IMPORTS
from envolve.distributed.programs.cpus import Share, Shares
from envolve.distributed.programs.supervisor import Role

log = logging.getLogger("envolve")

AT_ONCE = 2**20  # bytes of a log


def roles_of(folder: Path, collectors: int, shares: Shares) -> list[Role]:
    """Decides the end of a run: when the learner is done, and then the evaluator."""

    def role(name: str, share: Share, decides: bool = False) -> Role:
        command = [sys.executable, "-m", "envolve.distributed.programs.role", name, "--exp-dir", str(folder.resolve())]
        return Role(name, command, _environ(share), share.cpus, decides)

    def collector(worker: int) -> Role:
        share = shares.collectors[worker]
        one = role("collector", share)
        environ = {**one.environ, **share.environ(worker)}
        return Role(f"collector_{worker}", [*one.command, "--worker", str(worker)], environ, share.cpus)

    return [
        role("replay", shares.replay),
        role("learner", shares.learner, True),
        role("evaluator", shares.evaluator, True),
        *map(collector, range(collectors)),
    ]


class Told:
    """New log lines of all programs."""

    def __init__(self, logs: Path, names: Sequence[str]) -> None:
        self.paths = [logs / f"{name}.log" for name in names]
        self.read = [path.stat().st_size if path.exists() else 0 for path in self.paths]

    def __call__(self) -> None:
        for i, path in enumerate(self.paths):
            if path.exists() and path.stat().st_size > self.read[i]:
                with open(path, "rb") as file:
                    file.seek(self.read[i])
                    new = file.read(AT_ONCE)
                whole, end, rest = new.rpartition(b"\n")
                # a line longer than all that is read at once is told in pieces
                whole, end = (new, b"") if len(rest) == AT_ONCE else (whole, end)
                self.read[i] += len(whole) + len(end)
                for line in whole.decode("utf-8", "replace").splitlines():
                    log.info("%s", one_line(line))


def _environ(share: Share) -> dict[str, str]:
    path = [str(IMPORTS), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**share.environ(), "PYTHONPATH": os.pathsep.join(path)}
