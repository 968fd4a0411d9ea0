"""Asks again, within an iteration, for what was refused or failed in training: with its own code and the reason.

A repair is a call of its own, inside the run's budgets and recorded like any other. Its number is a function of the
individual and of the attempt, so that a resumed or replayed run finds it. What a repair replaces stays in the
individual (``Individual.repairs``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from envolve.llm.models.chat import BudgetSpent, Chat, ChatFailure, RecordingEnds, Reply, Unanswered
from envolve.llm.models.request import FIRST_REPAIR, Sampling
from envolve.llm.search.individual import CALL, NOVELTY, Individual, Prompts

MOST = 9  # repairs of an individual


def broken(individuals: Sequence[Individual], most: int) -> list[Individual]:
    """Those that a model may still mend: refused with a reason, or failed in training, fewer than ``most`` times."""
    return [i for i in individuals if len(i.repairs) < most and _reason(i) is not None]


def _reason(i: Individual) -> str | None:
    if i.rejection is not None:
        return None if i.rejection[0] in (CALL, NOVELTY) else i.rejection[1]
    return i.failure


def call_number(i: Individual) -> int:
    return FIRST_REPAIR + i.id * MOST + len(i.repairs)


def ask_again(
    chat: Chat, prompts: Prompts, individuals: Sequence[Individual], sampling: Sampling
) -> tuple[list[Individual], str]:
    """Individuals with new replies, still to be vetted; and why nothing more can be asked, or "". A recording without
    the call leaves an individual as it is. Raises Unanswered and other ChatErrors."""
    calls = [sampling.call(call_number(i), i.model, prompts.repair(i)) for i in individuals]
    replies = chat.ask(calls)
    waiting = [a for a in replies if isinstance(a, ChatFailure) and not a.final]
    waiting = [a for a in waiting if not isinstance(a, (BudgetSpent, RecordingEnds))]
    if waiting:
        raise Unanswered(f"{waiting[0]}; the replies so far are kept")
    new, ends = [], ""
    for call, i, reply in zip(calls, individuals, replies):
        if isinstance(reply, Reply):
            _begin_again(i, call.index, reply.text)
            new.append(i)
        elif isinstance(reply, BudgetSpent):
            ends = ends or str(reply)
    return new, ends


def _begin_again(i: Individual, call: int, reply: str) -> None:
    before: dict[str, Any] = {
        "call": call, "reply": i.reply, "code": i.code, "rejection": i.rejection, "failure": i.failure,
    }  # fmt: skip
    i.repairs = [*i.repairs, before]
    i.reply, i.code, i.graph_file, i.rejection, i.failure, i.notes = reply, "", None, None, None, ()
