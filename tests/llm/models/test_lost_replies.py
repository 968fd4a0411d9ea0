"""What was paid for is never asked twice, and what failed never given up: a resumed run asks exactly that."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections import Counter

import pytest

from envolve.core.places import IMPORTS
from envolve.llm.models.chat import (
    Budget,
    BudgetSpent,
    Call,
    Chat,
    Price,
    Reply,
    Request,
    Unanswered,
    make_chat,
    settled,
)
from envolve.llm.models.ledger import prompt_tokens
from envolve.llm.models.request import Body, ChatFailure, Transient, Unread
from tests.llm import scripted_server as scripted
from tests.llm.scripted_server import ScriptedServer
from tests.warm import processes

CALLS = [Call(i, Request("m", (("user", f"question {i}"),), 0.5, 20)) for i in range(5)]
FAILURES = {
    "401": scripted.error(401, "Incorrect API key"),
    "403": scripted.error(403, "not yours"),
    "404": scripted.error(404, "no such model"),
    "quota": scripted.error(429, "no money", code="insufficient_quota"),
    "402": scripted.error(402, "Insufficient Balance"),
    "429": scripted.limited("0"),
    "500": scripted.error(500, "out of order"),
    "cut": scripted.cut(),
    "malformed": scripted.malformed(),
    "late": scripted.slow("late", 60.0),
    "web page": scripted.web_page(),
    "text": scripted.Answer(b"hello"),
}


def number(content) -> int:
    return int(content["messages"][0]["content"].split()[1])


def ask(url, record, calls=CALLS, **options):
    """A session of its own -> the answers, the chat's ledger."""
    options = {"parallel": 1, "attempts": 3, "environ": {}, "sleep": lambda seconds: None, **options}
    with make_chat(["m"], url, record, **options) as chat:
        return chat.ask(calls), chat.ledger


def replies(answers) -> set[int]:
    return {i for i, answer in enumerate(answers) if isinstance(answer, Reply)}


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow) if n == "late" else n for n in FAILURES])
def test_a_resumed_run_asks_exactly_what_failed(name, tmp_path) -> None:
    """Two sessions that fail in different places, and a third that works."""
    failing, options = {1, 3}, {"timeout": 3.0, "attempts": 1} if name == "late" else {}
    answered: Counter[int] = Counter()

    def script(content):
        if number(content) in failing:
            return FAILURES[name]
        answered[number(content)] += 1
        return scripted.good(f"reply {number(content)}")

    with ScriptedServer(script) as server:
        record = tmp_path / "calls.jsonl"
        first, _ = ask(server.url, record, **options)
        assert 0 in replies(first) and not replies(first) & failing
        with pytest.raises(Unanswered, match=f"{len(replies(first))} of 5 calls are answered and kept"):
            settled(first)
        server.requests.clear()
        failing.remove(1)
        second, _ = ask(server.url, record, **options)
        asked = {number(content) for path, _, content in server.requests if content and path.endswith("completions")}
        assert asked <= set(range(5)) - replies(first) and 1 in replies(second)
        server.requests.clear()
        failing.clear()
        third, ledger = ask(server.url, record)
        assert {number(content) for _, _, content in server.requests} == set(range(5)) - replies(second)
        assert [answer.text for answer in third] == [f"reply {i}" for i in range(5)] and settled(third) == ""
    assert answered == dict.fromkeys(range(5), 1) and ledger.total().calls == 5
    with make_chat([f"replay:{record}"], environ={}) as again:
        assert [answer.text for answer in again.ask(CALLS)] == [answer.text for answer in third]


def test_nobody_listens(tmp_path) -> None:
    with ScriptedServer([scripted.good("yes")]) as server:
        url = server.url
    record = tmp_path / "calls.jsonl"
    with pytest.raises(Unanswered, match=f"m at {url}: gave up after attempt 3.* 0 of 5 calls are answered"):
        settled(ask(url, record)[0])
    with ScriptedServer([scripted.good("yes")]) as server:  # the server came back, somewhere else
        assert replies(ask(server.url, record)[0]) == set(range(5)) and len(server.requests) == 5


def test_a_raised_budget_asks_what_was_refused(tmp_path) -> None:
    with ScriptedServer([scripted.good("yes", tokens=(10, 10))]) as server:
        prices, record = {"m": Price(0, 1e6)}, tmp_path / "calls.jsonl"
        first, _ = ask(server.url, record, budget=Budget(usd=45), prices=prices)
        assert replies(first) == {0, 1, 2} and "budget is spent" in settled(first)
        again, _ = ask(server.url, record, budget=Budget(usd=45), prices=prices)
        assert isinstance(again[3], BudgetSpent) and len(server.requests) == 3
        last, ledger = ask(server.url, record, budget=Budget(usd=90), prices=prices)
        assert replies(last) == set(range(5)) and len(server.requests) == 5 and ledger.total().usd == 50


