"""The worker's side of the exchange: take a chunk, evaluate it, hand in the result, until told to stop.

Files are removed only in the worker's own slot and only after they were read, so the order of the starts does not
matter: an input that lies there when the worker comes is simply its first. From before the input is removed until after
the result is there, the heartbeat says what the worker is doing; so a master can tell work from a loss. Python 3.8.
"""

from __future__ import annotations

import logging
import re
import shlex
from typing import Any, Callable, Optional

from envolve.core import commands, plugins
from envolve.outer.exchange.evaluation import ChunkEvaluation, Evaluate
from envolve.outer.exchange.heartbeat import (
    ALIVE,
    MOST_DIGITS,
    STARTING,
    Heartbeat,
    Watch,
    name_of,
    other_code,
    read_beat,
)
from envolve.outer.exchange.machine import ExchangeError, Files, Host, NotReady, Rejected
from envolve.outer.exchange.messages import QUIT, chunk_from, result_content
from envolve.outer.exchange.pairs import read_pair, reject_pair, remove_pair, stem, write_pair
from envolve.outer.exchange.sources import sources

log = logging.getLogger("envolve")

GRACE = 2.0  # seconds that check file and data may disagree before they are put aside
MASTER_TIMEOUT = 10.0  # seconds without a beat until a master is said to be gone


class SecondWorkerError(RuntimeError):
    """Raised if another worker with the same ids is alive."""


def pause(idle: float, shortest: float = 0.0002, longest: float = 0.05) -> float:
    """Time to sleep after ``idle`` seconds without news; polling delays any answer by at most 2 % of its wait."""
    return min(max(idle / 50, shortest), longest)


