"""Models behind OpenAI's chat protocol: OpenAI, Anthropic's compatible endpoint, Ollama, llama.cpp, vLLM, ...

Protocol: https://platform.openai.com/docs/api-reference/chat

The `openai` package sends the request; its body is received here, piece by piece, because a server that sends without
end, or a byte at a time, must end an attempt, and is read in ``bodies.py``, because a reply may be anything.
"""

from __future__ import annotations

import contextlib
import email.utils
import json
import logging
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from envolve.core.registry import nearest
from envolve.llm.models.bodies import ErrorInside, read_body
from envolve.llm.models.request import Body, Call, ChatError, ChatFailure, Reply, Request, Transient, Unread
from envolve.llm.models.servers import key_name

log = logging.getLogger("envolve")

MAX_BODY = 8 << 20  # bytes of a reply; 128,000 tokens are 0.5 MB
MAX_TEXT = 1 << 20  # characters of a reply that are kept
MAX_ERROR = 1 << 16  # bytes of the body of an error
LATE = 2.0  # s after the timeout until an attempt is left alone that no time limit of the client has ended
# What a server may refuse, and what is sent then: https://community.openai.com/t/938077 (max_completion_tokens); newer
# models of OpenAI and Anthropic refuse any temperature but 1.
ADAPTATIONS = {
    "max_tokens": "max_completion_tokens instead of max_tokens",
    "temperature": "no temperature",
    "seed": "no seed",
}
DEAD_CODES = {
    "insufficient_quota", "billing_hard_limit_reached", "billing_not_active", "account_deactivated", "invalid_api_key",
    "model_not_found", "credit_balance_too_low",
}  # fmt: skip
# Where a server says it in words alone, as Anthropic does with a 400. Not with a 429: Gemini calls its limit per minute
# a quota, and asks to check the billing.
_NO_CREDIT = re.compile(r"credit balance|insufficient (balance|credit|funds|quota)|billing", re.IGNORECASE)
_REFUSES = re.compile(
    r"unsupported|not support|deprecated|not permitted|not allowed|unknown|unrecogni[sz]ed|unexpected|extra|instead",
    re.IGNORECASE,
)


