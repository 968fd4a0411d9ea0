"""serve_evaluator.py: wrong arguments; and, slow, the real thing: jail, simulator, HTTP, a kill, and its price."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request

import pytest

from envolve.core.places import CODE
from envolve.experiments import serve_evaluator
from envolve.llm.evaluator.client import score
from envolve.llm.vetting.jail import locks as jail

REWARD = (
    "def compute_reward(state):\n    w = {}\n"
    "    return torch.cos(3 * state['pole_angle']) - w * state['cart_pos'].abs()\n"
)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--task", "Carpole"], "nearest: 'Cartpole'"),
        (["--port", "70000"], "--port: found 70000"),
        (["--batch", "0"], "--batch: found 0"),
        (["--token", ""], "--token: expected printable"),
        (["--shaper-types", "compute_rewrd"], "compute_reward"),
    ],
)
def test_wrong_arguments(words, said, capsys) -> None:
    assert serve_evaluator.main(words) == 2
    assert said in capsys.readouterr().err


def started(folder, iterations=30):
    size = ["--num-envs-per-shaper", "64", "--iterations", str(iterations)]
    words = [sys.executable, str(CODE / "experiments" / "serve_evaluator.py"), "--task", "Cartpole", "--port", "0"]
    words += ["--token", "t", "--folder", str(folder), *size]
    child = subprocess.Popen(
        words,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "COLUMNS": "120"},
        start_new_session=True,
    )
    assert child.stdout is not None
    url = re.search(r"http://\S+?(?=;)", child.stdout.readline())
    assert url is not None
    return child, url[0]


@pytest.mark.slow
@pytest.mark.skipif(bool(jail.missing()), reason=f"no jail here: {', '.join(jail.missing())}")
def test_a_real_one_is_killed_and_goes_on(tmp_path) -> None:
    child, url = started(tmp_path / "s")
    try:
        first = score(REWARD.format(0.1), url, "t", 600)
        assert first["status"] == "scored" and 0 <= first["score"] <= 1 and first["interval"]
        refused = score("def compute_reward(state):\n    return open('/etc/passwd')\n", url, "t", 600)
        assert refused["status"] == "refused" and "open" in refused["reason"]
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()
    child, url = started(tmp_path / "s")
    try:
        began = time.monotonic()
        assert score(REWARD.format(0.1), url, "t", 600) == first and time.monotonic() - began < 5
    finally:
        child.send_signal(signal.SIGTERM)
        assert child.wait(60) == 143


@pytest.mark.slow
@pytest.mark.skipif(bool(jail.missing()), reason=f"no jail here: {', '.join(jail.missing())}")
@pytest.mark.parametrize("moment", ["idle", "busy"])
def test_ctrl_c_ends_it_with_a_way_to_go_on(tmp_path, moment) -> None:
    """Within seconds, also in the middle of a batch; what was sent is evaluated by the next session."""
    child, url = started(tmp_path / "s", iterations=20_000 if moment == "busy" else 30)
    codes = [REWARD.format(0.1 + k / 10) for k in range(3)]
    try:
        if moment == "busy":
            for code in codes:
                assert "id" in sent(url, code)
            time.sleep(15.0)  # vetted, and in training
            assert asked(url)["done"] == 0
        child.send_signal(signal.SIGINT)
        began = time.monotonic()
        assert child.wait(60) == 130
        assert time.monotonic() - began < 30
    finally:
        child.kill()
        said = child.stderr.read()
    assert "the same command goes on" in said and "Traceback" not in said
    assert not [p for p in os.listdir("/proc") if p.isdigit() and of_session(p, child.pid)]


def sent(url: str, code: str) -> dict:
    request = urllib.request.Request(
        f"{url}/evaluate", json.dumps({"code": code}).encode(), {"Authorization": "Bearer t"}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.loads(answer.read())


def asked(url: str) -> dict:
    request = urllib.request.Request(f"{url}/status", headers={"Authorization": "Bearer t"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.loads(answer.read())


def of_session(pid: str, leader: int) -> bool:
    """Whether a process belongs to the session of the command, which leads one of its own."""
    try:
        return os.getsid(int(pid)) == leader
    except (ProcessLookupError, PermissionError):
        return False
