"""The program that a reply stands for: its own, or the one that it was shown with the reply's changes."""

from __future__ import annotations

import re

from envolve.llm.search.individual import EDIT, Individual, Proposal
from envolve.llm.vetting.text.edits import edited


def base_of(p: Proposal) -> str:
    """Code that an edit is to change: what the request shows as the model's own answer; "" for other requests."""
    shown = [text for role, text in p.messages if role == "assistant"] if p.operator == EDIT else []
    found = re.fullmatch(r"```python\n(.*)\n```", shown[-1], re.DOTALL) if shown else None
    return found.group(1) if found else ""


def program_of(individual: Individual) -> str:
    """Reply for the vetter. Until then ``code`` of an edit is what it was shown; that of a repair stands in its
    history. Raises VetError where the changes cannot be made."""
    if individual.operator != EDIT:
        return individual.reply
    base = individual.code or (individual.repairs[-1]["code"] if individual.repairs else "")
    made = edited(base, individual.reply)
    return individual.reply if made is None else f"```python\n{made}\n```"
