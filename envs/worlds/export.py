"""An evolved world as a Gymnasium environment, single or batched.

>>> env = load_world("results/<run_id>/model.pt")
>>> envs = load_world_vec("results/<run_id>/model.pt", num_envs=64)
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from gymnasium.error import ResetNeeded
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from torch import Tensor

from envolve.envs.outside.spaces import typed
from envolve.envs.outside.task import OutsideTask
from envolve.envs.worlds.file import read_world
from envolve.envs.worlds.world import OUTPUT_BOUND, World


def load_world(path: str, max_steps: int | None = None, gamma: float | None = None) -> WorldEnv:
    """A saved world. Raises WorldFileError.

    max_steps: episode limit, default: the configuration's. gamma: discount of the agent that will train in a potential
    reward network, default: that of the agent it was evolved with.
    """
    return WorldEnv(read_world(path).world(gamma), max_steps)


def load_world_vec(
    path: str, num_envs: int, max_steps: int | None = None, gamma: float | None = None
) -> WorldVectorEnv:
    """Same as ``load_world``, with ``num_envs`` environments stepped in one batch."""
    return WorldVectorEnv(read_world(path).world(gamma), num_envs, max_steps)


def observation_space(world: World) -> spaces.Space[Any]:
    """Observation space. Finite tasks: Discrete; else a Box: the task's own bounds. SE outputs outside are clamped.

    Of an environment from outside: its own Box, and for other spaces the Box that flattens them.
    """
    if isinstance(world.task, OutsideTask):
        return _own_observations(world.task, learned=world.kind == "se")
    if world.task.num_states is not None:
        return spaces.Discrete(world.task.num_states)
    low, high = world.task.observation_bounds()
    if world.kind == "se":
        low, high = [-OUTPUT_BOUND] * len(low), [OUTPUT_BOUND] * len(high)
    return spaces.Box(np.array(low, np.float32), np.array(high, np.float32), dtype=np.float32)


def _own_observations(task: OutsideTask, learned: bool) -> spaces.Box:
    """In the environment's units. learned: a network draws the observations, which are numbers of any kind, as the
    world's own learners saw them; else the environment does."""
    own = task.observations
    low, high, dtype = own.low, own.high, own.dtype
    if learned:
        low, high, dtype = task.mean - OUTPUT_BOUND * task.scale, task.mean + OUTPUT_BOUND * task.scale, "float32"
    lowest, highest = (typed(x, dtype).reshape(own.shape) for x in (low, high))
    return spaces.Box(lowest, highest, own.shape, lowest.dtype.type)


def action_space(world: World) -> spaces.Space[Any]:
    """Action space: Discrete, or for continuous tasks a Box in the task's own units. Of an environment from outside:
    its own."""
    if isinstance(world.task, OutsideTask):
        own = world.task.actions
        if own.kind == "Box":
            low, high = (typed(x, own.dtype).reshape(own.shape) for x in (own.low, own.high))
            return spaces.Box(low, high, own.shape, np.dtype(own.dtype).type)
        if own.kind == "Discrete":
            return spaces.Discrete(own.n, start=own.start[0])
        if own.kind == "MultiBinary":
            return spaces.MultiBinary(own.shape)
        nvec, start = (np.array(x, own.dtype).reshape(own.shape) for x in (own.nvec, own.start))
        return spaces.MultiDiscrete(nvec, np.dtype(own.dtype).type, start=start)
    if world.task.action_size:
        limit = world.task.max_action
        return spaces.Box(-limit, limit, (world.task.action_size,), np.float32)
    return spaces.Discrete(world.task.num_actions)


def observe(world: World, state: Tensor) -> np.ndarray:
    """Observation float32 [N, F], for finite tasks int64 [N], of state [1, N, S]; never a view of the state."""
    if world.task.num_states is not None:
        return state[0, :, 0].numpy().copy()
    seen = world.observe(state)[0].numpy().copy()
    return world.task.to_own(seen, world.kind == "se") if isinstance(world.task, OutsideTask) else seen


