"""Meeting point of all programs: the replay buffer, and the policies under the rate rule. One thread-safe object.

Embedded, it is called directly; the replay program serves it in its own process. Every chunk is logged before it is
acknowledged, so a hub that was killed is rebuilt from the log; the learner publishes its policy again.

Lockstep: each worker collects with each policy once, and the chunks of a version enter the replay buffer together, in
the order of the workers. So its content does not depend on speeds. Asynchronous: chunks enter as they arrive.
"""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from collections.abc import Callable

import numpy as np
from torch import Tensor

from envolve.distributed.engine.limits import Limits
from envolve.distributed.files.policy_table import PolicyTable
from envolve.distributed.memory.replay import SharedReplay
from envolve.distributed.memory.replay_log import ReplayLog
from envolve.distributed.memory.rows import RANDOM, Chunk, Counters, Handout

RECENT = 100  # episodes, and chunks, of which progress tells the means


class Finished(Exception):
    """Raised once the run is complete."""


class Unpublished(Exception):
    """Raised if the hub has restarted and does not have the requested policy. Publish it again."""


class Hub:
    def __init__(
        self, replay: SharedReplay, workers: int, lockstep: bool, limits: Limits, log: ReplayLog | None = None
    ) -> None:
        """limits: bounds of the messages of other programs; log: fills the replay buffer at the start. Raises
        OSError."""
        self.replay, self.workers, self.lockstep, self.limits, self.log = replay, workers, lockstep, limits, log
        self.changed = threading.Condition()
        self.waiting: dict[str, object] = {}  # by what it is for: the call that waits, one of a kind
        self.session, self.finished = -1, False
        self.table = PolicyTable(workers, lockstep)
        self.published: tuple[int, int] | None = None  # session and version of the newest policy
        self.kept = 0  # transitions when the last checkpoint was made
        self._restore(None)

    # ------------------------------------------------------------------------------------------------------ learner

    def begin(self, session: int, version: int) -> None:
        """Announces a learner that starts, or restarts from a checkpoint, and will publish this version next. In
        lockstep, chunks of later versions are dropped and will be collected again."""
        with self.changed:
            if self.lockstep:
                self._restore(version)
            self.session, self.published = session, None
            self.table = PolicyTable(self.workers, self.lockstep)
            self.changed.notify_all()

    def publish(self, session: int, version: int, policy: Tensor, timeout: float) -> bool:
        """Publishes the policy float32 [P, D]. False: the rate rule blocked it for ``timeout`` s. Repeating a call with
        the same policy changes nothing."""
        with self.changed:
            if self.published == (session, version):
                return True
            if not self._wait("publish", self.table.may_push, timeout):
                return False
            self.table.push(session, version, policy)
            if self.lockstep or version == RANDOM:  # some may have brought their chunk before the hub was killed
                for worker in self.delivered[version]:
                    self.table.brought(worker, version)
            self.session, self.published = session, (session, version)
            self.changed.notify_all()
            return True

    def ready(self, session: int, version: int, timeout: float) -> bool:
        """Waits at most ``timeout`` s until there is a chunk of this version for every worker, in lockstep one from
        each. Raises Unpublished."""
        with self.changed:
            if self.published != (session, version):
                raise Unpublished
            return self._wait("ready", lambda: len(self.delivered[version]) >= self.workers, timeout)

    def has(self, version: int) -> bool:
        """Same as ``ready``, for any session and without waiting."""
        with self.changed:
            return len(self.delivered[version]) >= self.workers

    def sample(self, first: int, count: int) -> Tensor:
        """See ``SharedReplay.sample``."""
        with self.changed:
            return self.replay.sample(first, count)

    def checkpoint(self) -> None:
        """Flushes all chunks to disk and deletes those that neither the run nor the last checkpoint needs."""
        with self.changed:
            if self.log is not None:
                self.log.sync()
                self.log.drop_before(self.kept - self.replay.capacity)
            self.kept = self.replay.written

    def finish(self) -> None:
        """Marks the run as complete."""
        with self.changed:
            self.finished = True
            self.changed.notify_all()

    def progress(self) -> Counters:
        with self.changed:
            returns = float(np.mean(self.returns)) if self.returns else float("nan")
            late = float(np.mean(self.late)) if self.late else float("nan")
            rule = self.table.rule
            return Counters(self.replay.written, self.episodes, returns, late, rule.pushes, rule.pulls)

    # --------------------------------------------------------------------------------------------------- collectors

    def pull(self, worker: int, timeout: float) -> Handout | None:
        """Policy for this worker's next turn; None if there was none for ``timeout`` s. Raises Finished."""
        with self.changed:
            here = self._wait(f"pull {worker}", lambda: self.finished or self.table.may_pull(worker), timeout)
            if self.finished:
                raise Finished
            if not here:
                return None
            handout = self.table.pull(worker)
            self.changed.notify_all()
            return handout

    def append(self, chunk: Chunk) -> bool:
        """Stores a chunk. False: it belongs to a training that was rolled back. Repeating a call after a lost reply
        changes nothing. Raises OSError, ValueError, and Unpublished: retry once the learner has published."""
        self.replay.check(chunk.rows)
        with self.changed:
            if self.lockstep and self.published is None:
                raise Unpublished
            if self.lockstep and chunk.session != self.session:
                return False
            if self.published is not None and (chunk.session, chunk.version) > self.published:
                found = f"session {chunk.session}, version {chunk.version}"
                raise ValueError(f"{found} of an unpublished policy; the newest: {self.published}")
            if chunk.ticket == self.last.get(chunk.worker):
                self.table.delivered(chunk.worker, chunk.version)
                return True
            if self.log is not None:
                # in lockstep a file begins with a version's first chunk
                if self.log.full() and not (self.lockstep and self.pending):
                    self.log.begin_file(self.replay.written)
                self.log.append(chunk)
            self._take(chunk)
            self.table.brought(chunk.worker, chunk.version)
            if self.published is not None:
                self.late.append(self.published[1] - chunk.version)
            self.changed.notify_all()
            return True

    # -------------------------------------------------------------------------------------------------------- inside

    def _wait(self, what: str, condition: Callable[[], bool], timeout: float) -> bool:
        """Waits at most ``timeout`` s for a condition. A later call of the same caller ends an earlier one: that caller
        has gone, or it is broken and would block all threads of the server."""
        if timeout <= 0 or condition():
            return condition()
        if what in self.waiting:
            self.changed.notify_all()
        mine = self.waiting[what] = object()
        self.changed.wait_for(lambda: self.waiting.get(what) is not mine or condition(), timeout)
        if self.waiting.get(what) is not mine:
            return False
        del self.waiting[what]
        return condition()

    def _take(self, chunk: Chunk) -> None:
        """Moves chunks into the replay buffer, in lockstep once all chunks of a version are there."""
        self.last[chunk.worker] = chunk.ticket
        self.delivered[chunk.version].append(chunk.worker)
        self.returns.extend(chunk.episodes[:, 0].tolist())
        self.episodes += len(chunk.episodes)
        if not self.lockstep:
            self.replay.append(chunk.rows)
        else:
            self.pending[chunk.worker] = chunk
            if len(self.pending) == self.workers:
                for worker in range(self.workers):
                    self.replay.append(self.pending[worker].rows)
                self.pending.clear()
        for version in [v for v in self.delivered if RANDOM < v < chunk.version - 2]:
            del self.delivered[version]

    def _restore(self, before: int | None) -> None:
        """Rebuilds the replay buffer from the log, up to this version."""
        self.delivered: defaultdict[int, list[int]] = defaultdict(list)  # by version: workers that delivered a chunk
        self.last: dict[int, int] = {}  # by worker: ticket of its last chunk
        self.pending: dict[int, Chunk] = {}  # lockstep: of the version that is not complete
        self.returns: deque[float] = deque(maxlen=RECENT)
        self.late: deque[int] = deque(maxlen=RECENT)  # versions published since the policy of each chunk
        self.episodes = 0
        if self.log is None:
            if before is not None and before != RANDOM:
                raise RuntimeError("a hub without a log cannot roll back a training")
            self.replay.clear()
            return
        files = self.log.files()
        self.replay.clear(files[0][0] if files else 0)
        for chunk in self.log.read(before):
            self._take(chunk)
            self.session = max(self.session, chunk.session)
        self.log.open_last()
