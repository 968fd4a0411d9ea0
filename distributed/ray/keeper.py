"""What a run on Ray must not lose, on two nodes: the run's folder on the command's node, and the hub's on another.

The hub (``hub.py``) writes to its own disk and then to the :class:`Keeper`, an actor on the command's node, before it
acknowledges. A hub that is started again on any node takes everything from there. If it is the command's node that is
lost, the hub's folder is the run's folder: the same command goes on with it.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import tempfile
import threading
import time
from pathlib import Path

from envolve.core.cleaning import one_line
from envolve.core.files import TORCH_BYTES, read_piece, read_plain, read_text
from envolve.core.places import private_folder
from envolve.distributed.files.board import chart_name
from envolve.distributed.files.params_file import CONFIG_FILE, PARAMS_FILE
from envolve.distributed.files.run_folder import DONE, REPLAY, RUN_FILE, SESSION, is_done, read_settings
from envolve.distributed.memory.replay_log import ReplayLog
from envolve.distributed.programs.evaluator import EVALUATIONS
from envolve.distributed.programs.learner import CHECKPOINT, POLICIES
from envolve.envs.worlds.file import write_atomic
from envolve.outer.checkpoint import RunError
from envolve.outer.ray import actors
from envolve.outer.reporting.board import Board

LOGS = "logs"
BEGUN_WITH = (PARAMS_FILE, CONFIG_FILE, RUN_FILE)  # what every program reads
FILES = (DONE, SESSION, CHECKPOINT, EVALUATIONS)  # what programs write, beside policies
POLICY = re.compile(re.escape(str(POLICIES)) + r"/policy_checkpoint_\d{10,19}\.pt", re.ASCII)
TRANSITIONS = re.compile(re.escape(REPLAY) + r"/rows_\d{12,19}\.log", re.ASCII)
PIECE = 32 * 2**20  # bytes of a file that travel at once
HUB_FOLDER = "envolve_hub"  # begins its name
COPY = "ray_copy"  # says it, in the run's folder
TERM = "ray_term"  # of the newest hub, likewise


class Files:
    """The files of a run in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def keep(self, name: str, data: bytes) -> None:
        """Writes a file of the run. Raises ValueError for a name that is none of its files, OSError."""
        path = self._path(name, FILES, POLICY)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(str(path), data)

    def fetch(self, name: str) -> bytes | None:
        """None if there is no such file. Raises ValueError, OSError."""
        path = self._path(name, (*FILES, *BEGUN_WITH), POLICY)
        return read_plain(path, TORCH_BYTES) if path.exists() else None

    def policies(self) -> list[str]:
        return sorted(str(POLICIES / path.name) for path in (self.folder / POLICIES).glob("policy_checkpoint_*.pt"))

    def done(self) -> bool:
        return is_done(self.folder)

    def _path(self, name: str, names: tuple[str, ...], *patterns: re.Pattern[str]) -> Path:
        """Raises ValueError for a name that is none of these."""
        if name not in names and not any(pattern.fullmatch(name) for pattern in patterns):
            raise ValueError(f"{name[:80]}: found this name, expected a file of the run")
        return self.folder / name


class Words:
    """Charts and logs of the programs, in the run's folder."""

    def __init__(self, folder: Path, collectors: int) -> None:
        self.folder, self.collectors = folder, collectors
        self.boards: dict[str, Board] = {}
        self.beats: dict[str, float] = {}  # by program: when it last said that it lives, by this clock
        (folder / LOGS).mkdir(exist_ok=True)

    def chart(self, role: str, worker: int, step: int, values: str) -> None:
        """Values for TensorBoard, as JSON."""
        name = chart_name(role, worker)
        if not 0 <= worker < self.collectors:
            raise ValueError(f"worker {worker}, expected 0 to {self.collectors - 1}")
        if name not in self.boards:
            self.boards[name] = Board(self.folder / name)
        self.boards[name].write(int(step), {str(k): float(v) for k, v in json.loads(values).items()})

    def alive(self, role: str) -> None:
        """Notes that a program runs."""
        self.beats[self._program(role)] = time.monotonic()

    def heard(self) -> dict[str, float]:
        """Seconds since each program said that it lives."""
        now = time.monotonic()
        return {role: now - at for role, at in list(self.beats.items())}

    @staticmethod
    def _program(role: str) -> str:
        """Raises ValueError for the name of no program."""
        if not re.fullmatch(r"(learner|evaluator|collector_\d{1,4})", role, re.ASCII):
            raise ValueError(f"{role[:40]}: no program of a run")
        return role

    def say(self, role: str, text: str) -> None:
        """Adds a line to the log of a program."""
        role = self._program(role)
        with open(self.folder / LOGS / f"{role}.log", "a", encoding="utf-8") as file:
            file.write(one_line(text) + "\n")


