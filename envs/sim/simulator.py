"""Interface of physics engines: N independent copies of one model, stepped together.

Conventions, the same for every engine: SI units; the world's z axis points up; quaternions are (x, y, z, w) and turn
body into world coordinates; linear and angular velocities are given in world coordinates. Effort is N m at a hinge, N
at a slide. What an engine has differently, it converts.

Axes: N environments, A free bodies (those with six degrees of freedom), D joints (hinges and slides), B bodies, U
actuators.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable, FrozenSet, Optional, Sequence, Tuple

import torch
from torch import Tensor

from envolve.core.registry import Place, Registry

MODELS = Path(__file__).parents[1] / "models"

Scene = Callable[[Any], None]  # puts more into a model before it is compiled: a function of its mujoco.MjSpec

# Quantities that cost time and are therefore asked for by name when the simulator is made (``outputs``).
BODY_STATE, CONTACT_FORCE = "body_state", "contact_force"
# Properties of single environments (``set_property``).
MASS_SCALE, FRICTION_SCALE, GRAVITY = "mass_scale", "friction_scale", "gravity"
PROPERTIES = (MASS_SCALE, FRICTION_SCALE, GRAVITY)


class SimulatorError(Exception):
    """Raised if this engine cannot do something; the text says what it can do."""


class Simulator:
    """Base class; engines fill in the attributes and methods.

    The tensors ``root_state``, ``joint_position``, ``joint_velocity`` and ``unstable`` are current after ``step`` and
    ``set_state``. They keep their addresses for the simulator's life and are for reading only. float64 on the CPU,
    float32 on a GPU.
    """

    engine: str = ""
    capabilities: FrozenSet[str] = frozenset()  # of PROPERTIES those it has, and "render", "engine_outputs"
    storable: bool = False  # whether ``snapshot`` and ``restore`` work
    num_envs: int
    device: torch.device
    timestep: float  # s, of one substep
    free_bodies: Tuple[str, ...]  # A names, in the order of root_state
    joints: Tuple[str, ...]  # D names
    bodies: Tuple[str, ...]  # B names, without the world
    actuators: Tuple[str, ...]  # U names of the joints they drive; of a thruster, its own
    effort_limit: Tensor  # [U], efforts are clipped to +- this; infinite: no limit
    root_state: Tensor  # [N, A, 13]: position m, quaternion, linear velocity m/s, angular velocity rad/s
    joint_position: Tensor  # [N, D], rad or m
    joint_velocity: Tensor  # [N, D], rad/s or m/s
    # int64, sorted: environments that step must advance; the others may stay where they are, if the engine gains by it
    awake: Optional[Tensor] = None  # None: all
    unstable: Tensor  # bool [N]: diverged, or set to a state that is not finite. Means nothing until ``set_state``

    def output(self, name: str) -> Tensor:
        """A quantity asked for at creation: "body_state" [N, B, 13] (of the body's frame, laid out as root_state),
        "contact_force" [N, B, 3] (N, net, world), or if "engine_outputs" is among the capabilities a field of the
        engine by its own name and layout.

        After ``step`` it describes the state before the last substep (MuJoCo's rule, and Gymnasium's).
        """
        raise NotImplementedError

    def set_effort(self, effort: Tensor) -> None:
        """effort: [N, U], clipped to the limits; stays until it is set again."""
        raise NotImplementedError

    def step(self, substeps: int) -> None:
        """Advance all environments. One that diverges becomes ``unstable``; it is never reset silently."""
        raise NotImplementedError

    def set_state(self, ids: Tensor, root_state: Tensor, joint_position: Tensor, joint_velocity: Tensor) -> None:
        """Put environments ids, int64 [K] without repetition, into states [K, A, 13], [K, D], [K, D], at rest in time,
        with no effort, and compute what follows from them. At most once between two steps."""
        raise NotImplementedError

    def set_property(self, name: str, ids: Tensor, value: Tensor) -> None:
        """Change a property of environments ids [K]: "mass_scale" and "friction_scale" (of all bodies, relative to the
        model) [K], "gravity" m/s^2 [K, 3]. Raises SimulatorError where it is not among the capabilities."""
        raise NotImplementedError

    def snapshot(self) -> Tensor:
        """Complete state of the environments, in the engine's own layout."""
        raise SimulatorError(f"{self.engine} cannot save its state, so a run in it cannot be resumed")

    def restore(self, snapshot: Tensor) -> None:
        """Restores a ``snapshot``, bit by bit."""
        raise SimulatorError(f"{self.engine} cannot save its state, so a run in it cannot be resumed")

    def rest_state(self) -> Tuple[Tensor, Tensor, Tensor]:
        """Model's own pose, at rest: root_state [A, 13], joint_position [D], joint_velocity [D]."""
        raise NotImplementedError

    def render(self, env: int, width: int, height: int) -> Any:
        """Picture of one environment, uint8 [height, width, 3]."""
        raise SimulatorError(f"{self.engine} cannot render here")

    def body_index(self, name: str) -> int:
        return self.bodies.index(name)

    def close(self) -> None:
        """Frees the engine's resources."""


ENGINES = Registry(
    "engine",
    {
        "mujoco": Place("envolve.envs.sim.mujoco_cpu", "MuJoCoCPU"),
        "mujoco_warp": Place("envolve.envs.sim.mujoco_warp", "MuJoCoWarp"),
        "isaacgym": Place("envolve.envs.sim.isaac.isaacgym", "IsaacGym"),
    },
    error=SimulatorError,
)


def make_simulator(
    engine: str,
    model: str,
    num_envs: int,
    outputs: Sequence[str] = (),
    threads: int = 1,
    device: str = "cpu",
    scene: Optional[Scene] = None,
) -> Simulator:
    """engine: a key of ENGINES; model: a file in envs/models; outputs: what ``Simulator.output`` will be asked for;
    threads: of a CPU engine, which change no result; scene: what else is in the world. Raises SimulatorError."""
    place = ENGINES.find(engine)
    if scene is not None and engine == "isaacgym":
        raise SimulatorError("isaacgym cannot add to a model: choose engine mujoco or mujoco_warp")
    more = {} if scene is None else {"scene": scene}
    make: Callable[..., Simulator] = place.load()
    return make(MODELS / model, num_envs, tuple(outputs), threads, torch.device(device), **more)
