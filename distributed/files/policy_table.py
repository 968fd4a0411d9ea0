"""Policies waiting for collectors, under the rate rule. Clock and lock are in ``distributed/engine/hub.py``."""

from __future__ import annotations

from torch import Tensor

from envolve.distributed.engine.rate_rule import RateRule
from envolve.distributed.memory.rows import Handout


class PolicyTable:
    """Table of policies. Asynchronous: every request gets the oldest policy, a fast worker perhaps twice. Lockstep:
    each worker gets each policy once. A worker that asks again without having delivered its chunk has restarted and
    gets the same policy again, which is not a new pull; so nothing waits for a dead worker's share."""

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
        """Number of the push that the worker may pull."""
        return self.taken[worker] if self.lockstep else self.rule.pulls // self.rule.N

    def brought(self, worker: int, version: int) -> None:
        """Notes that a chunk of this version arrived. If its policy was handed out by a hub that was killed, and has
        been pushed again since, this counts as its pull: the worker must not collect with it a second time."""
        if worker not in self.held and self.may_pull(worker) and self.policies[self._next(worker)].version == version:
            self.pull(worker)
        self.delivered(worker, version)

    def delivered(self, worker: int, version: int) -> None:
        """Notes that a chunk of this version is stored, perhaps for long."""
        if worker in self.held and self.held[worker].version == version:
            del self.held[worker]
