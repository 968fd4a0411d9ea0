"""What MuJoCo renders with."""

from __future__ import annotations

import sys

from envolve.envs.sim import opengl


def test_opengl_is_chosen_only_where_it_is_there(monkeypatch):
    def chosen(libraries, **environment):
        monkeypatch.setattr(opengl.os, "environ", environment)
        monkeypatch.delitem(sys.modules, "mujoco", raising=False)
        monkeypatch.setattr(opengl.ctypes.util, "find_library", lambda name: name if name in libraries else None)
        opengl.choose_opengl()
        return environment.get("MUJOCO_GL")

    assert chosen({"EGL", "OSMesa"}) == "egl" and chosen({"OSMesa"}) == "osmesa" and chosen(set()) is None
    assert chosen({"EGL"}, DISPLAY=":0") is None and chosen({"EGL"}, MUJOCO_GL="glfw") == "glfw"
