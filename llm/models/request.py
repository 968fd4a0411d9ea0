"""What is asked of a language model and what comes back: plain values that every other part of ``llm/`` can hold."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any, Protocol

ROLES = ("system", "user", "assistant")


@dataclass(frozen=True)
class Request:
    """One question to a model.

    messages: (role, content) pairs; roles: system, user, assistant. temperature: >= 0. max_tokens: of the reply, >= 1.
    seed: a wish that few servers grant. Raises ValueError if a value is none of these.
    """

    model: str
    messages: tuple[tuple[str, str], ...]
    temperature: float = 1.0
    max_tokens: int = 4096
    seed: int | None = None

    def __post_init__(self) -> None:
        for role, _ in self.messages:
            if role not in ROLES:
                raise ValueError(f"role {role!r} of a message; expected one of {', '.join(ROLES)}")
        if not self.messages or not 0 <= self.temperature < float("inf") or self.max_tokens < 1:
            raise ValueError("a request needs a message, temperature >= 0 and max_tokens >= 1")

    def values(self) -> dict[str, Any]:
        """As JSON: what a record keeps."""
        return {
            "model": self.model,
            "messages": [{"role": role, "content": content} for role, content in self.messages],
            "temperature": float(self.temperature),
            "max_tokens": self.max_tokens,
            "seed": self.seed,
        }

    def sha256(self) -> str:
        """Of the canonical JSON: sorted keys, no blanks, ASCII."""
        text = json.dumps(self.values(), sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(text.encode("ascii")).hexdigest()


@dataclass(frozen=True)
class Reply:
    """A model's answer. model: as the server names it. finish: "stop", "length" (cut at max_tokens), "content_filter",
    ... seconds: wall time of the attempt that succeeded."""

    text: str
    model: str
    prompt_tokens: int
    completion_tokens: int
    seconds: float
    finish: str


@dataclass(frozen=True)
class Call:
    """A request with its number in the run, which is given before anything is sent: parallel calls replay exactly."""

    index: int
    request: Request


class ChatError(Exception):
    """Nothing can be asked: no such model, no key, no client library, a record that cannot be used."""


class ChatFailure(Exception):
    """Why one call has no reply. ``Chat.ask`` returns it in the place of the reply; ``str`` is the text for people.

    model_is_out: no later call of this model can succeed either (wrong key, no such model).
    """

    billed = False  # whether the model may have worked all the same, so that its cost must be counted

    def __init__(self, message: str, model_is_out: bool = False) -> None:
        super().__init__(message)
        self.model_is_out = model_is_out


class Unread(ChatFailure):
    """Something came back that cannot be used and would not be better the next time."""

    billed = True


class BudgetSpent(ChatFailure):
    """The call was not sent: it could have cost more than is left."""


class RecordingEnds(ChatFailure):
    """A recording has no reply with this number."""


class Transient(Exception):
    """An attempt that failed and may succeed when repeated.

    retry_after: what the server asks for, in s. billed: as for ChatFailure; so with a timeout or a cut connection.
    """

    def __init__(self, message: str, retry_after: float | None = None, billed: bool = False) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        self.billed = billed


class Backend(Protocol):
    """Where the replies of a model come from."""

    free: bool  # costs nothing and counts against no budget: a recording

    def send(self, call: Call) -> Reply:
        """One attempt. Raises Transient, or ChatFailure where no repetition helps."""

    def close(self) -> None:
        """Lets go of connections."""
