"""Types of a search over configurations: trial, result, and the interface of every search.

The third level: a search proposes a configuration; a whole run of the outer loop, or of agents alone, is its
evaluation.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol, Union

Plain = Union[bool, int, float, str]
ONE_MINUS = "1-"  # begins the name of a parameter that is searched as 1 - value
ConfigID = tuple[int, int, int]  # as hpbandster counts: bracket, 0, number within the bracket


@dataclass(frozen=True)
class Trial:
    """One evaluation: a configuration at a budget. A promoted configuration returns in a new trial."""

    id: int  # trials are numbered in the order of asking
    config_id: ConfigID
    values: dict[str, Plain]  # name of a parameter -> value, of those that are active; plain Python, never of NumPy
    budget: float
    rung: int = 0  # 0: evaluated for the first time; k: promoted k times
    model_based: bool = False  # proposed by the model; False: at random


@dataclass(frozen=True)
class TrialResult:
    """loss: to be minimised, inf for a failure, with the reason in ``error``. info: other measurements."""

    loss: float
    info: dict[str, float] = field(default_factory=dict)
    error: str = ""


@dataclass(frozen=True)
class Record:
    """A finished trial. Times are seconds since the epoch, for people only: no decision may depend on them."""

    trial: Trial
    result: TrialResult
    submitted: float
    started: float
    finished: float


class TrialSearch(Protocol):
    """Interface of a search. Several trials may be out at once. Told in the same order, the same random seed asks the
    same trials; so a search is resumed by telling its results again."""

    def ask(self) -> Trial:
        """Next trial; there is always one."""

    def tell(self, id: int, loss: float) -> None:
        """Reports the loss of trial ``id``; one that is not finite means failure. Raises KeyError if that trial is not
        out."""
