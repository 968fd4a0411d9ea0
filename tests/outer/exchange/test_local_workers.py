"""Processes that a master starts on its own machine."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from envolve.core.environ import search_path
from envolve.outer.exchange.local_workers import LocalWorkers


def test_a_worker_finds_the_packages_that_its_master_finds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One in the current folder, which is measured there, and one of a folder that a script has added."""
    here, added = tmp_path / "here", tmp_path / "added"
    for folder, name in ((here, "package_of_the_current_folder"), (added, "package_of_a_script")):
        folder.mkdir()
        (folder / f"{name}.py").write_text("")
    script = tmp_path / "elsewhere" / "worker.py"
    script.parent.mkdir()
    script.write_text("import package_of_the_current_folder, package_of_a_script; print('both')")
    monkeypatch.setattr(sys, "path", ["", *sys.path, str(added), str(tmp_path / "none.zip")])
    monkeypatch.chdir(here)
    logs = tmp_path / "logs"
    with LocalWorkers(1, tmp_path / "sync", 0, logs, script=script):
        until = time.monotonic() + 60
        while not (said := (logs / "worker_0.log").read_text()) and time.monotonic() < until:
            time.sleep(0.05)
    assert said.startswith("both"), said


def test_the_path_of_children_has_folders_alone_in_the_masters_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path.parent), "", str(tmp_path / "file"), str(tmp_path / "none")])
    assert search_path() == os.pathsep.join([str(tmp_path.parent), str(tmp_path)])
