"""Choice of MuJoCo's OpenGL. The package ``mujoco`` reads it at import, so this must run before."""

from __future__ import annotations

import ctypes.util
import os
import sys

LIBRARIES = {"egl": "EGL", "osmesa": "OSMesa"}  # of MUJOCO_GL


def choose_opengl() -> None:
    """Makes MuJoCo render off screen if there is no display; without the check, a named but missing library would break
    the import of mujoco."""
    if "MUJOCO_GL" in os.environ or "DISPLAY" in os.environ or "mujoco" in sys.modules or sys.platform != "linux":
        return
    for name, library in LIBRARIES.items():
        if ctypes.util.find_library(library):
            os.environ["MUJOCO_GL"] = name
            return