class Keeper(Files, Words):
    """The run's folder, for a hub on another node. Only the newest hub may change it: one whose node was cut off may
    still believe that it is the run's."""

    def __init__(self, folder: str) -> None:
        """Raises RunError, OSError."""
        Words.__init__(self, Path(folder), read_settings(Path(folder)).num_collectors)
        self.term, self.lock = self._kept_term(), threading.Lock()

    def hello(self) -> int:
        return os.getpid()

    def begin(self) -> int:
        """A new hub takes over -> its term, which is higher than those before, also of a keeper that was killed and of
        a clock that went backwards."""
        with self.lock:
            self.term = max(time.time_ns(), self.term + 1)
            write_atomic(str(self.folder / TERM), f"{self.term}\n".encode())
            return self.term

    def _kept_term(self) -> int:
        path = self.folder / TERM
        text = read_text(path).strip() if path.exists() else "0"
        if not re.fullmatch(r"\d{1,20}", text, re.ASCII):
            raise RunError(f"{path}: found {text[:40]!r}, expected a number; remove the file if no other hub runs")
        return int(text)

    def names(self) -> list[str]:
        """Files from which a hub begins, those that say how far the run is last."""
        log = [f"{REPLAY}/{path.name}" for path in sorted((self.folder / REPLAY).glob("rows_*.log"))]
        return [n for n in (*BEGUN_WITH, *log, *self.policies(), *FILES) if (self.folder / n).exists()]

    def piece(self, name: str, at: int) -> bytes:
        """At most PIECE bytes of a file from ``at`` on. Raises ValueError, OSError."""
        return read_piece(self._path(name, (*FILES, *BEGUN_WITH), POLICY, TRANSITIONS), at, PIECE)

    def keep_of(self, term: int, name: str, data: bytes) -> None:
        with self.lock:
            self._check(term)
            self.keep(name, data)

    def append(self, term: int, name: str, at: int, data: bytes) -> None:
        """Writes into a file of the log, which has ``at`` bytes that are acknowledged. Made again, it changes nothing.
        Raises ValueError, OSError, Gone."""
        with self.lock:
            path = self._log(term, name)
            path.parent.mkdir(exist_ok=True)
            with open(path, "ab") as file:
                if file.tell() < at:
                    raise ValueError(f"{name}: found {file.tell()} bytes, expected {at}")
                file.truncate(at)
                file.write(data)

    def cut(self, term: int, name: str, size: int) -> None:
        with self.lock:
            os.truncate(self._log(term, name), size)

    def remove(self, term: int, name: str) -> None:
        with self.lock:
            self._log(term, name).unlink(missing_ok=True)

    def sync(self, term: int, name: str) -> None:
        """Flushes to disk."""
        with self.lock, open(self._log(term, name), "ab") as file:
            os.fsync(file.fileno())

    def _log(self, term: int, name: str) -> Path:
        self._check(term)
        if not TRANSITIONS.fullmatch(name):
            raise ValueError(f"{name[:80]}: found this name, expected a file of the log")
        return self.folder / name

    def _check(self, term: int) -> None:
        if term < self.term:
            raise actors.Gone("another hub has taken over")


class Copy:
    """What a hub elsewhere calls. A new one ends the right of all before it to change the run's folder."""

    def __init__(self, keeper: actors.Handle) -> None:
        self.keeper = keeper
        self.term: int = actors.call(keeper, "begin")

    def fill(self, folder: Path) -> None:
        """Copies the run's files into an empty folder. Raises OSError."""
        for name in actors.call(self.keeper, "names"):
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            with open(path, "wb") as file:
                while len(data := actors.call(self.keeper, "piece", name, file.tell())):
                    file.write(data)

    def tell(self, method: str, name: str, *args: object) -> None:
        """Waits until the change is made. Raises OSError, ValueError, Gone."""
        actors.call(self.keeper, method, self.term, name, *args)


class MirroredLog(ReplayLog):
    """A log whose every change is made at the keeper, too, before it counts."""

    def __init__(self, folder: Path, members: int, width: int, file_rows: int, copy: Copy) -> None:
        super().__init__(folder, members, width, file_rows)
        self.copy = copy

    def begin_file(self, first: int) -> None:
        super().begin_file(first)
        self._write(b"")

    def sync(self) -> None:
        super().sync()
        if self.file is not None:
            self.copy.tell("sync", self._name(Path(self.file.name)))

    def _write(self, data: bytes) -> None:
        assert self.file is not None
        at = self.file.tell()
        super()._write(data)
        try:
            self.copy.tell("append", self._name(Path(self.file.name)), at, data)
        except BaseException:
            self.take_back(at)
            raise

    def _cut(self, path: Path, size: int) -> None:
        super()._cut(path, size)
        self.copy.tell("cut", self._name(path), size)

    def _remove(self, path: Path) -> None:
        super()._remove(path)
        self.copy.tell("remove", self._name(path))

    @staticmethod
    def _name(path: Path) -> str:
        return f"{REPLAY}/{path.name}"


def name_of(folder: Path) -> str:
    """Name of the hub's folder, the same for each hub of the run in ``folder``. Raises RunError, OSError."""
    path = folder / COPY
    if not path.exists():
        write_atomic(str(path), f"{HUB_FOLDER}_{secrets.token_hex(8)}\n".encode())
    name = read_text(path).strip()
    if not re.fullmatch(HUB_FOLDER + "_[0-9a-f]{16}", name):
        raise RunError(f"{path}: found {name[:80]!r}, expected {HUB_FOLDER}_ and 16 hexadecimal digits")
    return name


def empty_folder(name: str, term: int) -> Path:
    """An empty folder ``name/term`` for this user alone. Those of earlier hubs are removed; one of them may still write
    into its own, and so never into this. Raises OSError."""
    outer = private_folder(Path(tempfile.gettempdir()) / name)
    for earlier in outer.iterdir():
        shutil.rmtree(earlier, ignore_errors=True)
    path = outer / str(term)
    path.mkdir(mode=0o700)
    return path
