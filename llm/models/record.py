"""calls.jsonl: every reply of a run, one line of JSON each, written at once; what resume and replay read.

    {"envolve_calls": 1, "models": ["gpt-4o", "claude-sonnet-5"]}                                      first line
    {"index": 0, "sha256": "...", "sent": 1, "model": "gpt-4o", "most": [4908, 0.043], "time": "..."}
    {"index": 0, "sha256": "...", "model": "gpt-4o-2024-08-06", "request": {...}, "reply": "...", "finish": "stop",
     "tokens": [812, 301], "usd": 0.005, "seconds": 7.1, "attempts": 1, "time": "2026-11-20T15:06:19+00:00"}
    {"index": 1, "sha256": "...", "body": "...", "content_type": "text/html", "seconds": 7.1, "time": "..."}
    {"index": 1, "sha256": "...", "request": {...}, "failure": "...", "model_is_out": false, "final": false,
     "attempts": 6, "time": ...}

sha256: of the request's canonical JSON. sent: number of the attempt that begins; most: [tokens, usd] that the call may
have cost by its end, which count as unconfirmed if the run is killed before anything else is known of it. tokens: of
prompt and reply. usd: null where the price is unknown. Attempts that may have been billed without a reply leave
"unconfirmed": [tokens, usd]. body: what a server sent, written before it was read, so that a session that can read it
need not ask again; its reply then "settles" [tokens, usd] of what was unconfirmed. final: the server would refuse this
request again; any other failure is asked again by a resumed run. instead_of: the model that was to be asked, where
another one of the run has answered because that one was out; request is then what was sent. A recording written by hand
has lines {"reply": "..."} instead, optionally with "model", "comment" and "expect" (what becomes of it, for tests), and
no first line; call i gets line i.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from envolve.core.cleaning import printable
from envolve.core.files import TABLE_BYTES, read_plain
from envolve.llm import json_lines
from envolve.llm.models.request import Body, Call, ChatError, ChatFailure, Reply

log = logging.getLogger("envolve")

HEADER = "envolve_calls"
VERSION = 1
BY_HAND = ("reply", "model", "comment", "expect")


class RecordError(ChatError):
    """Raised if the file is not a record or recording: names file, line, what was found and what was expected."""


class ReplayMismatch(ChatError):
    """Raised if the run asks something else than the recorded run."""


@dataclass(frozen=True)
class Entry:
    """Recorded call. reply or failure is None. request: as recorded; None in a recording written by hand."""

    index: int
    sha256: str | None
    request: dict[str, Any] | None
    reply: Reply | None
    failure: ChatFailure | None
    usd: float | None
    unconfirmed: tuple[int, float]
    instead_of: str = ""
    settles: tuple[int, float] = (0, 0.0)  # of what earlier entries left unconfirmed

    def answers(self, call: Call) -> bool:
        """True if this request was recorded, possibly sent to a substitute model or with hidden parts."""
        if self.sha256 in (None, call.request.sha256()):
            return True
        recorded, request = self.request or {}, dict(self.request or {})
        if self.instead_of == call.request.model:
            request["model"] = call.request.model
        messages = recorded.get("messages", [])  # an earlier version quoted replies as they came
        request["messages"] = [{**m, "content": printable(m["content"])} for m in messages]
        return request != recorded and request == call.request.values()

    def reply_to(self, call: Call) -> Reply:
        """Request with the substitute model, if there was one."""
        assert self.reply is not None
        model = (self.request or {}).get("model", call.request.model)
        return self.reply if model == call.request.model else replace(self.reply, asked=model)


@dataclass(frozen=True)
class Unsettled:
    """Recorded body without a reply. counted: tokens and USD that were booked for it, as for a failure; None: nothing
    yet. model, before: what the call's earlier attempts may have cost."""

    sha256: str
    body: Body
    counted: tuple[int, float] | None = None
    model: str = ""
    before: tuple[int, float] = (0, 0.0)


@dataclass(frozen=True)
class Sent:
    """Call that was sent. most: tokens and USD that it may have cost."""

    model: str
    most: tuple[int, float]


@dataclass
class Recording:
    """Content of a file. models: of a recorded run; None if the file was written by hand. The last entry of an index
    counts: a resumed run repeats failed calls. bodies: by index, the last unreadable one. under_way: by index, sent and
    not ended; lost: those of killed sessions that were sent again since."""

    path: Path
    models: list[str] | None = None
    entries: dict[int, Entry] = field(default_factory=dict)
    everything: list[Entry] = field(default_factory=list)  # also what a later entry replaced
    bodies: dict[int, Unsettled] = field(default_factory=dict)
    under_way: dict[int, Sent] = field(default_factory=dict)
    lost: list[Sent] = field(default_factory=list)

    def find(self, call: Call) -> Entry | None:
        """Raises ReplayMismatch if another request with this number has an answer."""
        entry = self.entries.get(call.index)
        if entry is None or entry.answers(call):
            return entry
        if entry.failure is not None and not entry.failure.final:
            return None  # nothing was said, and what is to be asked may have changed with what another call answered
        raise ReplayMismatch(f"{self.path}: call {call.index} {_difference(entry.request or {}, call)}")


