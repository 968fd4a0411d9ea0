from __future__ import annotations

import json
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest
import torch

from envolve.distributed.engine import calls
from envolve.distributed.engine import server as server_module
from envolve.distributed.engine.calls import HubGone
from envolve.distributed.engine.client import RemoteHub
from envolve.distributed.engine.hub import Finished, Unpublished
from envolve.distributed.engine.server import ADDRESS, SERVICE, HubServer
from envolve.distributed.engine.wire import pack
from envolve.distributed.files.run_folder import DONE
from envolve.distributed.memory.rows import Chunk
from envolve.distributed.programs.turns import make_hub
from envolve.outer.checkpoint import RunError
from envolve.outer.exchange.sources import sources
from tests.distributed.toy import Run, results, small


def drive(run: Run, folder: Path) -> None:
    """Every program in a thread of its own, each with a client of its own."""

    def collect(i: int) -> None:
        try:
            while True:
                run.collectors[i].turn()
        except Finished:
            pass

    programs = [run.learner, *run.collectors]
    for program in programs:
        program.hub = RemoteHub(folder)
    with ThreadPoolExecutor(4) as threads:
        run.learner.learner.ahead = ThreadPoolExecutor(1)
        found = [threads.submit(collect, i) for i in range(len(run.collectors))]
        while not run.learner.learner.complete:
            while not run.learner.publish():
                pass
            while not run.learner.learn():
                pass
        run.learner.finish()
        for each in found:
            each.result()
    while run.evaluator.turn():
        pass
    for program in programs:
        program.hub.close()  # type: ignore[union-attr]


@pytest.mark.parametrize("algorithm", ["SAC", "CRL"])
def test_lockstep_over_grpc_gives_the_same_bytes(tmp_path: Path, algorithm: str) -> None:
    params = small(algorithm=algorithm, num_steps_per_iter=25)
    Run(params, tmp_path / "embedded", 3).finish()
    run = Run(params, tmp_path / "served", 3)
    server = HubServer(run.hub, tmp_path / "served")
    try:
        drive(run, tmp_path / "served")
    finally:
        server.close()
    assert results(tmp_path / "served") == results(tmp_path / "embedded")