class Worker:
    """Worker in its slot ``bohb_id``_``worker_id``.

    ``load`` returns the function that evaluates a chunk; it is called once, after the slot was claimed, because
    importing it may take seconds. ``on_beat`` is called after every regular heartbeat.
    """

    def __init__(
        self,
        bohb_id: int,
        worker_id: int,
        files: Files,
        host: Host,
        load: Callable[[], Evaluate],
        interval: float = 1.0,
        on_beat: Optional[Callable[[], None]] = None,
    ) -> None:
        self.bohb_id, self.worker_id = bohb_id, worker_id
        self._files, self._host, self._load = files, host, load
        self._heartbeat = Heartbeat(files, host, name_of(bohb_id, str(worker_id)), interval, on_beat=on_beat)
        self._input, self._result = stem(bohb_id, worker_id, "input"), stem(bohb_id, worker_id, "result")
        self._longest = interval / 4  # between looks: a thousand idle workers must not keep a file server busy
        self.evaluation: Optional[ChunkEvaluation] = None
        self._last_input = ""
        self._odd_since: Optional[float] = None
        self._rejections = 0
        self._master = Watch(host, MASTER_TIMEOUT)
        self._master_state: Optional[str] = None
        self.quit = False

    def run(self) -> None:
        """Works until a master says quit. Raises :class:`SecondWorkerError`, :class:`ExchangeError`."""
        self.start()
        try:
            busy = asked = self._host.monotonic()
            while not self.quit:
                now = self._host.monotonic()
                if self.step():
                    busy = self._host.monotonic()
                    continue
                if now - busy > 1.0 and now - asked > 1.0:
                    asked = now
                    self._look_for_master()
                self._host.sleep(pause(now - busy, longest=self._longest))
        finally:
            self.close()

    def start(self) -> None:
        """Claims the slot, then loads the evaluation. Raises SecondWorkerError, ExchangeError."""
        if self.worker_id >= 10**MOST_DIGITS:
            raise ExchangeError(f"ID: found {self.worker_id}, expected at most {MOST_DIGITS} digits")
        self._heartbeat.doing = STARTING
        owner = self._heartbeat.claim()
        if owner is not None:
            words = [*commands.typed("GTN_worker.py"), str(self.bohb_id), str(self._free_id())]
            words += ["--sync-dir", self._files.folder]  # without it another worker would wait in another folder
            for folder in plugins.allowed():  # that this process may execute files of, as --plugins said
                words += ["--plugins", str(folder)]
            another = shlex.join(words)
            raise SecondWorkerError(
                f"worker {self.worker_id} of BOHB-ID {self.bohb_id} is already running ({owner.where}) in "
                f"{self._files.folder}. Take another ID, e.g. {another}, or stop that one first."
            )
        self._heartbeat.start()
        try:
            self._remove_temporaries()
            self.evaluation = ChunkEvaluation(self._load(), f"worker {self.worker_id}")
        except BaseException:
            self.close()
            raise
        self._heartbeat.doing = ""
        self._heartbeat.beat()
        log.info("worker %d of BOHB-ID %d is ready in %s", self.worker_id, self.bohb_id, self._files.folder)
        self._look_for_master()

    def close(self) -> None:
        self._heartbeat.close()

    def step(self) -> bool:
        """Checks the slot once; False if there was nothing to do."""
        self._check_slot()
        try:
            pair = read_pair(self._files, self._input, "input")
            if pair is None:
                self._odd_since = None
                return False
            content, sha256 = pair
            chunk = chunk_from(content)
        except NotReady as e:
            now = self._host.monotonic()
            self._odd_since = now if self._odd_since is None else self._odd_since
            if now - self._odd_since < GRACE:
                return False
            self._reject(str(e))
            return True
        except Rejected as e:
            self._reject(str(e))
            return True
        self._odd_since = None
        if sha256 == self._last_input:  # a network file system may show a removed file again
            self._insist(lambda: remove_pair(self._files, self._input))
            return True
        self._last_input = sha256
        self._heartbeat.doing = sha256
        self._insist(lambda: remove_pair(self._files, self._input))
        if chunk.mode == QUIT:
            log.info("worker %d: told to quit by the master of run %s", self.worker_id, chunk.run_id)
            self.quit = True
        else:
            assert self.evaluation is not None, "start() comes before step()"
            result = result_content(self.evaluation(chunk, sha256))
            self._insist(lambda: write_pair(self._files, self._result, result))
        self._heartbeat.doing = ""
        return True

    def _reject(self, reason: str) -> None:
        self._odd_since = None
        self._rejections += 1
        log.warning("worker %d: rejected an input, now in %s.pt.rejected: %s", self.worker_id, self._input, reason)
        self._insist(lambda: reject_pair(self._files, self._input))
        self._heartbeat.note = f"rejected input {self._rejections}: {reason}"[:1000]
        self._heartbeat.beat()

    def _insist(self, action: Callable[[], Any]) -> None:
        """Repeats ``action``, a change of a file, while the disk is full or the folder read-only. No finished result is
        lost."""
        said = -60.0
        while True:
            try:
                action()
                return
            except ExchangeError as e:
                if self._host.monotonic() - said >= 60.0:
                    said = self._host.monotonic()
                    log.error("worker %d: %s Trying again every second.", self.worker_id, e)
                self._host.sleep(1.0)
                self._check_slot()

    def _check_slot(self) -> None:
        usurper = self._heartbeat.usurper
        if usurper is not None:
            raise SecondWorkerError(
                f"another worker {self.worker_id} of BOHB-ID {self.bohb_id} ({usurper.where}) has taken this slot in "
                f"{self._files.folder}; this one stops"
            )

    def _remove_temporaries(self) -> None:
        """Removes incomplete files of a predecessor in this slot that was killed."""
        for name in self._files.names():
            if re.match(rf"\.{self.bohb_id}_{self.worker_id}_(result|heartbeat).*\.tmp$", name):
                if not name.endswith(self._files.temporary):
                    self._files.remove(name)

    def _free_id(self) -> int:
        taken = re.compile(rf"{self.bohb_id}_(\d+)_heartbeat$")
        return 1 + max([self.worker_id] + [int(m.group(1)) for m in map(taken.match, self._files.names()) if m])

    def _look_for_master(self) -> None:
        """Logs when the master comes or goes; while there is none, the other masters."""
        beat = read_beat(self._files, name_of(self.bohb_id, "master"))
        state = self._master.see(beat)
        if state == self._master_state:
            return
        self._master_state = state
        if state == ALIVE and beat is not None:
            log.info("worker %d: master of run %s found (%s)", self.worker_id, beat.run_id, beat.where)
            if other := other_code(beat, sources()):
                log.error("worker %d: its master %s", self.worker_id, other)
        else:
            masters = [m.group(1) for m in map(re.compile(r"(\d+)_master_heartbeat$").match, self._files.names()) if m]
            others = sorted((m for m in masters if m != str(self.bohb_id)), key=int)
            there = (
                "masters of other BOHB-IDs there: {}".format(", ".join(others)) if others else "no other master there"
            )
            log.info(
                "worker %d waits for a master with BOHB-ID %d in %s (%s)",
                self.worker_id,
                self.bohb_id,
                self._files.folder,
                there,
            )
