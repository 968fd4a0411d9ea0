"""slurm/worker_group.py: the workers of one task, with a stand-in for GTN_worker.py."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Iterator

import pytest

from envolve.slurm.commands import workers_command

ROOT = Path(__file__).parents[2]
# Its arguments: GTN_worker.py BOHB_ID ID --sync-dir DIR ...; worker 5 dies once, worker 6 is told to end
STUB = """#!{python} -IS
import os, pathlib, sys, time
folder, (bohb_id, i) = pathlib.Path({folder!r}), sys.argv[2:4]
with open(folder / "starts", "a") as f:
    f.write(f"{{bohb_id}} {{i}} {{os.getpid()}} {{sorted(os.sched_getaffinity(0))}}\\n")
if i == "5" and not (folder / "died").exists():
    (folder / "died").touch()
    sys.exit(1)
while not (folder / "end").exists() and i != "6":
    time.sleep(0.02)
"""


def starts(folder: Path) -> list[list[str]]:
    path = folder / "starts"
    return [line.split(" ", 3) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Any]:
    stub = tmp_path / "python"
    stub.write_text(STUB.format(python=sys.executable, folder=str(tmp_path)))
    stub.chmod(0o755)
    command = workers_command(str(stub), 2, range(4, 7), tmp_path / "run")
    process = subprocess.Popen([sys.executable, *command[1:]], stdout=subprocess.PIPE, text=True)
    until = time.monotonic() + 30
    while len(starts(tmp_path)) < 4 and time.monotonic() < until:
        time.sleep(0.02)
    yield process
    process.kill()
    process.communicate()


def test_each_has_its_cpus_and_who_dies_is_started_again(group: Any, tmp_path: Path) -> None:
    begun = starts(tmp_path)
    assert sorted(i for _, i, _, _ in begun) == ["4", "5", "5", "6"] and {b for b, *_ in begun} == {"2"}
    cpus = {i: set(json.loads(text)) for _, i, _, text in begun}
    assert set().union(*cpus.values()) <= os.sched_getaffinity(0) and all(cpus.values())
    assert group.poll() is None, "two of them work on"
    (tmp_path / "end").touch()
    assert group.wait(20) == 0
    assert (tmp_path / "run" / "slurm" / "log" / "worker_2_4.log").exists()


def test_all_end_with_a_signal(group: Any, tmp_path: Path) -> None:
    group.send_signal(signal.SIGTERM)
    assert group.wait(20) == 143
    for _, _, pid, _ in starts(tmp_path):
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid), 0)


def test_one_worker_needs_no_group(tmp_path: Path) -> None:
    assert "worker_group.py" not in " ".join(workers_command("python", 0, range(3, 4), tmp_path))
