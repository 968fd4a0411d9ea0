"""The gate as a whole, of honest code; hostile code: test_attacks.py."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from envolve.core.cleaning import LONGEST
from envolve.llm.vetting import checking, vet
from envolve.llm.vetting.jail import jailer
from envolve.llm.vetting.jail import locks as jail
from envolve.llm.vetting.probe import make_probe
from envolve.llm.vetting.text.extract import VetError
from envolve.llm.vetting.vet import Rejection, Vetted, Vetter
from tests.examples import examples
from tests.llm.scripted_server import wait_until

ROOT = Path(__file__).resolve().parents[3]
pytestmark = pytest.mark.skipif(bool(jail.missing()), reason=f"no jail here: {', '.join(jail.missing())}")
GOOD = """
def compute_reward(state):
    speed_weight = 0.5
    effort = torch.sum(state["torque"] ** 2, dim=1)
    total = speed_weight * state["action"][:, 0] - 0.01 * effort
    return total, {"effort": -0.01 * effort}
"""
ENDLESS = "def compute_reward(state):\n    while True:\n        pass\n"


@pytest.fixture(scope="module")
def probe():
    return make_probe("Cartpole")


@pytest.fixture(scope="module")
def vetter(probe):
    with Vetter(probe, ["compute_reward", "compute_observation"], seconds=2.0) as vetter:
        yield vetter


@pytest.fixture
def unchecked(monkeypatch):
    """No allow-list, so that code that never ends reaches the jail."""
    monkeypatch.setattr(vet, "check_source", lambda code, types: None)


def test_a_reply_becomes_a_graph_file_that_computes_the_same(vetter, probe, tmp_path) -> None:
    reply = f"Here it is:\n```python\n{GOOD}```\nGood luck!"
    verdict = vetter.vet(reply, "a")
    assert isinstance(verdict, Vetted), verdict
    assert verdict.graph_file["task"] == "Cartpole" and "speed_weight" in verdict.graph_file["source"]
    params = {p["name"]: p["value"] for p in verdict.graph_file["params"]}
    assert params == {"speed_weight": 0.5}, "numbers without a name belong to formulas"
    candidate = verdict.graph_file.candidate()
    function, takes_params = candidate.shapers["compute_reward"][:2]
    assert takes_params and candidate.params is not None
    total, parts = function(probe.state, candidate.params.expand(probe.n, -1))
    effort = torch.sum(probe.state["torque"] ** 2, dim=1)
    assert torch.equal(total, 0.5 * probe.state["action"][:, 0] - 0.01 * effort)
    assert torch.equal(parts["effort"], -0.01 * effort)


@pytest.mark.parametrize(
    ("reply", "stage", "said"),
    [
        ("I cannot help with that.", "extract", ""),
        ("x" * 300_000, "extract", "300000 characters"),
        (
            "```python\ndef compute_reward(state):\n    return open('x')\n```",
            "allowlist",
            "open",
        ),
        ("```python\ndef compute_reward(state):\n    return state['actoin'][:, 0]\n```", "trace", "action"),
        ("```python\ndef compute_reward(state):\n    return state['action']\n```", "smoke", "shape"),
        (
            "```python\ndef compute_reward(state):\n    return state['action'][:, 0] / 0.0\n```",
            "smoke",
            "NaN or infinite",
        ),
    ],
)
def test_a_refusal_says_why(vetter, reply: str, stage: str, said: str) -> None:
    verdict = vetter.vet(reply, "b")
    assert isinstance(verdict, Rejection), verdict
    assert (verdict.stage, said in verdict.message) == (stage, True), verdict.message
    assert verdict.message


def test_many_at_once_are_answered_in_order(vetter) -> None:
    replies = [(f"```python\n{GOOD.replace('0.5', str(k + 1.5))}```", f"c{k}") for k in range(8)]
    verdicts = vetter.vet_all(replies)
    found = [{p["name"]: p["value"] for p in v.graph_file["params"]}["speed_weight"] for v in verdicts]
    assert found == [k + 1.5 for k in range(8)]


def test_a_child_is_limited_and_another_is_not(vetter, unchecked) -> None:
    verdicts: list = []
    slow = threading.Thread(target=lambda: verdicts.append(vetter.vet_code(ENDLESS, "endless")))
    slow.start()
    assert isinstance(vetter.vet_code(GOOD, "beside it"), Vetted)
    slow.join()
    assert isinstance(verdicts[0], Rejection) and verdicts[0].stage == "limits" and "longer than" in verdicts[0].message


def test_a_server_that_dies_is_replaced_and_the_candidate_refused(probe, unchecked, caplog, warm) -> None:
    with Vetter(probe, ["compute_reward"], seconds=60.0) as vetter:
        server = vetter._jailer._server

        def kill() -> None:
            wait_until(lambda: bool(server._answers), 60)  # it was asked
            os.killpg(server._process.pid, signal.SIGKILL)

        threading.Thread(target=kill, daemon=True).start()
        verdict = vetter.vet_code(ENDLESS, "while it dies")
        assert isinstance(verdict, Rejection) and verdict.stage == "limits" and "ended while" in verdict.message
        assert isinstance(vetter.vet_code(GOOD, "next"), Vetted)
        assert vetter._jailer._server is not server
    assert any("starting another" in r.message for r in caplog.records)


@pytest.mark.slow
def test_a_server_that_falls_silent_is_asked_nothing_more(vetter, unchecked, monkeypatch) -> None:
    """Its process may seem to be alive for a moment after its pipes are closed."""
    server = vetter._jailer._server
    assert isinstance(vetter.vet_code(GOOD, "it is ready"), Vetted)
    monkeypatch.setattr(server._process, "poll", lambda: None)
    os.killpg(server._process.pid, signal.SIGKILL)
    with pytest.raises(VetError, match="ended while"):  # at once, not when patience is at an end
        server._patience = 60.0
        for _ in range(1000):
            server.ask({"code": GOOD})
    assert not server.alive()
    assert isinstance(vetter.vet_code(GOOD, "next"), Vetted)


def test_the_server_has_nothing_of_ours(vetter, monkeypatch) -> None:
    pid = server_of(vetter._jailer._server._process.pid)
    environment = Path(f"/proc/{pid}/environ").read_text()
    assert not [name for name in jail.SECRET_NAMES if name in environment.replace("ENVOLVE_TEST", "")]
    opened = [os.readlink(fd) for fd in Path(f"/proc/{pid}/fd").iterdir()]
    foreign = [name for name in opened if not name.startswith(("/dev/null", "pipe:", "anon_inode:", "/tmp/"))]
    assert not foreign and len(opened) < 12, opened
    if jailer.bubblewrap():
        for kind in ("net", "pid", "mnt", "user", "ipc"):
            assert os.readlink(f"/proc/{pid}/ns/{kind}") != os.readlink(f"/proc/self/ns/{kind}")
        assert not Path(f"/proc/{pid}/root/work").exists() or not Path(f"/proc/{pid}/root{ROOT}/results").exists()


def server_of(group: int) -> int:
    """The Python process in a process group."""
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                if os.getpgid(int(folder.name)) == group and "bwrap" not in (folder / "cmdline").read_text():
                    return int(folder.name)
            except OSError:
                continue
    raise AssertionError("no server")


def group_is_empty(group: int, seconds: float = 120.0) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    return False


@pytest.mark.slow
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_nothing_is_left_when_the_master_ends(end: int) -> None:
    script = (
        "from envolve.llm.vetting import vet\nfrom envolve.llm.vetting.probe import make_probe\n"
        "vet.check_source = lambda code, types: None\n"
        "with vet.Vetter(make_probe('Cartpole', 8), ['compute_reward'], seconds=60) as v:\n"
        "    print(v._jailer._server._process.pid, flush=True)\n"
        f"    v.vet_code({ENDLESS!r}, 'x')\n"
    )
    master = subprocess.Popen(
        [sys.executable, "-c", script], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert master.stdout
    group = int(master.stdout.readline())
    time.sleep(1.0)  # it is at work
    os.killpg(group, 0)
    master.send_signal(end)
    assert master.wait(20) != 0
    master.stdout.close()
    assert group_is_empty(group)


def test_without_a_jail_it_refuses(probe, monkeypatch) -> None:
    monkeypatch.setattr(jail, "missing", lambda: ("seccomp filter (Linux 4.14 on x86_64 or aarch64)",))
    with pytest.raises(jail.JailError, match=f"no seccomp filter.*{jail.OPT_OUT}=1"):
        Vetter(probe, ["compute_reward"])


@pytest.mark.slow
def test_who_opts_out_is_warned(probe, monkeypatch, caplog) -> None:
    monkeypatch.setattr(jail, "missing", lambda: ("seccomp filter",))
    monkeypatch.setenv(jail.OPT_OUT, "1")
    with caplog.at_level(logging.WARNING), Vetter(probe, ["compute_reward"]) as vetter:
        assert isinstance(vetter.vet_code(GOOD, "x"), Vetted)
    assert any("no seccomp filter" in r.getMessage() for r in caplog.records)


def test_bubblewrap_can_stand_in_for_landlock_only(probe, monkeypatch) -> None:
    monkeypatch.setattr(jail, "missing", lambda: ("Landlock (Linux 5.13)",))
    monkeypatch.setattr(jailer, "bubblewrap", lambda: ())
    with pytest.raises(jail.JailError, match="no Landlock"):
        Vetter(probe, ["compute_reward"])


def test_a_server_that_does_not_start_says_why(probe, monkeypatch) -> None:
    monkeypatch.setattr(jailer, "MODULE", "llm.no_such_module")
    with Vetter(probe, ["compute_reward"]) as vetter:
        with pytest.raises(jail.JailError, match="does not start: .*no_such_module"):
            vetter.vet_code(GOOD, "x")


# ------------------------------------------------------------------------------------------------- untrusted bytes


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["graph", "error", "functions", "x"]), inner)
    ),
    max_leaves=12,
)


@settings(max_examples=examples(200), deadline=None)
@given(st.binary(max_size=200) | JSON.map(lambda value: json.dumps(value).encode()))
def test_whatever_a_child_says_is_a_graph_or_a_refusal(data: bytes) -> None:
    try:
        assert isinstance(checking.read_result(data), dict)
    except VetError as e:
        assert e.stage in checking.STAGES


@settings(max_examples=examples(100), deadline=None)
@given(found=st.dictionaries(st.sampled_from(["functions", "action_size", "literal_names"]), JSON))
def test_whatever_it_says_it_traced_is_refused_with_a_reason(probe, found) -> None:
    with pytest.raises(VetError) as e:
        checking.check(json.dumps({"graph": found}).encode(), "", ["compute_reward"], probe)
    assert e.value.stage == "graph" and str(e.value)


def many_operations(n: int) -> bytes:
    """A trace of so many, each of which has another shape."""
    slices = [{"op": "aten.slice.Tensor", "args": [{"in": 0}, 0, 0, k + 1]} for k in range(n)]
    nodes = [*slices, {"op": "aten.mul.Tensor", "args": [{"in": 0}, 0.5]}]
    graph = {"inputs": ["progress"], "nodes": nodes, "outputs": [{"node": n}], "names": ["total"]}
    return json.dumps({"graph": {"functions": {"compute_reward": graph}}}).encode()


def test_what_was_traced_is_checked_in_a_child_and_looked_at_here(vetter, probe) -> None:
    types = ["compute_reward"]
    checked = vetter._jailer.check(GOOD, many_operations(50))
    graph_file = checking.accept(GOOD, "Cartpole", checked, types)
    assert graph_file == checking.check(many_operations(50), GOOD, types, probe)
    for other in (("other code", "Cartpole"), (GOOD, "Ant")):
        with pytest.raises(VetError, match="not of this code"):
            checking.accept(*other, checked, types)
    with pytest.raises(VetError, match="not of this code"):
        checking.accept(GOOD, "Cartpole", checked, ["compute_goal"])
    for data in (b"", b"[]", b"\xff", b'{"graph": {}}', checked.replace(b"mul", b"mut"), many_operations(1)):
        with pytest.raises(VetError):
            checking.accept(GOOD, "Cartpole", data, types)


def test_reasons_are_fit_to_print() -> None:
    shown = vet.clean("\x1b[2J\x07ok\n\u202e" + "x" * 10_000)
    assert shown.startswith("\ufffd[2J\ufffdok\n\ufffdx") and len(shown) == LONGEST + 4
    assert vet.clean("") == "" and vet.clean("plain ünïcode") == "plain ünïcode"


@pytest.mark.slow
def test_a_child_needs_nothing_that_is_not_loaded(vetter) -> None:
    """Every function that the allow-list knows, called in some way: whatever is wrong, it is no missing file."""
    from envolve.llm.vetting.allow.allowed_names import FUNCTIONAL, LINALG, METHODS, TORCH

    functions = [f"torch.{f}(a" for f in TORCH] + [f"torch.nn.functional.{f}(a" for f in FUNCTIONAL]
    functions += [f"torch.linalg.{f}(a" for f in LINALG] + [f"a.{f}(" for f in METHODS]
    accepted = 0
    for called in sorted(functions):
        for more in ("", ", a", ", 1", ", dim=1") if called.endswith("(a") else ("", "1", "a", "dim=1"):
            code = f"def compute_observation(state):\n    a = state['action']\n    return {called}{more})\n"
            verdict = vetter.vet_code(code, called)
            if isinstance(verdict, Vetted):
                accepted += 1
                break
            for missing in ("No module named", "not permitted", "cannot import", "partially initialized"):
                assert missing not in verdict.message, f"{called}{more}): {verdict.message}"
    assert accepted > 60