def _difference(recorded: dict[str, Any], call: Call) -> str:
    """Description of the first difference of two requests."""
    asked = call.request.values()
    for number, (old, new) in enumerate(zip(recorded.get("messages", []), asked["messages"], strict=False)):
        if old == new:
            continue
        if old["role"] != new["role"]:
            return f"differs in message {number}: recorded from {old['role']!r}, now from {new['role']!r}"
        pair = old["content"], new["content"]
        at = next((i for i, (a, b) in enumerate(zip(*pair, strict=False)) if a != b), min(map(len, pair)))
        was, now = (text[max(0, at - 20) : at + 40] for text in pair)
        return f"differs in message {number} ({old['role']}) at character {at}: recorded {was!r}, now {now!r}"
    if len(recorded.get("messages", [])) != len(asked["messages"]):
        return f"has {len(asked['messages'])} messages, the recorded one {len(recorded.get('messages', []))}"
    for name, value in asked.items():
        if recorded.get(name) != value:
            return f"differs in {name}: recorded {recorded.get(name)!r}, now {value!r}"
    return "has a sha256 that does not fit its own request: the file was changed by hand"


def read_recording(path: Path) -> Recording:
    """A record of a run or a recording written by hand. A line that a killed run left torn is dropped with a warning.

    Raises RecordError.
    """
    recording = Recording(path)
    try:
        data = read_plain(path, TABLE_BYTES)
        for number, line in json_lines.read(path):
            _take(recording, line, number)
    except json_lines.JSONLinesError as error:
        raise RecordError(str(error)) from None
    except OSError as error:
        raise RecordError(f"{path}: {error.strerror}") from None
    last = data[data.rfind(b"\n") + 1 :]
    if last.strip() and _by_hand(recording, last):
        _take(recording, json.loads(last), data.count(b"\n") + 1)
    elif last.strip():
        log.warning("%s: the last line is torn and was dropped: the run that wrote it was killed", path)
    return recording


def _by_hand(recording: Recording, last: bytes) -> bool:
    """True if a last line without a line break was written by hand; in a run's file such a line is incomplete."""
    try:
        return recording.models is None and HEADER not in json.loads(last)
    except (ValueError, TypeError, RecursionError):
        if recording.everything and recording.models is None:
            raise RecordError(f"{recording.path}, line {len(recording.everything) + 1}: not JSON") from None
        return False


def _take(recording: Recording, line: Any, number: int) -> None:
    """Adds a line. Raises RecordError."""
    try:
        _take_line(recording, line)
    except RecordError as error:
        raise RecordError(f"{recording.path}, line {number}: {error}") from None


def _take_line(recording: Recording, line: Any) -> None:
    if not isinstance(line, dict):
        raise RecordError(f"found {type(line).__name__}, expected an object")
    if HEADER in line:
        if line[HEADER] != VERSION:
            raise RecordError(f"format {line[HEADER]!r}; this program reads {VERSION}")
        if recording.models is not None or recording.everything:
            raise RecordError(f"{HEADER!r} belongs in the first line")
        models = line.get("models")
        if not isinstance(models, list) or not all(isinstance(m, str) for m in models):
            raise RecordError("'models': expected a list of names")
        recording.models = models
        return
    if recording.models is not None and "sent" in line:
        _take_sent(recording, line)
        return
    if recording.models is not None and "body" in line:
        body = Body(_text(line, "body"), _text(line, "content_type"), _amount(line.get("seconds"), "seconds"))
        model = _text(line, "model") if "model" in line else ""  # earlier versions did not say it
        before = _cost(line, "unconfirmed")
        recording.bodies[_index(line)] = Unsettled(_text(line, "sha256"), body, model=model, before=before)
        recording.under_way.pop(_index(line), None)
        return
    entry = _hand_written(line, len(recording.everything)) if recording.models is None else _recorded(line)
    recording.entries[entry.index] = entry
    recording.everything.append(entry)
    recording.under_way.pop(entry.index, None)
    unsettled = recording.bodies.get(entry.index)
    if entry.reply is not None:
        recording.bodies.pop(entry.index, None)
    elif unsettled is not None and unsettled.counted is None:
        recording.bodies[entry.index] = replace(unsettled, counted=entry.unconfirmed)