def codes(task: OutsideTask, actions: np.ndarray) -> np.ndarray:
    """Actions [N, ...] of the environment's own space -> what the task takes: float32 [N, A], or int64 [N]."""
    own = task.actions
    return np.stack([own.to_numbers(a) if own.size else np.asarray(own.to_index(a)) for a in actions])


def step(world: World, state: Tensor, action: np.ndarray, live: np.ndarray) -> tuple[Tensor, np.ndarray, np.ndarray]:
    """action: integers [N] or reals [N, A] -> next state, reward float64 [N], terminated bool [N].

    live: bool [N], the environments to step.
    """
    if isinstance(world.task, OutsideTask):
        action = codes(world.task, action)
    batch = torch.from_numpy(action.astype(np.float32 if world.task.action_size else np.int64)).unsqueeze(0)
    with torch.no_grad():
        state, reward, done, failed = world.step(state, batch)
    if (failed[0].numpy() & live).any():
        raise FloatingPointError(
            world.task.complaint(state) or "the world's networks overflowed: one of their outputs is not finite"
        )
    return state, reward[0].numpy().astype(np.float64) / world.reward_scale, done[0].numpy() > 0.5


def cut(world: World, state: Tensor) -> np.ndarray:
    """Which episodes the task itself has truncated, bool [N]."""
    own = world.truncated(state)
    return np.zeros(state.shape[1], np.bool_) if own is None else own[0].numpy()


