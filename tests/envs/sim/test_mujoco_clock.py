"""MuJoCo's own stopwatch."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import mujoco
from envolve.envs.sim.mujoco_clock import stop_clock
from envolve.envs.sim.simulator import MODELS

def run():
    model = mujoco.MjModel.from_xml_path(str(MODELS / "cartpole.xml"))
    data = mujoco.MjData(model)
    data.qvel[:] = 1
    mujoco.mj_step(model, data, nstep=50)
    return data.timer[mujoco.mjtTimer.mjTIMER_STEP].duration, data.qpos.tobytes()

(before, there), _ = run(), stop_clock()
after, here = run()
print(before > 0, after == 0, here == there)
"""


@pytest.mark.slow
def test_stands_still_once_stopped_and_the_simulation_is_the_same():
    # In a process of its own: in this one it may have been stopped already.
    root = Path(__file__).parents[3]
    done = subprocess.run([sys.executable, "-c", SCRIPT], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "True", "True"], done.stderr
