"""The commands that train shapers leave the same bytes on a machine with eight busy loops as on one without, in fresh
processes and in resumed ones."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from envolve.envs.graph.file import GraphFile
from envolve.llm.vetting.jail import locks as jail
from tests.envs.graphs import Graph
from tests.outer.small import ROOT, default_sigint

REPETITIONS = int(os.environ.get("ENVOLVE_REPETITIONS", "6"))  # of each command, every second one interrupted
LOOPS = 8
TINY = ["--task", "Cartpole", "--num_envs_per_shaper", "8", "--iterations", "3", "--threads", "1"]
TINY += ["--set", "hidden_size=8", "ppo_epochs=1"]
PARAMETRIC = """
import torch

PARAMS = {"weight": 0.5}


def compute_reward(state, params):
    return torch.cos(state["pole_angle"]) - params[:, 0] * state["cart_position"].square()
"""
SLOW = """
import torch


def compute_reward(state):
    x = torch.eye(64)
    for _ in range(1000):
        x = x @ x
    return state["pole_angle"] * x[0, 0]
"""


@contextmanager
def busy() -> Iterator[None]:
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(LOOPS)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def shapers(folder: Path) -> Path:
    """Two graph files, one Python file that would be good, and one that is far too slow."""
    folder.mkdir()
    (folder / "parametric.py").write_text(PARAMETRIC)
    (folder / "slow.py").write_text(SLOW)
    for name, op in (("cosine", "cos.default"), ("negative", "neg.default")):
        g = Graph()
        graph = g.done("compute_reward", g("mul.Tensor", g(op, g.input("pole_angle")), {"param": 0}))
        params = [{"name": "weight", "value": 2.0, "scale": 1.0}]
        (folder / f"{name}.graph.json").write_text(GraphFile.of("Cartpole", {"compute_reward": graph}, params).text())
    return folder


def go(words: list[str], stop_when: Callable[[], bool] | None = None) -> int:
    """Run it, and interrupt it when ``stop_when`` says so -> its exit code."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [sys.executable, *words],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=default_sigint,
    )
    while stop_when is not None and process.poll() is None:
        if stop_when():
            process.send_signal(signal.SIGINT)
            break
        time.sleep(0.05)
    error = process.communicate()[1]
    assert process.returncode in (0, 130), error
    return process.returncode


def lines(path: Path) -> int:
    return len(path.read_bytes().splitlines()) if path.exists() else 0


def eval_shapers(folder: Path, candidates: Path, interrupt: bool) -> object:
    assert go(["experiments/eval_shapers.py", *TINY, "--shapers", str(candidates), "--run-dir", str(folder)]) == 0
    found = json.loads((folder / "candidates.json").read_text())["candidates"]
    assert {c["name"]: c["kind"] for c in found if c["failed"]} == {"slow": "TooSlow"}
    return found


def auto_shape(folder: Path, candidates: Path, interrupt: bool) -> object:
    words = ["experiments/auto_shape.py", *TINY, "--num_iters", "2", "--shapers_per_iter", "3", "--retest", "1"]
    words += ["--llm", "replay:experiments/recordings/cartpole.jsonl", "--results_dir", str(folder)]

    def begun() -> bool:
        return any(lines(path) for path in folder.glob("*/individuals.jsonl"))

    code = go(words, begun if interrupt else None)
    (run,) = folder.iterdir()
    if code:
        assert go(["experiments/auto_shape.py", "--resume", str(run)]) == 0
    result = json.loads((run / "result.json").read_text())
    same = ("best", "human", "finals", "candidates", "verdicts", "environment_steps")
    return [result[key] for key in same]


def gtn_master(folder: Path, candidates: Path, interrupt: bool) -> object:
    words = ["GTN_master.py", "default_config_cartpole_shapers.yaml", "--single", "--results-dir", str(folder), "--set"]
    words += [f"envs.Cartpole.shapers={candidates}", "envs.Cartpole.num_envs_per_shaper=8"]
    words += ["envs.Cartpole.iterations=3"]
    words += ["agents.gtn.max_iterations=2", "agents.ppo.hidden_size=8", "agents.ppo.ppo_epochs=1"]

    def begun() -> bool:
        return any(lines(path) > 1 for path in folder.glob("*/scores.csv"))

    code = go(words, begun if interrupt else None)
    (run,) = folder.iterdir()
    if code:
        assert go(["GTN_master.py", "--resume", str(run)]) == 0
    return (run / "scores.csv").read_bytes()


@pytest.mark.slow
@pytest.mark.skipif(bool(jail.missing()), reason="no jail here")
def test_eight_busy_loops_change_no_byte(tmp_path: Path) -> None:
    """The commands repeat beside each other: so they wait no longer than one of them would, and each has more beside
    it."""
    candidates = shapers(tmp_path / "shapers")
    commands = (eval_shapers, auto_shape, gtn_master)
    calm = [command(tmp_path / command.__name__, candidates, False) for command in commands]

    def repeat(command: Callable[[Path, Path, bool], object], wanted: object) -> None:
        for k in range(REPETITIONS):
            folder = tmp_path / f"{command.__name__}_{k}"
            assert command(folder, candidates, k % 2 == 1) == wanted, f"{folder.name} is not as on a calm machine"

    with busy(), ThreadPoolExecutor(len(commands)) as pool:
        for done in [pool.submit(repeat, *pair) for pair in zip(commands, calm)]:
            done.result()
