"""The real `openai` client against a scripted server: what each answer becomes, and what is sent."""

from __future__ import annotations

import contextlib
import email.utils
import itertools
import logging
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import openai
import pytest

from envolve.core.places import IMPORTS
from envolve.llm.models import openai_chat
from envolve.llm.models.chat import make_chat
from envolve.llm.models.openai_chat import MAX_ERROR, OpenAIChat, _bounded, _retry_after
from envolve.llm.models.request import Call, ChatError, ChatFailure, Reply, Request, Transient, Unread
from tests.llm import scripted_server as scripted
from tests.llm.scripted_server import ScriptedServer

KEY = "sk-secret-0123456789"
CALL = Call(0, Request("any", (("system", "You write Python."), ("user", "A reward, please. é")), 0.7, 50, 3))


def send(script, call=CALL, timeout=60.0, models=(), key=KEY):
    """-> reply or what was raised, requests."""
    with ScriptedServer(script, models) as server:
        backend = OpenAIChat(call.request.model, server.url, key, timeout)
        try:
            return backend.read(backend.send(call), call.request), server.requests
        except (ChatFailure, Transient) as error:
            return error, server.requests
        finally:
            backend.close()


def test_what_is_sent() -> None:
    reply, [(path, headers, content)] = send([scripted.good("hello")])
    assert isinstance(reply, Reply) and 0 < reply.seconds < 60
    assert (reply.text, reply.model, reply.prompt_tokens, reply.completion_tokens) == ("hello", "scripted-1", 20, 10)
    assert path == "/v1/chat/completions" and headers["authorization"] == f"Bearer {KEY}"
    assert content == {
        "model": "any",
        "temperature": 0.7,
        "max_tokens": 50,
        "seed": 3,
        "messages": [
            {"role": "system", "content": "You write Python."},
            {"role": "user", "content": "A reward, please. é"},
        ],
    }
    _, [(_, _, content)] = send([scripted.good("")], Call(0, Request("any", (("user", "?"),))))
    assert "seed" not in content


@pytest.mark.parametrize(
    "answer, text, finish",
    [
        (scripted.good("```python\ndef compute_reward(:\n```"), "```python\ndef compute_reward(:\n```", "stop"),
        (scripted.good("import os\nos.system('rm -rf /')"), "import os\nos.system('rm -rf /')", "stop"),
        (scripted.truncated("def compute_re"), "def compute_re", "length"),
        (scripted.empty(), "", "stop"),
        (scripted.good("lone \ud800 surrogate\0"), "lone ? surrogate\ufffd", "stop"),
    ],
    ids=["broken", "hostile", "truncated", "empty", "surrogate"],
)
def test_every_text_is_a_reply(answer, text, finish) -> None:
    reply, _ = send([answer])
    assert (reply.text, reply.finish) == (text, finish)


def test_tokens_are_estimated_where_a_server_counts_none() -> None:
    reply, _ = send([scripted.good("x" * 300, tokens=None)])
    assert reply.completion_tokens == 101 and 10 <= reply.prompt_tokens <= 20


@pytest.mark.parametrize(
    "answer, message, billed, retry_after",
    [
        (scripted.limited(), "HTTP 429: Rate limit reached", False, None),
        (scripted.limited("7"), "HTTP 429", False, 7.0),
        (scripted.error(500, "oh"), "HTTP 500: oh", False, None),
        (scripted.error(503, "busy", "2.5"), "HTTP 503: busy", False, 2.5),
        (scripted.Answer(b"<html>Bad Gateway</html>", 502, {}), "HTTP 502: <html>Bad Gateway", False, None),
        (scripted.malformed(), "the reply is not JSON (application/json): '{", True, None),
        (scripted.Answer(b""), "the reply is not JSON (application/json): ''", True, None),
        (scripted.Answer(b'{"error": {"code": 502, "message": "upstream"}}'), "HTTP 502: upstream", False, None),
        (scripted.cut(), "the connection broke in mid-reply", True, None),
        (scripted.slow("late", 600.0), "no reply within 0.3 s", True, None),
    ],
    ids=["429", "429-after", "500", "503", "502", "malformed", "nothing", "502-inside", "cut", "slow"],
)  # fmt: skip
def test_what_is_worth_another_attempt(answer, message, billed, retry_after) -> None:
    start = time.monotonic()
    error, _ = send([answer], timeout=0.3 if answer.delay else 60.0)
    assert type(error) is Transient and message in str(error)
    assert (error.billed, error.retry_after) == (billed, retry_after)
    assert time.monotonic() - start < 300  # half of when the slow reply comes