class WorldEnv(gymnasium.Env[Any, Any]):
    """A world with P = 1: an SE, an RN, or the real task (``WorldEnv(RealTask(task, 1))``).

    Resets draw the task's initial state from ``np_random``; an episode is truncated after max_steps.
    """

    metadata = {"render_modes": []}

    def __init__(self, world: World, max_steps: int | None = None) -> None:
        if world.P != 1:
            raise ValueError(f"a world of {world.P} members: expected 1")
        self.world = world
        self.max_steps = world.task.max_steps if max_steps is None else max_steps
        self.observation_space = observation_space(world)
        self.action_space = action_space(world)
        self.render_mode = None
        self._state: Tensor | None = None
        self._steps = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        u = torch.from_numpy(self.np_random.random((1, 1, self.world.reset_uniforms)))
        if self._state is not None and self.world.kind != "se":
            self.world.task.release(self._state)
        self._state = self.world.reset(u)
        self._steps = 0
        return self._observation(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if self._state is None:
            raise ResetNeeded("call reset before step")
        if isinstance(self.action_space, spaces.Box):
            action = np.asarray(action, self.action_space.dtype)  # float64 and lists are welcome
        if not self.action_space.contains(action):
            raise ValueError(f"action {action!r}: expected one of {self.action_space}")
        live = np.ones(1, np.bool_)
        self._state, reward, terminated = step(self.world, self._state, np.asarray(action)[None], live)
        if self.world.reward_noise:
            reward += self.world.reward_noise * self.np_random.standard_normal()
        self._steps += 1
        truncated = self._steps >= self.max_steps or bool(cut(self.world, self._state)[0])
        return self._observation(), float(reward[0]), bool(terminated[0]), truncated, {}

    def _observation(self) -> Any:
        assert self._state is not None
        return observe(self.world, self._state)[0]


class WorldVectorEnv(VectorEnv[Any, Any, Any]):
    """N environments of one world in one batch [1, N]. Environment i with seed s is ``WorldEnv`` with seed s + i.

    Autoreset as Gymnasium's default, NEXT_STEP: the step after an episode's last ignores its action, resets that
    environment and returns its first observation with reward 0.
    """

    metadata = {"render_modes": [], "autoreset_mode": AutoresetMode.NEXT_STEP}

    def __init__(self, world: World, num_envs: int, max_steps: int | None = None) -> None:
        if world.P != 1:
            raise ValueError(f"a world of {world.P} members: expected 1")
        if num_envs < 1:
            raise ValueError(f"num_envs {num_envs}: expected at least 1")
        self.world = world
        self.num_envs = num_envs
        self.max_steps = world.task.max_steps if max_steps is None else max_steps
        self.single_observation_space = observation_space(world)
        self.single_action_space = action_space(world)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.render_mode = None
        self._state: Tensor | None = None
        self._steps = np.zeros(num_envs, np.int64)
        self._over = np.zeros(num_envs, np.bool_)  # the next step resets these
        self._generators: list[np.random.Generator | None] = [None] * num_envs
        self._seeds = [-1] * num_envs

    @property  # type: ignore[misc]
    def np_random(self) -> tuple[np.random.Generator, ...]:  # type: ignore[override]
        """Random generator of each environment."""
        return tuple(self._generator(i) for i in range(self.num_envs))

    @property
    def np_random_seed(self) -> tuple[int, ...]:  # type: ignore[override]
        self.np_random  # noqa: B018  draws the missing seeds
        return tuple(self._seeds)

    def _generator(self, i: int, seed: int | None = None) -> np.random.Generator:
        generator = self._generators[i]
        if generator is None or seed is not None:
            generator, self._seeds[i] = seeding.np_random(seed)
            self._generators[i] = generator
        return generator

    def _reset(self, state: Tensor | None, mask: np.ndarray, seeds: list[int | None]) -> Tensor:
        """Resets the masked environments, leaves the others' state as it is."""
        u = np.zeros((1, self.num_envs, self.world.reset_uniforms))
        for i in map(int, np.flatnonzero(mask)):
            u[0, i] = self._generator(i, seeds[i]).random(u.shape[2])
        fresh = self.world.reset(torch.from_numpy(u))
        if state is not None and self.world.kind != "se":
            self.world.task.release(state[:, torch.from_numpy(mask)])
        self._steps[mask] = 0
        self._over[mask] = False
        return fresh if state is None else torch.where(torch.from_numpy(mask)[None, :, None], fresh, state)

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """options["reset_mask"]: bool [N], reset these environments only."""
        seeds: list[int | None]
        if seed is None or isinstance(seed, (int, np.integer)):
            seeds = [None if seed is None else int(seed) + i for i in range(self.num_envs)]
        else:
            seeds = list(seed)
        if len(seeds) != self.num_envs:
            raise ValueError(f"{len(seeds)} seeds: expected {self.num_envs}")
        mask = np.ones(self.num_envs, np.bool_)
        if options is not None and "reset_mask" in options:
            mask = np.asarray(options["reset_mask"])
            if mask.shape != (self.num_envs,) or mask.dtype != np.bool_ or not mask.any():
                raise ValueError(f"reset_mask {mask!r}: expected bool [{self.num_envs}] with at least one True")
            if self._state is None and not mask.all():
                raise ResetNeeded("the first reset must be of all environments")
        self._state = self._reset(self._state, mask, seeds)
        return observe(self.world, self._state), {}

    def step(self, actions: Any) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        if self._state is None:
            raise ResetNeeded("call reset before step")
        box = self.single_action_space if isinstance(self.single_action_space, spaces.Box) else None
        actions = np.asarray(actions, None if box is None else box.dtype)
        if not self.action_space.contains(actions):
            raise ValueError(f"actions {actions!r}: expected a sample of {self.action_space}")
        over = self._over.copy()
        state, reward, terminated = step(self.world, self._state, actions, ~over)
        if self.world.reward_noise:
            for i in map(int, np.flatnonzero(~over)):
                reward[i] += self.world.reward_noise * self._generator(i).standard_normal()
        self._steps += 1
        own_cut = cut(self.world, state)
        if over.any():
            state = self._reset(state, over, [None] * self.num_envs)
        reward = np.where(over, 0.0, reward)
        terminated = terminated & ~over
        truncated = ((self._steps >= self.max_steps) | own_cut) & ~over
        self._state, self._over = state, terminated | truncated
        return observe(self.world, state), reward, terminated, truncated, {}
