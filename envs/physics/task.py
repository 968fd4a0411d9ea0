"""A task in a physics engine: what is measured, what it is worth, and the human's shapers.

``state`` is what shapers read: named float32 tensors [N, ...], all of them columns of one buffer, refilled in place
after every step. ``score`` is what a candidate is judged by; it is computed from the simulator before any candidate
sees the new state, and no shaper takes part in it.

One control step, as ``envs/shaping/envs.py`` drives it:

    before_step() -> set_effort, step(substeps) -> measure(), after_step() -> score() -> reward, terminal, observation
    of those that ended: parameters, goal, initial state, place() -> set_state -> measure(), after_reset(ids) ->
    observation

Axes: N environments (of all candidates), A free bodies, D joints, U actuators, R random numbers of a reset.
"""

from __future__ import annotations

import math
from typing import ClassVar, Dict, List, NamedTuple, Optional, Tuple, Type, Union

import torch
from torch import Tensor

from envolve.core.registry import Registry
from envolve.envs.managers.library import is_managed
from envolve.envs.sim.simulator import Simulator

State = Dict[str, Tensor]
Reward = Union[Tensor, Tuple[Tensor, Dict[str, Tensor]]]


class Quantity(NamedTuple):
    """What one tensor of the state is."""

    shape: Tuple[int, ...]  # of one environment; () for a number
    unit: str
    meaning: str  # with the frame, where there is one


class Parameter(NamedTuple):
    """A number of the task, drawn for every episode from a uniform distribution over [low, high], which a curriculum or
    domain randomisation moves. The state has it under its name. "mass_scale", "friction_scale" and "gravity" (m/s^2,
    downwards) are set in the engine; the others are read by the task's functions."""

    low: float
    high: float
    unit: str
    meaning: str


class Random(NamedTuple):
    """Random numbers for one reset of n environments."""

    uniform: Tensor  # float32 [n, R] in [0, 1)
    normal: Tensor  # float32 [n, R]


class Pose(NamedTuple):
    """Where a reset puts n environments; conventions of ``Simulator``."""

    root_state: Tensor  # float64 [n, A, 13]
    joint_position: Tensor  # float64 [n, D]
    joint_velocity: Tensor  # float64 [n, D]


