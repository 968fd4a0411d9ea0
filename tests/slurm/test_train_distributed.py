"""slurm/train_distributed.sbatch: what it starts, by a Python that only says how it was called."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from envolve.slurm.commands import exit_file, read_exit

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "slurm" / "train_distributed.sbatch"
# task.py is run as it is; instead of train_distributed.py the call is written down
STUB = """#!/usr/bin/env bash
case "$1" in
    */slurm/task.py) exec {python} "$@" ;;
    *) exec {python} {tell} "$@" ;;
esac
"""
TELL = """
import json, os, pathlib, signal, sys, time
folder = pathlib.Path(sys.argv[sys.argv.index("--run-dir") + 1])
folder.mkdir(parents=True, exist_ok=True)
stopped = []
signal.signal(signal.SIGTERM, lambda *_: stopped.append(1))
sac = {k: v for k, v in os.environ.items() if k.startswith("SAC_")}
(folder / "new").write_text(json.dumps({"argv": sys.argv[1:], "environ": sac}))
(folder / "new").rename(folder / "call.json")
while "--wait" in sys.argv and not stopped:
    time.sleep(0.02)
sys.exit(130 if stopped else 0)
"""


@pytest.fixture
def start(tmp_path: Path) -> Any:
    (tmp_path / "tell.py").write_text(TELL)
    stub = tmp_path / "python"
    stub.write_text(STUB.format(python=sys.executable, tell=tmp_path / "tell.py"))
    stub.chmod(0o755)

    def begin(*words: str, **environ: str) -> subprocess.Popen[bytes]:
        outside = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM_", "SAC_", "ENVOLVE_"))}
        own = {"ENVOLVE_ROOT": str(ROOT), "ENVOLVE_PYTHON": str(stub), "ENVOLVE_RUN_DIR": str(tmp_path / "run")}
        return subprocess.Popen(["bash", str(SCRIPT), *words], env={**outside, **own, **environ}, cwd=tmp_path)

    return begin


def call(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "call.json").read_text())


def option(argv: list[str], name: str) -> str:
    return argv[argv.index(name) + 1]


def test_what_it_starts(start: Any, tmp_path: Path) -> None:
    process = start("--mode", "async", SAC_NUM_COLLECT_WORKERS="3", SAC_PARAMS="my.py", SAC_CONFIG="my.json")
    assert process.wait(60) == 0
    told = call(tmp_path / "run")
    argv = told["argv"]
    assert argv[0] == str(ROOT / "experiments" / "train_distributed.py") and argv[-2:] == ["--mode", "async"]
    assert [option(argv, n) for n in ("--params", "--config", "--collectors")] == ["my.py", "my.json", "3"]
    assert "--processes" in argv and "--seed" not in argv and told["environ"]["SAC_NUM_COLLECT_WORKERS"] == "3"
    ended = read_exit(exit_file(tmp_path / "run", "node", 0))
    assert ended is not None and ended.code == 0


def test_by_default_it_is_the_quadruped_and_tasks_of_an_array_are_runs(start: Any, tmp_path: Path) -> None:
    assert start(SLURM_ARRAY_TASK_ID="7").wait(60) == 0
    argv = call(tmp_path / "run_task_7")["argv"]
    assert option(argv, "--seed") == "7" and Path(option(argv, "--params")).is_file()
    assert Path(option(argv, "--config")).is_file() and option(argv, "--collectors") == "4"


def test_near_the_time_limit_the_run_is_told_to_stop(start: Any, tmp_path: Path) -> None:
    process = start("--wait")
    deadline = time.monotonic() + 60
    while not (tmp_path / "run" / "call.json").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGUSR1)
    assert process.wait(60) == 130
    ended = read_exit(exit_file(tmp_path / "run", "node", 0))
    assert ended is not None and (ended.code, ended.reason) == (130, "time limit")


def test_what_it_passes_is_what_the_command_takes() -> None:
    flags = re.findall(r"--([a-z-]+)", SCRIPT.read_text().partition('experiments/train_distributed.py" ')[2])
    assert len(flags) == 6
    shown = (ROOT / "experiments" / "help" / "distributed.txt").read_text()  # what is shown is what is taken
    assert all(f"--{flag}" in shown for flag in flags)
