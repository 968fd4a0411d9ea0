"""How the best policy is filmed off screen."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from envolve.outer.shapers import video as shaper_video
from tests.experiments.test_eval_shapers import SMALL
from tests.outer.small import ROOT


def test_the_best_format_that_can_be_written_is_chosen(monkeypatch):
    assert shaper_video.writable_format(Path("a.GIF")) == ".gif"
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    assert shaper_video.writable_format(None) == ".gif"
    with pytest.raises(shaper_video.VideoError, match="imageio-ffmpeg"):
        shaper_video.writable_format(Path("a.mp4"))
    monkeypatch.setitem(sys.modules, "imageio.v2", None)
    with pytest.raises(shaper_video.VideoError, match="imageio"):
        shaper_video.writable_format(None)


@pytest.mark.slow
def test_examples_run_from_another_folder_and_are_filmed(tmp_path):
    command = [
        sys.executable,
        "eval_shapers.py",
        *SMALL,
        "--learning-iterations",
        "1",
        "--video",
        str(tmp_path / "a.gif"),
    ]
    environment = {k: v for k, v in os.environ.items() if k not in ("MUJOCO_GL", "PYTHONPATH")}
    done = subprocess.run(
        [*command, "--run-dir", str(tmp_path / "out")],
        cwd=ROOT / "experiments",
        text=True,
        capture_output=True,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    content = json.loads((tmp_path / "out" / "candidates.json").read_text())
    names = {p.stem for p in (ROOT / "envs/user_functions/cartpole").glob("*.py")}
    assert {c["name"] for c in content["candidates"]} == {"human", *names}
    assert not any(c["failed"] for c in content["candidates"])  # what comes with the project is meant to be good
    assert (tmp_path / "a.gif").exists() or "OpenGL" in done.stderr
