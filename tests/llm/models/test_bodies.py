"""Whatever a server sends in one of the known forms is understood, and billed once."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envolve.llm.models import openai_chat
from envolve.llm.models.bodies import ErrorInside, read_body
from envolve.llm.models.chat import Budget, Price, Reply, make_chat
from envolve.llm.models.request import Body, Call, Request, Transient, Unread
from tests.examples import examples
from tests.llm import scripted_server as scripted
from tests.llm.scripted_server import ScriptedServer

USAGE = {"prompt_tokens": 7, "completion_tokens": 3}


def message(finish="stop", **fields):
    return {"choices": [{"index": 0, "message": fields, "finish_reason": finish}], "usage": USAGE}


def stream(*chunks, end="data: [DONE]\n\n", gap="\n\n"):
    return "".join(f"data: {json.dumps(chunk)}{gap}" for chunk in chunks) + end


def delta(finish=None, **fields):
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": finish}], "model": "m-1"}


LAST = {"choices": [], "usage": USAGE}
PARTS = [
    {"type": "thinking", "thinking": "hm", "text": "no"}, {"type": "text", "text": "a"}, "b", {"type": "image_url"},
    {"type": "output_text", "text": {"value": "c"}},
]  # fmt: skip
FORMS = {
    "plain": (message(content="abc"), "abc", "stop"),
    "parts": (message(content=PARTS), "abc", "stop"),
    "part": (message(content={"type": "text", "text": "abc"}), "abc", "stop"),
    "refusal": (message(content=None, refusal="I will not."), "I will not.", "stop"),
    "refusal-part": (message(content=[{"type": "refusal", "refusal": "no"}]), "no", "stop"),
    "reasoning": (message("length", content="", reasoning_content="Let me see"), "Let me see", "length"),
    "reasoning-and-reply": (message(content="abc", reasoning_content="Let me see"), "abc", "stop"),
    "nothing": (message(content=None), "", "stop"),
    "tool": (message("tool_calls", content=None, tool_calls=[{}]), "", "tool_calls"),
    "no-choices": ({"choices": [], "usage": USAGE}, "", "empty"),
    "completion": ({"choices": [{"text": "abc", "finish_reason": "stop"}], "usage": USAGE}, "abc", "stop"),
    "stream": (stream(delta(role="assistant", content=""), delta(content="a\u2028"), delta("stop", content="bc"), LAST),
               "a\u2028bc", "stop"),
    "stream-of-parts": (stream(delta(content=[{"text": "ab"}]), delta(content="c"), LAST), "abc", "stop"),
    "stream-that-thinks": (stream(delta(reasoning_content="hm"), delta(content="abc"), LAST), "abc", "stop"),
    "stream-of-texts": (stream({"choices": [{"text": "ab"}]}, {"choices": [{"text": "c"}]}, LAST), "abc", "stop"),
    "stream-of-one": (stream(message(content="abc")), "abc", "stop"),
    "stream-without-gaps": (stream(delta(content="ab"), delta(content="c"), LAST, gap="\n"), "abc", "stop"),
    "stream-with-events": (": waiting\r\n\r\nevent: chunk\r\n" + stream(delta(content="abc"), LAST, gap="\r\n\r\n"),
                           "abc", "stop"),
    "stream-that-stops": (stream(LAST, delta(content="abc"), end=""), "abc", "length"),
    "stream-over-lines": ("data: " + json.dumps(message(content="abc"), indent=1).replace("\n", "\ndata: ") + "\n\n",
                          "abc", "stop"),
}  # fmt: skip


@pytest.mark.parametrize("name", FORMS)
def test_known_forms(name) -> None:
    sent, text, finish = FORMS[name]
    found = read_body(Body(sent if isinstance(sent, str) else json.dumps(sent), "application/json", 1.0))
    assert (found.text, found.finish, found.usage) == (text, finish, (7, 3))


@pytest.mark.parametrize("kind", ["text/event-stream", "text/event-stream; charset=utf-8", "application/json"])
def test_a_stream_that_nobody_asked_for_costs_one_call(kind, tmp_path) -> None:
    """Through the real client, with the connection left open after the last event, and within the budget."""
    body = stream(delta(content="re"), delta("stop", content="ply"), LAST).encode()
    answer = scripted.Answer(body, headers={"Content-Type": kind}, length=len(body) + 1 if "charset" in kind else None)
    with ScriptedServer([answer]) as server:
        options = {"record": tmp_path / "calls.jsonl", "prices": {"m": Price(1e6, 1e6)}, "budget": Budget(usd=100)}
        with make_chat(["m"], server.url, environ={}, sleep=lambda seconds: None, **options) as chat:
            [reply] = chat.ask([Call(0, Request("m", (("user", "?"),), max_tokens=20))])
            assert isinstance(reply, Reply) and (reply.text, reply.finish) == ("reply", "stop")
            assert chat.ledger.total().usd == 10 and len(server.requests) == 1


@pytest.mark.parametrize("body", ['{"detail": "x", "usage": {"prompt_tokens": 7, "completion_tokens": 3}}',
                                  '{"choices": [{"message": {"content": 3}}], "usage": ' + json.dumps(USAGE) + "}",
                                  "no JSON", '["x"]', "data: nothing\n\n"])  # fmt: skip
def test_what_nobody_understands_is_asked_once_and_counted(body, tmp_path) -> None:
    with ScriptedServer([scripted.Answer(body.encode())]) as server:
        with make_chat(["m"], server.url, tmp_path / "calls.jsonl", prices={"m": Price(1e6, 1e6)}, environ={}) as chat:
            [failure] = chat.ask([Call(0, Request("m", (("user", "?"),), max_tokens=20))])
            row = chat.ledger.total()
        assert not isinstance(failure, Reply) and not failure.final and len(server.requests) == 1
        assert row.unconfirmed_tokens == row.unconfirmed_usd == (10 if "usage" in body else 29)
    kept = [json.loads(line) for line in (tmp_path / "calls.jsonl").read_text().splitlines()]
    assert [line.get("body") for line in kept] == [None, None, body, None]  # head, sent, body, what became of it


def test_a_body_that_a_later_session_can_read_is_booked_once(tmp_path, monkeypatch) -> None:
    body = json.dumps(message(content="late"))
    options = {"record": tmp_path / "calls.jsonl", "prices": {"m": Price(1e6, 1e6)}, "environ": {}}
    call = Call(0, Request("m", (("user", "?"),), max_tokens=20))
    with ScriptedServer([scripted.Answer(body.encode())]) as server:
        with monkeypatch.context() as patch, make_chat(["m"], server.url, **options) as chat:
            patch.setattr(openai_chat, "read_body", lambda body: read_body(Body("{}", body.kind, 1.0)))
            [failure] = chat.ask([call])
            assert not isinstance(failure, Reply) and chat.ledger.total().unconfirmed_usd == 29
        for _ in range(2):  # the one that reads it, and the next
            with make_chat(["m"], server.url, **options) as chat:
                [reply] = chat.ask([call])
                row = chat.ledger.total()
            assert isinstance(reply, Reply) and reply.text == "late"
            assert (row.usd, row.unconfirmed_usd, row.unconfirmed_tokens, row.calls) == (10, 0, 0, 1)
        assert len(server.requests) == 1


def test_a_key_that_is_sent_back_is_in_no_record(tmp_path) -> None:
    """Also in JSON's escapes, and cut in two by a stream."""
    key = "sk-or/0123456789"
    escaped = "".join(f"\\u{ord(c):04X}" if i % 2 else c for i, c in enumerate(key))
    plain = json.dumps(message(content="KEY and KEY and KEY"))
    for written in (key, escaped, key.replace("/", "\\/")):
        plain = plain.replace("KEY", written, 1)
    streamed = stream(delta(content=f"{key[:5]}"), delta(content=key[5:]), LAST)
    with ScriptedServer([scripted.Answer(plain.encode()), scripted.Answer(streamed.encode())]) as server:
        record = tmp_path / "calls.jsonl"
        with make_chat(["m"], server.url, record, environ={"LLM_API_KEY": key}, parallel=1) as chat:
            replies = chat.ask([Call(i, Request("m", (("user", "?"),))) for i in range(2)])
    assert [reply.text for reply in replies] == ["<key> and <key> and <key>", "<key>"]
    for line in map(json.loads, record.read_text().splitlines()):
        body = line.get("body", "")
        assert key not in json.dumps(line) and (not body.startswith("{") or key not in json.dumps(json.loads(body)))


@settings(deadline=None, max_examples=examples(60))
@given(st.text(max_size=40) | st.recursive(
    st.none() | st.booleans() | st.integers(-3, 700) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(["choices", "message", "content", "delta", "text", "error", "code", "usage", "prompt_tokens"]),
        inner, max_size=4,
    ), max_leaves=12,
).map(json.dumps), st.sampled_from(["application/json", "text/event-stream"]))  # fmt: skip
def test_any_body_is_read_or_refused(text, kind) -> None:
    for body in (text, f"data: {text}\n\ndata: [DONE]\n\n"):
        try:
            found = read_body(Body(body, kind, 1.0))
        except (Unread, Transient, ErrorInside):
            continue
        assert isinstance(found.text, str) and all(n is None or n >= 0 for n in found.usage)
