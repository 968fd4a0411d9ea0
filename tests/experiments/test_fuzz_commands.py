"""Wrong command lines of every command, drawn by a seed: one line of error, no traceback, no hang, nothing left."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.experiments.fuzz_commands import said
from tests.experiments.fuzz_lines import BASES, CHEAP, ROOT


def fuzz(*words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.experiments.fuzz_commands", *map(str, words)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_a_few_wrong_lines_of_the_commands_that_everybody_uses(warm: None) -> None:
    done = fuzz(7, 16, *CHEAP)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == "16 lines of 4 commands, seed 7: 0 failed\n"


@pytest.mark.slow
def test_five_hundred_wrong_lines_of_all_commands() -> None:
    done = fuzz(1, 500)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_command_is_fuzzed() -> None:
    """Each file that a user starts: it has a main() and is no part of another command."""
    internal = {
        "envolve.slurm.task",
        "envolve.slurm.ray_job",  # behind slurm/ray.sbatch
        "envolve.slurm.worker_group",  # behind slurm/workers.sh
        "envolve.experiments.small_model_process",
        "envolve.experiments.write_help",
        "envolve.experiments.run",
        "envolve.experiments.worker",  # behind GTN_master, GTN_worker
    }
    found = {
        "envolve." * (folder != ".") + ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for folder in ("experiments", "experiments/paper", "slurm", ".")
        for path in Path(ROOT / folder).glob("*.py")
        if '__name__ == "__main__"' in path.read_text()
    }
    assert found - internal == {name for name in BASES if not name.startswith("benchmarks.")}


def test_how_lines_are_counted() -> None:
    usage = "usage: x.py [-h]\n            [--a A]\nx.py: error: unrecognized arguments: --b\n"
    box = "╭─ Parsing error ─╮\n│ Argument --a    │\n│ see --help      │\n╰─────────────────╯\n"
    assert said(usage) == ["x.py: error: unrecognized arguments: --b"]
    assert len(said(box)) == 1 and len(said(box + "more\n")) == 2
    assert said("warning: w\nx.py: e\nnote: n\n") == ["x.py: e"]
