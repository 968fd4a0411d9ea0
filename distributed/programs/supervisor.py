"""Supervises the programs of a run: starts one per role, and restarts those that die, each on its own.

The exit code of a process tells the supervisor what to do. DONE: its work is done; once this holds for the deciding
role (the learner), the others are ended. WRONG: its arguments do not go together. STUCK: it would meet the same again,
as diverged weights. Anything else, and any signal, is a crash, after which it is started again. Linux.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from envolve.core import supervisor
from envolve.core.child import FIRST_DELAY, QUICK_SECONDS, Child
from envolve.core.supervisor import RestartPolicy

log = logging.getLogger("envolve")

DONE, FAILED, WRONG, STOPPED = 0, 1, 2, 130  # of roles, and of Supervisor.run
STUCK = 3  # of roles; the run has FAILED
WHY = {WRONG: "arguments that do not go together", STUCK: "a new start would not help"}
POLL = 0.05  # s
STOP_SECONDS = 30.0  # from SIGTERM to SIGKILL: a learner writes a checkpoint in between
POLICY = RestartPolicy(final=(DONE, WRONG, STUCK), quick_kills=50)


@dataclass(frozen=True)
class Role:
    """Process that should run. ``command`` is run again after a crash and resumes from the last state."""

    name: str
    command: Sequence[str]
    environ: Mapping[str, str] = field(default_factory=dict)  # beside this process's
    cpus: Collection[int] | None = None  # None: all of this process's
    decides: bool = False  # the run is done when it is


def _command(role: Role) -> Sequence[str]:
    return role.command


class Supervisor:
    """Supervisor. Output of a role goes to ``<log_dir>/<name>.log``. Ctrl-C and SIGTERM (as KeyboardInterrupt) end all
    roles."""

    def __init__(
        self,
        roles: Sequence[Role],
        log_dir: str | os.PathLike[str],
        *,
        quick_seconds: float = QUICK_SECONDS,
        first_delay: float = FIRST_DELAY,
        stop_seconds: float = STOP_SECONDS,
    ) -> None:
        """quick_seconds: a process that dies sooner after a start waits twice as long as the last time, from
        first_delay s on."""
        names = [role.name for role in roles]
        if len(set(names)) < len(names) or not any(role.decides for role in roles):
            raise ValueError(f"found the roles {', '.join(names)}, expected names of their own, and one that decides")
        self._decide = {role.name for role in roles if role.decides}
        self._children = [
            Child(
                role.name,
                partial(_command, role),
                Path(log_dir) / f"{role.name}.log",
                environ=role.environ,
                cpus=role.cpus,
                with_parent=True,
                quick_seconds=quick_seconds,
                first_delay=first_delay,
            )
            for role in roles
        ]
        self._supervisor = supervisor.Supervisor(dict.fromkeys(self._children, POLICY), stop_seconds)

    def pids(self) -> dict[str, int]:
        """Process ids of the running roles."""
        return self._supervisor.pids()

    def deaths(self) -> dict[str, int]:
        """Number of crashes per role so far."""
        return {child.name: child.deaths for child in self._children}

    def run(self, watch: Callable[[], None] = lambda: None) -> int:
        """Runs to the end -> DONE, FAILED, WRONG, or STOPPED, from which the same roles can resume. ``watch`` is called
        at every poll."""
        try:
            while (code := self.look()) is None:
                watch()
                time.sleep(POLL)
            return code
        except KeyboardInterrupt:
            log.warning("stopping: all roles are told to end")
            return STOPPED
        finally:
            self.close()

    def look(self) -> int | None:
        """Handles ended processes and due starts -> the exit code, once the run is over."""
        self._supervisor.bury()
        codes = {child.name: code for child, code in self._supervisor.codes.items()}
        for child in self._children:
            if (code := codes.get(child.name, DONE)) != DONE:
                why = WHY.get(code, "it cannot be kept alive")
                log.error("%s: %s; the end of %s:\n%s", child.name, why, child.log_path, child.last_words())
                return FAILED if code == STUCK else code
        if all(codes.get(name) == DONE for name in self._decide):
            return DONE
        self._supervisor.start_due()
        return None

    def close(self) -> None:
        """Ends all roles, and kills those that do not end in time; Ctrl-C shortens the wait."""
        self._supervisor.close()