class PhysicsTask:
    """Base class. The ``compute_...`` functions are the human's shapers: static, and each row of what they return
    depends on the same row of the state alone."""

    name: ClassVar[str] = ""
    model: ClassVar[str] = ""  # a file in envs/models
    substeps: ClassVar[int] = 1  # engine steps per control step
    max_steps: ClassVar[int] = 1000  # control steps until an episode is cut
    action_size: ClassVar[int] = 0  # of the human's compute_torque; actions lie in [-1, 1]
    random_numbers: ClassVar[int] = 32  # R
    outputs: ClassVar[Tuple[str, ...]] = ()  # of the simulator (``Simulator.output``)
    score_unit: ClassVar[str] = ""
    score_meaning: ClassVar[str] = ""
    goal_size: ClassVar[int] = 0  # G
    goal_meaning: ClassVar[str] = ""  # of its columns, with units
    quantities: ClassVar[Dict[str, Quantity]] = {}
    parameters: ClassVar[Dict[str, Parameter]] = {}
    reward_text: ClassVar[str] = ""  # what a language model is shown instead of the source of compute_reward
    conventions: ClassVar[str] = (
        "SI units; the world's z axis points up; quaternions are (x, y, z, w) and turn body into world coordinates;"
        " velocities are in world coordinates unless a description says otherwise."
    )

    def __init__(self, sim: Simulator) -> None:
        self.sim, self.num_envs, self.dt = sim, sim.num_envs, self.substeps * sim.timestep
        self._columns = self.described(len(sim.actuators))
        self._widths = [math.prod(q.shape) for q in self._columns.values()]
        self.buffer = torch.zeros(self.num_envs, sum(self._widths), device=sim.device)
        self.state = self.views(self.buffer)
        self.ranges = dict(self.parameters)  # as they are now: a curriculum moves them
        for name, p in self.parameters.items():
            self.state[name].fill_((p.low + p.high) / 2)
        self.rest = Pose(*sim.rest_state())

    @classmethod
    def described(cls, actuators: int) -> Dict[str, Quantity]:
        """All of ``state``: the task's quantities, its goal and parameters, and what every task has."""
        common = {
            "progress": Quantity((), "steps", "control steps since the episode began"),
            "torque": Quantity((actuators,), "N m or N", "effort applied in the last control step"),
        }
        goal = {"goal": Quantity((cls.goal_size,), "", cls.goal_meaning)} if cls.goal_size else {}
        drawn = {name: Quantity((), p.unit, p.meaning) for name, p in cls.parameters.items()}
        return {**cls.quantities, **goal, **drawn, **common}

    def views(self, buffer: Tensor) -> State:
        """The columns of ``buffer``, or of some of its rows, by name: [n, S] -> [n, ...] each."""
        return {
            name: part[:, 0] if q.shape == () else part.unflatten(1, q.shape)
            for (name, q), part in zip(self._columns.items(), buffer.split(self._widths, dim=1))
        }

    # ------------------------------------------------------------------------------------ measured, not to be shaped

    def measure(self) -> None:
        """Fill ``state`` from the simulator, without regard to what was before."""
        raise NotImplementedError

    def before_step(self) -> None:
        """Remember what a change over the step is measured from."""

    def after_step(self) -> None:
        """After ``measure``: what depends on the state before the step."""

    def after_reset(self, ids: Tensor) -> None:
        """After ``measure``: as ``after_step``, for environments ids [K] that began an episode."""

    def place(self, pose: Pose, goal: Optional[Tensor]) -> Pose:
        """What the goals [n, G] of n new episodes mean for where they begin, e.g. where the model's target stands."""
        return pose

    def score(self) -> Tensor:
        """What the last control step was worth, float64 [N]. An episode's score is the mean over max_steps."""
        raise NotImplementedError

    def score_after_end(self) -> Tensor:
        """What each step from the episode's own end to max_steps is worth, float64 [N]; read at that end."""
        return torch.zeros(self.num_envs, dtype=torch.float64, device=self.sim.device)

    # ----------------------------------------------------------------------------------------- the human's six shapers

    @staticmethod
    def compute_reward(state: State) -> Reward:
        """[N], or that and its components by name, [N] each."""
        raise NotImplementedError

    @staticmethod
    def compute_observation(state: State) -> Tensor:
        """[N, F]."""
        raise NotImplementedError

    @staticmethod
    def compute_torque(action: Tensor, state: State) -> Tensor:
        """action: [N, action_size] -> effort [N, U], N m or N."""
        raise NotImplementedError

    @staticmethod
    def compute_terminal(state: State) -> Tensor:
        """bool [N]: the episode ends here (time limits are not its matter)."""
        raise NotImplementedError

    @staticmethod
    def compute_initial_state(state: State, random: Random, rest: Pose) -> Pose:
        """Where the episodes of n environments begin; ``rest``: the model's own pose at rest; state: before the reset,
        but for the goal and the parameters, which are those of the new episode."""
        return rest

    @staticmethod
    def compute_goal(state: State, random: Random) -> Optional[Tensor]:
        """What the new episodes ask for, [n, G], then state["goal"]; None for tasks without goals. state: before the
        reset, but for the parameters."""
        return None


SHAPER_TYPES: List[str] = [
    "compute_reward", "compute_observation", "compute_torque", "compute_terminal", "compute_initial_state",
    "compute_goal",
]  # fmt: skip
PHYSICS_TASKS: Registry[Type[PhysicsTask]] = Registry("physics task", error=KeyError)
register = PHYSICS_TASKS.named


def is_shaped(name: str) -> bool:
    """True for a task that candidates shape: one of these, or of a library (``mjlab:<name>``, ``isaaclab:<name>``)."""
    return name in PHYSICS_TASKS or is_managed(name)


def physics_task(name: str) -> Type[PhysicsTask]:
    """The task called ``name``, in any case of letters; ``mjlab:<name>`` and ``isaaclab:<name>`` are those of
    libraries, whose names are checked where these are. Raises KeyError with the nearest known name."""
    if is_managed(name):
        from envolve.envs.managers.task import managed_task

        return managed_task(name)
    by_lower = {known.lower(): known for known in PHYSICS_TASKS}
    return PHYSICS_TASKS.find(by_lower.get(name.lower(), name))
