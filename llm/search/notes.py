"""Notes that a model keeps: it ends a reply with them, and later prompts show the last ones.

A request has no history, so what a model has understood is lost with its reply unless it writes it down.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from envolve.llm.search.individual import Individual, Messages
from envolve.llm.search.reflection import shortened
from envolve.llm.vetting.text.extract import MOST_REPLY
from envolve.llm.vetting.text.thoughts import without_thoughts

MOST, LIMIT = 5, 500  # notes in a prompt, characters of each
_ASK = (
    "End your answer, after the code, with a line `NOTES:` and at most three short lines for whoever writes the next "
    "version: what was learned, what to try, what to leave alone."
)
_MARK = re.compile(r"^[#*_ \t]*NOTES[*_ \t]*:[*_ \t]*(.*)", re.IGNORECASE | re.MULTILINE)


def notes_of(reply: str) -> str:
    """The last notes of a reply, outside of its code; "" without any."""
    if len(reply) > MOST_REPLY:
        return ""
    after = without_thoughts(reply).rsplit("```", 1)[-1]
    found = list(_MARK.finditer(after))
    if not found:
        return ""
    lines = [found[-1].group(1), *after[found[-1].end() :].split("\n")]
    kept = [" ".join(line.split()) for line in lines]
    return shortened(" / ".join(line for line in kept if line), LIMIT)


def with_notes(messages: Messages, known: Sequence[Individual]) -> Messages:
    """Messages that show the last notes of earlier attempts, that of the best one among them, and ask for new ones."""
    noted = [(i, notes) for i in known if (notes := notes_of(i.reply))]
    last = noted[-MOST:]
    scored = [pair for pair in noted if pair[0].ok]
    best = max(scored, key=lambda pair: (pair[0].score, -pair[0].id), default=None)
    if best is not None and best not in last:
        last = [best, *last[1:]]
    lines = [f"- attempt {i.id} ({_became(i)}): {notes}" for i, notes in last]
    before = ["Notes that earlier attempts left:\n" + "\n".join(lines)] if lines else []
    role, text = messages[-1]
    return (*messages[:-1], (role, "\n\n".join([text, *before, _ASK])))


def _became(i: Individual) -> str:
    return f"score {i.score:.4g}" if i.ok else "refused" if i.rejection else "failed"
