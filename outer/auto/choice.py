"""What a user of ``envolve evolve`` asked for."""

from __future__ import annotations

from dataclasses import dataclass

AUTO = "auto"


@dataclass(frozen=True)
class Choice:
    """What the user asked for."""

    seconds: float
    world: str = AUTO
    learner: str = AUTO
    search: str = AUTO
    init: str = AUTO
    seed: int = 0
    workers: int = 1
    agents: int | None = None  # of each kind at each place; None: as many as there is time for
    steps: int | None = None  # of each in the world; None: the same
    quick: tuple[str, ...] = ()  # the fields of these that --quick has set
    learners: tuple[str, ...] = ()  # the unseen ones; (): as many kinds as there is time for
