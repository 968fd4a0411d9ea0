"""The hub as an actor of Ray, on the node of the run's folder, and its client.

The actor keeps what must not be lost: the log of transitions, and every file that a program writes (``keep``). A
program that dies is therefore started again on any node, and gets its files back (``fetch``). Messages are those of
the gRPC hub (``distributed/engine/wire.py``, ``limits.py``): bytes that Ray does not unpickle.
"""

from __future__ import annotations

import json
import logging
import os
import re
from pathlib import Path
from typing import Any

from envolve.core.cleaning import one_line
from envolve.core.files import TORCH_BYTES, read_plain
from envolve.distributed.engine.calls import RAISED, HubCalls, HubGone
from envolve.distributed.engine.hub import Finished, Unpublished
from envolve.distributed.engine.limits import CALLS
from envolve.distributed.engine.wire import WireError, pack, unpack
from envolve.distributed.files.board import chart_name
from envolve.distributed.files.params_file import CONFIG_FILE, PARAMS_FILE, frozen
from envolve.distributed.files.run_folder import DONE, RUN_FILE, SESSION, is_done, read_settings
from envolve.distributed.programs.evaluator import EVALUATIONS
from envolve.distributed.programs.learner import CHECKPOINT, POLICIES
from envolve.distributed.programs.turns import make_hub, widths_of
from envolve.envs.worlds.file import write_atomic
from envolve.outer.checkpoint import RunError
from envolve.outer.ray import actors
from envolve.outer.reporting.board import Board

log = logging.getLogger("envolve")

LOGS = "logs"
BEGUN_WITH = (PARAMS_FILE, CONFIG_FILE, RUN_FILE)  # what every program reads
FILES = (DONE, SESSION, CHECKPOINT, EVALUATIONS)  # what programs write, beside policies
POLICY = re.compile(re.escape(str(POLICIES)) + r"/policy_checkpoint_\d{10,19}\.pt", re.ASCII)


class RunHub:
    """Hub of the run in a folder. Made again after a death: it goes on from its log."""

    def __init__(self, folder: str) -> None:
        """Raises ParamsError, RunError, OSError."""
        self.folder = Path(folder)
        params, settings = frozen(self.folder), read_settings(self.folder)
        self.collectors = settings.num_collectors
        self.hub = make_hub(params, widths_of(params), settings, self.folder)
        self.boards: dict[str, Board] = {}
        (self.folder / LOGS).mkdir(exist_ok=True)
        if is_done(self.folder):
            self.hub.finish()

    def hello(self) -> int:
        """Answers once the log is read -> id of the process."""
        return os.getpid()

    def call(self, name: str, data: bytes) -> bytes:
        """A method of the hub, with checked arguments. Raises WireError, ValueError, RuntimeError, OSError."""
        if name not in CALLS:
            raise WireError(f"{name[:40]}: no method of the hub")
        try:
            return pack([getattr(self.hub, name)(*self.hub.limits.check(name, unpack(data)))])
        except (Finished, Unpublished) as e:
            return pack(type(e).__name__)

    # --------------------------------------------------------------------------------------------------------- files

    def keep(self, name: str, data: bytes) -> None:
        """Writes a file of the run. Raises ValueError for a name that is none of its files, OSError."""
        if name not in FILES and not POLICY.fullmatch(name):
            raise ValueError(f"{name[:80]}: found this name, expected a file of the run")
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(str(path), data)

    def fetch(self, name: str) -> bytes | None:
        """None if there is no such file. Raises ValueError, OSError."""
        if name not in (*FILES, *BEGUN_WITH) and not POLICY.fullmatch(name):
            raise ValueError(f"{name[:80]}: found this name, expected a file of the run")
        path = self.folder / name
        return read_plain(path, TORCH_BYTES) if path.exists() else None

    def policies(self) -> list[str]:
        return sorted(str(POLICIES / path.name) for path in (self.folder / POLICIES).glob("policy_checkpoint_*.pt"))

    def done(self) -> bool:
        return is_done(self.folder)

    # --------------------------------------------------------------------------------------------------------- words

    def chart(self, role: str, worker: int, step: int, values: str) -> None:
        """Values for TensorBoard, as JSON."""
        name = chart_name(role, worker)
        if not 0 <= worker < self.collectors:
            raise ValueError(f"worker {worker}, expected 0 to {self.collectors - 1}")
        if name not in self.boards:
            self.boards[name] = Board(self.folder / name)
        self.boards[name].write(int(step), {str(k): float(v) for k, v in json.loads(values).items()})

    def say(self, role: str, text: str) -> None:
        """Adds a line to the log of a program."""
        if not re.fullmatch(r"[a-z]+(_\d{1,4})?", role, re.ASCII):
            raise ValueError(f"{role[:40]}: no program of a run")
        with open(self.folder / LOGS / f"{role}.log", "a", encoding="utf-8") as file:
            file.write(one_line(text) + "\n")


class RayHub(HubCalls):
    """Client of a :class:`RunHub`; a call waits while Ray starts the actor again."""

    def __init__(self, actor: actors.Handle) -> None:
        self.actor = actor

    def _call(self, name: str, *args: Any, wait: float = 0.0) -> Any:
        """Raises HubGone, RunError, and what the hub's method raises."""
        try:
            reply = unpack(actors.call(self.actor, "call", name, pack(args)))
        except actors.Gone as e:
            raise HubGone(f"the hub is gone: {e}") from None
        except (WireError, ValueError, RuntimeError, OSError) as e:
            raise RunError(f"the hub refused: {name}: {one_line(str(e).splitlines()[-1])}") from None
        if isinstance(reply, str):
            raise RAISED[reply]
        return reply[0]


class RayChart:
    """A ``Board`` at the hub."""

    def __init__(self, actor: actors.Handle, role: str, worker: int) -> None:
        self.actor, self.role, self.worker = actor, role, worker

    def write(self, step: int, values: dict[str, float]) -> None:
        actors.tell(self.actor, "chart", self.role, self.worker, step, json.dumps(values))


class RayLog(logging.Handler):
    """Lines of a program, for its log at the hub."""

    def __init__(self, actor: actors.Handle, name: str) -> None:
        super().__init__(logging.INFO)
        self.actor, self.of = actor, name

    def emit(self, record: logging.LogRecord) -> None:
        actors.tell(self.actor, "say", self.of, f"{self.of.partition('_')[0]}: {record.getMessage()}")
