"""Disables MuJoCo's own timer.

MuJoCo's Python package sets the callback ``mjcb_time``, so that ``mjData.timer`` tells how long each stage of a step
takes (https://mujoco.readthedocs.io/en/stable/APIreference/APIglobals.html#mjcb-time). It is asked dozens of times a
step: up to a quarter of the time (HalfCheetah 15 %, Ant 9 %, Reacher 23 %), and those timers are never read here.
Python's ``mujoco.set_mjcb_time(None)`` leaves the package's own clock where it is: hence the library itself.
"""

from __future__ import annotations

import ctypes
import logging
from pathlib import Path

import mujoco

log = logging.getLogger(__name__)


def stop_clock() -> None:
    """Stops the timing of simulations in this process. Results stay the same to the bit."""
    folder = Path(mujoco.__file__).parent
    for path in sorted(folder.glob("*mujoco.*")):  # libmujoco.so.3.17.0, libmujoco.3.17.0.dylib, mujoco.dll
        try:
            clock = ctypes.c_void_p.in_dll(ctypes.CDLL(str(path)), "mjcb_time")
        except (OSError, ValueError):  # no library, or one without that symbol
            continue
        clock.value = None
        return
    log.info(
        "MuJoCo's timer cannot be switched off and costs about 10 % of the speed: no library with mjcb_time in %s",
        folder,
    )
