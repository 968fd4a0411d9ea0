"""Which OpenGL MuJoCo renders with. It is asked when the package ``mujoco`` is imported, so this comes before."""

from __future__ import annotations

import ctypes.util
import os
import sys

LIBRARIES = {"egl": "EGL", "osmesa": "OSMesa"}  # of MUJOCO_GL


def choose_opengl() -> None:
    """Where there is no display, have MuJoCo render off screen; a library that is named but missing would keep MuJoCo
    from being imported at all."""
    if "MUJOCO_GL" in os.environ or "DISPLAY" in os.environ or "mujoco" in sys.modules or sys.platform != "linux":
        return
    for name, library in LIBRARIES.items():
        if ctypes.util.find_library(library):
            os.environ["MUJOCO_GL"] = name
            return
