"""Watches child processes: those that die are started again, unless their policy says that this is over. Linux.

The one supervisor of the house. Local workers and NES masters (``outer/exchange/local_workers.py``), the programs of a
distributed run (``distributed/programs/supervisor.py``) and the roles of one node (``slurm/single_node.py``) differ in
their policies, and in what they make of the end of a child.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from typing import NamedTuple, Tuple

from envolve.core.child import Child, end, how

log = logging.getLogger("envolve")

GIVEN_UP = 1  # the code of a child that could not be kept alive


class RestartPolicy(NamedTuple):
    """When a child is not started again."""

    final: Tuple[int, ...] = ()  # after these exit codes: its work is done, or another start would not help
    quick_deaths: float = 10  # after so many in a row soon after a start, by a fault of its own ...
    quick_kills: float = 10  # ... or by a signal: of another process, or for lack of memory
    starts: float = math.inf  # after so many in all


class StartError(Exception):
    """A child cannot be started. One line that names it and its log."""


class Supervisor:
    """Children with their policies. Call ``look`` now and then; ``codes`` has those that ended for good."""

    def __init__(
        self,
        children: Mapping[Child, RestartPolicy],
        stop_seconds: float,
        *,
        needed: Callable[[Child], bool] = lambda child: True,
        tell: Callable[..., None] = log.log,
    ) -> None:
        """stop_seconds: from SIGTERM to SIGKILL. needed: a child for which this is False is left dead, without a code.
        tell: takes what happened as a level of logging, a text and its arguments."""
        self.children, self._stop_seconds, self._needed, self._tell = dict(children), stop_seconds, needed, tell
        self.codes: dict[Child, int] = {}

    def pids(self) -> dict[str, int]:
        """Process ids of the running children, by name."""
        return {child.name: pid for child in self.children if (pid := child.pid) is not None}

    def look(self) -> None:
        """Sees to the dead, and starts what is due. Raises StartError."""
        self.bury()
        self.start_due()

    def bury(self) -> list[Child]:
        """Children that have died since the last look; those that are to be started again become due."""
        dead = []
        for child in self.children:
            if (code := child.ended()) is not None:
                self._decide(child, code)
                dead.append(child)
        return dead

    def _decide(self, child: Child, code: int) -> None:
        policy = self.children[child]
        if code in policy.final:
            self.codes[child] = code
            return
        if not self._needed(child):
            return
        delay = child.again()
        most = policy.quick_kills if code < 0 else policy.quick_deaths
        why = ""
        if child.quick_deaths >= most:
            why = f"soon after its start, {child.quick_deaths} times in a row"
        elif child.starts >= policy.starts:
            why = f"and was started {child.starts} times"
        if why:
            self.codes[child], child.start_at = GIVEN_UP, None
            text = "%s ended %s, %s; it is given up. Its output is in %s"
            self._tell(logging.ERROR, text, child.name, how(code), why, child.log_path)
            return
        text = "%s ended %s; starting it again in %.1f s. Its output is in %s"
        self._tell(logging.WARNING, text, child.name, how(code), delay, child.log_path)

    def start_due(self) -> list[Child]:
        """Starts what is due -> those children. Raises StartError."""
        due = [c for c in self.children if c not in self.codes and c.due() and self._needed(c)]
        for child in due:
            try:
                child.start()
            except OSError as e:
                words = f"cannot start {child.name} with its output in {child.log_path}: {e.strerror}"
                raise StartError(words) from e
        return due

    def close(self) -> None:
        """Ends all children, and kills those that do not end in time; Ctrl-C shortens the wait."""
        end(self.children, self._stop_seconds)
