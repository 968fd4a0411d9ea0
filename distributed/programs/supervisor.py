"""Supervises the processes of a run: starts one per role, and restarts those that die, each on its own.

The exit code of a process tells the supervisor what to do. DONE: its work is done; once this holds for the deciding
role (the learner), the others are ended. WRONG: a restart would not help. Anything else, and any signal, is a crash.
Linux.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from envolve.core.child import FIRST_DELAY, QUICK_SECONDS, Child, end, how

log = logging.getLogger("envolve")

DONE, FAILED, WRONG, STOPPED = 0, 1, 2, 130  # of roles, and of Supervisor.run
POLL = 0.05  # s
STOP_SECONDS = 30.0  # from SIGTERM to SIGKILL: a learner writes a checkpoint in between
MAX_QUICK_DEATHS = 10  # in a row, by the role's own fault
MAX_QUICK_KILLS = 50  # in a row, by a signal: of another process, or for lack of memory


@dataclass(frozen=True)
class Role:
    """Process that should run. ``command`` is run again after a crash and resumes from the last state."""

    name: str
    command: Sequence[str]
    environ: Mapping[str, str] = field(default_factory=dict)  # beside this process's
    cpus: Collection[int] | None = None  # None: all of this process's
    decides: bool = False  # the run is done when it is


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
            Child(role.name, lambda role=role: role.command, Path(log_dir) / f"{role.name}.log",  # type: ignore[misc]
                  environ=role.environ, cpus=role.cpus, with_parent=True, quick_seconds=quick_seconds,
                  first_delay=first_delay)
            for role in roles
        ]  # fmt: skip
        self._codes: dict[str, int] = {}  # of roles that ended for good
        self._stop_seconds = stop_seconds

    def pids(self) -> dict[str, int]:
        """Process ids of the running roles."""
        return {child.name: pid for child in self._children if (pid := child.pid) is not None}

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
        for child in self._children:
            if (code := child.ended()) is not None:
                self._bury(child, code)
        for child in self._children:
            if (code := self._codes.get(child.name, DONE)) != DONE:
                why = "arguments that do not go together" if code == WRONG else "it cannot be kept alive"
                log.error("%s: %s; the end of %s:\n%s", child.name, why, child.log_path, child.last_words())
                return code
        if all(self._codes.get(name) == DONE for name in self._decide):
            return DONE
        for child in self._children:
            if child.due():
                child.start()
        return None

    def _bury(self, child: Child, code: int) -> None:
        if code in (DONE, WRONG):
            self._codes[child.name] = code
            return
        delay = child.again()
        if child.quick_deaths >= (MAX_QUICK_KILLS if code < 0 else MAX_QUICK_DEATHS):
            self._codes[child.name] = FAILED
            times = child.quick_deaths
            log.error("%s ended %s, soon after its start, %d times in a row", child.name, how(code), times)
            return
        text = "%s ended %s; starting it again in %.1f s. Output: %s"
        log.warning(text, child.name, how(code), delay, child.log_path)

    def close(self) -> None:
        """Ends all roles, and kills those that do not end in time; Ctrl-C shortens the wait."""
        end(self._children, self._stop_seconds)
