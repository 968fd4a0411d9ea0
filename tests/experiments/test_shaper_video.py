"""How a film is made off screen. One that is made: test_eval_shapers.py."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from experiments import shaper_video


def test_opengl_is_chosen_only_where_it_is_there(monkeypatch):
    def chosen(libraries, **environment):
        monkeypatch.setattr(shaper_video.os, "environ", environment)
        monkeypatch.delitem(sys.modules, "mujoco", raising=False)
        monkeypatch.setattr(shaper_video.ctypes.util, "find_library", lambda name: name if name in libraries else None)
        shaper_video.choose_opengl()
        return environment.get("MUJOCO_GL")

    assert chosen({"EGL", "OSMesa"}) == "egl" and chosen({"OSMesa"}) == "osmesa" and chosen(set()) is None
    assert chosen({"EGL"}, DISPLAY=":0") is None and chosen({"EGL"}, MUJOCO_GL="glfw") == "glfw"


def test_the_best_format_that_can_be_written_is_chosen(monkeypatch):
    assert shaper_video.writable_format(Path("a.GIF")) == ".gif"
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    assert shaper_video.writable_format(None) == ".gif"
    with pytest.raises(shaper_video.VideoError, match="imageio-ffmpeg"):
        shaper_video.writable_format(Path("a.mp4"))
    monkeypatch.setitem(sys.modules, "imageio.v2", None)
    with pytest.raises(shaper_video.VideoError, match="imageio"):
        shaper_video.writable_format(None)
