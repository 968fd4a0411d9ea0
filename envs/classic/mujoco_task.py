"""Tasks that MuJoCo steps (``mujoco.batch``, https://mujoco.readthedocs.io), with an explicit state as all tasks have.

State: float64 [P, N, nq + 2 nv + K]: positions, velocities, and the accelerations from which MuJoCo's constraint solver
starts (``qacc_warmstart``); without these a trajectory that goes on from a stored state would differ in the last bits.
K more numbers, of tasks that name ``outputs``, are what MuJoCo derived in the last step; no step reads them. The
simulations only calculate: every step writes the state into them and reads the next one back. So a result does not
depend on which simulation made it, nor on how many there are.

MuJoCo is imported by the first reset, so a worker without it serves all other tasks.
"""

from __future__ import annotations

import logging
import threading
from typing import Any, ClassVar, Dict, List, Tuple, Type

import numpy as np
import torch
from torch import Tensor

from envolve.envs.sim.simulator import MODELS
from envolve.envs.task import Task

log = logging.getLogger("envolve")
_said = threading.Event()  # a diverged simulation was logged
_loading = threading.Lock()
_local = threading.local()  # .pools: a thread's own simulations, by task; a Batch serves one thread


class Simulations:
    """Pool of simulations of one task's model, as many as were ever needed at once."""

    def __init__(self, task: Type[MuJoCoTask], count: int) -> None:
        from envolve.envs.sim.mujoco_batch import Batch
        from envolve.envs.sim.mujoco_cpu import DIVERGED
        from envolve.envs.sim.mujoco_model import load_model

        with _loading:  # it changes settings of the process for a while
            self.model = load_model(MODELS / task.model, contact_forces=False)
        self.count, self.diverged = count, DIVERGED
        self.batch = Batch(self.model, count, 1)
        self.parts: List[np.ndarray] = [self.batch.bind(name) for name in ("qpos", "qvel", "qacc_warmstart")]
        self.outputs: List[np.ndarray] = [self.batch.bind(name) for name in task.outputs]
        self.ctrl: np.ndarray = self.batch.bind("ctrl")

    def _call(self, method: Any, rows: np.ndarray, **options: int) -> Tuple[np.ndarray, np.ndarray]:
        """Steps simulations. rows: float64 [n, nq + 2 nv or more], start states -> states [n, S] after the call,
        diverged bool [n]."""
        from envolve.envs.sim.mujoco_batch import SimulationError

        n, at = len(rows), 0
        for part in self.parts:
            part[:n] = rows[:, at : at + part.shape[1]]
            at += part.shape[1]
        self.batch.warning[:n, self.diverged, 1] = 0
        bad = np.zeros(n, np.bool_)
        try:
            method(ids=np.arange(n), **options)
        except SimulationError as e:  # the simulations it names kept their state, the others are done
            log.warning("%s", e)
            bad[np.asarray(e.ids)] = True
        bad |= self.batch.warning[:n, self.diverged, 1].any(1)
        derived = [part[:n].reshape(n, part[0].size) for part in self.outputs]
        return np.concatenate([part[:n] for part in self.parts] + derived, axis=1), bad

    def begin(self, position: np.ndarray, velocity: np.ndarray) -> np.ndarray:
        """States [n, S] from positions [n, nq] and velocities [n, nv] relative to the model's own pose."""
        rows = np.concatenate((self.model.qpos0 + position, velocity, np.zeros_like(velocity)), axis=1)
        self.ctrl[: len(rows)] = 0
        return self._call(self.batch.forward, rows)[0]  # fills in the accelerations, as Gymnasium's reset does

    def step(self, rows: np.ndarray, control: np.ndarray, substeps: int) -> Tuple[np.ndarray, np.ndarray]:
        """Restores the start state of diverged simulations, which MuJoCo would have reset."""
        self.ctrl[: len(rows)] = control  # MuJoCo clips it to the actuators' range
        after, bad = self._call(self.batch.step, rows, nstep=substeps)
        after[bad] = rows[bad]
        return after, bad


def simulations(task: Type[MuJoCoTask], count: int) -> Simulations:
    """Simulations of the task's model, at least ``count``, for this thread."""
    pools: Dict[str, Simulations] = _local.__dict__.setdefault("pools", {})
    if task.name not in pools or pools[task.name].count < count:
        # members finish one by one and tests come in other sizes: growing in powers of two settles at once
        pools[task.name] = Simulations(task, 1 << (count - 1).bit_length())
    return pools[task.name]


def _rows(x: Tensor) -> np.ndarray:
    """Flattens [P, N, K] to [P N, K]."""
    return x.detach().reshape(-1, x.shape[-1]).cpu().numpy()


class MuJoCoTask(Task):
    """Base class. A simulation that diverges, or gets an action that is not finite, ends its episode in the state where
    the step began."""

    model: ClassVar[str] = ""  # a file in envs/models
    substeps: ClassVar[int] = 1
    dt: ClassVar[float] = 0.0  # s, of a step: the model's timestep times substeps
    outputs: ClassVar[Tuple[str, ...]] = ()  # what MuJoCo derives and the task reads, by its names in MjData
    on_host = costly = True

    def begin(self, position: Tensor, velocity: Tensor) -> Tensor:
        """State [P, N, S] from position [P, N, nq] and velocity [P, N, nv] relative to the model's own pose at rest."""
        P, N = position.shape[:2]
        rows = simulations(type(self), P * N).begin(_rows(position), _rows(velocity))
        return torch.from_numpy(rows).view(P, N, rows.shape[1]).to(position.device)

    def advance(self, state: Tensor, control: Tensor) -> Tuple[Tensor, Tensor]:
        """Next state [P, N, S] and diverged bool [P, N]. state [P, N, S], control [P, N, A]."""
        P, N = state.shape[:2]
        rows, bad = simulations(type(self), P * N).step(_rows(state), _rows(control), self.substeps)
        if bad.any() and not _said.is_set():
            _said.set()
            log.warning("%s: a simulation diverged, which ends its episode (logged once)", self.name)
        after, diverged = torch.from_numpy(rows).view(P, N, rows.shape[1]), torch.from_numpy(bad).view(P, N)
        return after.to(state.device), diverged.to(state.device)


def normals(u: Tensor) -> Tensor:
    """Standard normal numbers from uniforms in [0, 1), both float64 [..., 2 K], by the method of Box and Muller: the
    pair (u, v) makes sqrt(-2 ln(1 - u)) times cos(2 pi v) and sin(2 pi v). First all cosines, then all sines."""
    radius = (-2 * torch.log1p(-u[..., 0::2])).sqrt()
    angle = 2 * torch.pi * u[..., 1::2]
    return torch.cat((radius * torch.cos(angle), radius * torch.sin(angle)), dim=-1)