@pytest.fixture
def hurried(monkeypatch) -> None:
    """A clock that shows ten seconds more at every look: no single read takes long, but all together do."""
    looks = itertools.count(0, 10)
    monkeypatch.setattr(openai_chat, "time", SimpleNamespace(monotonic=lambda: float(next(looks)), time=time.time))


def test_a_reply_that_drips_is_worth_another_attempt(hurried) -> None:
    error, _ = send([scripted.dripping("late", 0.02)])
    assert type(error) is Transient and "the reply was not complete within 60 s" in str(error) and error.billed


def test_no_server() -> None:
    with ScriptedServer([]) as server:
        url = server.url
    backend = OpenAIChat("any", url, KEY, 5.0)
    with pytest.raises(Transient, match="no connection: .*refused") as caught:
        backend.send(CALL)
    assert not caught.value.billed


@pytest.mark.parametrize(
    "answer, message, out, billed",
    [
        (
            scripted.error(401, "Incorrect API key"),
            "HTTP 401: Incorrect API key; check the .* LLM_API_KEY",
            True,
            False,
        ),
        (scripted.error(403, "no"), "this key may not use this model", True, False),
        (scripted.error(400, "maximum context length is 512 tokens"), "HTTP 400: maximum context", False, False),
        (scripted.error(429, "no money", code="insufficient_quota"), "no credit left", True, False),
        (scripted.error(400, "Your credit balance is too low"), "no credit left", True, False),
        (scripted.error(402, "Insufficient Balance"), "no credit left", True, False),
        (scripted.error(400, "no such thing", code="model_not_found"), "check the name", True, False),
        (scripted.Answer(b'[1, "x"]'), r"the reply has no choices\[0\].message.content", False, True),
        (scripted.Answer(b'{"choices": [{"message": {"content": 7}}]}'), "the reply has no choices", False, True),
        (scripted.Answer(b"[" * 100_000), "the reply is not JSON", False, True),
        (scripted.Answer(b"It is {no} JSON"), "the reply is not JSON", False, True),
        (scripted.Answer(b'{"error": "out of tune"}'), "an error came back with status 200: out of tune", False, True),
        (scripted.Answer(b'{"error": {"code": 401, "message": "who?"}}'), "check the environment", True, False),
        (scripted.web_page(), "a web page came back.* usually ends in /v1", False, True),
        (scripted.huge(9 << 20), "larger than 8 MiB", False, True),
    ],
    ids=[
        "401",
        "403",
        "400",
        "quota",
        "credit",
        "402",
        "model",
        "list",
        "number",
        "deep",
        "text",
        "error",
        "401-inside",
        "web-page",
        "huge",
    ],
)
def test_what_no_repetition_helps(answer, message, out, billed, caplog) -> None:
    error, requests = send([answer])
    assert isinstance(error, ChatFailure) and len(requests) == 1
    with pytest.raises(ChatFailure, match=f"(?s)^any at http://127.0.0.1:.*{message}"):
        raise error
    assert (error.model_is_out, error.billed, type(error) is Unread) == (out, billed, billed)


@pytest.mark.parametrize(
    "models, hint",
    [
        (["smollm2", "other"], "did you mean 'smollm2'?"),
        (["llama", "qwen"], "the server has llama, qwen"),
        ([], "check the name"),
    ],
)
def test_a_model_that_is_not_there(models, hint) -> None:
    error, _ = send([scripted.error(404, "no such model")], Call(0, Request("smolm2", (("user", "?"),))), models=models)
    assert hint in str(error) and error.model_is_out


def picky(content):
    """As newer models of OpenAI and Anthropic."""
    if "max_tokens" in content:
        name = "max_tokens"
        text = (
            "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
        )
        return scripted.error(400, text, param=name, code="unsupported_parameter")
    if content.get("temperature", 1) != 1:
        return scripted.error(400, "`temperature` is deprecated for this model.")
    if "seed" in content:
        return scripted.error(422, "Extra inputs are not permitted: body.seed")
    return scripted.good("fine")


def test_refused_parameters_are_left_out_and_remembered(caplog) -> None:
    with ScriptedServer(picky) as server, caplog.at_level(logging.WARNING, "envolve"):
        backend = OpenAIChat("picky", server.url, KEY, 5.0)
        assert [backend.read(backend.send(CALL), CALL.request).text for _ in range(2)] == ["fine"] * 2
        contents = [content for _, _, content in server.requests]
        backend.close()
    assert len(contents) == 5 and contents[3] == contents[4]
    assert contents[4].keys() == {"model", "messages", "max_completion_tokens"}
    assert [record.getMessage().split(": sending ")[1].split(" from now on")[0] for record in caplog.records] == [
        "max_completion_tokens instead of max_tokens",
        "no temperature",
        "no seed",
    ]


