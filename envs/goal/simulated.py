"""Goal tasks in a physics engine (``envs/sim/simulator.py``): their base class and their episodes.

A state, a start and the features are MuJoCo's coordinates: for a free body its position (m) and quaternion (w, x, y,
z), then all joints; then their velocities, the free body's angular one in its own frame. A task with other features
replaces ``measure``; one with other starts replaces ``place``.

An environment that diverges in the engine is over, like one with a fallen robot: all of these tasks can terminate.
"""

from __future__ import annotations

from typing import Any, ClassVar, Dict, Mapping, Optional, Tuple

import torch
from torch import Tensor

from envolve.envs.goal.episodes import Episodes
from envolve.envs.goal.task import GoalTask
from envolve.envs.sim.rotations import from_wxyz, rotate, rotate_inverse, to_wxyz
from envolve.envs.sim.simulator import Scene, Simulator, make_simulator


class SimulatedTask(GoalTask):
    """Base class. Robots of joints alone, or of one free body with joints."""

    model: ClassVar[str] = ""  # a file in envs/models
    substeps: ClassVar[int] = 1  # engine steps per decision
    outputs: ClassVar[Tuple[str, ...]] = ()  # what ``measure`` asks ``Simulator.output`` for
    terminates = True
    on_host = True

    def scene(self) -> Optional[Scene]:
        """Function that adds walls and the like to the model; None: nothing to add."""
        return None

    def measure(self, sim: Simulator) -> Tensor:
        """Features of all environments, [n, S]: the coordinates."""
        parts = [sim.joint_position, sim.joint_velocity]
        if sim.free_bodies:
            root = sim.root_state[:, 0]
            turn = rotate_inverse(root[:, 3:7], root[:, 10:])
            parts = [root[:, :3], to_wxyz(root[:, 3:7]), parts[0], root[:, 7:10], turn, parts[1]]
        return torch.cat(parts, 1)

    def place(self, start: Tensor, sim: Simulator) -> Tuple[Tensor, Tensor, Tensor]:
        """Initial poses root_state [K, A, 13], joint_position [K, D], joint_velocity [K, D] for start: float64 [K,
        X]."""
        K, D, free = len(start), len(sim.joints), bool(sim.free_bodies)
        position, velocity = start.split([7 * free + D, 6 * free + D], 1)
        root = start.new_zeros(K, int(free), 13)
        if free:
            rotation = from_wxyz(position[:, 3:7])
            rotation = rotation / rotation.norm(dim=1, keepdim=True)
            turn = rotate(rotation, velocity[:, 3:6])
            root[:, 0] = torch.cat((position[:, :3], rotation, velocity[:, :3], turn), 1)
        return root, position[:, 7 * free :], velocity[:, 6 * free :]

    def whereabouts(self, start: Tensor) -> Tensor:
        """Goal reached by features, for goals made of coordinates."""
        return start[:, list(self.goal_indices)]

    def effort(self, action: Tensor, sim: Simulator) -> Tensor:
        """Efforts in N m or N, [n, U], for action: [n, A] in [-1, 1]."""
        return action * sim.effort_limit

    def terminated(self, state: Tensor) -> Tensor:
        """Terminal states, bool [..], of features [.., S]."""
        return torch.zeros(state.shape[:-1], dtype=torch.bool, device=state.device)


class SimulatedEpisodes(Episodes):
    """All members' environments in one simulator: member * N + environment. An engine on the CPU can serve a learner on
    a GPU."""

    task: SimulatedTask

    def __init__(
        self, task: SimulatedTask, keys: Tensor, N: int, engine: str = "mujoco", threads: int = 1, **options: Any
    ) -> None:
        """Raises SimulatorError."""
        device = "cpu" if engine == "mujoco" else str(keys.device)
        n = len(keys) * N
        self.sim = make_simulator(engine, task.model, n, task.outputs, threads, device, task.scene())
        super().__init__(task, keys, N, **options)

    def _begin(self, ids: Tensor, start: Tensor) -> None:
        sim = self.sim
        placed = self.task.place(start.to(sim.device, torch.float64), sim)
        sim.set_state(ids.to(sim.device), *placed)
        self._measure()

    def _measure(self) -> None:
        features = torch.nan_to_num(self.task.measure(self.sim))
        self.features.view(-1, self.task.state_size).copy_(features)

    def _advance(self, action: Tensor) -> Tensor:
        sim = self.sim
        sim.set_effort(self.task.effort(action.reshape(-1, self.task.action_size).to(sim.device), sim))
        sim.step(self.task.substeps * self.action_repeat)
        self._measure()
        diverged = sim.unstable.to(self.device).view(self.P, self.N)
        return self.task.terminated(self.features) | diverged

    # ------------------------------------------------------------------------------------------------ keeping a run

    @property
    def storable(self) -> bool:
        return self.sim.storable

    def state_dict(self) -> Dict[str, Tensor]:
        return {**super().state_dict(), "engine": self.sim.snapshot()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        super().load_state_dict(state)
        self.sim.restore(state["engine"])
