"""The master's side of the exchange: chunks out, results in, whatever dies in between.

Every worker has at most one chunk at a time. Chance decides which worker evaluates what; the results do not depend on
it, and they come back in the order of the chunks. What can go wrong, and what is done:

- a worker dies or falls silent, with or without its chunk: the chunk goes to another;
- an input or a result gets lost on the way: the worker's heartbeat shows it, the chunk goes out again;
- a worker rejects what it finds in its slot: likewise, and after three in a row it gets none for a while;
- the evaluation raises an exception: once more, elsewhere if possible, then NaN scores with the exception as the
  reason;
- a chunk takes much longer than the others: other workers get it too, the first answer counts;
- workers died of a chunk ``max_attempts`` times, or it hangs wherever it goes: NaN scores with the reason;
- a worker answers as another, or with results of another shape: the chunk goes to another and it does not count as
  a try; three in a row, and the worker gets none for a while. If that happens to every worker, the master waits and
  says so: no finished result is lost by waiting;
- a result of another run, generation or master: discarded;
- no workers, or no news for long: said in the log, with the command that helps.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial

from envolve.outer.exchange.backlog import Backlog, Patience
from envolve.outer.exchange.engine import ChunkCheck, Unfit, evaluate_all
from envolve.outer.exchange.heartbeat import Heartbeat, name_of
from envolve.outer.exchange.lanes import Lanes, raise_first
from envolve.outer.exchange.local_workers import start_some
from envolve.outer.exchange.machine import ExchangeError, Files, Host
from envolve.outer.exchange.mailbox import Mailbox
from envolve.outer.exchange.messages import Chunk, ChunkResult, quit_chunk
from envolve.outer.exchange.roster import Roster
from envolve.outer.exchange.rounds import Rounds
from envolve.outer.exchange.worker import pause

log = logging.getLogger("envolve")

# The pause between two lists of the folder is the least of these two, and of a quarter of the heartbeat's interval:
UNNOTICED = 0.01  # times the usual seconds of a chunk
LISTINGS = 16  # times the seconds that the last list took
LONG_LOOK = 0.01  # seconds of a look around; a busy machine takes as long now and then
LONELY_SECONDS = 15.0  # without a worker, until the first hint in the log
HINT_SECONDS = 60.0  # between hints


class SecondMasterError(ExchangeError):
    """Raised if another master with the same BOHB-ID works in the same sync folder."""


class Dispatcher:
    """Hands chunks to whatever workers there are.

    Claims BOHB-ID ``bohb_id`` in ``sync_dir`` (created if missing) and removes what older runs of that id left there.
    Raises :class:`SecondMasterError` if a live master has it, :class:`ExchangeError` if the folder cannot be used.
    ``interval`` is the time between heartbeats and ``worker_timeout`` how long a worker may be without one, in seconds;
    ``patience``: when a chunk is late or hopeless; ``on_wait`` is called four times per interval while it waits;
    ``threads``: how many files are read or written side by side where the file system is slow (16, or none if ``files``
    are given); ``advice``: takes an id that is free, and gives the log's hint if there is no worker; default: how to
    start one.

    Either :meth:`evaluate` a list of chunks, or :meth:`submit` them one by one and ask for each :meth:`result`.
    """

    def __init__(
        self,
        sync_dir: str,
        bohb_id: int,
        run_id: str,
        *,
        interval: float = 1.0,
        worker_timeout: float = 30.0,
        patience: Patience | None = None,
        on_wait: Callable[[], None] | None = None,
        files: Files | None = None,
        host: Host | None = None,
        threads: int | None = None,
        advice: Callable[[int], str] | None = None,
    ) -> None:
        self.bohb_id, self.run_id = bohb_id, run_id
        self._files = files or Files(sync_dir)
        self._host = host or Host()
        self._interval = interval
        self.on_wait, self._advice = on_wait, advice or partial(start_some, bohb_id, self._files.folder, None)
        self._check = ChunkCheck()
        self._lanes = Lanes(16 if threads is None and files is None else threads or 0)
        self._mailbox = Mailbox(self._files, bohb_id, self._lanes)
        self._roster = Roster(self._files, self._host, bohb_id, worker_timeout, self._lanes)
        self._backlog = Backlog(patience or Patience())
        self._rounds = Rounds(self._host, self._mailbox, self._roster, self._backlog)
        self._hint_at = self._look_at = 0.0  # by the host's clock: when a hint is due, when to look again
        self._heartbeat = Heartbeat(self._files, self._host, name_of(bohb_id, "master"), interval, run_id)
        owner = self._heartbeat.claim()
        if owner is not None:
            raise SecondMasterError(
                f"another master with BOHB-ID {bohb_id} is running in {self._files.folder}: {owner.where}, "
                f"run {owner.run_id}. Stop it, or start this one with another --bohb-id or --sync-dir."
            )
        try:
            self._mailbox.clear()
        except BaseException:
            self._heartbeat.close()
            raise
        self._heartbeat.start()

    def __enter__(self) -> Dispatcher:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def workers(self) -> list[int]:
        """Ids of the live workers."""
        self._rounds.scan(set(self._files.names()))
        return sorted(slot.id for slot in self._roster.slots.values() if slot.alive)

    def evaluate(self, chunks: Sequence[Chunk], unfit: Unfit | None = None) -> list[ChunkResult]:
        """The results, in the order of ``chunks``; returns when all are there. unfit: what is wrong with the values of
        a result, "" if nothing is; one that does not fit is not accepted.

        A chunk that could not be evaluated has ``error`` set, NaN scores, and NaN or 0 in the other values of the
        rest. Raises as :meth:`submit` and :meth:`result`.
        """
        self._rounds.unfit = unfit
        try:
            return evaluate_all(self, chunks)
        finally:
            self._rounds.unfit = None

    def submit(self, chunk: Chunk) -> int:
        """Puts a chunk behind the others and returns its ticket. It goes out during the next :meth:`result`. Raises
        :class:`ValueError` for a chunk that workers would reject."""
        self._check(chunk)
        return self._backlog.add(chunk)

    def result(self, ticket: int) -> ChunkResult:
        """Waits for the result of a submitted chunk, to be asked for once; the others continue meanwhile. Raises
        :class:`ExchangeError` if the folder cannot be used any more, :class:`SecondMasterError` if another master took
        it over."""
        news = self._hint_at = self._host.monotonic()
        while self._backlog.open(ticket):
            began = self._host.monotonic()
            if began < self._look_at:
                self._host.sleep(self._look_at - began)
                began = self._host.monotonic()
            moved = self._step()
            now = self._host.monotonic()
            if moved:
                news = now
            else:
                self._hint(now)
                # where a look takes long (LONG_LOOK), about half of the time goes into looking
                self._host.sleep(max(pause(now - news), min(now - began - LONG_LOOK, self._interval / 4)))
        result = self._backlog.pop(ticket).result
        assert result is not None
        self._rounds.forget(ticket)
        return result

    def holders(self) -> list[tuple[int, int]]:
        """(ticket, id of a worker that has its chunk)."""
        return [(issue.index, slot.id) for slot, issue in self._roster.holders()]

    def withdraw(self) -> None:
        """Cancels all waiting: takes back chunks that no worker has begun. Busy workers get no other chunk until their
        heartbeat says idle."""
        self._backlog.clear()
        self._rounds.forget()
        for slot, _ in list(self._roster.holders()):
            slot.release()
            try:
                self._mailbox.withdraw(slot.id)
            except ExchangeError as e:
                log.error("%s", e)

    def close(self, quit_workers: bool = False) -> None:
        """Gives up the BOHB-ID. Workers are told to quit, or left waiting for the next master."""
        try:
            if quit_workers:
                began, living = self._host.monotonic(), self.workers()
                while self._host.monotonic() - began < self._roster.undecided():
                    self._host.sleep(self._interval / 4)
                    living = self.workers()
                raise_first(self._mailbox.put([(worker_id, quit_chunk(self.run_id)) for worker_id in living]))
        except ExchangeError as e:
            log.error("could not tell the workers to quit: %s", e)
        finally:
            self._heartbeat.close()
            self._lanes.close()

    # ------------------------------------------------------------------------------------------------ one look around

    def _step(self) -> bool:
        """Collects, judges and hands out once, without waiting; False if nothing happened."""
        if self._heartbeat.usurper is not None:
            raise SecondMasterError(
                f"another master with BOHB-ID {self.bohb_id} has taken over {self._files.folder}: "
                f"{self._heartbeat.usurper.where}"
            )
        began = self._host.monotonic()
        names = self._files.names()
        listed = self._host.monotonic()
        spared = min(LISTINGS * (listed - began), UNNOTICED * self._backlog.shortest(), self._interval / 4)
        self._look_at = listed + spared
        moved = self._rounds.collect(names)
        if self._host.monotonic() - self._rounds.scanned_at >= self._interval / 4:
            self._rounds.scan(set(names))
            if self.on_wait is not None:
                self.on_wait()
        moved |= self._rounds.hand_out()
        if self._rounds.accepted_at is not None:
            self._hint_at, self._rounds.accepted_at = self._rounds.accepted_at, None
        return moved

    def _hint(self, now: float) -> None:
        """Logs long waits, so that none is silent."""
        lonely = not self._roster.usable()
        if now - self._hint_at < (LONELY_SECONDS if lonely else HINT_SECONDS):
            return
        if lonely:
            self._hint_at = now + HINT_SECONDS - LONELY_SECONDS
            advice, barred = self._advice(max(self._roster.slots, default=-1) + 1), self._roster.barred()
            if barred:
                ids = ", ".join(map(str, barred[:20])) + ", ..." * (len(barred) > 20)
                words = "none of them can be trusted with a chunk; waiting for one that can, see their logs"
                log.error("workers of BOHB-ID %d: %s: %s; %s", self.bohb_id, ids, words, advice)
            else:
                log.warning("no worker for BOHB-ID %d; %s", self.bohb_id, advice)
        else:
            self._hint_at = now
            out = [
                f"worker {slot.id} ({self._backlog.work[issue.index].chunk.label}, {now - issue.at:.0f} s)"
                for slot, issue in self._roster.holders()
                if issue.index in self._backlog.work
            ]
            log.info("no result for %.0f s; waiting for %s", HINT_SECONDS, ", ".join(out) or "a worker to be free")
