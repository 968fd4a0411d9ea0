"""Libraries whose tasks are made of managers (rewards, terminations, events, commands): mjlab and Isaac Lab. They share
most of one interface; ``Library`` and ``Driver`` are what differs, and ``envs/managers/`` is written once.

``<library>:<task>`` is a task's name in this project.
"""

from __future__ import annotations

import abc
import contextlib
import importlib.metadata
from typing import Any, ClassVar, Dict, List, Optional, Tuple

import torch
from torch import Tensor

from envolve.core.registry import nearest
from envolve.envs.sim.simulator import SimulatorError

LISTED = 20  # more tasks than these are counted in a message, not listed
Table = Dict[str, Tuple[str, ...]]
BODIES: Table = {
    "body_link_pos_w": ("body_names", "m", "positions of the bodies, world"),
    "body_link_lin_vel_w": ("body_names", "m/s", "velocities of the bodies, world"),
}
CONTACT_TIMES: Table = {
    "current_air_time": ("s", "time since the last contact, 0 in contact"),
    "last_air_time": ("s", "length of the last flight"),
    "current_contact_time": ("s", "time in contact, 0 in the air"),
    "last_contact_time": ("s", "length of the last contact"),
}


class Driver(abc.ABC):
    """One environment of a library: how it steps, resets, shows and sets its state. R environments in parallel."""

    def __init__(self, env: Any) -> None:
        self.env = env

    @abc.abstractmethod
    def step(self, action: Tensor) -> None:
        """A control step with action [R, A], after which no environment has begun anew."""

    @abc.abstractmethod
    def reset(self, ids: Tensor) -> None:
        """Begins episodes in environments ids, int64 [n], with the library's own reset."""

    def moved(self, ids: Tensor) -> None:  # noqa: B027  nothing to do for most
        """Is told that a step has changed environments ids, e.g. by a new command."""

    def dropped(self) -> Optional[str]:
        """What makes candidates depend on each other, in words; None: nothing known."""
        return None

    @abc.abstractmethod
    def reward(self, values: Tensor, weights: Tensor, dt: float) -> Tensor:
        """Reward [R] of values and weights [R, K] of the reward terms, with the operations of the library's manager,
        so that equal numbers give equal bits."""

    @abc.abstractmethod
    def entities(self) -> Dict[str, Any]:
        """What moves in the scene, by name."""

    def read(self, value: Any) -> Tensor:
        """A tensor of the library's data, [R, ...]."""
        return value if isinstance(value, Tensor) else torch.as_tensor(value[:])

    @abc.abstractmethod
    def rest_root(self, entity: Any) -> Tensor:
        """A floating entity's default state [R, 13]: position, quaternion, velocity, angular velocity."""

    @abc.abstractmethod
    def put_root(self, entity: Any, state: Tensor, ids: Tensor) -> None:
        """Moves a floating entity of environments ids [n] to state [n, 13]."""

    @abc.abstractmethod
    def put_joints(self, entity: Any, position: Tensor, velocity: Tensor, ids: Tensor) -> None:
        """Moves the joints of environments ids [n] to position and velocity [n, d]."""

    @abc.abstractmethod
    def coordinates(self) -> Tuple[Tensor, Tensor]:
        """All positions [R, q] and all velocities [R, v], copied."""


