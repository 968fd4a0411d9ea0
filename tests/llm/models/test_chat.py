"""Chat: order, retries, budget, record, resume and replay, with backends in this process and no waiting."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import random
import signal
import subprocess
import sys
import threading
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envolve.core.places import IMPORTS
from envolve.llm.models.chat import (
    Budget,
    BudgetSpent,
    Call,
    Chat,
    ChatError,
    ChatFailure,
    Price,
    RecordingEnds,
    ReplayMismatch,
    Reply,
    Request,
    Unanswered,
    backoff,
    make_chat,
    settled,
)
from envolve.llm.models.request import Transient
from tests.llm import scripted_server as scripted
from tests.llm.scripted_server import ScriptedServer
from tests.outer.small import default_sigint
from tests.warm import processes


class Scripted:
    """A backend: what each call index gets, attempt by attempt; otherwise "reply INDEX"."""

    free = False

    def __init__(self, script=None):
        self.script = {index: list(outcomes) for index, outcomes in (script or {}).items()}
        self.sent = []
        self.gate = None

    def send(self, call):
        self.sent.append(call.index)
        if self.gate is not None:
            assert self.gate.wait(60), "nobody opened the gate"
        outcome = self.script[call.index].pop(0) if self.script.get(call.index) else f"reply {call.index}"
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome if isinstance(outcome, Reply) else Reply(outcome, "served", 10, 5, 1 / 3, "stop")

    def close(self):
        pass


def held(backend, count):
    """Holds all calls until ``count`` are under way -> a list that gets how many there are a moment after that."""
    backend.gate, seen = threading.Event(), []

    def watch():
        scripted.wait_until(lambda: len(backend.sent) >= count, 60)
        time.sleep(0.1)  # for more than that, which are one too many
        seen.append(len(backend.sent))
        backend.gate.set()

    threading.Thread(target=watch, daemon=True).start()
    return seen


def calls(*indices, model="m", text="question", max_tokens=20):
    return [Call(i, Request(model, (("user", f"{text} {i}"),), 0.5, max_tokens)) for i in indices]


def make(backend, record=None, budget=Budget(), waits=None, price=Price(1e6, 2e6), **options):  # noqa: B008
    sleep = (lambda seconds: None) if waits is None else waits.append
    return Chat({"m": backend}, record, budget, prices={"m": price}, sleep=sleep, **options)


def texts(answers):
    return [answer.text if isinstance(answer, Reply) else str(answer) for answer in answers]


def lines(path):
    """Those of attempts that begin left out."""
    return [line for line in map(json.loads, path.read_text().splitlines()) if "sent" not in line]


def test_a_machine_without_room_for_a_thread_keeps_nothing_reserved(tmp_path, monkeypatch) -> None:
    chat, start, started = make(Scripted(), budget=Budget(usd=1000), parallel=3), threading.Thread.start, []

    def refuses(thread):
        if thread.name == "call 2" and not started:
            started.append(thread)
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuses)
    with chat:
        with pytest.raises(RuntimeError, match="can't start new thread"):
            chat.ask(calls(1, 2, 3))
        assert texts(chat.ask(calls(1, 2, 3, 4))) == ["reply 1", "reply 2", "reply 3", "reply 4"]


def test_replies_come_in_the_order_of_calls(tmp_path) -> None:
    with make(Scripted(), tmp_path / "run" / "calls.jsonl", parallel=3) as chat:
        assert texts(chat.ask(calls(4, 2, 9, 0, 7))) == ["reply 4", "reply 2", "reply 9", "reply 0", "reply 7"]
        assert chat.ask([]) == []
    head, *rest = lines(tmp_path / "run" / "calls.jsonl")
    assert head == {"envolve_calls": 1, "models": ["m"]}
    assert {line["index"] for line in rest} == {0, 2, 4, 7, 9}
    line = next(line for line in rest if line["index"] == 2)
    assert line["sha256"] == calls(2)[0].request.sha256() and line["request"] == calls(2)[0].request.values()
    assert (line["reply"], line["model"], line["finish"], line["tokens"]) == ("reply 2", "served", "stop", [10, 5])
    assert (line["usd"], line["seconds"], line["attempts"]) == (20.0, 1 / 3, 1)
    total = json.loads((tmp_path / "run" / "ledger.json").read_text())["total"]
    assert (total["calls"], total["prompt_tokens"], total["completion_tokens"], total["usd"]) == (5, 50, 25, 100.0)


def test_no_more_calls_at_once_than_parallel() -> None:
    backend = Scripted()
    most = held(backend, 3)
    with make(backend, parallel=3) as chat:
        chat.ask(calls(*range(7)))
    assert most == [3] and len(backend.sent) == 7


def test_failed_attempts_are_repeated_with_growing_waits(caplog) -> None:
    waits: list[float] = []
    backend = Scripted({0: [Transient("HTTP 500"), Transient("HTTP 429", 50.0), Transient("HTTP 503"), "at last"]})
    with make(backend, waits=waits, attempts=4) as chat, caplog.at_level(logging.WARNING, "envolve"):
        assert texts(chat.ask(calls(0))) == ["at last"]
    assert 0.5 <= waits[0] <= 1 and waits[1] == 50 and 2 <= waits[2] <= 4
    assert "call 0 of m: HTTP 429; next attempt in 50.0 s" in caplog.text
    again: list[float] = []
    with make(Scripted({0: [Transient("HTTP 500")]}), waits=again) as chat:
        chat.ask(calls(0))
    assert again == waits[:1]  # the jitter is drawn from the seed and the number of the call


def test_attempts_are_capped() -> None:
    backend = Scripted({1: [Transient("HTTP 500")] * 9})
    with make(backend, attempts=3) as chat:
        good, bad = chat.ask(calls(0, 1))
        assert isinstance(good, Reply) and isinstance(bad, ChatFailure)
        assert str(bad) == "m: gave up after attempt 3; the last one: HTTP 500"
        assert backend.sent.count(1) == 3 and chat.ledger.total().calls == 1


def test_a_model_that_is_out_is_asked_no_more(tmp_path) -> None:
    backend = Scripted({0: [ChatFailure("no such model", True)]})
    with make(backend, tmp_path / "calls.jsonl", parallel=1) as chat:
        answers = chat.ask(calls(0, 1, 2)) + chat.ask(calls(3))
        assert texts(answers) == ["no such model"] * 4 and backend.sent == [0]
        with pytest.raises(Unanswered, match="no such model; 0 of 4 calls are answered and kept"):
            settled(answers)
    with make_chat([f"replay:{tmp_path / 'calls.jsonl'}"]) as again:  # the run has stopped there
        [end] = again.ask(calls(0))
        assert isinstance(end, RecordingEnds) and "no reply for call 0: no such model" in str(end)
    with make(Scripted(), tmp_path / "calls.jsonl") as chat:  # mended
        assert texts(chat.ask(calls(0, 1))) == ["reply 0", "reply 1"]


@settings(deadline=None)
@given(
    attempt=st.integers(1, 10_000),
    retry_after=st.none() | st.floats(0, 1e9),
    seed=st.integers(),
)
def test_waits_are_bounded(attempt, retry_after, seed) -> None:
    wait = backoff(attempt, retry_after, random.Random(seed))
    plain = min(60.0, 2.0 ** min(attempt - 1, 30))
    assert 0.5 * plain <= wait <= 120
    assert wait >= min(retry_after or 0, 120) and (retry_after is not None or wait <= plain)


# Budgets. A call of 20 reply tokens: its prompt, "question N", is 10 bytes: 4 tokens and 8 for the message, 32 in all,
# at most 12 x 1 + 20 x 2 = 52 USD. A reply books 15 tokens, 20 USD.


@pytest.mark.parametrize("budget, fit", [(Budget(usd=112), 4), (Budget(tokens=92), 5), (Budget(usd=51.9), 0)])
def test_a_budget_is_never_exceeded(budget, fit, tmp_path) -> None:
    backend = Scripted()
    with make(backend, tmp_path / "calls.jsonl", budget, parallel=5) as chat:
        answers = chat.ask(calls(*range(9)))
        total = chat.ledger.total()
    assert [isinstance(answer, Reply) for answer in answers] == [True] * fit + [False] * (9 - fit)
    assert all(isinstance(answer, BudgetSpent) for answer in answers[fit:]) and len(backend.sent) == fit
    assert total.usd <= (budget.usd or 1e9) and total.prompt_tokens + total.completion_tokens <= (budget.tokens or 1e9)
    assert "the budget is spent: " in str(answers[fit])
    # the same budget is still spent after a resume, and nothing is paid twice
    with make(backend, tmp_path / "calls.jsonl", budget) as chat:
        again = chat.ask(calls(*range(9)))
    assert texts(again)[:fit] == texts(answers)[:fit] and len(backend.sent) == fit
    assert all(isinstance(answer, BudgetSpent) for answer in again[fit:])


def test_the_budget_holds_while_calls_are_under_way() -> None:
    backend = Scripted()
    most = held(backend, 2)
    with make(backend, budget=Budget(usd=110), parallel=5) as chat:
        assert sum(isinstance(answer, Reply) for answer in chat.ask(calls(*range(9)))) == 3
    assert most == [2]  # 2 x 52 are reserved; the third waits for what these two give back


def test_lost_attempts_count_against_the_budget(tmp_path) -> None:
    backend = Scripted({0: [Transient("timeout", billed=True), Transient("timeout", billed=True), "late"]})
    with make(backend, tmp_path / "calls.jsonl", Budget(usd=110)) as chat:
        [answer] = chat.ask(calls(0))
        assert isinstance(answer, BudgetSpent) and backend.sent == [0, 0]
        row = chat.ledger.total()
        assert (row.usd, row.unconfirmed_usd, row.unconfirmed_tokens, row.calls) == (0, 104, 64, 0)
    assert lines(tmp_path / "calls.jsonl")[1]["unconfirmed"] == [64, 104.0]
    with make(backend, tmp_path / "calls.jsonl", Budget(usd=200)) as chat:
        assert chat.ledger.total().unconfirmed_usd == 104
        assert texts(chat.ask(calls(0))) == ["late"]  # what failed is asked again


def test_a_server_that_ignores_max_tokens_ends_the_run() -> None:
    backend = Scripted({0: [Reply("long", "m", 10, 1000, 1.0, "stop")]})
    with make(backend, budget=Budget(usd=100), parallel=1) as chat:
        answers = chat.ask(calls(0, 1))
    assert isinstance(answers[0], Reply) and isinstance(answers[1], BudgetSpent)


def test_unknown_prices() -> None:
    with make(Scripted(), price=None, budget=Budget(tokens=50)) as chat:
        answers = chat.ask(calls(0, 1, 2))
        assert [isinstance(answer, Reply) for answer in answers] == [True, True, False]
        assert chat.ledger.total().usd is None and chat.ledger.rows()[0].cells()[-1] == "unknown"
    with pytest.raises(ChatError, match="price of 'm' is unknown: give --price m=IN,OUT"):
        make(Scripted(), price=None, budget=Budget(usd=1))


# Record, resume, replay


def test_a_resumed_run_pays_for_nothing_twice(tmp_path) -> None:
    record, backend = tmp_path / "calls.jsonl", Scripted({1: [ChatFailure("refused")]})
    with make(backend, record) as chat:
        first = chat.ask(calls(0, 1, 2))
        assert chat.ask(calls(0, 2)) == [first[0], first[2]]
    with record.open("ab") as file:
        file.write(b'{"index": 3, "sha256": "12')  # killed while it wrote
    with make(backend, record) as chat:
        assert chat.ledger.total().calls == 2
        again = chat.ask(calls(0, 1, 2, 3))
    assert sorted(backend.sent) == [0, 1, 1, 2, 3]
    assert [first[0], first[2]] == [again[0], again[2]] and texts(again)[1] == "reply 1"
    assert [line["index"] for line in lines(record)[1:]][:3] != [] and len(lines(record)) == 6


def test_other_settings_do_not_go_on_with_a_record(tmp_path) -> None:
    record = tmp_path / "calls.jsonl"
    with make(Scripted(), record) as chat:
        chat.ask(calls(0, 1))
    with make(Scripted(), record) as chat:
        text = r"call 1 differs in message 0 \(user\) at character 2: recorded 'question 1', now 'quiz 1'"
        with pytest.raises(ReplayMismatch, match=text):
            chat.ask([*calls(0), *calls(1, text="quiz")])
    with pytest.raises(ChatError, match=r"begun with the models \['m'\]"):
        Chat({"other": Scripted()}, record)


def test_a_finished_run_replays_exactly(tmp_path) -> None:
    record = tmp_path / "calls.jsonl"
    backends = {"a": Scripted({2: [ChatFailure("refused", final=True)]}), "b": Scripted()}
    asked = [*calls(0, 2, model="a"), *calls(1, 3, model="b")]
    with Chat(backends, record, attempts=2, sleep=lambda seconds: None) as chat:
        answers = chat.ask(asked)
    with make_chat([f"replay:{record}"], record=tmp_path / "again" / "calls.jsonl", environ={}) as again:
        assert again.models == ["a", "b"]
        replayed = again.ask(asked)
        assert texts(replayed) == texts(answers)
        assert [a for a in replayed if isinstance(a, Reply)] == [a for a in answers if isinstance(a, Reply)]
        assert again.ledger.total().usd == 0 and again.ledger.total().calls == 3
        [end] = again.ask(calls(4, model="a"))
        assert isinstance(end, RecordingEnds) and "has 4 replies" in str(end)
        with pytest.raises(ReplayMismatch, match="call 0 differs in max_tokens: recorded 20, now 21"):
            again.ask(calls(0, model="a", max_tokens=21))
    with make_chat([f"replay:{tmp_path / 'again' / 'calls.jsonl'}"]) as third:  # a replay's record replays, too
        assert texts(third.ask(asked)) == texts(answers)


def test_recordings_written_by_hand(tmp_path) -> None:
    one, two = tmp_path / "one.jsonl", tmp_path / "two.jsonl"
    one.write_text('{"reply": "zero", "comment": "a good one"}\n{"reply": "one", "model": "gpt-4o"}')
    two.write_text('{"reply": "ZERO"}\n')
    names = [f"replay:{one}", f"replay:{two}"]
    with make_chat(names, record=tmp_path / "calls.jsonl", budget=Budget(usd=0, tokens=0)) as chat:
        assert chat.models == names
        answers = chat.ask([*calls(1, 0, model=names[0]), *calls(0, 1, model=names[1])])
        assert texts(answers)[:3] == ["one", "zero", "ZERO"]
        assert [answers[0].model, answers[1].model] == ["gpt-4o", names[0]]
        assert isinstance(answers[3], RecordingEnds) and "has 1 reply, none for call 1" in str(answers[3])


def test_a_bug_or_a_full_disk_is_raised_once_the_others_are_home() -> None:
    backend = Scripted({1: [OSError(28, "No space left on device")]})
    with make(backend, budget=Budget(usd=1000)) as chat:
        with pytest.raises(OSError, match="No space"):
            chat.ask(calls(0, 1, 2))
        assert chat.ledger.total().calls >= 1 and not chat.ledger._open


ASKS = """
import sys
from pathlib import Path
from envolve.llm.models.chat import Call, Request, make_chat
calls = [Call(i, Request("m", (("user", str(i)),))) for i in range(20)]
with make_chat(["m"], sys.argv[1], Path(sys.argv[2]), parallel=2) as chat:
    chat.ask(calls)
