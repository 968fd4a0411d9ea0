"""Real state of a task, from a short rollout, on which shapers are tried before training."""

from __future__ import annotations

import io
from dataclasses import dataclass

import torch

import envolve.envs.physics  # noqa: F401  registers the tasks
from envolve.core import rng
from envolve.core.torch_file import read_torch
from envolve.envs.managers.envs import make_managed_envs
from envolve.envs.managers.library import is_managed
from envolve.envs.physics.task import Pose, Random, State, physics_task
from envolve.envs.shaping.candidate import Candidate
from envolve.envs.shaping.envs import ShapedEnvs
from envolve.envs.shaping.widths import MOST_ACTIONS
from envolve.envs.sim.simulator import make_simulator

ROLLOUT_STEPS = 64  # control steps
MJLAB_ROWS = 16  # and environments; one step of 64 of mjlab's robots takes a second on a CPU
SEED = 0  # a probe is the same every time


@dataclass(frozen=True)
class Probe:
    """Real arguments for a task's shapers, n rows of each. Tensors are on the CPU and belong to the probe."""

    task: str
    state: State  # name -> float32 [n, ...]: all of ``PhysicsTask.described``, "action" and "previous_action"
    random: Random  # float32 [n, R] each
    rest: Pose  # float64 [n, A, 13], [n, D], [n, D]
    efforts: int  # U, columns of what compute_torque returns
    goal_size: int  # G, columns of what compute_goal returns; 0: the task has no goals
    widths: tuple[int, ...]  # of actions, in the order in which compute_torque is tried with them

    @property
    def n(self) -> int:
        """Number of rows."""
        return len(self.state["action"])

    @property
    def action_size(self) -> int:
        """Number of columns of the task's own actions."""
        return self.state["action"].shape[1]

    def to_bytes(self) -> bytes:
        """Bytes for another process."""
        parts = {**vars(self), "random": list(self.random), "rest": list(self.rest)}
        file = io.BytesIO()
        torch.save(parts, file)
        return file.getvalue()

    @classmethod
    def from_bytes(cls, data: bytes) -> Probe:
        """Inverse of ``to_bytes``."""
        parts = read_torch(data)
        return cls(**{**parts, "random": Random(*parts["random"]), "rest": Pose(*parts["rest"])})


def make_probe(task_name: str, n: int = 64, engine: str = "mujoco") -> Probe:
    """The task's state under random actions, uniform in [-1, 1], with its own shapers. Row i comes from environment i
    at step i ROLLOUT_STEPS / n, and episodes begin spread over their length, so that starts, ends, contacts and goals
    are among the rows. Raises KeyError for an unknown task."""
    cls = physics_task(task_name)
    if is_managed(task_name):
        n = MJLAB_ROWS
        world: ShapedEnvs = make_managed_envs(cls.name, [Candidate("probe")], n, SEED)
        close = world.task.sim.close
    else:
        sim = make_simulator(engine, cls.model, n, cls.outputs)
        world, close = ShapedEnvs(cls(sim), [Candidate("probe")], SEED), sim.close
    task = world.task
    try:
        world.begin(staggered=True)
        state = {**task.state, "action": world.action, "previous_action": world.previous_action}
        rows = {name: torch.empty_like(part) for name, part in state.items()}
        taken = torch.arange(n) * ROLLOUT_STEPS // n
        A, key = task.action_size, rng.fold(torch.tensor([SEED]), rng.EXPLORE)
        for step in range(ROLLOUT_STEPS):
            numbers = torch.arange(n * A) + step * n * A
            world.step(2 * rng.uniform(key, numbers).view(1, n, A) - 1)
            for name, part in state.items():
                rows[name][taken == step] = part[taken == step]
        drawn = torch.arange(n * cls.random_numbers).view(n, -1)
        random = Random(rng.uniform(key, drawn), rng.normal(rng.fold(key, rng.RESET), drawn))
        rest = Pose(*(part.expand(n, *part.shape[-ends:]).clone() for part, ends in zip(task.rest, (2, 1, 1))))
    finally:
        close()
    efforts = len(task.sim.actuators)
    widths = dict.fromkeys((A, efforts, *range(1, MOST_ACTIONS + 1)))  # in this order, each once
    return Probe(cls.name, rows, random, rest, efforts, task.goal_size, tuple(widths))
