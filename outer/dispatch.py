"""The master's side of the exchange: chunks out, results in, whatever dies in between.

Every worker has at most one chunk at a time. Who evaluates what is left to chance; the results do not depend on it, and
they come back in the order of the chunks. What can go wrong, and what is done:

- a worker dies or falls silent, with or without its chunk      -> the chunk goes to another
- an input or a result gets lost on the way                     -> noticed by the worker's heartbeat, the chunk goes out again
- a worker rejects what it finds in its slot                    -> the chunk goes elsewhere; after three, no more for that worker
- the evaluation raises an exception                            -> once more, then NaN scores with the exception as the reason
- a chunk takes much longer than the others                     -> a second worker gets it too, the first answer counts
- a chunk's worker has died ``max_attempts`` times              -> NaN scores with the reason
- a result of another run, generation or master                 -> discarded
- there are no workers, or no news                              -> said in the log, with the command that helps
"""

from __future__ import annotations

import logging
import re
import statistics
import uuid
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch

from outer.exchange import (
    Chunk,
    ChunkResult,
    chunk_content,
    quit_chunk,
    read_pair,
    reject_pair,
    remove_pair,
    result_from,
    stem,
    write_pair,
)
from outer.heartbeat import Heartbeat, name_of
from outer.machine import ExchangeError, Files, Host, NotReady, Rejected
from outer.roster import Issue, Roster, Slot
from outer.worker import GRACE, pause

log = logging.getLogger("envolve")

MAX_ERRORS = 2  # evaluations of one chunk that may end in an exception
LONELY_SECONDS = 15.0  # without a worker, until the first hint in the log
HINT_SECONDS = 60.0  # between hints


class SecondMasterError(ExchangeError):
    """Another master with the same BOHB-ID works in the same sync folder."""


@dataclass
class _Work:
    chunk: Chunk
    attempts: int = 0
    deaths: int = 0
    errors: int = 0
    result: ChunkResult | None = None


