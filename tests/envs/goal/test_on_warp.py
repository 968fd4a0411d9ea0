"""Goal tasks in mujoco_warp: as in MuJoCo itself, in float32. On the CPU; on a GPU where there is one.

With elliptic cones of friction: the two engines lay the sides of a pyramid differently under a steep leg.
"""

from __future__ import annotations

from typing import Any

import mujoco
import pytest
import torch

from envolve.envs.goal.engines import make_episodes
from envolve.envs.goal.simulated import SimulatedTask
from envolve.envs.goal.task import make_goal_task

pytest.importorskip("mujoco_warp", reason="mujoco_warp is not installed: pip install mujoco-warp")
pytestmark = pytest.mark.slow  # kernels
NAMES = ["ant_u_maze", "ant_ball", "ant_push", "pusher_easy", "humanoid", "arm_reach", "arm_binpick_easy"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_task_is_the_same_in_mujoco_warp(name: str, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("no GPU")
    task, keys = make_goal_task(name), torch.tensor([1, 2])
    assert isinstance(task, SimulatedTask)
    own = task.scene()

    def with_cones(spec: Any) -> None:
        if own is not None:
            own(spec)
        spec.option.cone = mujoco.mjtCone.mjCONE_ELLIPTIC

    monkeypatch.setattr(task, "scene", lambda: with_cones)
    here = make_episodes(task, keys, 3)
    there = make_episodes(task, keys.to(device), 3, engine="mujoco_warp")
    torch.testing.assert_close(there.goal.cpu(), here.goal, rtol=1e-6, atol=1e-6)  # a GPU's cos is another's
    torch.testing.assert_close(there.features.cpu(), here.features, rtol=1e-4, atol=1e-4)
    begun = here.features.clone()
    for t in range(3):
        action = 0.3 * torch.sin(torch.arange(6 * task.action_size) + t).view(2, 3, -1)
        a, b = here.step(action), there.step(action.to(device))
        torch.testing.assert_close(b.features.cpu(), a.features, rtol=5e-3, atol=5e-3)
        assert torch.equal(a.over, b.over.cpu())
    assert (here.features - begun).abs().max() > 0.05
