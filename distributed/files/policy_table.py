"""Policies that wait for collectors, under the rate rule. No clock and no lock: ``distributed/engine/hub.py`` has
those."""

from __future__ import annotations

from torch import Tensor

from envolve.distributed.engine.rate_rule import RateRule
from envolve.distributed.memory.rows import Handout


class PolicyTable:
    """Asynchronous: whoever comes gets the oldest policy, a fast worker maybe twice. Lockstep: each worker gets each
    policy once. Who asks again without having brought its chunk was started anew, and gets the same policy again,
    which is no new pull: so nothing waits for a dead worker's share."""

    def __init__(self, workers: int, lockstep: bool) -> None:
        self.rule, self.lockstep = RateRule(workers), lockstep
        self.policies: dict[int, Handout] = {}  # by number of the push
        self.held: dict[int, Handout] = {}  # by worker: those handed out whose chunk is not here
        self.taken = [0] * workers  # policies that each has been given

    def may_push(self) -> bool:
        return self.rule.may_push()

    def push(self, session: int, version: int, policy: Tensor) -> None:
        self.policies[self.rule.push()] = Handout(session, version, policy)

    def may_pull(self, worker: int) -> bool:
        if worker in self.held:
            return True
        return self.rule.may_pull() and (not self.lockstep or self.taken[worker] < self.rule.pushes)

    def pull(self, worker: int) -> Handout:
        if worker not in self.held:
            number = self._next(worker)
            self.rule.pull()
            self.held[worker] = self.policies[number]
            self.taken[worker] += 1
            oldest = min(self.taken) if self.lockstep else self.rule.pulls // self.rule.N
            for gone in [n for n in self.policies if n < oldest]:
                del self.policies[gone]
        return self.held[worker]

    def _next(self, worker: int) -> int:
        """Number of the push that it may pull."""
        return self.taken[worker] if self.lockstep else self.rule.pulls // self.rule.N

    def brought(self, worker: int, version: int) -> None:
        """A chunk of this version came. If its policy was handed out by the hub that was killed, and has been pushed
        again since, that is its pull: the worker is not to collect with it a second time."""
        if worker not in self.held and self.may_pull(worker) and self.policies[self._next(worker)].version == version:
            self.pull(worker)
        self.delivered(worker, version)

    def delivered(self, worker: int, version: int) -> None:
        """A chunk of this version is here; it may have been for long."""
        if worker in self.held and self.held[worker].version == version:
            del self.held[worker]