def test_parallel_calls_learn_together(caplog) -> None:
    """Each of four is refused before one has learned."""
    together = threading.Barrier(4)

    def script(content):
        if "max_tokens" in content:
            together.wait(10)
        return picky(content)

    with ScriptedServer(script) as server, caplog.at_level(logging.WARNING, "envolve"):
        server.lock = contextlib.nullcontext()
        backend = OpenAIChat("picky", server.url, KEY, 20.0)
        with ThreadPoolExecutor(4) as pool:
            bodies = list(pool.map(backend.send, [CALL] * 4))
            assert [backend.read(body, CALL.request).text for body in bodies] == ["fine"] * 4
        backend.close()
    assert len(caplog.records) == 3


def test_an_error_without_end_is_cut(hurried) -> None:
    http = sys.modules[openai.DefaultHttpxClient.__mro__[1].__module__.partition(".")[0]]  # httpx or httpx2

    class Endless(http.SyncByteStream):
        def __iter__(self):
            while True:
                yield b"x" * 1000

    response = http.Response(400, stream=Endless())
    _bounded(response, 6000.0)
    assert len(response.read()) == MAX_ERROR
    response = http.Response(500, stream=Endless())
    _bounded(response, 0.0)
    assert len(response.read()) == 1000
    drip = scripted.Answer(b"x" * 1_000_000, 400, pause=0.02)  # hours
    error, _ = send([drip])
    assert isinstance(error, ChatFailure) and "HTTP 400" in str(error)


def test_a_refusal_that_stays_ends() -> None:
    error, requests = send([scripted.error(400, "temperature is not supported", param="temperature")])
    assert isinstance(error, ChatFailure) and len(requests) == 2


def test_the_key_is_in_no_text(caplog) -> None:
    with caplog.at_level(logging.DEBUG):
        reply, _ = send([scripted.good(f"your key is {KEY}")])
        failures = [
            send([scripted.error(status, f"bad key {KEY}\n\x1b[31m")])[0] for status in (400, 401, 403, 404, 429, 500)
        ]
        failures.append(send([scripted.Answer(f"no JSON {KEY}".encode())])[0])
    texts = [reply.text, caplog.text, *map(str, failures), *map(repr, failures)]
    assert not [text for text in texts if KEY in text]
    assert reply.text == "your key is <key>" and not [text for text in texts[2:] if "\x1b" in text]


def test_retry_after() -> None:
    now = 1_000_000_000.0
    assert _retry_after({"retry-after": email.utils.formatdate(now + 30, usegmt=True)}, now) == 30
    assert _retry_after({"retry-after": email.utils.formatdate(now - 30, usegmt=True)}, now) == 0
    for text in ("", "soon", "nan", "inf", "1e99", "Fri, 99 Foo"):
        assert _retry_after({"retry-after": text}, now) is None
    assert _retry_after({"retry-after": "-4"}, now) == 0 and _retry_after({}, now) is None


@pytest.mark.slow
def test_openai_is_imported_only_when_a_model_is_asked(monkeypatch) -> None:
    code = (
        "import sys, envolve.llm.models.chat\n"
        "sys.exit(any(m.split('.')[0] in ('openai', 'httpx', 'httpx2') for m in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=IMPORTS).returncode == 0
    monkeypatch.setitem(sys.modules, "openai", None)
    with pytest.raises(ChatError, match=r"'any' needs the openai package: pip install envolve\[llm\]"):
        OpenAIChat("any", "http://localhost:1/v1", KEY)


def test_a_header_without_end_ends_with_the_timeout() -> None:
    """A line at a time, so that no single read takes long; a proxy that sends "102 Processing" looks the same."""
    over = threading.Event()

    def serve() -> None:
        connection, _ = server.accept()
        with connection, contextlib.suppress(OSError):
            while not over.wait(0.1):
                connection.sendall(b"HTTP/1.1 102 Processing\r\n\r\n")

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}/v1"
        threading.Timer(20.0, over.set).start()  # for a client that waits
        with make_chat(["m"], url, timeout=0.5, attempts=1, environ={}) as chat:
            [failure] = chat.ask([Call(0, Request("m", (("user", "?"),)))])
        assert not over.is_set() and "not complete within 0.5 s" in str(failure)
        assert chat.ledger.total().unconfirmed_tokens > 4096
        over.set()
        thread.join()