class OpenAIChat:
    """The Backend of one model behind one server. key: sent to the server and kept out of every text.

    timeout: for one attempt, in s, from the first byte sent to the last received. Raises ChatError without `openai`.
    """

    free = False

    def __init__(self, model: str, base_url: str, key: str, timeout: float = 300.0) -> None:
        try:
            import openai
        except ImportError:
            raise ChatError(f"model {model!r} needs the openai package: pip install envolve[llm]") from None
        self.model, self.base_url, self.timeout = model, base_url, timeout
        self._key, self._openai = key, openai
        # our own retries: one budget, one schedule, one log
        patience = openai.Timeout(timeout, connect=min(timeout, 20.0))
        http = openai.DefaultHttpxClient(event_hooks={"response": [partial(_bounded, seconds=timeout)]})
        self._client = openai.OpenAI(base_url=base_url, api_key=key, max_retries=0, timeout=patience, http_client=http)
        self._adapted: frozenset[str] = frozenset()
        self._lock = threading.Lock()

    def send(self, call: Call) -> Body:
        """Makes one attempt, repeated at once without an optional parameter that the server refuses."""
        while True:
            adapted = self._adapted
            try:
                return self._in_time(lambda adapted=adapted: self._attempt(call.request, adapted))  # type: ignore[misc]
            except self._openai.APIStatusError as error:
                status, text = error.status_code, self._clean(_message(error.body) or str(error))
                refused = _refused(text, error.body) - adapted if status in (400, 422) else set()
                if not refused:
                    wait = _retry_after(error.response.headers, time.time())
                    raise self._failed(status, text, error.body, wait) from None
                with self._lock:
                    if not refused <= self._adapted:
                        what = ", ".join(ADAPTATIONS[name] for name in sorted(refused))
                        log.warning("%s at %s: sending %s from now on (%s)", self.model, self.base_url, what, text)
                        self._adapted |= refused
            except self._openai.APITimeoutError:
                raise Transient(f"no reply within {self.timeout:g} s", billed=True) from None
            except self._openai.APIConnectionError as error:
                cause = error.__cause__
                refused_connection = "connect" in type(cause).__name__.lower()
                why = self._clean(str(cause or error))
                raise Transient(f"no connection: {why}", billed=not refused_connection) from None

    def _in_time(self, attempt: Callable[[], Body]) -> Body:
        """Makes an attempt in a thread of its own: the client's time limits are those of a single read, so that a
        header that comes line by line, or one status 102 after another, would never end. Raises as ``attempt``."""
        got: list[Body | BaseException] = []

        def work() -> None:
            try:
                got.append(attempt())
            except BaseException as error:
                got.append(error)

        thread = threading.Thread(target=work, name=f"attempt of {self.model}", daemon=True)
        thread.start()
        thread.join(self.timeout + LATE)
        if not got:
            raise Transient(f"the reply was not complete within {self.timeout:g} s", billed=True)
        if isinstance(got[0], BaseException):
            raise got[0]
        return got[0]

    def _attempt(self, request: Request, adapted: frozenset[str]) -> Body:
        start = time.monotonic()
        options: dict[str, Any] = {"max_tokens": request.max_tokens}
        if "max_tokens" in adapted:  # openai 1.40 has no argument of this name
            options = {"extra_body": {"max_completion_tokens": request.max_tokens}}
        wishes = {"temperature": float(request.temperature), "seed": request.seed}
        options |= {name: value for name, value in wishes.items() if value is not None and name not in adapted}
        messages: Any = [{"role": role, "content": content} for role, content in request.messages]
        data = bytearray()
        create: Any = self._client.chat.completions.with_streaming_response.create
        with self._translated(), create(model=self.model, messages=messages, **options) as response:
            kind = response.headers.get("content-type", "no content type")
            for piece in response.iter_bytes():
                data += piece
                if len(data) > MAX_BODY:
                    raise Unread(f"{self._where()}: the reply is larger than {MAX_BODY >> 20} MiB")
                if b"data: [DONE]" in data[-len(piece) - 16 :]:  # some servers keep the connection open after it
                    break
                if time.monotonic() - start > self.timeout:
                    raise Transient(f"the reply was not complete within {self.timeout:g} s", billed=True)
        text = bytes(data).decode(json.detect_encoding(bytes(data)), "replace")
        return Body(self._masked_json(text), self._clean(kind), round(time.monotonic() - start, 3))

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        """Converts transport errors while a body is read; `openai` passes them on unchanged."""
        try:
            yield
        except Exception as error:  # httpx's or httpx2's, by the release of openai
            if not type(error).__module__.startswith(("httpx", "httpcore")):
                raise
            text = self._clean(str(error)) or type(error).__name__
            raise Transient(f"the connection broke in mid-reply: {text}", billed=True) from None

    def read(self, body: Body, request: Request) -> Reply:
        """Checks a body. Raises Unread, Transient, ChatFailure."""
        try:
            found = read_body(body)
        except ErrorInside as inside:
            text = self._clean(_message(inside.error))
            if inside.status:
                raise self._failed(inside.status, text, inside.error, None) from None
            raise Unread(f"{self._where()}: an error came back with status 200: {text}") from None
        except Unread as error:
            raise Unread(f"{self._where()}: {self._clean(str(error))}", error.tokens) from None
        except Transient as error:
            raise Transient(self._clean(str(error)), billed=error.billed) from None
        prompt, completion = found.usage
        sent = sum(len(content) for _, content in request.messages)
        return Reply(
            text=self._mask(found.text[:MAX_TEXT]),
            model=self._clean(found.model) if isinstance(found.model, str) and found.model else request.model,
            # some servers count nothing; a token is rarely less than 3 characters
            prompt_tokens=sent // 3 + 1 if prompt is None else prompt,
            completion_tokens=len(found.text) // 3 + 1 if completion is None else completion,
            seconds=body.seconds,
            finish=self._clean(found.finish) if isinstance(found.finish, str) and found.finish else "stop",
        )

    def _failed(self, status: int, text: str, body: Any, wait: float | None) -> ChatFailure | Transient:
        """Converts an error status. wait: requested by the server, in s."""
        where = f"{self._where()}: HTTP {status}: {text}"
        codes = {str(body.get("code")), str(body.get("type"))} if isinstance(body, dict) else set()
        if status == 401 or "invalid_api_key" in codes:
            return ChatFailure(f"{where}; check the environment variable {key_name(self.base_url)}", model_is_out=True)
        if status == 404 or "model_not_found" in codes:
            return ChatFailure(f"{where}{self._offer()}", model_is_out=True)
        if codes & DEAD_CODES or status == 402 or (status in (400, 403) and _NO_CREDIT.search(text)):
            return ChatFailure(f"{where}; the account has no credit left", model_is_out=True)
        if status == 403:
            return ChatFailure(f"{where}; this key may not use this model", model_is_out=True)
        if status in (408, 409, 425, 429) or status >= 500:
            return Transient(f"HTTP {status}: {text}", wait)
        return ChatFailure(where, final=True)

    def _offer(self) -> str:
        """Advice with the nearest known model."""
        try:
            names = [m.id for m in self._client.models.list(timeout=10.0).data if isinstance(m.id, str)]
        except Exception:  # it is only a hint: a server without a list, or without models
            names = []
        if not names:
            return "; check the name of the model and the base URL, which usually ends in /v1"
        near = nearest(self.model, names)
        return "; " + self._clean(f"did you mean {near!r}?" if near else f"the server has {', '.join(names[:8])}")

    def _where(self) -> str:
        return f"{self.model} at {self.base_url}"

    def _mask(self, text: str) -> str:
        """Text as valid Unicode with the key removed, in case the server sends it back."""
        if len(self._key) >= 8:
            text = text.replace(self._key, "<key>")
        return text.encode("utf-8", "replace").decode("utf-8")

    def _masked_json(self, text: str) -> str:
        """Text with the key removed, also in JSON's escapes."""
        if len(self._key) < 8:
            return text
        characters = (rf"(?:\\?{re.escape(c)}|\\u(?i:{ord(c):04x}))" for c in self._key)
        return re.sub("".join(characters), "<key>", text)

    def _clean(self, text: str) -> str:
        """Server message on one line for a log."""
        return " ".join("".join(c if c.isprintable() else " " for c in self._mask(text)).split())[:300]

    def close(self) -> None:
        self._client.close()


