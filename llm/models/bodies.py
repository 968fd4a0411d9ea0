"""Bodies of chat servers in all known forms.

    {"choices": [{"message": {"content": "..."}}]}      OpenAI's; the content may be a list of parts
    {"choices": [{"text": "..."}]}                      of servers that complete texts
    data: {"choices": [{"delta": {"content": "..."}}]}  an event stream, which some send although none was asked for

A body was paid for and would look the same the next time, so whatever has a text is read; one that was cut on its way
is worth another attempt, and any other is refused at once.
https://platform.openai.com/docs/api-reference/chat; event streams: https://html.spec.whatwg.org/multipage/server-sent-events.html
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from envolve.llm.models.request import Body, Transient, Unread

# in this order: a model that refuses says so in a field of its own, and one that only thought has left its thoughts
FIELDS = ("content", "refusal", "reasoning_content", "reasoning")
_EVENT, _LINE = re.compile(r"(?:\r\n|\n|\r){2,}"), re.compile(r"\r\n|\n|\r")


@dataclass(frozen=True)
class Content:
    """Content of a body. text: "" if the model said nothing. usage: tokens of prompt and reply, None: not reported."""

    text: str
    finish: Any
    model: Any
    usage: tuple[int | None, int | None]


class ErrorInside(Exception):
    """A body with the error of a failed request, though its status was 200. status: of the error, 0 if it has none."""

    def __init__(self, status: int, error: Any) -> None:
        super().__init__(status)
        self.status, self.error = status, error


def read_body(body: Body) -> Content:
    """Reads a body. Raises Unread, Transient (cut on its way), ErrorInside."""
    start = repr(body.text[:200])
    if "html" in body.kind:
        raise Unread(f"a web page came back, no reply; the base URL usually ends in /v1 ({start})")
    if "event-stream" in body.kind or re.match(r"\s*(data:|event:|: )", body.text):
        return _streamed(body)
    text = f"the reply is not JSON ({body.kind}): {start}"
    try:
        value = json.loads(body.text)
    except json.JSONDecodeError as error:
        if _cut(body.text, error):
            raise Transient(text, billed=True) from None
        raise Unread(text) from None
    except (ValueError, RecursionError):  # an integer of 5,000 digits; a list 10,000 deep
        raise Unread(text) from None
    return _answered(value)


def _cut(text: str, error: json.JSONDecodeError) -> bool:
    """True if the text is an incomplete JSON document."""
    rest = text[error.pos :].strip()
    literal = bool(rest) and any(word.startswith(rest) for word in ("true", "false", "null"))
    return not rest or literal or error.msg.startswith("Unterminated string")


def _answered(value: Any) -> Content:
    """Content of a body with one JSON value."""
    usage = _usage(value)
    choices = value.get("choices") if isinstance(value, dict) else None
    if isinstance(value, dict) and not choices and value.get("error"):
        raise ErrorInside(_status(value["error"]), value["error"])
    if choices == []:  # a filter of the server took the reply away
        return Content("", "empty", value.get("model"), usage)
    try:
        choice = choices[0]  # type: ignore[index]
        said = {"content": choice["text"]} if choice.get("message") is None else choice["message"]
        text = _text({name: _joined(said.get(name)) for name in FIELDS})
        return Content(text, choice.get("finish_reason"), value.get("model"), usage)
    except (LookupError, TypeError, AttributeError):
        raise _unread("the reply has no choices[0].message.content", json.dumps(value)[:300], usage) from None


def _streamed(body: Body) -> Content:
    """Content of an event stream, joined."""
    texts: dict[str, list[str]] = {name: [] for name in FIELDS}
    finish = model = error = None
    usage: tuple[int | None, int | None] = (None, None)
    ended = False
    for chunk in _chunks(body.text):
        if chunk is None:
            ended = True
            break
        model, error = chunk.get("model") or model, chunk.get("error") or error
        usage = tuple(new if new is not None else old for new, old in zip(_usage(chunk), usage))  # type: ignore[assignment]
        try:
            choice: dict[str, Any] = next((c for c in chunk.get("choices") or () if c.get("index", 0) == 0), {})
            whole = None if any(map(any, texts.values())) else choice.get("message")
            said = choice.get("delta") or whole or {"content": choice.get("text")}
            for name in FIELDS:
                texts[name] += [_joined(said.get(name))]
            finish = choice.get("finish_reason") or finish
        except (TypeError, AttributeError):
            continue  # an event of another kind
    text = _text({name: "".join(parts) for name, parts in texts.items()})
    if not text and error is not None:
        raise ErrorInside(_status(error), error)
    if not text and not ended and finish is None:
        raise _unread("the event stream holds no reply", body.text[:300], usage)
    return Content(text, finish or ("stop" if ended else "length"), model, usage)


def _chunks(stream: str) -> Iterator[dict[str, Any] | None]:
    """Objects in an event stream; None at its end."""
    for event in _EVENT.split(stream):
        lines = [line[5:].removeprefix(" ") for line in _LINE.split(event) if line.startswith("data:")]
        whole = "\n".join(lines)
        for data in [whole] if _object(whole) is not None else lines:  # some servers leave out the empty lines
            value = _object(data)
            if data.strip() == "[DONE]":
                yield None
            elif value is not None:
                yield value


def _object(text: str) -> dict[str, Any] | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _text(said: dict[str, str]) -> str:
    """First field with content."""
    return next((said[name] for name in FIELDS if said[name].strip()), said["content"])


def _joined(value: Any) -> str:
    """Text, or joined texts of a list of parts. Raises TypeError for anything else."""
    if value is None or isinstance(value, str):
        return value or ""
    if isinstance(value, dict):
        value = [value]
    if not isinstance(value, list):
        raise TypeError
    return "".join(map(_part, value))


def _part(part: Any) -> str:
    if isinstance(part, str):
        return part
    if not isinstance(part, dict) or str(part.get("type", "")).startswith(("think", "reason")):
        return ""
    found = part.get("text", part.get("refusal"))
    found = found.get("value") if isinstance(found, dict) else found
    return found if isinstance(found, str) else ""


def _usage(value: Any) -> tuple[int | None, int | None]:
    usage = value.get("usage") if isinstance(value, dict) else None
    counts = usage if isinstance(usage, dict) else {}
    prompt, completion = (counts.get(name) for name in ("prompt_tokens", "completion_tokens"))
    return _count(prompt), _count(completion)


def _count(value: Any) -> int | None:
    ok = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 40
    return value if ok else None


def _status(error: Any) -> int:
    code = error.get("code") if isinstance(error, dict) else None
    return code if isinstance(code, int) and 400 <= code < 600 else 0


def _unread(text: str, shown: str, usage: tuple[int | None, int | None]) -> Unread:
    prompt, completion = usage
    return Unread(f"{text}: {shown}", None if prompt is None or completion is None else (prompt, completion))
