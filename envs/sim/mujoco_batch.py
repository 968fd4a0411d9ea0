"""``mujoco.batch``, which steps many simulations at once; where MuJoCo is older, one line that says so. Python 3.8."""

from __future__ import annotations

import sys

from envolve.envs.sim.simulator import SimulatorError

try:
    from mujoco.batch import Batch, SimulationError
except ImportError as e:
    try:
        import mujoco

        found = f"MuJoCo {mujoco.__version__}"
    except ImportError:
        found = "no MuJoCo"
    raise SimulatorError(
        f"MuJoCo 3.17 or later is needed, found {found} in Python {sys.version_info[0]}.{sys.version_info[1]}. Start "
        "workers in Python 3.10 or later (3.8 has MuJoCo 3.2.3 at most); shapers can also take engine isaacgym."
    ) from e

__all__ = ["Batch", "SimulationError"]
