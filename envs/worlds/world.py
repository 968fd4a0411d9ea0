"""Worlds that agents train in: P members side by side, each with N environments and one flat vector of weights.

``synthetic.py`` and ``reward_network.py`` hold the two kinds that the outer loop changes, ``RealTask`` the task itself.
"""

from __future__ import annotations

from typing import ClassVar, Optional, Tuple, Union

import torch
from torch import Tensor

from envolve.envs.nets.networks import LinearShape, MLPShape, TableShape, init_flat
from envolve.envs.section import INFO_TYPES, LINEAR_TYPES, RN_TYPES, EnvSection
from envolve.envs.task import TASKS, Task, make_task

OUTPUT_BOUND = 1000.0  # outputs of an SE are clamped to [-bound, bound], so that a diverging one stays finite


class World:
    """Base class: reset, observe, step. State is one explicit tensor; of finite tasks the cell, int64 [P, N, 1]."""

    kind: ClassVar[str] = ""
    reward_noise: float = 0.0  # standard deviation of the noise on a step's reward, which the loops add
    reward_scale: float = 1.0  # a reward is the task's times this, where it contains the task's

    def __init__(self, task: Task, P: int) -> None:
        self.task = task
        self.P = P

    @property
    def reset_uniforms(self) -> int:
        """Number of uniforms in [0, 1) that one reset consumes."""
        return self.task.reset_uniforms

    def reset(self, u: Tensor, members: Union[slice, Tensor] = slice(None)) -> Tensor:
        """u: uniforms [P, N, reset_uniforms], or of these members alone -> state, from the real task's initial
        distribution."""
        return self.task.reset(u)

    def observe(self, state: Tensor) -> Tensor:
        """Observation float32 [P, N, F] of a state."""
        return self.task.observe(state)

    def truncated(self, state: Tensor) -> Optional[Tensor]:
        """Which episodes the task itself has cut, bool [P, N]; None: it cuts none."""
        return None

    def step(self, state: Tensor, action: Tensor) -> Tuple[Tensor, Tensor, Tensor, Tensor]:
        """action: int64 [P, N], of continuous tasks float32 [P, N, A]
        -> next state, reward float32 [P, N], done float32 [P, N], failed bool [P, N].

        done > 0.5 ends the episode; time limits are the caller's. failed: an output of the world's networks is not
        finite; what the step returns for such a member means nothing.
        """
        raise NotImplementedError


class OnTask(World):
    """Base class of worlds with the dynamics of the task."""

    def truncated(self, state: Tensor) -> Optional[Tensor]:
        return self.task.stopped(state)[0] if self.task.stops_itself else None


class RealTask(OnTask):
    """The task itself, with its true reward."""

    kind = "real"

    def __init__(self, task: Task, P: int, for_learning: bool = True) -> None:
        """for_learning: rewards have the scale that suits learners, where the task has such; else its own."""
        super().__init__(task, P)
        self.reward_noise, self.for_learning = task.reward_noise, for_learning
        self.reward_scale = task.reward_scale if for_learning else 1.0

    def step(self, state: Tensor, action: Tensor) -> Tuple[Tensor, Tensor, Tensor, Tensor]:
        next_state, reward, terminated = self.task.step(state, action)
        failed = self.task.stopped(next_state)[1] if self.task.stops_itself else torch.zeros_like(terminated)
        if self.for_learning:
            reward = (reward * self.reward_scale).to(torch.float32)
        return next_state, reward, terminated.to(torch.float32), failed


def se_nets(task: Task, section: EnvSection) -> Tuple[Tuple[str, MLPShape], ...]:
    """(name, shape) of an SE's networks. All read the action's code, then the observation, except init_net: it reads as
    many latent numbers as the observation has. A table of states in its place reads nothing."""
    F, inputs = task.observation_size, task.action_inputs + task.observation_size
    reward = ("reward_net", section.net(inputs, 1))
    if section.contextual_bandit:
        return contexts_of(section, F), reward
    return ("state_net", section.net(inputs, F)), reward, ("done_net", section.net(inputs, 1))


