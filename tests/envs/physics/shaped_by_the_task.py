"""A task under its own shapers, for the tests of tasks."""

from __future__ import annotations

import torch
from torch import Tensor

from envolve.envs.physics.task import PhysicsTask
from envolve.envs.shaping.candidate import Candidate
from envolve.envs.shaping.envs import ShapedEnvs
from envolve.envs.sim.simulator import make_simulator


def make_task(cls: type[PhysicsTask], n: int) -> PhysicsTask:
    return cls(make_simulator("mujoco", cls.model, n, cls.outputs))


def make_envs(cls: type[PhysicsTask], n: int) -> ShapedEnvs:
    """One candidate, which changes nothing."""
    return ShapedEnvs(make_task(cls, n), [Candidate("human")], key=0)


def place(task: PhysicsTask, root: Tensor | None = None, position: Tensor | None = None) -> None:
    """All environments in this state (root [13], position [D]; None: at rest), and measured."""
    ids = torch.arange(task.num_envs)
    rest = task.rest
    root_state = rest.root_state if root is None else root.view(1, 13)
    position = rest.joint_position if position is None else position
    states = (x.double().expand(task.num_envs, *x.shape) for x in (root_state, position, rest.joint_velocity))
    task.sim.set_state(ids, *states)
    task.measure()
    task.after_reset(ids)
