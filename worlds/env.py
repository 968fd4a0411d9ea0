"""Worlds of the zoo as Gymnasium environments, single or batched."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.error import ResetNeeded
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from envolve.worlds.file import ZooWorld

BLOCK = 256  # contexts that are drawn at once


class ZooEnv(gymnasium.Env[np.ndarray, Any]):
    """One episode is one step. With the same seed, the same contexts as ``envolve.load_world`` draws."""

    metadata = {"render_modes": []}

    def __init__(self, world: ZooWorld) -> None:
        self.world = world
        self.observation_space, self.action_space = world.observation, world.action.space
        self.render_mode = None
        self._contexts: tuple[np.ndarray, np.ndarray] | None = None
        self._next, self._running = 0, False

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None or self._contexts is None or self._next == BLOCK:
            u = self.np_random.random((BLOCK, self.world.bandit.uniforms))
            self._contexts, self._next = self.world.bandit.contexts(u), 0
        self._next, self._running = self._next + 1, True
        return self._observation(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if not self._running or self._contexts is None:
            raise ResetNeeded("call reset before step")
        if isinstance(self.action_space, spaces.Box):
            action = np.asarray(action, self.action_space.dtype)  # float64 and lists are welcome
        if not self.action_space.contains(action):
            raise ValueError(f"action {action!r}: expected one of {self.action_space}")
        code = self.world.action.codes(np.asarray(action)[None])
        reward = self.world.bandit.pay(self._contexts[1][self._next - 1][None], code)
        self._running = False
        return self._observation(), float(reward[0]), True, False, {}

    def _observation(self) -> np.ndarray:
        assert self._contexts is not None
        return own_units(self.world, self._contexts[0][self._next - 1])


class ZooVectorEnv(VectorEnv[np.ndarray, Any, Any]):
    """N environments in one batch; environment i with seed s is ``ZooEnv`` with seed s + i, up to rounding.

    autoreset_mode: as in Gymnasium. NEXT_STEP: every second step resets, ignores its actions and pays 0. SAME_STEP:
    every step pays and returns the next contexts; ``info["final_obs"]`` [N, *shape] holds those that it ended.
    """

    def __init__(
        self, world: ZooWorld, num_envs: int, autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP
    ) -> None:
        if num_envs < 1:
            raise ValueError(f"num_envs {num_envs}: expected at least 1")
        self.mode = AutoresetMode(autoreset_mode)
        if self.mode == AutoresetMode.DISABLED:
            raise ValueError("autoreset_mode DISABLED: expected NEXT_STEP or SAME_STEP")
        self.metadata = {"render_modes": [], "autoreset_mode": self.mode}
        self.world, self.num_envs, self.render_mode = world, num_envs, None
        self.single_observation_space, self.single_action_space = world.observation, world.action.space
        self.observation_space = batch_space(world.observation, num_envs)
        self.action_space = batch_space(world.action.space, num_envs)
        self._generators: list[np.random.Generator] = []
        self._uniforms = np.zeros((num_envs, BLOCK, world.bandit.uniforms))
        self._at = 0  # contexts of the block that were used
        self._seen: np.ndarray | None = None  # contexts as an agent sees them [BLOCK, N, *shape]
        self._parts = np.zeros(0)  # their share of the first layer [BLOCK, N, H]
        self._over = False

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Resets all environments: their episodes end together. Raises ValueError."""
        if options is not None and "reset_mask" in options and not np.all(options["reset_mask"]):
            raise ValueError("reset_mask: found a mask of some environments, expected all: their episodes end together")
        seeds: list[int | None]
        if seed is None or isinstance(seed, (int, np.integer)):
            seeds = [None if seed is None else int(seed) + i for i in range(self.num_envs)]
        else:
            seeds = list(seed)
        if len(seeds) != self.num_envs:
            raise ValueError(f"{len(seeds)} seeds: expected {self.num_envs}")
        old: list[np.random.Generator | None] = [*self._generators] or [None] * self.num_envs
        self._generators = [g if g and s is None else seeding.np_random(s)[0] for g, s in zip(old, seeds)]
        if self._seen is None or any(s is not None for s in seeds):
            self._block()
        self._advance()
        self._over = False
        return self._observation(), {}

    def step(self, actions: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        if self._seen is None:
            raise ResetNeeded("call reset before step")
        no = np.zeros(self.num_envs, np.bool_)
        if self._over:  # the actions are ignored
            self._advance()
            self._over = False
            return self._observation(), np.zeros(self.num_envs), no, no.copy(), {}
        reward = self.world.bandit.pay(self._parts[self._at - 1], self._codes(actions))
        yes = ~no
        if self.mode == AutoresetMode.NEXT_STEP:
            self._over = True
            return self._observation(), reward, yes, no, {}
        info = {"final_obs": self._observation(), "_final_obs": yes.copy(), "final_info": {}, "_final_info": yes.copy()}
        self._advance()
        return self._observation(), reward, yes, no, info

    def _codes(self, actions: Any) -> np.ndarray:
        """The network's inputs for a batch of actions. Raises ValueError for one that is not in the space."""
        own, space = self.world.action, self.action_space
        actions = np.asarray(actions, space.dtype if own.n == 0 else None)
        if actions.shape != space.shape or not self._within(actions):
            raise ValueError(f"actions {str(actions):.80}: expected a sample of {space}")
        return own.codes(actions)

    def _within(self, actions: np.ndarray) -> bool:
        own = self.world.action
        flat = actions.reshape(self.num_envs, -1)
        if not own.n:
            return bool(((flat >= own.low) & (flat <= own.high)).all())
        if not np.issubdtype(actions.dtype, np.integer):
            return False
        if len(own.nvec) == 1:
            return own.start[0] <= int(flat.min()) and int(flat.max()) < own.start[0] + own.nvec[0]
        return bool(((flat >= own.start) & (flat < np.add(own.start, own.nvec))).all())

    def _advance(self) -> None:
        """The next context of every environment."""
        if self._at == BLOCK:
            self._block()
        self._at += 1

    def _block(self) -> None:
        """Draws the next contexts of every environment, each from its own generator."""
        for i, generator in enumerate(self._generators):
            self._uniforms[i] = generator.random((BLOCK, self.world.bandit.uniforms))
        contexts, self._parts = self.world.bandit.contexts(self._uniforms.transpose(1, 0, 2))
        self._seen, self._at = own_units(self.world, contexts), 0

    def _observation(self) -> np.ndarray:
        assert self._seen is not None
        return self._seen[self._at - 1].copy()


def own_units(world: ZooWorld, contexts: np.ndarray) -> np.ndarray:
    """Contexts [..., F] in the units and the shape that an agent sees, float32 [..., *shape]."""
    own = (contexts * world.scale + world.mean).astype(np.float32)
    if world.bound < np.inf:
        np.clip(own, -world.bound, world.bound, out=own)
    return own.reshape(contexts.shape[:-1] + world.observation.shape)