def contexts_of(section: EnvSection, F: int) -> Tuple[str, MLPShape]:
    """(name, shape) of what a bandit draws its states from: a network, or a table of states."""
    if section.stored_contexts:
        return "contexts", TableShape(section.stored_contexts, F, hidden=0, layers=0, activation="identity")
    return "init_net", section.net(F, F)


def info_mismatch(task: Task, section: EnvSection) -> Optional[Tuple[str, str, str]]:
    """Reason why this RN cannot read the task's info vector: the section's key, its value and the expected one; None if
    it can, or need not."""
    kind = section.reward_env_type
    if kind not in INFO_TYPES or task.info_size == section.info_dim > 0:
        return None
    if not task.info_size:
        without = ", ".join(str(t) for t in RN_TYPES if t not in INFO_TYPES)
        having = ", ".join(name for name in TASKS if make_task(name).info_size)
        words = f"one of {without}: {task.name} has no info vector, which type {kind} reads; tasks that have: {having}"
        return "reward_env_type", str(kind), words
    words = f"{task.info_size}, the length of {task.name}'s info vector ({', '.join(task.info_names)})"
    return "info_dim", str(section.info_dim), words


def rn_shape(task: Task, section: EnvSection) -> MLPShape:
    """The network of an RN; its inputs are the observation, then the info vector, those of the two that its type reads.
    Type 0 needs none; the original gives it one of one input, which nothing reads. Raises ValueError."""
    kind, wrong = section.reward_env_type, info_mismatch(task, section)
    if wrong is not None:
        raise ValueError("{}: found {}, expected {}".format(*wrong))
    if kind in LINEAR_TYPES:
        return LinearShape(task.info_size, 1, hidden=0, layers=0, activation="identity")
    inputs = task.observation_size + (task.info_size if kind in INFO_TYPES else 0)
    return section.net(1 if kind == 0 else inputs, 1)


def world_nets(kind: str, task: Task, section: EnvSection) -> Tuple[Tuple[str, MLPShape], ...]:
    """(name, shape) of a world's networks in the order in which its flat vector holds them."""
    if kind == "se":
        return se_nets(task, section)
    if kind == "rn":
        return (("reward_net", rn_shape(task, section)),)
    raise ValueError(f"kind of world {kind!r}: expected 'se' or 'rn'")


def world_size(kind: str, task: Task, section: EnvSection) -> int:
    """Length D of a world's flat vector."""
    return sum(shape.size for _, shape in world_nets(kind, task, section))


def init_world(kind: str, task: Task, section: EnvSection, key: Tensor) -> Tensor:
    """Fresh worlds with torch's default initialisation, shifted by done_bias. key: int64 [P] -> float32 [P, D]."""
    nets, counter = [], 0
    for _, shape in world_nets(kind, task, section):
        nets.append(init_flat(shape, key, counter))
        counter += shape.size
    flat = torch.cat(nets, dim=1)
    if kind == "se" and not section.contextual_bandit:
        last = 1 + world_nets(kind, task, section)[-1][1].slope_slots
        flat[:, -last] += section.done_bias  # done_net's one output bias: its last parameter but for a PReLU slope
    return flat


def tables(world: World) -> Tuple[Tensor, Tensor, Tensor]:
    """Tabulates a finite world: next state int32, reward float32, done float32, each [P, num_states, num_actions].

    The reward is NaN where the world failed. Raises ValueError if the task is not finite.
    """
    states, actions = world.task.num_states, world.task.num_actions
    if states is None:
        raise ValueError(f"{world.task.name} has no finite set of states: it cannot be tabulated")
    state = torch.arange(states).repeat_interleave(actions).expand(world.P, -1).unsqueeze(-1)
    action = torch.arange(actions).repeat(states).expand(world.P, -1)
    next_state, reward, done, failed = world.step(state, action)
    reward = torch.where(failed, torch.full_like(reward, float("nan")), reward)
    shape = (world.P, states, actions)
    return next_state.view(shape).to(torch.int32), reward.view(shape), done.view(shape)