def test_async_over_grpc(tmp_path: Path) -> None:
    run = Run(small(num_iter=12), tmp_path, 3, "async")
    server = HubServer(run.hub, tmp_path)
    try:
        drive(run, tmp_path)
    finally:
        server.close()
    rule = run.hub.table.rule
    assert run.learner.learner.updates == 36 and 0 <= 3 * rule.pushes - rule.pulls <= 6
    versions = [chunk.version for chunk in run.chunks]
    assert all(versions.count(v) == 3 for v in range(-1, rule.pulls // 3 - 2))  # each exactly N times
    assert run.hub.progress().steps == sum(chunk.rows.shape[1] for chunk in run.chunks)


def test_a_fast_worker_may_have_a_policy_twice_and_loses_nothing(tmp_path: Path) -> None:
    run = Run(small(), tmp_path, 2, "async")
    run.learner.publish()
    assert run.collectors[0].turn() and run.collectors[0].turn()
    assert [c.version for c in run.chunks] == [-1, -1] and run.hub.progress().steps == 20
    assert run.hub.append(run.chunks[1]) and run.hub.progress().steps == 20  # the same one again
    assert not run.hub.table.may_pull(1) and run.learner.learn()  # nobody waits for the other's


def test_the_file_is_for_its_owner_and_the_token_is_asked_for(tmp_path: Path) -> None:
    run = Run(small(), tmp_path)
    server = HubServer(run.hub, tmp_path)
    try:
        path = tmp_path / ADDRESS
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        found = json.loads(path.read_text())
        with grpc.insecure_channel(found["address"]) as channel:
            call = channel.unary_unary(f"/{SERVICE}/finish")
            for metadata in ((), (("token", "guess"),)):
                with pytest.raises(grpc.RpcError) as error:
                    call(pack([]), timeout=5, metadata=metadata)
                assert error.value.code() == grpc.StatusCode.UNAUTHENTICATED  # type: ignore[attr-defined]
        assert not run.hub.finished
        hub = RemoteHub(tmp_path)
        with pytest.raises(RunError, match=r"refused: append: .*found torch.float32 \[1, 2, 3\], expected .*14\]"):
            hub.append(Chunk(0, 0, 0, 1, torch.zeros(1, 2, 3), torch.zeros(0, 2)))
        with pytest.raises(Unpublished):
            hub.ready(9, 5, 0.0)
        hub.close()
    finally:
        server.close()


def test_who_finds_no_hub_waits_and_then_says_so(tmp_path: Path) -> None:
    with pytest.raises(HubGone, match="no hub is named in .*hub.json, for 0 s"):
        RemoteHub(tmp_path, patience=0.2).progress()
    run = Run(small(), tmp_path)
    hub = RemoteHub(tmp_path, patience=20)
    for _ in range(2):  # a hub that goes and comes back at another port
        server = HubServer(make_hub(small(), run.widths, run.settings, tmp_path), tmp_path)
        assert hub.progress().steps == 0
        server.close()
    hub.patience = 0.2
    with pytest.raises(HubGone, match="does not answer"):
        hub.progress()
    hub.close()


@pytest.mark.parametrize("text", ["", "[1]", '{"address": 5, "token": "t"}', '{"address": "127.0.0.1:1"}'])
def test_a_file_that_names_no_hub_is_waited_out_and_named(tmp_path: Path, text: str) -> None:
    (tmp_path / ADDRESS).write_text(text)
    with pytest.raises(HubGone, match="hub.json.*, for 0 s"):
        RemoteHub(tmp_path, patience=0.2).progress()


def test_nobody_waits_for_the_hub_of_a_complete_run(tmp_path: Path) -> None:
    """A collector in a long turn finds neither the hub that said so nor, for ever, another."""
    run, hub = Run(small(), tmp_path), RemoteHub(tmp_path, patience=1e9)
    server = HubServer(run.hub, tmp_path)
    assert hub.progress().steps == 0
    server.close()
    (tmp_path / DONE).touch()
    with pytest.raises(Finished):
        hub.append(Chunk(0, 0, 0, 1, torch.zeros(1, 10, 14), torch.zeros(0, 2)))
    hub.close()


def test_a_hub_of_another_checkout_is_named(tmp_path: Path, monkeypatch: Any, caplog: Any) -> None:
    """Programs that are started by hand, on machines that each have a checkout."""
    run, hub = Run(small(), tmp_path), RemoteHub(tmp_path)
    for code in (server_module.sources("distributed"), "0123456789ab", "0123456789ab"):
        monkeypatch.setattr(server_module, "sources", lambda room, code=code: code)
        server = HubServer(run.hub, tmp_path)
        assert hub.progress().steps == 0
        server.close()
        said = [r.message for r in caplog.records if "runs other code" in r.message]
        assert len(said) == (code == "0123456789ab")
    assert said == [f"the hub of {hub.path} runs other code (0123456789ab) than this program "
                    f"({sources('distributed')}): start both from one version"]  # fmt: skip
    hub.close()


@pytest.mark.parametrize("bind, heard", [("::1", "[::1]"), ("[::1]", "[::1]"), ("10.99.99.99", "")])
def test_where_a_hub_may_listen(tmp_path: Path, bind: str, heard: str) -> None:
    run = Run(small(), tmp_path)
    if not heard:
        with pytest.raises(OSError, match="cannot listen at 10.99.99.99, expected an address of this machine"):
            HubServer(run.hub, tmp_path, bind)
        return
    if not Path("/proc/net/if_inet6").exists() or not Path("/proc/net/if_inet6").read_text():
        pytest.skip("this machine has no IPv6")
    server, hub = HubServer(run.hub, tmp_path, bind), RemoteHub(tmp_path)
    assert json.loads((tmp_path / ADDRESS).read_text())["address"].startswith(f"{heard}:")
    assert hub.progress().steps == 0
    hub.close()
    server.close()


def test_an_answer_that_is_no_message_ends_the_call(tmp_path: Path, monkeypatch: Any) -> None:
    hub = RemoteHub(tmp_path)
    monkeypatch.setattr(hub, "_ask", lambda *_: b"\xff\xff\xff\xff")
    with pytest.raises(RunError, match="answer to progress is no message"):
        hub.progress()


def test_a_long_wait_is_said_once(tmp_path: Path, monkeypatch: Any, caplog: Any) -> None:
    monkeypatch.setattr(calls, "QUIET", 0.1)
    with pytest.raises(HubGone):
        RemoteHub(tmp_path, patience=0.7).progress()
    words = f"no hub is named in {tmp_path / ADDRESS}; waiting for it, 1 s at most"
    assert caplog.messages == [words]


def test_trouble_of_the_hub_itself_is_waited_for(tmp_path: Path, monkeypatch: Any, caplog: Any) -> None:
    run, hub, left = Run(small(), tmp_path), RemoteHub(tmp_path, patience=20), [2]
    progress = run.hub.progress

    def troubled() -> Any:
        if left[0]:
            left[0] -= 1
            raise OSError(28, "No space left on device")
        return progress()

    monkeypatch.setattr(run.hub, "progress", troubled)
    server = HubServer(run.hub, tmp_path)
    try:
        assert hub.progress().steps == 0 and left == [0]
        left[0], hub.patience = 10**9, 0.5
        with pytest.raises(HubGone, match="fails: progress: OSError.*No space left"):
            hub.progress()
        assert left[0] < 10**9 - 2  # it was tried more than twice
        said = [r.message for r in caplog.records if r.levelname == "ERROR"]
        assert said == ["hub: progress: OSError: [Errno 28] No space left on device"], "its log does not fill the disk"
    finally:
        hub.close()
        server.close()
