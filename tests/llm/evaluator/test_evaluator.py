"""The evaluator: tokens, limits, batches, nothing twice, over real HTTP; training is counted, not done."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
import urllib.error
import urllib.request

import pytest

from envolve.agents.shaped.halving import Training
from envolve.agents.shaped.training import default_section
from envolve.llm.evaluator import web
from envolve.llm.evaluator.client import EvaluatorError, score
from envolve.llm.evaluator.store import Store, StoreError
from envolve.llm.evaluator.web import MOST_BYTES, Server
from envolve.llm.evaluator.work import Evaluator
from envolve.llm.vetting.vet import Rejection, Vetted
from envolve.outer.reporting.board import Board
from tests.llm.scripted_server import wait_until
from tests.llm.test_evolution import graph_file
from tests.outer.reporting.events import scalars

TRAINING = Training("Cartpole", "ppo", default_section("ppo"), 8, 2)
SETTINGS = {"task": "Cartpole", "types": ["compute_reward"]}


class FakeVetter:
    def vet_all(self, replies):
        return [
            Rejection("code", "allowlist", "line 1: bad is not allowed", 0.0) if text.startswith("bad")
            else Vetted(f"# {text}", graph_file("cos", 1.0), 0.0, ("rewritten",))
            for text, _ in replies
        ]  # fmt: skip


def make(folder, **options) -> Evaluator:
    def run(training, individuals, seed):
        calls.append(len(individuals))
        for i in individuals:
            i.score = float(len(i.code)) if "boom" not in i.code else float("nan")
            i.failure = "NotFinite: compute_reward" if "boom" in i.code else None
            i.interval, i.curves, i.steps = (0.0, 1.0), {"score": [0.5, float("nan")]}, 7

    calls: list[int] = []
    evaluator = Evaluator(Store(folder, SETTINGS), FakeVetter(), TRAINING, 0, run=run, **options)  # type: ignore[arg-type]
    evaluator.calls = calls  # type: ignore[attr-defined]
    return evaluator


@pytest.fixture
def server(tmp_path):
    evaluator = make(tmp_path / "store", batch=4, queue=6)
    with Server(evaluator, "secret") as found:
        found.begin()
        yield found
        evaluator.stop()
        found.shutdown()


def ask(server, path, body=None, token="secret", kind="application/json"):
    headers = {"Authorization": f"Bearer {token}", "Content-Type": kind}
    request = urllib.request.Request(server.url + path, body, headers)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as e:
        return e.code, json.loads(e.read())


def code(text: str) -> bytes:
    return json.dumps({"code": text}).encode()


def test_what_waits_is_trained_at_once(server) -> None:
    ids = [ask(server, "/evaluate", code(f"good {k}"))[1]["id"] for k in range(5)]
    assert [ask(server, f"/result/{n}") for n in ids] == [(202, {"id": n, "status": "waiting"}) for n in ids]
    assert server.evaluator.work(once=True) == 5
    assert server.evaluator.calls == [5, 1]  # four and the human's, then the rest
    found = [ask(server, f"/result/{n}")[1] for n in ids]
    assert [r["status"] for r in found] == ["scored"] * 5 and found[0]["score"] == 8.0
    assert found[0]["curves"] == {"score": [0.5, None]} and found[0]["notes"] == ["rewritten"]
    status = ask(server, "/status")[1]
    assert status["waiting"] == 0 and status["task"] == "Cartpole" and status["human"] == 0.0


def test_refusals_and_failures_say_why(server) -> None:
    ids = [ask(server, "/evaluate", text.encode(), kind="text/plain")[1]["id"] for text in ("bad", "boom")]
    server.evaluator.work(once=True)
    refused, failed = (ask(server, f"/result/{n}")[1] for n in ids)
    assert (refused["status"], refused["stage"]) == ("refused", "allowlist") and "not allowed" in refused["reason"]
    assert (failed["status"], failed["stage"], failed["score"]) == ("failed", "training", None)
    assert "NotFinite" in failed["reason"] and "NotFinite" in failed["feedback"]


def test_nothing_without_the_token(server) -> None:
    for path, body in (("/evaluate", code("good")), ("/status", None), ("/result/x", None)):
        for token in ("", "secre", "secret2"):
            assert ask(server, path, body, token)[0] == 401
    assert not server.evaluator.store.waiting


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/evaluate", b"[1]", 400), ("/evaluate", b'{"code": 7}', 400), ("/evaluate", b"\xff", 400),
        ("/evaluate", b"[" * 9999, 400), ("/evaluate", b"", 400), ("/elsewhere", code("x"), 404),
        ("/evaluate?wait=-1", code("x"), 400), ("/evaluate?wait=nan", code("x"), 400),
        ("/evaluate?wait=x", code("x"), 400), ("/evaluate", b"x" * (MOST_BYTES + 1), 413), ("/nothing", None, 404),
        ("/result/none", None, 404),
    ],
)  # fmt: skip
def test_odd_requests_are_answered(server, path, body, status) -> None:
    found, content = ask(server, path, body)
    assert found == status and content["error"]


@pytest.mark.parametrize(("token", "status"), [("secret", 413), ("wrong", 401)])
def test_a_large_body_that_is_refused_is_no_broken_pipe(server, token, status) -> None:
    for _ in range(5):
        assert ask(server, "/evaluate", b"x" * (2 << 20), token)[0] == status


def test_strangers_that_say_nothing_have_few_threads_and_little_time(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(web, "MOST_STRANGERS", 3)
    monkeypatch.setattr(web, "HEADERS", 0.5)
    with Server(make(tmp_path / "store"), "secret") as server, contextlib.ExitStack() as stack:
        server.begin()
        before = threading.active_count()
        silent = [stack.enter_context(socket.create_connection(server.server_address[:2])) for _ in range(9)]
        wait_until(lambda: any(closed(s) for s in silent), 10)
        assert threading.active_count() - before <= 2 * 3  # a thread and a clock each
        wait_until(lambda: all(closed(s) for s in silent), 10)
        monkeypatch.undo()
        wait_until(lambda: answers(server), 10)  # a connection is closed a moment before its thread ends
        server.shutdown()


def test_a_server_without_threads_left_has_room_again_afterwards(tmp_path, monkeypatch) -> None:
    class Tired(threading.Timer):
        def start(self) -> None:
            raise RuntimeError("can't start new thread")

    with Server(make(tmp_path / "store"), "secret") as server, monkeypatch.context() as patch:
        server.begin()
        patch.setattr(web.threading, "Timer", Tired)
        for _ in range(web.MOST_STRANGERS + 1):
            assert not answers(server)
        patch.undo()
        wait_until(lambda: answers(server), 10)
        server.shutdown()


def test_a_length_of_thousands_of_digits_is_answered(server) -> None:
    connection = http.client.HTTPConnection(*server.server_address[:2], timeout=10)
    connection.putrequest("POST", "/evaluate")
    for name, value in (("Authorization", "Bearer secret"), ("Content-Length", "9" * 5000)):
        connection.putheader(name, value)
    connection.endheaders()
    response = connection.getresponse()
    assert response.status == 413 and "a request of 99999999999999999999 bytes" in response.read().decode()
    connection.close()


def answers(server) -> bool:
    try:
        return ask(server, "/status")[0] == 200
    except (OSError, http.client.HTTPException):
        return False


def closed(connection: socket.socket) -> bool:
    connection.settimeout(0.01)
    try:
        return connection.recv(1) == b""
    except TimeoutError:
        return False
    except OSError:
        return True


def test_the_documented_curl_sends_json_under_another_name(server) -> None:
    kind = "application/x-www-form-urlencoded"  # what curl -d says
    (_, form), (_, plain) = (ask(server, "/evaluate", code("good"), kind=k) for k in (kind, "application/json"))
    assert form["id"] == plain["id"]


def test_the_queue_is_limited_and_the_same_code_needs_no_room(server) -> None:
    for k in range(6):
        assert ask(server, "/evaluate", code(f"good {k}"))[0] == 202
    assert ask(server, "/evaluate", code("one more"))[0] == 429
    assert ask(server, "/evaluate", code("good 3"))[0] == 202


def test_a_sender_may_wait_for_its_result(server, monkeypatch) -> None:
    threading.Thread(target=server.evaluator.work, daemon=True).start()
    found = score("good", server.url, "secret", wait=30)
    assert found["status"] == "scored"
    monkeypatch.setenv("ENVOLVE_EVALUATOR", server.url)
    monkeypatch.setenv("ENVOLVE_EVALUATOR_TOKEN", "wrong")
    with pytest.raises(EvaluatorError, match="401"):
        score("good")


def test_killed_and_started_again_it_evaluates_nothing_twice(tmp_path) -> None:
    first = make(tmp_path / "s", batch=2)
    ids = [first.submit(f"good {k}")[0] for k in range(3)]
    first._batch(first.store.next(2))
    (tmp_path / "s" / "results.jsonl").open("ab").write(b'{"id": "torn')  # killed while it wrote
    again = make(tmp_path / "s", batch=2)
    assert list(again.store.waiting) == ids[2:] and again.human is not None
    assert again.submit("good 0")[0] == ids[0] and again.work(once=True) == 1
    assert again.calls == [1]  # the human's is known, too
    assert all(again.store.known(n)["status"] == "scored" for n in ids)
    assert make(tmp_path / "s").work(once=True) == 0


def test_every_result_is_in_tensorboard(tmp_path) -> None:
    with contextlib.closing(Board(tmp_path / "s")) as board:
        evaluator = make(tmp_path / "s", batch=4, board=board)
        for text in ("good", "boom"):
            evaluator.submit(text)
        evaluator.work(once=True)
    found = scalars(tmp_path / "s")
    assert [step for step, _ in found["failed"]] == [1, 2, 3] and sum(value for _, value in found["failed"]) == 1
    scores = [evaluator.store.known(i)["score"] for i in evaluator.store.results]
    assert [value for _, value in found["score"]] == [s for s in scores if s is not None], "the human's comes first"


def test_another_evaluators_folder_is_refused(tmp_path) -> None:
    Store(tmp_path, SETTINGS)
    (tmp_path / "requests.jsonl").write_text('{"id": "a", "code": "x"}\n{"id": "b"}\n')
    with pytest.raises(StoreError, match=r"requests.jsonl, line 2: found id, expected id and code; remove the line"):
        Store(tmp_path, SETTINGS)
    (tmp_path / "requests.jsonl").unlink()
    with pytest.raises(StoreError, match="'task': found 'Cartpole', expected 'Ant'"):
        Store(tmp_path, {**SETTINGS, "task": "Ant"})