def test_a_request_that_is_refused_is_refused_for_good(tmp_path) -> None:
    """The others go on without it, also in a replay; where all are refused it is no fault of a single one."""

    def script(content):
        return scripted.error(400, "too long") if number(content) == 2 else scripted.good("yes")

    with ScriptedServer(script) as server:
        record = tmp_path / "calls.jsonl"
        answers, _ = ask(server.url, record)
        assert replies(answers) == {0, 1, 3, 4} and answers[2].final and settled(answers) == ""
        with pytest.raises(Unanswered, match="too long"):
            settled(ask(server.url, tmp_path / "all.jsonl", CALLS[2:3])[0])
    with make_chat([f"replay:{record}"], environ={}) as again:
        assert str(again.ask(CALLS)[2]) == str(answers[2])


class Reader:
    """A backend that receives what everybody understands but does not: until ``understands``."""

    free, understands = False, False

    def __init__(self, breaks=None):
        self.sent, self.breaks = [], breaks

    def send(self, call):
        self.sent.append(call.index)
        return Body(f"<{call.index}>", "text/strange", 1.0)

    def read(self, body, request):
        if self.breaks is not None:
            raise self.breaks
        if not self.understands:
            raise Unread("what is this?", (10, 5))
        return Reply(body.text.strip("<>"), "m", 10, 5, body.seconds, "stop")

    def close(self):
        pass


def session(backend, record):
    with Chat({"m": backend}, record, prices={"m": Price(1e6, 1e6)}) as chat:
        return chat.ask(CALLS[:1])[0], chat.ledger.total()


def test_a_body_is_on_the_disk_before_it_is_read(tmp_path) -> None:
    """A reader that breaks, one that does not understand, and a better one, which need not ask again."""
    record = tmp_path / "calls.jsonl"
    with pytest.raises(MemoryError):
        session(Reader(MemoryError()), record)
    line = json.loads(record.read_text().splitlines()[2])
    assert (line["index"], line["body"], line["content_type"]) == (0, "<0>", "text/strange")
    worse, better = Reader(), Reader()
    failure, total = session(worse, record)
    assert isinstance(failure, ChatFailure) and worse.sent == [0]
    assert total.unconfirmed_usd == 30  # the one of the session that broke, and its own
    better.understands = True
    reply, total = session(better, record)
    assert reply.text == "0" and better.sent == [] and total.calls == 1
    assert session(Reader(), record)[0] == reply


def test_a_kill_between_body_and_reply_loses_nothing(tmp_path) -> None:
    with ScriptedServer([scripted.good("yes")]) as server:
        record = tmp_path / "calls.jsonl"
        whole, _ = ask(server.url, record, CALLS[:1])
        lines = record.read_bytes().splitlines(keepends=True)
        assert len(lines) == 4
        record.write_bytes(b"".join(lines[:3]) + lines[3][:30])
        again, ledger = ask(server.url, record, CALLS[:1])
        assert again[0].text == whole[0].text and len(server.requests) == 1 and ledger.total().calls == 1


def test_others_stand_in_for_a_model_that_is_out(tmp_path, caplog) -> None:
    """Said aloud; the record replays; the next session asks the model again, but not what was answered."""
    dead = {"a"}

    def script(content):
        return FAILURES["401"] if content["model"] in dead else scripted.good(f"{content['model']} {number(content)}")

    calls = [Call(i, Request("ab"[i % 2], (("user", f"question {i}"),))) for i in range(4)]
    with ScriptedServer(script) as server:
        record = tmp_path / "calls.jsonl"

        def ask_both(calls):
            with make_chat(["a", "b"], server.url, record, environ={}, parallel=1) as chat:
                return chat.ask(calls)

        answers = ask_both(calls)
        assert [answer.text for answer in answers] == ["b 0", "b 1", "b 2", "b 3"] and settled(answers) == ""
        assert [answer.asked for answer in answers] == ["b", "", "b", ""]
        [line] = [r.getMessage() for r in caplog.records]
        assert line.startswith("a at http://") and "401" in line and "go to the other models" in line
        dead.clear()
        server.requests.clear()
        later = [Call(4, Request("a", (("user", "question 4"),)))]
        assert ask_both([*calls, *later])[:4] == answers and [c["model"] for _, _, c in server.requests] == ["a"]
        dead |= {"a", "b"}
        more = [Call(i, Request("ab"[i % 2], (("user", f"question {i}"),))) for i in (5, 6)]
        with pytest.raises(Unanswered, match="0 of 2"):
            settled(ask_both(more))
    for path in (record, tmp_path / "again.jsonl"):  # a replay's record replays, too
        with make_chat([f"replay:{path}"], record=tmp_path / f"{path.stem}.next", environ={}) as again:
            assert again.ask(calls) == answers
        (tmp_path / "calls.next").rename(tmp_path / "again.jsonl") if path == record else None


