"""A task of managers as shapers see it: named state, the task's own shapers, and the score.

The score is the task's return: the sum of its reward over an episode, divided by the time limit in seconds. That is the
sum of what the library logs as ``Episode_Reward/*``. Its reward manager computes it with the weights and parameters of
the task, whatever candidates change.

Axes: R environments of all candidates, P candidates, K reward terms, A numbers of an action.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, ClassVar, Dict, List, Optional, Tuple, Type

import torch
from torch import Tensor

from envolve.envs.managers.environment import CandidateEnv
from envolve.envs.managers.library import NAMES, Library, library_of, name_of
from envolve.envs.managers.quantities import layout, plain, readers
from envolve.envs.physics.task import PhysicsTask, Pose, Quantity, Random, State
from envolve.envs.sim.simulator import SimulatorError

OWN = ("own_reward", "own_terminal", "own_observation")
DIVERGED_SPEED, DIVERGED_POSITION = 1e4, 1e6  # |qvel|, |qpos| of a simulation that has blown up


class ManagedTask(PhysicsTask):
    """Base of the classes that ``managed_task`` makes. ``state`` is measured twice per step: when rewards are
    computed, for rewards and ends, and at the step's end, for observations."""

    score_unit = "per second"
    score_meaning = "return under the task's own reward terms, per second of the time limit"
    own_name: ClassVar[str] = ""
    library: ClassVar[Library]
    # filled in by ``facts.measured``
    step_seconds: ClassVar[float] = 0.0
    features: ClassVar[int] = 0  # of the task's own observation
    bodies: ClassVar[int] = 0  # A, that float
    joints: ClassVar[int] = 0  # D
    columns: ClassVar[Dict[str, Quantity]] = {}
    reward_text: ClassVar[str] = ""  # the task's reward, as a function of its terms
    conventions: ClassVar[str] = (
        "SI units; the world's z axis points up; names that end with _w are in world coordinates, those with _b in the"
        " body's own frame; quaternions are {} and turn body into world coordinates."
    )

    def __init__(self, world: CandidateEnv) -> None:
        self.world, env = world, world.env
        self.num_envs, self.dt, made = world.R, float(env.step_dt), type(self)
        made.max_steps, made.action_size = int(env.max_episode_length), _action_width(env)
        self.scaled = bool(getattr(env.cfg, "scale_rewards_by_dt", True))  # Isaac Lab always does
        actuators = tuple(f"action {k}" for k in range(self.action_size))
        self.sim: Any = SimpleNamespace(
            device=world.device,
            num_envs=world.R,
            timestep=float(env.physics_dt),
            actuators=actuators,
            engine=self.library.name,
            close=world.close,
            effort_limit=torch.full((self.action_size,), torch.inf, device=world.device),
        )
        self.driver = world.driver
        self._readers = readers(self.library, self.driver)
        self.terms = list(env.reward_manager.active_terms)
        self.ends = list(env.termination_manager.active_terms)
        features = world.observation().shape[1]
        columns = {name: reader.quantity for name, reader in self._readers.items()}
        made.goal_size = sum(self.command_widths().values())
        columns.update(own_columns(self.terms, self.ends, features, self.action_size))
        self._columns = columns
        self._widths, total = layout(columns)
        self.buffer = torch.zeros(self.num_envs, total, device=world.device)
        self.state = self.views(self.buffer)
        self.ranges = {}
        self.rest = Pose(*self.rest_poses())
        self.effort = torch.zeros(self.num_envs, self.action_size, device=world.device)
        self._values = torch.zeros(self.num_envs, len(self.terms), device=world.device)
        self.own_reward = self.reward = torch.zeros(self.num_envs, device=world.device)
        self.own_terminal = torch.zeros(self.num_envs, dtype=torch.bool, device=world.device)
        world.measure = self.settle

    @classmethod
    def described(cls, actuators: int) -> Dict[str, Quantity]:
        """All of ``state``. Raises SimulatorError where the library is missing."""
        from envolve.envs.managers.facts import measured  # which makes an environment

        return dict(measured(cls.name).columns)

    # ------------------------------------------------------------------------------------------------------ measured

    def settle(self, reward: Tensor) -> None:
        """When the library has computed its reward [R]: the score, the candidates' own terms, and the state."""
        numbers = self.world.numbers
        self.reward = _finite(reward.clone())
        self._values = numbers.reward_values()
        self.own_reward = self.reward
        if numbers.has("rewards"):
            weights = numbers.weights().repeat_interleave(self.world.N, 0)
            own = self.driver.reward(self._values, weights, self.dt if self.scaled else 1.0)
            self.own_reward = _finite(own)
        self.own_terminal = numbers.terminated(self.world.terminated)
        self.measure()

    def measure(self, ids: Optional[Tensor] = None) -> None:
        """Refreshes the state; ids: of these environments only."""
        parts = [reader.read().reshape(self.num_envs, -1) for reader in self._readers.values()]
        ends = [self.world.env.termination_manager.get_term(name)[:, None] for name in self.ends]
        parts += [self.own_reward[:, None], self.own_terminal[:, None], self.world.observation()]
        parts += [self._values, *ends, self.world.env.episode_length_buf[:, None], self.effort]
        new = torch.cat([part.to(torch.float32) for part in parts], 1)
        if ids is None:
            self.buffer.copy_(new)
        else:
            self.buffer[ids] = new[ids]

    def score(self) -> Tensor:
        return self.reward.double() / (self.dt if self.scaled else 1.0)

    def diverged(self) -> Tensor:
        """Environments whose physics has blown up, bool [R]. Comparisons with NaN are false."""
        position, speed = self.position, self.speed = self.driver.coordinates()
        return ~((speed.abs() < DIVERGED_SPEED).all(1) & (position.abs() < DIVERGED_POSITION).all(1))

    # ------------------------------------------------------------------------------------------- poses and commands

    def _bodies(self) -> List[Any]:
        """Entities that float."""
        return [e for e in self.driver.entities().values() if not getattr(e, "is_fixed_base", False)]

    def _jointed(self) -> List[Any]:
        return [e for e in self.driver.entities().values() if getattr(e, "joint_names", ())]

    def rest_poses(self) -> Tuple[Tensor, Tensor, Tensor]:
        """The library's default state of every environment: [R, A, 13], [R, D], [R, D], float64."""
        origin = self.world.env.scene.env_origins
        roots = [self.driver.rest_root(e).clone() for e in self._bodies()]
        for root in roots:
            root[:, :3] += origin
        joints, R = self._jointed(), self.num_envs
        none, empty = torch.zeros(R, 0, device=self.sim.device), torch.zeros(R, 0, 13, device=self.sim.device)
        return (
            (torch.stack(roots, 1) if roots else empty).double(),
            torch.cat([none, *[self.driver.read(e.data.default_joint_pos) for e in joints]], 1).double(),
            torch.cat([none, *[self.driver.read(e.data.default_joint_vel) for e in joints]], 1).double(),
        )

    def put(self, ids: Tensor, pose: Pose) -> None:
        """Puts environments ids [n] into a pose; kinematics follow with the library's own call."""
        for k, entity in enumerate(self._bodies()):
            self.driver.put_root(entity, pose.root_state[:, k].float(), ids)
        first = 0
        for entity in self._jointed():
            last = first + len(entity.joint_names)
            position, velocity = pose.joint_position[:, first:last].float(), pose.joint_velocity[:, first:last].float()
            self.driver.put_joints(entity, position, velocity, ids)
            first = last

    def command_widths(self) -> Dict[str, int]:
        """Numbers of each command that is a plain tensor, and the same one whenever it is asked for: others cannot be
        set."""
        manager = self.world.env.command_manager
        found = {name: (manager.get_command(name), manager.get_command(name)) for name in manager.active_terms}
        return {
            n: c.shape[1]
            for n, (c, again) in found.items()
            if isinstance(c, Tensor) and c.dim() == 2 and c.is_floating_point() and c.data_ptr() == again.data_ptr()
        }

    def set_commands(self, rows: Tensor, goal: Tensor) -> None:
        """Commands of environments rows [n]: [n, G], in the order of the task's command terms."""
        first = 0
        for name, width in self.command_widths().items():
            self.world.env.command_manager.get_command(name)[rows] = goal[:, first : first + width]
            first += width

    # ------------------------------------------------------------------------------------------------ its own shapers

    @staticmethod
    def compute_reward(state: State) -> Tensor:
        return state["own_reward"]

    @staticmethod
    def compute_observation(state: State) -> Tensor:
        return state["own_observation"]

    @staticmethod
    def compute_torque(action: Tensor, state: State) -> Tensor:
        return action

    @staticmethod
    def compute_terminal(state: State) -> Tensor:
        return state["own_terminal"] != 0

    @staticmethod
    def compute_initial_state(state: State, random: Random, rest: Pose) -> Pose:
        return rest

    @staticmethod
    def compute_goal(state: State, random: Random) -> Optional[Tensor]:
        return None


