"""The hub as an actor of Ray, and its client.

The actor keeps what must not be lost: the log of transitions, and every file that a program writes (``keep``). A
program that dies is therefore started again on any node, and gets its files back (``fetch``). So is the hub, whose disk
is one of two (``keeper.py``). Messages are those of the gRPC hub (``distributed/engine/wire.py``, ``limits.py``): bytes
that Ray does not unpickle.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import socket
import threading
from functools import partial
from pathlib import Path

from envolve.core.cleaning import one_line
from envolve.distributed.engine.calls import HubCalls, HubGone, HubTrouble
from envolve.distributed.engine.hub import Finished, Unpublished
from envolve.distributed.engine.limits import CALLS
from envolve.distributed.engine.wire import WireError, pack, unpack
from envolve.distributed.files.params_file import frozen
from envolve.distributed.files.run_folder import is_done, read_settings
from envolve.distributed.memory.replay_log import ReplayLog
from envolve.distributed.programs.turns import make_hub, widths_of
from envolve.distributed.ray.keeper import Copy, Files, MirroredLog, Words, empty_folder
from envolve.outer.checkpoint import RunError
from envolve.outer.ray import actors
from envolve.outer.ray.events import last_line

log = logging.getLogger("envolve")


class RunHub(Files, Words):
    """Hub of a run. Made again after a death: it goes on from its log."""

    def __init__(self, folder: str, keeper: str = "") -> None:
        """folder: of the run, with the log. keeper: name of the actor where that is, if this may be another node; the
        hub then works in a copy, in a folder of this name and its term. Raises ParamsError, RunError, OSError."""
        self.kept = threading.Condition()  # one more file
        self.copy = Copy(actors.named(keeper)) if keeper else None
        Files.__init__(self, Path(folder) if self.copy is None else empty_folder(keeper, self.copy.term))
        if self.copy is not None:
            self.copy.fill(self.folder)
        params, settings = frozen(self.folder), read_settings(self.folder)
        Words.__init__(self, self.folder, settings.num_collectors)
        log_of = ReplayLog if self.copy is None else partial(MirroredLog, copy=self.copy)
        self.hub = make_hub(params, widths_of(params), settings, self.folder, log_of)
        if is_done(self.folder):
            self.hub.finish()

    def hello(self) -> int:
        """Answers once the log is read -> id of the process."""
        return os.getpid()

    def where(self) -> str:
        """Machine and folder."""
        return f"{socket.gethostname()}:{self.folder}"

    def node(self) -> str:
        return actors.node_here()

    def call(self, name: str, data: bytes) -> bytes:
        """A method of the hub, with checked arguments. Raises WireError, ValueError, RuntimeError, OSError, Gone."""
        if name not in CALLS:
            raise WireError(f"{name[:40]}: no method of the hub")
        try:
            return pack([getattr(self.hub, name)(*self.hub.limits.check(name, unpack(data)))])
        except (Finished, Unpublished) as e:
            return pack(type(e).__name__)

    def keep(self, name: str, data: bytes) -> None:
        super().keep(name, data)
        if self.copy is not None:
            self.copy.tell("keep_of", name, data)
        with self.kept:
            self.kept.notify_all()

    def news(self, known: int, timeout: float) -> tuple[bool, list[str]]:
        """Whether the run is complete, and the policies that were there then; waits at most ``timeout`` s while it is
        not and there are ``known`` policies."""
        with self.kept:
            if timeout:
                self.kept.wait_for(lambda: self.done() or len(self.policies()) != known, timeout)
            over = self.done()
            return over, self.policies()

    def leave(self) -> None:
        """Removes the copy: the run's own folder has all."""
        if self.copy is not None:
            shutil.rmtree(self.folder.parent, ignore_errors=True)


class RayHub(HubCalls):
    """Client of a :class:`RunHub`."""

    def __init__(self, actor: actors.Handle) -> None:
        self.actor = actor

    def _ask(self, name: str, request: bytes, wait: float) -> bytes:
        """Waits while Ray starts the actor again."""
        try:
            answer: bytes = actors.call(self.actor, "call", name, request)
        except actors.Gone as e:
            raise HubGone(f"the hub is gone: {e}") from None
        except (WireError, ValueError, RuntimeError) as e:
            raise RunError(f"the hub refused: {name}: {one_line(last_line(e))}") from None
        except OSError as e:  # its disk is full, say; it goes on
            raise HubTrouble(f"the hub fails: {name}: {one_line(last_line(e))}") from None
        return answer


class RayChart:
    """A ``Board`` where the run's folder is."""

    def __init__(self, actor: actors.Handle, role: str, worker: int) -> None:
        self.actor, self.role, self.worker = actor, role, worker

    def write(self, step: int, values: dict[str, float]) -> None:
        actors.tell(self.actor, "chart", self.role, self.worker, step, json.dumps(values))


class RayLog(logging.Handler):
    """Lines of a program, for its log where the run's folder is."""

    def __init__(self, actor: actors.Handle, name: str) -> None:
        super().__init__(logging.INFO)
        self.actor, self.of = actor, name

    def emit(self, record: logging.LogRecord) -> None:
        actors.tell(self.actor, "say", self.of, f"{self.of.partition('_')[0]}: {record.getMessage()}")
