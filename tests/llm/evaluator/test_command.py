"""serve_evaluator.py: wrong arguments; and, slow, the real thing: jail, simulator, HTTP, a kill, and its price."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time

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


def started(folder):
    words = [sys.executable, str(CODE / "experiments" / "serve_evaluator.py"), "--task", "Cartpole", "--port", "0",
             "--token", "t", "--folder", str(folder), "--num-envs-per-shaper", "64", "--iterations", "30"]  # fmt: skip
    child = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env={**os.environ, "COLUMNS": "120"})
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