def own_columns(terms: List[str], ends: List[str], features: int, actions: int) -> Dict[str, Quantity]:
    """What every task's state has besides the library's data, in the order of ``ManagedTask.measure``."""
    return {
        "own_reward": Quantity((), "", "the task's own reward of this step, with this candidate's numbers"),
        "own_terminal": Quantity((), "", "1 where the task's own terms end the episode, with this candidate's numbers"),
        "own_observation": Quantity((features,), "", "what the task's own policy sees, as it was last computed"),
        **{f"term_{plain(n)}": Quantity((), "", f"reward term {n!r} before its weight") for n in terms},
        **{f"end_{plain(n)}": Quantity((), "", f"1 where termination term {n!r} holds") for n in ends},
        "progress": Quantity((), "steps", "control steps since the episode began"),
        "torque": Quantity((actions,), "", "what the task's action terms were last given"),
    }


_classes: Dict[str, Type[ManagedTask]] = {}


def managed_task(name: str, engine: str = NAMES[0]) -> Type[ManagedTask]:
    """The class of a task by its name, with or without the prefix. The name is checked where the library is
    installed. engine: the library of a name without a prefix."""
    library, own = library_of(name, engine), name_of(name)
    full = f"{library.name}:{own}"
    if full not in _classes:
        facts = {
            "name": full,
            "own_name": own,
            "library": library,
            "conventions": ManagedTask.conventions.format(library.quaternion),
        }
        _classes[full] = type(plain(full), (ManagedTask,), facts)
    return _classes[full]


def _finite(reward: Tensor) -> Tensor:
    """With 0 for numbers that are not finite, as mjlab does itself."""
    return torch.nan_to_num(reward, nan=0.0, posinf=0.0, neginf=0.0)


def _action_width(env: Any) -> int:
    """Numbers that the task's action terms take together."""
    width = int(env.action_manager.total_action_dim)
    if not width:
        raise SimulatorError("the task has no action terms")
    return width
