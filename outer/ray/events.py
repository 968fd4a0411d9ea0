"""What can happen to a worker on Ray, as a value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from envolve.core.cleaning import clip, one_line

READY, ANSWER, FAILED, LOST, DIED, UNFIT = "ready", "answer", "failed", "lost", "died", "unfit"


class NodeUnfit(Exception):
    """Raised by an evaluation that fails for what the node is, not for the chunk: its workers get no more."""


@dataclass(frozen=True)
class Event:
    """``kind``: READY ``value`` is what the worker said of itself; ANSWER ``value`` answers ``token``; FAILED the
    evaluation of ``token`` raised; LOST ``token`` or its answer was lost; DIED the worker's process ended; UNFIT it
    cannot start or go on, and another of its node could not either. ``text``: why."""

    kind: str
    worker: int
    token: int = -1
    value: Any = None
    text: str = ""


def failure(e: BaseException, worker: int, token: int = -1, starting: bool = False) -> Event:
    """What an exception of a call to a worker means. starting: of the call that loads the evaluation, which would fail
    on the same node again."""
    kind = _kind(e)
    return Event(UNFIT if starting and kind == FAILED else kind, worker, token, text=words(e))


def _kind(e: BaseException) -> str:
    from ray import exceptions as errors

    if isinstance(e, NodeUnfit):
        return UNFIT
    if isinstance(e, errors.RayActorError):
        return UNFIT if e.actor_init_failed else DIED
    if isinstance(e, (errors.ObjectStoreFullError, errors.OutOfDiskError, errors.ObjectLostError)):
        return LOST
    return FAILED if isinstance(e, errors.RayTaskError) else DIED


def last_line(e: BaseException) -> str:
    """The last line of an exception that names a cause: Ray puts the remote traceback before it."""
    lines = [line.strip() for line in str(e).splitlines() if line.strip()]
    return lines[-1] if lines else type(e).__name__


def words(e: BaseException) -> str:
    """``last_line``, as it travels with an event."""
    return one_line(clip(last_line(e)))