class Library(abc.ABC):
    """A library of tasks."""

    name: ClassVar[str]  # of the engine; with a colon, before a task's name
    title: ClassVar[str]  # in sentences
    versions: ClassVar[str]  # how a version begins whose attributes are those that this project uses
    install: ClassVar[str]
    driver: ClassVar[Any]  # class of Driver
    quaternion: ClassVar[str]  # order of its numbers
    # Attributes of an entity's or a sensor's data that candidates see: unit, meaning; of parts, first the list of names
    effort: ClassVar[str]  # of the joints' actuators
    parts: ClassVar[Table]
    sensed: ClassVar[Table]

    @property
    def floating(self) -> Table:
        return {
            "root_link_pos_w": ("m", "position of the root, world"),
            "root_link_quat_w": ("", f"of the root, quaternion {self.quaternion}, body to world coordinates"),
            "root_link_lin_vel_w": ("m/s", "of the root, world"),
            "root_link_ang_vel_w": ("rad/s", "of the root, world"),
            "root_link_lin_vel_b": ("m/s", "of the root, body's own frame"),
            "root_link_ang_vel_b": ("rad/s", "of the root, body's own frame"),
            "projected_gravity_b": ("", "direction of gravity in the root's frame: (0, 0, -1) when level"),
            "heading_w": ("rad", "yaw of the root"),
        }

    @property
    def joints(self) -> Table:
        return {
            "joint_pos": ("rad or m", "positions"),
            "default_joint_pos": ("rad or m", f"the pose that {self.title} calls default"),
            "joint_vel": ("rad/s or m/s", "velocities"),
            "joint_acc": ("rad/s^2 or m/s^2", "accelerations"),
            self.effort: ("N m or N", "effort of the actuators at the joints"),
        }

    @abc.abstractmethod
    def load(self) -> Any:
        """The library's registry of tasks. Raises SimulatorError if it is missing, broken or of another version."""

    @abc.abstractmethod
    def task_names(self) -> List[str]:
        """Names of all registered tasks. Raises SimulatorError."""

    @abc.abstractmethod
    def configuration(self, task: str, num_envs: int, device: str = "cpu") -> Any:
        """A fresh configuration of the task for so many environments. Raises SimulatorError."""

    @abc.abstractmethod
    def make(self, cfg: Any, device: str, until: contextlib.ExitStack) -> Any:
        """The task's environment; what must be closed after it is entered in ``until``. Raises SimulatorError."""

    def is_part(self, sensor: str) -> bool:
        """True for a sensor that another one is made of, so that candidates need not see it."""
        return False

    def version(self) -> str:
        """The installed version. Raises SimulatorError for none, or for one of other managers."""
        try:
            version = importlib.metadata.version(self.name)
        except importlib.metadata.PackageNotFoundError:
            raise SimulatorError(f"{self.title} is not installed in this Python environment: {self.install}") from None
        if not version.startswith(self.versions):
            raise SimulatorError(f"found {self.title} {version}, expected {self.versions}*: {self.install}")
        return version

    def find_task(self, task: str) -> str:
        """The library's name of a task given in any case of letters, with or without the prefix. Raises SimulatorError
        with the nearest name."""
        names = {name.lower(): name for name in self.task_names()}
        wanted = name_of(task).lower()
        if wanted not in names:
            near = nearest(wanted, names.values(), cutoff=0.0)
            hint = f"; nearest: {near!r}" if near else ""
            listed = ", ".join(sorted(names.values())) if len(names) <= LISTED else f"{len(names)} tasks with managers"
            raise SimulatorError(f"{self.title} has no task {name_of(task)!r}{hint}; it has {listed}")
        return names[wanted]


def libraries() -> Dict[str, Library]:
    """By name."""
    from envolve.envs.managers.isaaclab import ISAACLAB
    from envolve.envs.managers.mjlab import MJLAB

    return {library.name: library for library in (MJLAB, ISAACLAB)}


NAMES = ("mjlab", "isaaclab")


def is_managed(task: str) -> bool:
    """True for a task of one of the libraries."""
    return task.lower().partition(":")[0] in NAMES and ":" in task


def name_of(task: str) -> str:
    """The library's own name of a task."""
    return task.partition(":")[2] if is_managed(task) else task


def library_of(task: str, engine: str = NAMES[0]) -> Library:
    """The library of a task; engine: the library of a name without a prefix."""
    return libraries()[task.lower().partition(":")[0] if is_managed(task) else engine]