def _take_sent(recording: Recording, line: dict[str, Any]) -> None:
    index, attempt = _index(line), line["sent"]
    if not isinstance(attempt, int) or isinstance(attempt, bool) or attempt < 1:
        raise RecordError(f"'sent': expected 1, 2, ..., found {attempt!r:.60}")
    sent = Sent(_text(line, "model"), _cost(line, "most"))
    if attempt == 1 and index in recording.under_way:
        recording.lost.append(recording.under_way[index])
    recording.under_way[index] = sent  # a later attempt's includes the earlier ones


def _hand_written(line: dict[str, Any], index: int) -> Entry:
    if "index" in line or "sha256" in line:
        raise RecordError(f"a line of a recorded run, but the first line, {{{HEADER!r}: ...}}, is missing")
    unknown = line.keys() - BY_HAND
    if unknown:
        raise RecordError(f"unknown key {min(unknown)!r}; known: {', '.join(BY_HAND)}")
    text, model = _text(line, "reply"), _text(line, "model") if "model" in line else ""
    return Entry(index, None, None, Reply(text, model, 0, 0, 0.0, "stop"), None, 0.0, (0, 0.0))


def _recorded(line: dict[str, Any]) -> Entry:
    index, request = _index(line), line.get("request")
    messages = request.get("messages") if isinstance(request, dict) else None
    if not isinstance(messages, list) or not all(
        isinstance(m, dict) and isinstance(m.get("role"), str) and isinstance(m.get("content"), str) for m in messages
    ):
        raise RecordError("'request': expected an object with messages of role and content")
    assert isinstance(request, dict)
    _text(request, "model")
    unconfirmed, settles = _cost(line, "unconfirmed"), _cost(line, "settles")
    reply = failure = usd = None
    if "failure" in line:
        # runs of before "final" was written went on past their failures
        final = line.get("final", True) is True
        failure = ChatFailure(_text(line, "failure"), line.get("model_is_out") is True, final)
    else:
        tokens = line.get("tokens")
        if not isinstance(tokens, list) or len(tokens) != 2:
            raise RecordError(f"'tokens': expected [prompt, reply], found {tokens!r}")
        prompt, completion = (_count(n, "tokens") for n in tokens)
        seconds, finish = _amount(line.get("seconds"), "seconds"), _text(line, "finish")
        reply = Reply(_text(line, "reply"), _text(line, "model"), prompt, completion, seconds, finish)
        usd = None if line.get("usd") is None else _amount(line["usd"], "usd")
    instead_of = _text(line, "instead_of") if "instead_of" in line else ""
    return Entry(index, _text(line, "sha256"), request, reply, failure, usd, unconfirmed, instead_of, settles)


def _index(line: dict[str, Any]) -> int:
    index = line.get("index")
    if not isinstance(index, int) or isinstance(index, bool) or index < 0:
        raise RecordError(f"'index': expected 0, 1, 2, ..., found {index!r}")
    return index


def _text(line: dict[str, Any], key: str) -> str:
    if not isinstance(line.get(key), str):
        raise RecordError(f"{key!r}: expected a text, found {line.get(key)!r:.60}")
    return line[key]


def _count(value: Any, key: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**53:
        raise RecordError(f"{key!r}: expected numbers of tokens, found {value!r:.60}")
    return value


def _cost(line: dict[str, Any], key: str) -> tuple[int, float]:
    """Tokens and USD; 0 without the key."""
    value = line.get(key, [0, 0.0])
    if not isinstance(value, list) or len(value) != 2:
        raise RecordError(f"{key!r}: expected [tokens, usd], found {value!r}")
    return _count(value[0], key), _amount(value[1], key)


def _amount(value: Any, key: str) -> float:
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 <= value < 1e15:
        raise RecordError(f"{key!r}: expected a number, 0 or more, found {value!r:.60}")
    return float(value)


class Record:
    """The file of this run, read first if it is there. Thread-safe.

    models: of this run; a file of earlier sessions must have been begun with the same. Raises RecordError, OSError.
    """

    def __init__(self, path: Path, models: Sequence[str]) -> None:
        self.recording = read_recording(path) if path.exists() else Recording(path)
        self._lock = threading.Lock()
        begun = self.recording.models
        if begun is None and self.recording.everything:
            raise RecordError(
                f"{path}: written by hand; a run adds nothing to it, but reads it with --llm replay:{path}"
            )
        if begun is None:
            path.parent.mkdir(parents=True, exist_ok=True)
            self.append({HEADER: VERSION, "models": list(models)})
        elif begun != list(models):
            raise RecordError(f"{path}: this run was begun with the models {begun}, and now has {list(models)}")

    def append(self, line: dict[str, Any]) -> None:
        """Appends an entry, which is on disk and found by ``recording`` on return. Raises OSError."""
        with self._lock:
            json_lines.append(self.recording.path, line)
            _take_line(self.recording, line)
