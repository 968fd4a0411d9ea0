"""The master's side of the exchange: chunks out, results in, whatever dies in between.

Every worker has at most one chunk at a time. Who evaluates what is left to chance; the results do not depend on it, and
they come back in the order of the chunks. What can go wrong, and what is done:

- a worker dies or falls silent, with or without its chunk: the chunk goes to another;
- an input or a result gets lost on the way: the worker's heartbeat shows it, the chunk goes out again;
- a worker rejects what it finds in its slot: likewise, and after three in a row it gets none for a while;
- the evaluation raises an exception: once more, then NaN scores with the exception as the reason;
- a chunk takes much longer than the others: a second worker gets it too, the first answer counts;
- workers died of a chunk ``max_attempts`` times: NaN scores with the reason;
- a result of another run, generation or master: discarded;
- no workers, or no news for long: said in the log, with the command that helps.
"""

from __future__ import annotations

import logging
import re
import shlex
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
    chunk_from,
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

    Claims BOHB-ID ``bohb_id`` in ``sync_dir`` (created if missing) and removes what older runs of that id left there.
    Raises :class:`SecondMasterError` if a live master has it, :class:`ExchangeError` if the folder cannot be used.
    ``interval`` is the time between heartbeats and ``worker_timeout`` how long a worker may be without one, in seconds;
    ``on_wait`` is called four times per interval during :meth:`evaluate`.
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
        self._interval, self._max_attempts = interval, max_attempts
        self._straggler_factor, self._straggler_seconds = straggler_factor, straggler_seconds
        self.on_wait = on_wait
        self._roster = Roster(self._files, self._host, bohb_id, worker_timeout)
        self._work: list[_Work] = []
        self._queue: deque[int] = deque()
        self._issued: dict[str, tuple[int, int]] = {}  # SHA-256 of an input -> (index of its work, attempt)
        self._seconds: dict[str, deque[float]] = {}  # per mode, what the latest chunks took
        self._scanned_at = float("-inf")
        self._hint_at = 0.0
        self._heartbeat = Heartbeat(self._files, self._host, name_of(bohb_id, "master"), interval, run_id)
        owner = self._heartbeat.claim()
        if owner is not None:
            raise SecondMasterError(
                f"another master with BOHB-ID {bohb_id} is running in {self._files.folder}: {owner.where}, "
                f"run {owner.run_id}. Stop it, or start this one with another --bohb-id or --sync-dir."
            )
        leftover = re.compile(rf"\.?{bohb_id}_\d+_(input|result)(_check)?\.pt(\.|$)")
        try:
            for name in self._files.names():
                if leftover.match(name):
                    self._files.remove(name)
        except BaseException:
            self._heartbeat.close()
            raise
        self._heartbeat.start()

    def __enter__(self) -> Dispatcher:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def workers(self) -> list[int]:
        """The ids of the workers that are alive."""
        self._scan(set(self._files.names()))
        return sorted(slot.id for slot in self._roster.slots.values() if slot.alive)

    def evaluate(
        self, chunks: Sequence[Chunk], on_progress: Callable[[int, int], None] | None = None
    ) -> list[ChunkResult]:
        """The results, in the order of ``chunks``; returns when all are there.

        A chunk that could not be evaluated has ``error`` set, NaN scores, and NaN or 0 in the other values of the
        rest. ``on_progress`` gets the number of finished chunks and of all. Raises :class:`ValueError` for a chunk that
        workers would reject, :class:`ExchangeError` if the folder cannot be used any more,
        :class:`SecondMasterError` if another master took it over.
        """
        for chunk in chunks:
            try:
                chunk_from(chunk_content(chunk, ""))
            except Rejected as e:
                raise ValueError(f"{chunk.label} cannot be sent to a worker: {e}") from e
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
                for worker_id in self.workers():
                    content = chunk_content(quit_chunk(self.run_id), uuid.uuid4().hex)
                    write_pair(self._files, stem(self.bohb_id, worker_id, "input"), content)
        except ExchangeError as e:
            log.error("could not tell the workers to quit: %s", e)
        finally:
            self._heartbeat.close()

    # ------------------------------------------------------------------------------------------------ one look around

    def _step(self) -> bool:
        """Collects, judges and hands out once, without waiting; False if nothing happened."""
        if self._heartbeat.usurper is not None:
            raise SecondMasterError(
                f"another master with BOHB-ID {self.bohb_id} has taken over {self._files.folder}: "
                f"{self._heartbeat.usurper.where}"
            )
        names = set(self._files.names())
        moved = False
        for slot in self._roster.slots.values():
            if stem(self.bohb_id, slot.id, "result") + "_check.pt" in names:
                moved |= self._collect(slot)
        if self._host.monotonic() - self._scanned_at >= self._interval / 4:
            self._scan(names)
            if self.on_wait is not None:
                self.on_wait()
        for slot in self._roster.free():
            index = self._next(slot)
            if index is None:
                break
            self._issue(slot, index)
            moved = True
        return moved

    def _collect(self, slot: Slot) -> bool:
        name = stem(self.bohb_id, slot.id, "result")
        now = self._host.monotonic()
        try:
            pair = read_pair(self._files, name, "result")
            if pair is None:
                return False
            result = result_from(pair[0])
        except (NotReady, Rejected) as e:
            slot.odd_since = now if slot.odd_since is None else slot.odd_since
            if isinstance(e, NotReady) and now - slot.odd_since < GRACE:
                return False
            log.warning("rejected a result of worker %d, now in %s.pt.rejected: %s", slot.id, name, e)
            reject_pair(self._files, name)  # the heartbeat will show that the worker has nothing left for us
            slot.odd_since = None
            return True
        slot.odd_since = None
        remove_pair(self._files, name)
        held = slot.holds
        if held is None or held.sha256 == result.input_sha256:
            slot.holds, slot.settled = None, True
        if held is not None and held.sha256 == result.input_sha256:
            slot.losses = 0
            mode = self._work[held.index].chunk.mode
            self._seconds.setdefault(mode, deque(maxlen=64)).append(now - held.at)
        index, attempt = self._issued.get(result.input_sha256, (-1, -1))
        if index < 0:
            name = f"run {result.run_id}, generation {result.generation}, chunk {result.chunk_id}"
            log.info("discarded a result of worker %d that nobody waits for: %s", slot.id, name)
        else:
            self._accept(index, attempt, result, slot.id)
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

    def _next(self, slot: Slot) -> int | None:
        while self._queue:
            index = self._queue.popleft()
            if self._work[index].result is None:
                return index
        return self._straggler(slot)

    def _straggler(self, slot: Slot) -> int | None:
        """A chunk that is with one other worker for much longer than its like took."""
        now = self._host.monotonic()
        holders: dict[int, list[Issue]] = {}
        for _, issue in self._roster.holders():
            holders.setdefault(issue.index, []).append(issue)
        for index, issues in sorted(holders.items()):
            work = self._work[index]
            usual = self._seconds.get(work.chunk.mode, ())
            if work.result is not None or len(issues) > 1 or len(usual) < 3:
                continue
            if now - issues[0].at > max(self._straggler_seconds, self._straggler_factor * statistics.median(usual)):
                log.info("%s is late; worker %d gets it too", work.chunk.label, slot.id)
                return index
        return None

    def _issue(self, slot: Slot, index: int) -> None:
        work = self._work[index]
        chunk = replace(work.chunk, attempt=work.chunk.attempt + work.attempts)
        work.attempts += 1
        sha256 = write_pair(self._files, stem(self.bohb_id, slot.id, "input"), chunk_content(chunk, uuid.uuid4().hex))
        self._issued[sha256] = (index, chunk.attempt)
        owner = slot.beat.uuid if slot.beat is not None else ""
        slot.holds, slot.settled = Issue(index, sha256, owner, self._host.monotonic()), False

    def _died(self, index: int, reason: str) -> None:
        work = self._work[index]
        work.deaths += 1
        if work.result is None and work.deaths >= self._max_attempts:
            reason = f"{reason}; given up after {work.deaths} attempts"
            log.error("%s: %s", work.chunk.label, reason)
            work.result = ChunkResult.failed(work.chunk, "", reason)
        self._again(index)

    def _again(self, index: int) -> None:
        elsewhere = any(issue.index == index for _, issue in self._roster.holders())
        if self._work[index].result is None and not elsewhere and index not in self._queue:
            self._queue.appendleft(index)

    def _release(self) -> None:
        """Takes back what nobody has begun. Whoever is busy gets no other chunk until his heartbeat says idle."""
        for slot, _ in list(self._roster.holders()):
            slot.release()
            try:
                remove_pair(self._files, stem(self.bohb_id, slot.id, "input"))
            except ExchangeError as e:
                log.error("%s", e)

    def _hint(self, now: float) -> None:
        """Never a silent wait."""
        lonely = not self._roster.usable()
        if now - self._hint_at < (LONELY_SECONDS if lonely else HINT_SECONDS):
            return
        if lonely:
            self._hint_at = now + HINT_SECONDS - LONELY_SECONDS
            free_id = max(self._roster.slots, default=-1) + 1
            command = f"python3 GTN_worker.py {self.bohb_id} {free_id} --sync-dir {shlex.quote(self._files.folder)}"
            log.warning("no worker for BOHB-ID %d; start some, one per core: %s", self.bohb_id, command)
        else:
            self._hint_at = now
            out = [
                f"worker {slot.id} ({self._work[issue.index].chunk.label}, {now - issue.at:.0f} s)"
                for slot, issue in self._roster.holders()
            ]
            log.info("no result for %.0f s; waiting for %s", HINT_SECONDS, ", ".join(out) or "a worker to be free")


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