"""


@pytest.mark.parametrize(
    "answer, replies",
    [
        pytest.param(scripted.good("paid for"), ["paid for"] * 2, id="replies-under-way"),
        pytest.param(scripted.limited("100"), [], id="between-attempts", marks=pytest.mark.slow),
    ],
)
def test_ctrl_c_leaves_the_record_whole_and_keeps_what_is_under_way(
    answer, replies, tmp_path, warm, monkeypatch
) -> None:
    """A child gets SIGINT: replies under way are awaited and recorded, nothing more is sent, no wait is waited."""
    record, program, answers = tmp_path / "calls.jsonl", tmp_path / "asks.py", threading.Event()
    program.write_text(ASKS)
    monkeypatch.setattr(processes, "SCRIPTS", {program.resolve()})

    def script(content):
        assert answers.wait(60)
        return answer

    with ScriptedServer(script) as server:
        server.lock = contextlib.nullcontext()  # both wait at the same time
        child = subprocess.Popen(
            [sys.executable, str(program), server.url, str(record)],
            cwd=IMPORTS,
            env={**os.environ, "PYTHONPATH": str(IMPORTS)},
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=default_sigint,
        )
        scripted.wait_until(lambda: len(server.requests) == 2, 60)
        if not replies:
            answers.set()
            assert "next attempt in 100.0 s" in child.stderr.readline() + child.stderr.readline()
        child.send_signal(signal.SIGINT)
        if replies:  # not before it has heard: it would send the next call
            assert "waiting up to 3 s for 2 pending replies" in child.stderr.readline()
            answers.set()
        _, err = child.communicate(timeout=60)  # less than the wait
        sent = len(server.requests)
    assert child.returncode in (1, 130, -signal.SIGINT) and "KeyboardInterrupt" in err
    assert sent == 2 and [line["reply"] for line in lines(record)[1:] if "reply" in line] == replies


class Slow(Scripted):
    """Answers when ``answers`` says so; ``most``: how many calls there were at once."""

    def __init__(self):
        super().__init__()
        self.most, self.now, self.lock, self.answers = 0, 0, threading.Lock(), threading.Event()

    def send(self, call):
        with self.lock:
            self.now += 1
            self.most = max(self.most, self.now)
        assert self.answers.wait(60)
        with self.lock:
            self.now -= 1
        return super().send(call)


def test_threads_that_ask_share_what_is_parallel_and_stop_keeps_their_replies(tmp_path) -> None:
    """As an asynchronous evolution asks: each attempt in a thread of its own, Ctrl-C in another."""
    slow, record = Slow(), tmp_path / "calls.jsonl"
    with Chat({"m": slow}, record, parallel=2) as chat:
        calls = [Call(i, Request("m", (("user", str(i)),))) for i in range(6)]
        threads = [threading.Thread(target=chat.ask, args=([call],), daemon=True) for call in calls]

        def answer_after_the_end():
            scripted.wait_until(lambda: chat.stopped, 60)
            slow.answers.set()

        threads.append(threading.Thread(target=answer_after_the_end, daemon=True))
        for thread in threads:
            thread.start()
        scripted.wait_until(lambda: slow.now == 2, 60)
        chat.stop()
        assert sum("reply" in line for line in lines(record)[1:]) == 2
        for thread in threads:
            thread.join()
    assert slow.most == 2 and len(slow.sent) == 2, "an attempt began after the end"


# Names, keys, the whole way


def test_through_a_server(tmp_path, caplog) -> None:
    """Good, 429, 500, cut and truncated answers to the real client, in parallel; the key stays out of every file."""
    key, trouble = "sk-or-0123456789", {"1": scripted.limited("0"), "2": scripted.error(500, "x"), "3": scripted.cut()}

    def script(content):
        number = content["messages"][0]["content"][-1]
        answer = scripted.truncated("half") if number == "4" else scripted.good(f"reply {number}")
        return trouble.pop(number, answer)

    with caplog.at_level(logging.DEBUG), ScriptedServer(script) as server:
        environ = {"LLM_API_KEY": key, "OPENAI_API_KEY": "sk-not-for-you"}
        options = {"record": tmp_path / "calls.jsonl", "environ": environ, "sleep": lambda seconds: None}
        with make_chat(["gpt-x"], server.url, **options) as chat:
            answers = chat.ask(calls(*range(5), model="gpt-x"))
    assert texts(answers) == ["reply 0", "reply 1", "reply 2", "reply 3", "half"] and answers[4].finish == "length"
    assert len(server.requests) == 8 and not trouble
    assert {headers["authorization"] for _, headers, _ in server.requests} == {f"Bearer {key}"}
    files = [path.read_text() for path in tmp_path.iterdir()]
    assert len(files) == 2 and not [text for text in [*files, caplog.text] if key in text]


@pytest.mark.parametrize(
    "name, base_url, environ, expected",
    [
        ("gpt-4-turbo-preview", None, {"OPENAI_API_KEY": "k"}, ("https://api.openai.com/v1", "k", 30)),
        ("o3", None, {"OPENAI_API_KEY": "k"}, ("https://api.openai.com/v1", "k", 8)),
        ("claude-sonnet-5", None, {"ANTHROPIC_API_KEY": "a"}, ("https://api.anthropic.com/v1/", "a", 10)),
        ("claude-opus-5", "https://api.anthropic.com/v1", {"ANTHROPIC_API_KEY": "a"}, (None, "a", 25)),
        ("ollama:llama3:8b", None, {"OPENAI_API_KEY": "k"}, ("http://localhost:11434/v1", "none", 0)),
        ("ollama:llama3", "http://x/v1", {"OLLAMA_HOST": "gpu7"}, ("http://gpu7:11434/v1", "none", 0)),
        ("gpt-4o", "http://localhost:8000/v1", {"OPENAI_API_KEY": "k"}, ("http://localhost:8000/v1", "none", None)),
        ("mistral", "https://router/v1", {"LLM_API_KEY": "r"}, ("https://router/v1", "r", None)),
    ],
)
def test_names(name, base_url, environ, expected) -> None:
    url, key, price = expected
    with make_chat([name], base_url, environ=environ) as chat:
        backend = chat._backends[name]
        assert url in (None, backend.base_url) and backend._client.api_key == key
        assert backend.model == name.removeprefix("ollama:")
        assert chat.ledger.prices[name] == price or chat.ledger.prices[name].completion == price


@pytest.mark.parametrize(
    "names, base_url, message",
    [
        ([], None, "no model"),
        (["gpt-4o"], None, "'gpt-4o' needs a key: set the environment variable OPENAI_API_KEY"),
        (["claude-x"], None, "ANTHROPIC_API_KEY"),
        (["lama"], None, "unknown model 'lama': expected gpt-..., claude-..., ollama:NAME"),
        (["m"], "localhost:8000", "base URL 'localhost:8000': expected http://"),
        (["m", "m"], "http://x/v1", "'m' is given twice"),
        (["replay:missing.jsonl"], None, "missing.jsonl: No such file"),
    ],
)
def test_names_that_lead_nowhere(names, base_url, message) -> None:
    with pytest.raises(ChatError) as caught:
        make_chat(names, base_url, environ={})
    assert message in str(caught.value)


def test_a_request_for_an_unknown_model() -> None:
    with make(Scripted()) as chat, pytest.raises(ChatError, match="unknown model 'n'; this run has m"):
        chat.ask(calls(0, model="n"))


def test_the_environment_is_read_by_default(monkeypatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "from-here")
    with make_chat(["gpt-4o"]) as chat:
        assert chat._backends["gpt-4o"]._client.api_key == "from-here" == os.environ["OPENAI_API_KEY"]