def _bounded(response: Any, seconds: float) -> None:
    """Cuts the body of an error after MAX_ERROR bytes or ``seconds``: `openai` reads it to its end."""
    if response.status_code < 400:
        return
    package = sys.modules[type(response).__module__.partition(".")[0]]  # httpx or httpx2
    whole, end = response.stream, time.monotonic() + seconds

    class Beginning(package.SyncByteStream):  # type: ignore[name-defined]
        def __iter__(self) -> Iterator[bytes]:
            left = MAX_ERROR
            for piece in whole:
                yield piece[:left]
                left -= len(piece)
                if left <= 0 or time.monotonic() > end:
                    return

        def close(self) -> None:
            whole.close()

    response.stream = Beginning()


def _message(body: Any) -> str:
    """Error message of the body; "" without a body."""
    if isinstance(body, dict) and isinstance(body.get("error"), dict):
        body = body["error"]
    text = body.get("message") if isinstance(body, dict) else None
    return text if isinstance(text, str) else str(body or "")


def _refused(text: str, body: object) -> set[str]:
    """Parameters that a 400 response complains about."""
    if not _REFUSES.search(text):
        return set()
    name = body.get("param") if isinstance(body, dict) else None
    if name in ADAPTATIONS:
        return {name}
    if re.search(r"\bmax_completion_tokens\b", text) and re.search(r"\bmax_tokens\b", text):
        return {"max_tokens"}
    return {name for name in ("temperature", "seed") if re.search(rf"\b{name}\b", text)}


def _retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Retry time in s, from a number or a date (RFC 9110, 10.2.3)."""
    text = headers.get("retry-after", "")
    try:
        return max(0.0, float(text)) if float(text) < 1e9 else None
    except ValueError:
        pass
    try:
        return max(0.0, email.utils.parsedate_to_datetime(text).timestamp() - now)
    except (ValueError, TypeError, OverflowError):
        return None
