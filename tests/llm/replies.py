"""Replies as language models write them, with the verdict that is expected: the files of tests/llm/corpus.

A file has the replies for one task. Each begins with a line ``@@@ name | style | functions asked for | verdict``.
The authors of this project wrote them in the manner of GPT-4, Claude, DeepSeek, Llama and Qwen; no model was asked.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parent / "corpus"
TASKS = {
    "cartpole": "Cartpole", "anymal": "Anymal", "ant": "Ant", "half_cheetah": "HalfCheetah", "quadcopter": "Quadcopter",
    "ball_balance": "BallBalance", "reacher": "Reacher", "humanoid": "Humanoid", "pusher": "Pusher",
}  # fmt: skip


class Reply(NamedTuple):
    """One reply. verdict: "accepted" or "refused"."""

    name: str
    task: str
    style: str
    types: tuple[str, ...]
    verdict: str
    text: str


def replies(folder: Path = FOLDER) -> list[Reply]:
    """All replies of a folder, in order."""
    found = []
    for path in sorted(folder.glob("*.txt")):
        for part in ("\n" + path.read_text(encoding="utf-8")).split("\n@@@ ")[1:]:
            head, text = part.split("\n", 1)
            name, style, types, verdict = (word.strip() for word in head.split("|"))
            task = TASKS[path.stem.removesuffix("_unseen").removesuffix("_fresh")]
            found.append(Reply(name, task, style, tuple(types.split()), verdict, text))
    return found
