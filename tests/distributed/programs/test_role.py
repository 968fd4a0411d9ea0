"""A program as a process: its arguments, and the exit codes that say what another start would do."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import torch

from envolve.distributed.files.run_folder import DONE as COMPLETE
from envolve.distributed.files.run_folder import SESSION, RunSettings
from envolve.distributed.programs import role
from envolve.distributed.programs.supervisor import DONE, STUCK, WRONG
from tests.distributed.programs.test_faults import prepare


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(torch, "set_num_threads", lambda n: None)
    monkeypatch.setattr(logging, "basicConfig", lambda **_: None)
    monkeypatch.delenv("SLURM_PROCID", raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    prepare(tmp_path / "run", RunSettings(3, 2))
    return tmp_path / "run"


@pytest.mark.parametrize(
    "words, environ, text",
    [
        ("collector --worker 2", {}, "--worker (without it SLURM_PROCID): found 2, expected 0 to 1"),
        ("collector", {"SLURM_PROCID": "7"}, "--worker (without it SLURM_PROCID): found 7, expected 0 to 1"),
        (
            "collector",
            {"SLURM_PROCID": "x"},
            "SLURM_PROCID: found 'x', expected the number of a collector, or --worker",
        ),
        ("learner", {"OMP_NUM_THREADS": "many"}, "OMP_NUM_THREADS: found 'many', expected a positive integer"),
        ("learner --worker 1", {}, "--worker: found it with learner, expected it with collector alone"),
        ("evaluator --bind 0.0.0.0", {}, "--bind: found it with evaluator, expected it with replay alone"),
    ],
)
def test_wrong_arguments_are_said_and_end_it_for_good(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    words: str,
    environ: dict[str, str],
    text: str,
) -> None:
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert role.main([*words.split(), "--exp-dir", str(folder)]) == WRONG
    assert text in caplog.text


def test_a_damaged_file_ends_it_for_good(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    (folder / SESSION).write_text("")
    assert role.main(["learner", "--exp-dir", str(folder)]) == STUCK
    assert f"{folder / SESSION}: found ''" in caplog.text


@pytest.mark.parametrize("name", ["learner", "collector", "evaluator"])
def test_a_complete_run_needs_no_hub(folder: Path, name: str) -> None:
    (folder / COMPLETE).touch()
    assert role.main([name, "--exp-dir", str(folder)]) == DONE
