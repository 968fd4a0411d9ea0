"""Rate rule: each policy is handed out exactly N times, once for every collector's turn.

This is the coupling of the 0shot-object-insertion framework (a reverb table with SampleToInsertRatio, explained in
Cassirer et al. 2021, https://arxiv.org/abs/2102.04736): a pull waits for the next push, and a push waits while two
policies are unused. So collecting and learning keep their ratio at any speed, and no policy is more than two versions
old when it is handed out.
"""

from __future__ import annotations


class RateRule:
    """Counters of pushes and pulls. Invariant: 0 <= N pushes - pulls <= 2 N."""

    def __init__(self, pulls_per_push: int) -> None:
        """Raises ValueError."""
        if pulls_per_push < 1:
            raise ValueError(f"pulls_per_push: found {pulls_per_push}, expected 1 or more")
        self.N = pulls_per_push
        self.pushes = self.pulls = 0

    @property
    def waiting(self) -> int:
        """Number of pulls allowed before the next push."""
        return self.N * self.pushes - self.pulls

    def may_push(self) -> bool:
        return self.waiting <= self.N

    def may_pull(self) -> bool:
        return self.waiting > 0

    def push(self) -> int:
        """Counts a push and returns its number, from 0. Raises RuntimeError if it has to wait."""
        if not self.may_push():
            raise RuntimeError(f"a push while {self.waiting} pulls are due, expected at most {self.N}")
        self.pushes += 1
        return self.pushes - 1

    def pull(self) -> int:
        """Counts a pull and returns the number of the push to hand out: the oldest that was not handed out N times.
        Raises RuntimeError if it has to wait."""
        if not self.may_pull():
            raise RuntimeError(f"a pull, but all {self.pushes} pushes were handed out {self.N} times")
        self.pulls += 1
        return (self.pulls - 1) // self.N
