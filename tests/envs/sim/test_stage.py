"""The stage of films: the same coordinates as the model, a sky, a floor, a shadow, and a camera that follows."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import mujoco
import numpy as np
import pytest

from envolve.envs.sim.mujoco_model import load_model
from envolve.envs.sim.simulator import MODELS
from envolve.envs.sim.stage import FLOOR, Stage

NAMES = sorted(path.stem for path in MODELS.glob("*.xml"))


@pytest.mark.parametrize("name", NAMES)
def test_the_stage_has_the_coordinates_of_the_model(name: str) -> None:
    plain, stage = load_model(MODELS / f"{name}.xml", False), Stage(MODELS / f"{name}.xml")
    assert (stage.model.nq, stage.model.nv, stage.model.nbody) == (plain.nq, plain.nv, plain.nbody)
    assert np.array_equal(stage.model.qpos0, plain.qpos0) and np.array_equal(stage.model.body_mass, plain.body_mass)
    kinds = stage.model.geom_type
    planes = np.flatnonzero(kinds == mujoco.mjtGeom.mjGEOM_PLANE)
    assert len(planes) and all(stage.model.mat(int(stage.model.geom_matid[p])).name == FLOOR for p in planes)
    assert (stage.model.tex_type == mujoco.mjtTexture.mjTEXTURE_SKYBOX).sum() == 1
    assert stage.model.light_castshadow[stage.model.light_active.astype(bool)].all()


PICTURES = """
from envolve.envs.sim.opengl import choose_opengl
choose_opengl()  # before MuJoCo is imported, which a process of tests has done long ago
import sys
import numpy as np
from envolve.envs.sim.simulator import MODELS
from envolve.envs.sim.stage import Stage
stage = Stage(MODELS / f"{sys.argv[1]}.xml")
qpos = stage.model.qpos0.copy()
try:
    first, before = stage.picture(qpos, 160, 96), stage.looks.copy()
except SimulatorError as e:
    sys.exit(f"no picture: {e}")
qpos[0] += 1.0
for _ in range(40):
    last = stage.picture(qpos, 160, 96)
np.savez(sys.argv[2], first=first, last=last, moved=stage.looks[0] - before[0])
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cartpole", "ant", "half_cheetah"])
def test_a_picture_has_sky_and_floor_and_the_camera_follows(name: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", PICTURES, name, str(tmp_path / "out.npz")]
    done = subprocess.run(command, text=True, capture_output=True, check=False)
    if "no picture: " in done.stderr:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    found = np.load(tmp_path / "out.npz")
    first = found["first"]
    assert first.shape == (96, 160, 3) and first.std() > 20
    top, bottom = first[4].astype(float).mean(0), first[-4].astype(float).mean(0)
    assert top[2] > top[0] + 20  # the sky is blue
    assert 90 < bottom.mean() < 230  # the floor is neither black nor white
    assert (first.max(2) < 8).mean() < 0.05  # no black around the robot
    assert found["moved"] > 0.9  # the camera has come along
    assert np.abs(found["last"].astype(float) - first).mean() < 60  # and shows the same thing again
