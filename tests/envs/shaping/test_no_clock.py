"""No clock decides what becomes of a shaper: the same bytes on a machine that stalls, and no import is broken off."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch

from envolve.envs.graph.ir import GraphFunction, graph_function
from envolve.envs.shaping import alarm
from envolve.envs.shaping.candidate import Candidate, Shaper
from envolve.envs.shaping.cost import allowed, cost
from tests.envs.graphs import Graph
from tests.envs.shaping.test_envs import candidate, make, play
from tests.outer.small import ROOT


def upright(state: dict[str, torch.Tensor]) -> torch.Tensor:
    return torch.cos(state["pole_angle"]) - 0.01 * state["action"].square().sum(1)


def fallen(state: dict[str, torch.Tensor]) -> torch.Tensor:
    return state["pole_angle"].abs() > 0.4


def graph(weight: float) -> Candidate:
    g = Graph()
    total = g("mul.Tensor", g("cos.default", g.input("pole_angle")), weight)
    function = graph_function(g.done("compute_reward", total), "compute_reward")
    return Candidate(f"graph {weight}", {"compute_reward": Shaper(function, False)})


def life(stall: Callable[[Callable[..., Any]], Callable[..., Any]]) -> str:
    """A digest of everything that five candidates live through, and who is out. stall: what a function becomes."""
    python = candidate("python", compute_reward=stall(upright), compute_terminal=stall(fallen))
    envs = make(candidate("human"), python, graph(1.0), graph(2.0), candidate("other", compute_reward=upright))
    digest = hashlib.sha256()
    for step in play(envs, 36):
        for x in step:
            digest.update(x.numpy().tobytes())
    return f"{digest.hexdigest()} {sorted(envs.failures.items())}"


def stalled(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function on a machine that stops in the middle of it, for longer than it would ever take."""

    def stops(*args: Any) -> Any:
        os.kill(os.getpid(), signal.SIGSTOP)
        return function(*args)

    return stops


def main() -> None:
    """In a process of its own, stopped again and again and set going by its parent. What torch imports for its first
    graph takes far longer than a call may here."""
    alarm.HANG_SECONDS = 0.5
    GraphFunction.__call__ = stalled(GraphFunction.__call__)  # type: ignore[method-assign]
    print(life(stalled))


@pytest.mark.slow
def test_a_machine_that_stalls_changes_no_byte_and_no_verdict() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", f"from {__name__} import main; main()"], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    stops = 0
    while process.poll() is None:
        stopped = os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        if stopped is not None and stopped.si_code == os.CLD_STOPPED:
            os.waitid(os.P_PID, process.pid, os.WSTOPPED)
            time.sleep(0.01)
            process.send_signal(signal.SIGCONT)
            stops += 1
    assert process.stdout is not None
    with process.stdout:
        assert process.stdout.read().strip() == life(lambda function: function)
    assert process.returncode == 0 and stops > 36 * 2


def test_an_import_is_not_broken_off(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a module would be found by whoever needs it next."""
    (tmp_path / "imported_for_long.py").write_text(
        "import time\nbegan = time.thread_time()\nwhile time.thread_time() < began + 0.5:\n    pass\nwhole = True\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(alarm, "HANG_SECONDS", 0.2)

    def imports() -> bool:
        import imported_for_long  # type: ignore[import-not-found]

        return imported_for_long.whole

    calls = alarm.Alarm()
    with calls.on():
        assert calls.call(imports, ())
    monkeypatch.setattr(alarm, "IMPORTS", 1.0)
    del sys.modules["imported_for_long"]
    with calls.on(), pytest.raises(alarm.Hang, match="0.2 s of CPU time"):
        calls.call(imports, ())


def test_a_cost_is_the_same_every_time_and_ends_what_costs_too_much() -> None:
    x = torch.randn(64, 64)

    def products(many: int) -> Callable[[], None]:
        def call() -> None:
            y = x
            for _ in range(many):
                y = y @ y

        return call

    assert {cost(products(10), 10**9) for _ in range(3)} == {10 * (4096 + 3 * 64 * 64 + 64 * 64 * 64 // 4)}
    assert cost(products(10**9), allowed(64)) > allowed(64)
    assert cost(lambda: upright({"pole_angle": x[0], "action": x}), 10**9) < allowed(64) / 50


@pytest.mark.slow
def test_counting_imports_no_compiler() -> None:
    code = (
        "import sys, torch\nfrom envolve.envs.shaping.cost import cost\nx = torch.ones(3)\n"
        "cost(lambda: (x * 2 + torch.einsum('i,i->', x, x)).sum().item(), 10**9)\n"
        "assert 'torch._dynamo' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