class Dispatcher:
    """Hands chunks to whatever workers there are.

    Claims BOHB-ID ``bohb_id`` in ``sync_dir`` (created if missing) and removes what older runs of that id left there. Raises
    :class:`SecondMasterError` if a live master has it, :class:`ExchangeError` if the folder cannot be used.
    ``on_wait`` is called a few times per second during :meth:`evaluate`. ``worker_timeout`` in seconds.
    """

    def __init__(
        self,
        sync_dir: str,
        bohb_id: int,
        run_id: str,
        *,
        interval: float = 1.0,
        worker_timeout: float = 30.0,
        max_attempts: int = 5,
        straggler_factor: float = 4.0,
        straggler_seconds: float = 2.0,
        on_wait: Callable[[], None] | None = None,
        files: Files | None = None,
        host: Host | None = None,
    ) -> None:
        self.bohb_id, self.run_id = bohb_id, run_id
        self._files = files or Files(sync_dir)
        self._host = host or Host()
        self._interval, self._worker_timeout, self._max_attempts = interval, worker_timeout, max_attempts
        self._straggler_factor, self._straggler_seconds = straggler_factor, straggler_seconds
        self.on_wait = on_wait
        self._workers: dict[int, _Worker] = {}
        self._work: list[_Work] = []
        self._queue: deque[int] = deque()
        self._issued: dict[str, tuple[int, int]] = {}  # SHA-256 of an input -> (index of its work, attempt)
        self._seconds: dict[str, deque[float]] = {}  # per mode, what the latest chunks took
        self._scanned_at = float("-inf")
        self._hint_at = 0.0
        self._heartbeat = Heartbeat(self._files, self._host, name_of(bohb_id, "master"), interval, run_id)
        self._heartbeat_pattern = re.compile(rf"{bohb_id}_(\d+)_heartbeat")
        owner = self._heartbeat.claim()
        if owner is not None:
            raise SecondMasterError(
                f"another master with BOHB-ID {bohb_id} is running in {self._files.folder}: {owner.where}, run {owner.run_id}. "
                "Stop it, or start this one with another --bohb-id or --sync-dir."
            )
        self._heartbeat.start()
        leftover = re.compile(rf"\.?{bohb_id}_\d+_(input|result)(_check)?\.pt(\.|$)")
        for name in self._files.names():
            if leftover.match(name):
                self._files.remove(name)

    def __enter__(self) -> Dispatcher:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def workers(self) -> list[int]:
        """The ids of the workers that are alive."""
        self._scan(set(self._files.names()))
        return sorted(w.id for w in self._workers.values() if w.alive)

    def evaluate(
        self, chunks: Sequence[Chunk], on_progress: Callable[[int, int], None] | None = None
    ) -> list[ChunkResult]:
        """The results, in the order of ``chunks``; returns when all are there.

        A chunk that could not be evaluated has ``error`` set, NaN scores, and NaN or 0 in whatever other values the rest have.
        ``on_progress`` gets the number of finished chunks and of all. Raises :class:`ExchangeError` if the folder cannot be
        used any more, :class:`SecondMasterError` if another master took it over.
        """
        self._work = [_Work(chunk) for chunk in chunks]
        self._queue = deque(range(len(chunks)))
        self._issued = {}
        news = self._hint_at = self._host.monotonic()
        done = 0
        try:
            while done < len(self._work):
                moved = self._step()
                now = self._host.monotonic()
                finished = sum(w.result is not None for w in self._work)
                if finished > done:
                    done, self._hint_at = finished, now
                    if on_progress is not None:
                        on_progress(done, len(self._work))
                if moved:
                    news = now
                else:
                    self._hint(now)
                    self._host.sleep(pause(now - news))
        finally:
            self._release()
        return _completed([w.result for w in self._work if w.result is not None])

    def close(self, quit_workers: bool = False) -> None:
        """Gives up the BOHB-ID. Workers are told to quit, or left waiting for the next master."""
        try:
            if quit_workers:
                self._scan(set(self._files.names()))
                for worker in self._workers.values():
                    if worker.alive:
                        content = chunk_content(quit_chunk(self.run_id), uuid.uuid4().hex)
                        write_pair(self._files, stem(self.bohb_id, worker.id, "input"), content)
        except ExchangeError as e:
            log.error("could not tell the workers to quit: %s", e)
        finally:
            self._heartbeat.close()

    # ------------------------------------------------------------------------------------------------ one look around

    def _step(self) -> bool:
        """Collects, judges and hands out once, without waiting; False if nothing happened."""
        if self._heartbeat.usurper is not None:
            raise SecondMasterError(
                f"another master with BOHB-ID {self.bohb_id} has taken over {self._files.folder}: {self._heartbeat.usurper.where}"
            )
        names = set(self._files.names())
        moved = False
        for worker in self._workers.values():
            if stem(self.bohb_id, worker.id, "result") + "_check.pt" in names:
                moved |= self._collect(worker)
        if self._host.monotonic() - self._scanned_at >= self._interval / 4:
            self._scan(names)
            if self.on_wait is not None:
                self.on_wait()
        for worker in sorted((w for w in self._workers.values() if w.free), key=lambda w: w.id):
            index = self._next(worker)
            if index is None:
                break
            self._issue(worker, index)
            moved = True
        return moved

    def _collect(self, worker: _Worker) -> bool:
        name = stem(self.bohb_id, worker.id, "result")
        now = self._host.monotonic()
        try:
            pair = read_pair(self._files, name, "result")
            if pair is None:
                return False
            result = result_from(pair[0])
        except (NotReady, Rejected) as e:
            worker.odd_since = now if worker.odd_since is None else worker.odd_since
            if isinstance(e, NotReady) and now - worker.odd_since < GRACE:
                return False
            log.warning("rejected a result of worker %d, now in %s.pt.rejected: %s", worker.id, name, e)
            reject_pair(self._files, name)  # the heartbeat will show that the worker has nothing left for us
            worker.odd_since = None
            return True
        worker.odd_since = None
        remove_pair(self._files, name)
        held = worker.holds
        if held is None or held.sha256 == result.input_sha256:
            worker.holds, worker.settled = None, True
        if held is not None and held.sha256 == result.input_sha256:
            worker.losses = 0
            mode = self._work[held.index].chunk.mode
            self._seconds.setdefault(mode, deque(maxlen=64)).append(now - held.at)
        index, attempt = self._issued.get(result.input_sha256, (-1, -1))
        if index < 0:
            log.info(
                "discarded a result of worker %d: run %s, generation %d, chunk %d is not asked for",
                worker.id, result.run_id, result.generation, result.chunk_id,
            )  # fmt: skip
        else:
            self._accept(index, attempt, result, worker.id)
        return True

    def _accept(self, index: int, attempt: int, result: ChunkResult, worker_id: int) -> None:
        work = self._work[index]
        chunk = work.chunk
        if work.result is not None:
            return  # a duplicate: the same bytes from a second worker
        identity = (result.run_id, result.generation, result.chunk_id, result.attempt, len(result.reasons))
        if identity != (chunk.run_id, chunk.generation, chunk.chunk_id, attempt, len(chunk.seeds)):
            log.warning("discarded a result of worker %d: it answers %s but says it is another", worker_id, chunk.label)
            self._died(index, f"worker {worker_id} returned a result of the wrong shape or name")
            return
        if result.error:
            work.errors += 1
            log.warning("%s failed at worker %d: %s", chunk.label, worker_id, result.error)
            if work.errors < MAX_ERRORS:  # memory or disk may have run out on that worker alone
                self._again(index)
                return
        work.result = result

    def _scan(self, names: set[str]) -> None:
        self._scanned_at = self._host.monotonic()
        for loss in self._roster.scan(names):
            log.warning("%s goes out again: %s", self._work[loss.index].chunk.label, loss.reason)
            if loss.died:
                self._died(loss.index, loss.reason)
            else:
                self._again(loss.index)

    # ------------------------------------------------------------------------------------------------ chunks

    def _next(self, worker: _Worker) -> int | None:
        while self._queue:
            index = self._queue.popleft()
            if self._work[index].result is None:
                return index
        return self._straggler(worker)

    def _straggler(self, worker: _Worker) -> int | None:
        """A chunk that is with one other worker for much longer than its like took."""
        now = self._host.monotonic()
        holders: dict[int, list[_Issue]] = {}
        for other in self._workers.values():
            if other.holds is not None and self._work[other.holds.index].result is None:
                holders.setdefault(other.holds.index, []).append(other.holds)
        for index, issues in sorted(holders.items()):
            usual = self._seconds.get(self._work[index].chunk.mode, ())
            if len(issues) == 1 and len(usual) >= 3:
                limit = max(self._straggler_seconds, self._straggler_factor * statistics.median(usual))
                if now - issues[0].at > limit:
                    log.info("%s is late; worker %d gets it too", self._work[index].chunk.label, worker.id)
                    return index
        return None

    def _issue(self, worker: _Worker, index: int) -> None:
        work = self._work[index]
        chunk = replace(work.chunk, attempt=work.chunk.attempt + work.attempts)
        work.attempts += 1
        sha256 = write_pair(self._files, stem(self.bohb_id, worker.id, "input"), chunk_content(chunk, uuid.uuid4().hex))
        self._issued[sha256] = (index, chunk.attempt)
        owner = worker.beat.uuid if worker.beat is not None else ""
        worker.holds, worker.settled = _Issue(index, sha256, owner, self._host.monotonic()), False

    def _died(self, index: int, reason: str) -> None:
        work = self._work[index]
        work.deaths += 1
        if work.result is None and work.deaths >= self._max_attempts:
            reason = f"{reason}; given up after {work.deaths} attempts"
            log.error("%s: %s", work.chunk.label, reason)
            work.result = ChunkResult.failed(work.chunk, "", reason)
        self._again(index)

    def _again(self, index: int) -> None:
        elsewhere = any(w.holds is not None and w.holds.index == index for w in self._workers.values())
        if self._work[index].result is None and not elsewhere and index not in self._queue:
            self._queue.appendleft(index)

    def _release(self) -> None:
        """Takes back inputs nobody has begun. Whoever is still busy with one gets no other until his heartbeat is idle."""
        for worker in self._workers.values():
            if worker.holds is not None:
                worker.release()
                try:
                    remove_pair(self._files, stem(self.bohb_id, worker.id, "input"))
                except ExchangeError as e:
                    log.error("%s", e)

    def _hint(self, now: float) -> None:
        """Never a silent wait."""
        lonely = not any(w.alive and w.losses < MAX_LOSSES for w in self._workers.values())
        if now - self._hint_at < (LONELY_SECONDS if lonely else HINT_SECONDS):
            return
        if lonely:
            self._hint_at = now + HINT_SECONDS - LONELY_SECONDS
            log.warning(
                "no worker for BOHB-ID %d in %s; start some, one per core: python3 GTN_worker.py %d %d --sync-dir %s",
                self.bohb_id, self._files.folder, self.bohb_id, max(self._workers, default=-1) + 1, self._files.folder,
            )  # fmt: skip
        else:
            self._hint_at = now
            out = [
                f"worker {w.id}: {self._work[w.holds.index].chunk.label}, {now - w.holds.at:.0f} s"
                for w in self._workers.values()
                if w.holds
            ]
            log.info("no result for %.0f s; waiting for %s", HINT_SECONDS, "; ".join(out) or "a worker to be free")


def _completed(results: list[ChunkResult]) -> list[ChunkResult]:
    """Gives failed chunks the values the others have, NaN or 0, so that all can be joined along P."""
    whole = next((r for r in results if not r.error), None)
    for result in results:
        if result.error and whole is not None:
            for name, like in whole.values.items():
                shape = (len(result.reasons), *like.shape[1:])
                fill = float("nan") if like.is_floating_point() else 0
                result.values.setdefault(name, torch.full(shape, fill, dtype=like.dtype))
    return results
