"""A MuJoCo without mujoco.batch, as Python 3.8 has it, and none at all: one line that says what is needed."""

from __future__ import annotations

import sys

import mujoco
import pytest

from envolve.envs.sim.simulator import SimulatorError, make_simulator

IMPORTERS = ("envolve.envs.sim.mujoco_batch", "envolve.envs.sim.mujoco_cpu")


@pytest.mark.parametrize("missing", ["mujoco.batch", "mujoco"])
def test_an_older_mujoco_is_named_in_one_line(monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    for module in IMPORTERS:
        monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setitem(sys.modules, "mujoco.batch", None)
    found = f"found MuJoCo {mujoco.__version__} in Python 3."
    if missing == "mujoco":
        monkeypatch.setitem(sys.modules, "mujoco", None)
        found = "found no MuJoCo in Python 3."
    with pytest.raises(SimulatorError, match="MuJoCo 3.17 or later is needed, " + found) as e:
        if missing == "mujoco":
            import envolve.envs.sim.mujoco_batch  # noqa: F401
        else:
            make_simulator("mujoco", "cartpole.xml", 1)
    assert "\n" not in str(e.value) and "engine isaacgym" in str(e.value)
