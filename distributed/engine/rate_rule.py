"""How fast policies may come and go: each is handed out exactly N times, once for every collector's turn.

That is the coupling of the seed's framework (a table of reverb with SampleToInsertRatio, whose reasons are in Cassirer
et al. 2021, https://arxiv.org/abs/2102.04736): a pull waits for the next push, a push waits while two policies lie
there that nobody has asked for. So collecting and learning keep their ratio whatever the speeds, and no policy is more
than two versions old when it is handed out.
"""

from __future__ import annotations


class RateRule:
    """Counts, and nothing else. At all times 0 <= N pushes - pulls <= 2 N."""

    def __init__(self, pulls_per_push: int) -> None:
        """Raises ValueError."""
        if pulls_per_push < 1:
            raise ValueError(f"pulls_per_push: found {pulls_per_push}, expected 1 or more")
        self.N = pulls_per_push
        self.pushes = self.pulls = 0

    @property
    def waiting(self) -> int:
        """Pulls that may come before the next push."""
        return self.N * self.pushes - self.pulls

    def may_push(self) -> bool:
        return self.waiting <= self.N

    def may_pull(self) -> bool:
        return self.waiting > 0

    def push(self) -> int:
        """Returns the number of this push, from 0. Raises RuntimeError if it has to wait."""
        if not self.may_push():
            raise RuntimeError(f"a push while {self.waiting} pulls are due, expected at most {self.N}")
        self.pushes += 1
        return self.pushes - 1

    def pull(self) -> int:
        """Returns which push is handed out: the oldest that was not handed out N times. Raises RuntimeError if it has
        to wait."""
        if not self.may_pull():
            raise RuntimeError(f"a pull, but all {self.pushes} pushes were handed out {self.N} times")
        self.pulls += 1
        return (self.pulls - 1) // self.N