KILLED = """
import sys
from pathlib import Path
from envolve.llm.models.chat import Call, Request, make_chat
with make_chat(["m"], sys.argv[1], Path(sys.argv[2]), attempts=2, environ={}, sleep=lambda seconds: None) as chat:
    chat.ask([Call(0, Request("m", (("user", "question 0"),), 0.5, 20))])
"""


def test_calls_under_way_in_killed_sessions_count_against_the_budget(tmp_path, warm, monkeypatch) -> None:
    """The server was paid for what it was asked, whether somebody was left to hear the answer."""
    record, program, answers = tmp_path / "calls.jsonl", tmp_path / "asks.py", threading.Event()
    program.write_text(KILLED)
    monkeypatch.setattr(processes, "SCRIPTS", {program.resolve()})
    most = prompt_tokens(CALLS[0].request) + 20

    def script(content):
        return scripted.good("yes", tokens=(9, 1)) if answers.is_set() else scripted.slow("too late", 60.0)

    with ScriptedServer(script) as server:
        for killed in (1, 2):
            command = [sys.executable, str(program), server.url, str(record)]
            child = subprocess.Popen(command, cwd=IMPORTS, env={**os.environ, "PYTHONPATH": str(IMPORTS)})
            scripted.wait_until(lambda killed=killed: len(server.requests) == killed, 60)
            child.kill()
            child.wait()
        answers.set()
        for _ in range(2):
            spent, ledger = ask(server.url, record, CALLS[:1], budget=Budget(tokens=3 * most - 1))
            assert isinstance(spent[0], BudgetSpent) and f"{2 * most} of" in str(spent[0])
        [reply], ledger = ask(server.url, record, CALLS[:1], budget=Budget(tokens=3 * most))
        assert reply.text == "yes" and len(server.requests) == 3
        assert (ledger.total().calls, ledger.total().unconfirmed_tokens) == (1, 2 * most)
        _, ledger = ask(server.url, record, CALLS[:1])
        assert (ledger.total().calls, ledger.total().unconfirmed_tokens) == (1, 2 * most)


def test_an_attempt_that_was_not_billed_leaves_nothing_under_way(tmp_path) -> None:
    """A kill after a 429 and in the middle of the next attempt: only the latter counts, and a timeout before it."""
    record, most = tmp_path / "calls.jsonl", prompt_tokens(CALLS[0].request) + 20
    with ScriptedServer([scripted.limited("0"), scripted.cut(), scripted.good("yes")]) as server:
        ask(server.url, record, CALLS[:1])
    lines = record.read_bytes().splitlines(keepends=True)
    begun = [k for k, line in enumerate(lines) if "sent" in json.loads(line)]
    assert len(begun) == 3
    for k, expected in zip(begun, (1, 1, 2)):
        record.write_bytes(b"".join(lines[: k + 1]))
        with make_chat(["m"], "http://127.0.0.1:1/v1", record, environ={}) as chat:
            assert chat.ledger.total().unconfirmed_tokens == expected * most


class Backend:
    """Its first attempt is late, and billed; the second has a body. dies: the process is killed before it is read."""

    free, base_url = False, None

    def __init__(self, dies: bool) -> None:
        self.dies, self.sent = dies, 0

    def send(self, call: Call) -> Body:
        self.sent += 1
        if self.sent == 1 and self.dies:
            raise Transient("no reply within 300 s", billed=True)
        return Body("{}", "application/json", 1.0)

    def read(self, body: Body, request: Request) -> Reply:
        if self.dies:
            raise KeyboardInterrupt
        return Reply("hi", "m", 10, 5, 1.0, "stop")

    def close(self) -> None: ...


def test_attempts_before_a_body_that_was_not_read_stay_paid(tmp_path) -> None:
    call = Call(0, Request("m", (("user", "x" * 3000),), max_tokens=1000))

    def session(dies: bool) -> Chat:
        prices, budget = {"m": Price(10, 50)}, Budget(usd=5)
        return Chat({"m": Backend(dies)}, tmp_path / "calls.jsonl", budget, prices=prices, sleep=lambda seconds: None)

    first = session(True)
    with pytest.raises(KeyboardInterrupt):
        first.ask([call])
    late = first.ledger.most(call.request)
    for _ in range(2):  # before the body is read, and after a session that has done nothing
        again = session(False)
        assert again.ledger.rows()[-1].unconfirmed_usd == pytest.approx(late.usd)
    (answer,) = again.ask([call])
    assert isinstance(answer, Reply) and answer.text == "hi"
    for chat in (again, session(False)):
        total = chat.ledger.rows()[-1]
        assert total.unconfirmed_usd == pytest.approx(late.usd) and 0 < total.usd < late.usd
