"""The live page: who may see it, when it is made again, and what remains of a run that has ended or vanished."""

from __future__ import annotations

import http.client
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from envolve.experiments.pages import KINDS
from envolve.outer.page import watch
from tests.llm.attempts import evolution
from tests.llm.reporting.runs import write_run


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_run(tmp_path / "run", evolution(2, 3))


@pytest.fixture
def server(run: Path) -> Iterator[watch._Server]:
    server = watch._Server(0, watch.Pages([run], KINDS), "secret")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def get(server: watch._Server, path: str, **headers: str) -> tuple[int, http.client.HTTPMessage, str]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=20)
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    body = answer.read().decode()
    connection.close()
    return answer.status, answer.headers, body


def test_the_page_needs_its_token_and_its_own_name(server: watch._Server) -> None:
    assert server.server_address[0] == "127.0.0.1"
    for path in ("/", "/body", "/?token=", "/?token=secre", "/body?token=secret1"):
        assert get(server, path)[0] == 403
    assert get(server, "/?token=secret", Host="evil.example")[0] == 403
    assert get(server, "/other?token=secret")[0] == 404
    code, headers, text = get(server, "/?token=secret")
    assert code == 200 and headers["Cache-Control"] == "no-store"
    assert 'name="envolve-live" content="/body?token=secret"' in text and "connect-src &#39;self&#39;" in text


def test_only_news_are_sent(server: watch._Server, run: Path) -> None:
    code, headers, text = get(server, "/body?token=secret")
    assert code == 200 and "6 candidates" in text and headers["X-State"] == "running"
    again = get(server, "/body?token=secret", **{"If-None-Match": headers["ETag"]})
    assert again[0] == 304 and again[2] == ""
    write_run(run, evolution(3, 3))
    code, fresh, text = get(server, "/body?token=secret", **{"If-None-Match": headers["ETag"]})
    assert code == 200 and "9 candidates" in text and fresh["ETag"] != headers["ETag"]


def test_the_end_of_a_run_and_its_vanishing(server: watch._Server, run: Path) -> None:
    assert get(server, "/body?token=secret")[1]["X-State"] == "running"
    (run / "result.json").write_text("{}")
    assert get(server, "/body?token=secret")[1]["X-State"] == "complete"
    with (run / "individuals.jsonl").open("ab") as file:
        file.write(b'{"id": 7, "iter')  # killed in the middle of a line
    assert "6 candidates" in get(server, "/body?token=secret")[2]
    shutil.rmtree(run)
    code, _, text = get(server, "/body?token=secret")
    assert code == 200 and "6 candidates" in text


def test_a_port_that_is_taken_is_named(server: watch._Server, run: Path) -> None:
    port = server.server_address[1]
    with pytest.raises(OSError, match="in use") as caught:
        watch.serve(watch.Pages([run], KINDS), port)
    assert caught.value.filename == f"127.0.0.1:{port}"
