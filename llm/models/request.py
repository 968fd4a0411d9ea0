"""Requests to language models and their replies: plain values used by all of ``llm/``."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any, Protocol

from envolve.core.cleaning import printable

ROLES = ("system", "user", "assistant")
FIRST_REPAIR = 1_000_000_000  # numbers of repairs begin here; those of first attempts are the individuals' ids


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
        """Request as JSON, as kept in a record."""
        return {
            "model": self.model,
            "messages": [{"role": role, "content": content} for role, content in self.messages],
            "temperature": float(self.temperature),
            "max_tokens": self.max_tokens,
            "seed": self.seed,
        }

    def sha256(self) -> str:
        """SHA-256 of the canonical JSON: sorted keys, no blanks, ASCII."""
        text = json.dumps(self.values(), sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(text.encode("ascii")).hexdigest()


@dataclass(frozen=True)
class Reply:
    """A model's answer. model: as the server names it. finish: "stop", "length" (cut at max_tokens), "content_filter",
    ... seconds: wall time of the attempt that succeeded. asked: the model of this run that was asked; "": that of the
    request.

    Here replies come in, of servers and of recordings: what of the text cannot be shown or saved is replaced."""

    text: str
    model: str
    prompt_tokens: int
    completion_tokens: int
    seconds: float
    finish: str
    asked: str = ""

    def __post_init__(self) -> None:
        for name in ("text", "model", "finish"):
            object.__setattr__(self, name, printable(getattr(self, name)))


@dataclass(frozen=True)
class Body:
    """Unread response of a server. kind: its content type. seconds: of the attempt."""

    text: str
    kind: str
    seconds: float


@dataclass(frozen=True)
class Call:
    """Request with its number in the run, assigned before anything is sent, so that parallel calls replay exactly.
    instead_of: the failed model that this one replaces; "": none.
    """

    index: int
    request: Request
    instead_of: str = ""


@dataclass(frozen=True)
class Sampling:
    """How the models of a run are asked. seed: of the run; every call has another one."""

    temperature: float
    max_tokens: int
    seed: int

    def call(self, number: int, model: str, messages: tuple[tuple[str, str], ...]) -> Call:
        """Call ``number`` of the run."""
        seed = self.seed + number % FIRST_REPAIR
        return Call(number, Request(model, messages, self.temperature, self.max_tokens, seed))


class ChatError(Exception):
    """Raised if nothing can be asked: no such model, no key, no client library, a record that cannot be used."""


class Unanswered(ChatError):
    """Raised if calls failed that may succeed later; the replies of the others are kept."""


class ChatFailure(Exception):
    """Failure of one call. ``Chat.ask`` returns it instead of a reply; ``str`` is the text for people.

    model_is_out: no later call of this model can succeed before a user has fixed something (a wrong key, no such
    model, no credit). final: the server has refused this very request and would refuse it again; all else may be
    answered when it is asked another time.
    """

    billed = False  # whether the model may have worked all the same, so that its cost must be counted
    tokens: tuple[int, int] | None = None  # of prompt and reply, where the server said what it billed

    def __init__(self, message: str, model_is_out: bool = False, final: bool = False) -> None:
        super().__init__(printable(message))
        self.model_is_out = model_is_out
        self.final = final


class Unread(ChatFailure):
    """Raised for a reply that cannot be used and would not be better the next time."""

    billed = True

    def __init__(self, message: str, tokens: tuple[int, int] | None = None) -> None:
        super().__init__(message)
        self.tokens = tokens


class BudgetSpent(ChatFailure):
    """Raised if a call was not sent, because it could have exceeded the budget."""


class RecordingEnds(ChatFailure):
    """Raised if a recording has no reply with this number."""


class Transient(Exception):
    """An attempt that failed and may succeed when repeated.

    retry_after: what the server asks for, in s. billed: as for ChatFailure; so with a timeout or a cut connection.
    """

    tokens: tuple[int, int] | None = None  # unknown what was billed

    def __init__(self, message: str, retry_after: float | None = None, billed: bool = False) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        self.billed = billed


class Backend(Protocol):
    """Source of a model's replies."""

    free: bool  # costs nothing and counts against no budget: a recording

    def send(self, call: Call) -> Reply | Body:
        """Makes one attempt. Raises Transient, or ChatFailure if repeating does not help."""

    def read(self, body: Body, request: Request) -> Reply:
        """Reads a body that ``send`` returned, now or in an earlier session. Raises as ``send``."""

    def close(self) -> None:
        """Closes connections."""
