"""Whoever may reach the hub's port, with the token and without it: nothing that it sends costs more than a message."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest
import torch

from envolve.distributed.engine.client import RemoteHub
from envolve.distributed.engine.limits import CALLS, MOST_WAIT
from envolve.distributed.engine.server import ADDRESS, SERVICE, TOKEN, HubServer
from envolve.distributed.engine.wire import LENGTH, MOST_HEAD, pack
from envolve.distributed.memory.rows import RANDOM, Chunk
from envolve.outer.checkpoint import RunError
from tests.distributed.toy import Run, small

MIB = 2**20
SENDER = """
import sys, threading, grpc
address, token, size, count = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
message, found = b"x" * size, []
options = [("grpc.max_send_message_length", -1), ("grpc.enable_http_proxy", 0)]
def send():
    with grpc.insecure_channel(address, options=[*options, ("grpc.use_local_subchannel_pool", 1)]) as channel:
        try:
            channel.unary_unary("/envolve.Hub/append")(message, timeout=60, metadata=(("token", token),))
            found.append("OK")
        except grpc.RpcError as e:
            found.append(e.code().name)
threads = [threading.Thread(target=send) for _ in range(count)]
[t.start() for t in threads]
[t.join() for t in threads]
print(" ".join(sorted(set(found))))
"""


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Run, dict[str, str]]]:
    run = Run(small(), tmp_path, 3, "async")
    server = HubServer(run.hub, tmp_path)
    yield run, json.loads((tmp_path / ADDRESS).read_text())
    server.close()


def peak(anew: bool = False) -> int:
    """Bytes of memory that this process had at the most; anew: since now."""
    if anew:
        Path("/proc/self/clear_refs").write_text("5")
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) * 1024


def send(address: str, token: str, size: int, count: int) -> str:
    """From another process: what each of so many messages of this size at once was answered."""
    command = [sys.executable, "-c", SENDER, address, token, str(size), str(count)]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=300).stdout.strip()


def costs(found: dict[str, str], token: str, size: int, count: int) -> tuple[str, int]:
    send(found["address"], token, 1, 1)  # what gRPC itself needs
    before = peak(anew=True)
    said = send(found["address"], token, size, count)
    return said, peak() - before


@pytest.mark.parametrize("size, count", [(256 * MIB, 1), (16 * MIB, 8)])
def test_a_stranger_makes_the_hub_allocate_nothing(served: Any, size: int, count: int) -> None:
    said, memory = costs(served[1], "guess", size, count)
    assert said == "UNAUTHENTICATED" and memory < 32 * MIB
    assert not served[0].hub.finished and served[0].hub.progress().steps == 0


@pytest.mark.slow
@pytest.mark.parametrize("size, count", [(1500 * MIB, 1), (64 * MIB, 50)])
def test_nor_does_one_with_much_to_say(served: Any, size: int, count: int) -> None:
    said, memory = costs(served[1], "guess", size, count)
    assert said == "UNAUTHENTICATED" and memory < 64 * MIB


def test_a_message_larger_than_any_legal_one_is_not_read(served: Any) -> None:
    """By one with the token; the run is small, so the largest is of about a megabyte."""
    assert served[0].hub.limits.message_bytes < 2 * MIB
    said, memory = costs(served[1], served[1][TOKEN], 32 * MIB, 2)
    assert said == "RESOURCE_EXHAUSTED" and memory < 32 * MIB


def chunk(run: Run, **changed: Any) -> Chunk:
    rows = torch.zeros(1, 4, run.widths.row)
    return replace(Chunk(0, RANDOM, 0, 1, rows, torch.zeros(0, 2)), **changed)


def holed(run: Run, value: float) -> torch.Tensor:
    rows = torch.zeros(1, 4, run.widths.row)
    rows[0, 2, 3] = value
    return rows


def wrong_calls(run: Run) -> list[tuple[str, list[Any], str]]:
    """Method, arguments, and what the answer names."""
    D, W = run.hub.limits.policy, run.widths.row
    policy = torch.zeros(1, D)
    return [
        ("append", [chunk(run, rows=holed(run, float("nan")))], "rows: found NaN or infinite"),
        ("append", [chunk(run, rows=holed(run, float("-inf")))], "rows: found NaN or infinite"),
        ("append", [chunk(run, rows=torch.zeros(1, 10**4, W))], "rows: found torch.float32 .1, 10000"),
        ("append", [chunk(run, rows=torch.zeros(1, 0, W))], "rows: found"),
        ("append", [chunk(run, rows=None)], "rows: found None"),
        ("append", [chunk(run, episodes=torch.full((1, 2), float("nan")))], "episodes: found NaN"),
        ("append", [chunk(run, worker=-5)], "worker: found -5, expected an integer from 0 to 2"),
        ("append", [chunk(run, worker="x" * 1000)], "worker: found str"),
        ("append", [chunk(run, worker=3)], "worker: found 3"),
        ("append", [chunk(run, version=2**60)], "version: found 1152921504606846976"),
        ("append", [chunk(run, version=5)], "an unpublished policy"),
        ("append", [chunk(run, session=10**400)], "session: found a larger integer"),
        ("append", [chunk(run, ticket=True)], "ticket: found True"),
        ("append", [policy], "chunk: found Tensor"),
        ("append", [], "found 0 arguments, expected chunk"),
        ("append", [chunk(run)] * 2, "found 2 arguments"),
        ("pull", [-5, 0.0], "worker: found -5"), ("pull", ["w" * 1000, 0.0], "worker: found str"),
        ("pull", [0, 1e9], "timeout: found 1000000000.0, expected 0 to 60 s"),
        ("pull", [0, float("nan")], "timeout: found nan"), ("pull", [0, -1.0], "timeout: found -1.0"),
        ("pull", [0, "long"], "timeout: found str"), ("pull", [[[0]], 0.0], "worker: found list"),
        ("publish", [0, 0, torch.zeros(1, D + 1), 0.0], "policy: found torch.float32"),
        ("publish", [0, 0, torch.full((1, D), float("inf")), 0.0], "policy: found NaN or infinite"),
        ("publish", [-1, 0, policy, 0.0], "session: found -1"),
        ("publish", [0, 2**60, policy, 0.0], "version: found"),
        ("begin", [2**60, 0], "session: found"), ("begin", [0, None], "version: found None"),
        ("ready", [0, 0, 1e9], "timeout: found"), ("has", [2**60], "version: found"),
        ("sample", [0, 10**9], "count: found 1000000000, expected an integer from 1 to 50"),
        ("sample", [-1, 1], "first: found -1"), ("sample", [0, 1], "the memory is empty"),
        ("finish", [1], "found 1 arguments, expected none"), ("progress", [None], "found 1 arguments"),
    ]  # fmt: skip


def test_whoever_has_the_token_and_is_wrong_is_told_so_in_a_line(served: Any) -> None:
    run, found = served
    run.hub.publish(0, RANDOM, torch.zeros(1, run.hub.limits.policy), 0.0)
    metadata = ((TOKEN, found[TOKEN]),)
    with grpc.insecure_channel(found["address"], options=[("grpc.enable_http_proxy", 0)]) as channel:
        calls = {name: channel.unary_unary(f"/{SERVICE}/{name}") for name in CALLS}

        def refused(name: str, data: bytes, words: str, seconds: float | None = 20) -> None:
            with pytest.raises(grpc.RpcError) as error:
                calls[name](data, timeout=seconds, metadata=metadata)
            said = error.value.details()  # type: ignore[attr-defined]
            assert error.value.code() == grpc.StatusCode.INVALID_ARGUMENT, said  # type: ignore[attr-defined]
            assert said.startswith(f"{name}: ") and words in said.replace("[", ".") and "\n" not in said
            assert len(said) < 450 and said.isprintable()

        wrong = wrong_calls(run)
        assert {name for name, _, _ in wrong} >= set(CALLS) - {"checkpoint"}
        for name, arguments, words in wrong:
            refused(name, pack(arguments), words)
        for data in (b"", b"\xff" * 100, LENGTH.pack(MOST_HEAD + 1) + bytes(MOST_HEAD + 1), pack("x"), pack(None)):
            refused("append", data, "")
        refused("progress", pack([]), "expected a deadline of at most", seconds=None)
        refused("progress", pack([]), "expected a deadline of at most", seconds=1e6)
        assert run.hub.append(chunk(run)) and run.hub.progress().steps == 4, "the hub goes on"


def test_nobody_who_waits_keeps_others_from_the_hub(served: Any, tmp_path: Path) -> None:
    """Many more pulls than the server has threads, each as long as may be: one of each worker is left waiting."""
    run, found = served
    ended: list[Any] = []

    def wait(i: int) -> None:
        hub = RemoteHub(tmp_path)
        ended.append(hub.pull(i % 3, MOST_WAIT))
        hub.close()

    threads = [threading.Thread(target=wait, args=(i,), daemon=True) for i in range(30)]
    for thread in threads:
        thread.start()
    hub, deadline = RemoteHub(tmp_path), time.monotonic() + 120
    while len(ended) < 27:
        assert time.monotonic() < deadline, "they starve each other"
        time.sleep(0.05)
    assert hub.progress().steps == 0 and ended == [None] * 27
    assert hub.publish(0, RANDOM, torch.zeros(1, run.hub.limits.policy), 0.0)
    for thread in threads:
        thread.join(60)
    assert [None if e is None else e.version for e in ended[27:]] == [RANDOM] * 3
    hub.close()


def test_an_environment_that_gives_no_numbers_is_said(tmp_path: Path) -> None:
    run = Run(small(), tmp_path)
    step = run.collectors[0].collector.seats[0].env.step
    run.collectors[0].collector.seats[0].env.step = lambda a: (step(a)[0], float("nan"), *step(a)[2:])
    run.learner.publish()
    with pytest.raises(ValueError, match="found NaN or infinite numbers of an environment"):
        run.collectors[0].turn()


def test_a_client_says_what_the_hub_refused(served: Any, tmp_path: Path) -> None:
    hub = RemoteHub(tmp_path)
    with pytest.raises(RunError, match="refused: append: worker: found 7, expected an integer from 0 to 2"):
        hub.append(chunk(served[0], worker=7))
    hub.close()
