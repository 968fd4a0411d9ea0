"""How Python steps the environments of a training by compiled learners: arrays in, arrays out.

Axes: L members, N environments each, S numbers of a state, F observation features, A actions.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple, Tuple, cast

import numpy as np
import torch
from torch import Tensor

from envolve.agents.common.rollout import repeat, reset_uniforms, reward_noise
from envolve.envs.outside.task import FAILED, RUNNING, STATUS, TERMINATED, TRUNCATED, OutsideTask
from envolve.envs.worlds.world import World


class Taken(NamedTuple):
    """What actions have led to, [L, N] each."""

    reward: np.ndarray  # float32, as learners see it
    done: np.ndarray  # float32, as the world says it: above 0.5 the episode has ended
    failed: np.ndarray  # bool, the world did
    cut: np.ndarray  # bool, by the task itself
    t: np.ndarray  # int64, steps of the episode
    over: np.ndarray  # bool: ended, failed, cut or at the time limit


class Steps:
    """Steps of any world."""

    def __init__(self, world: World, skip: int, most: int, reset_key: Tensor, reward_key: Tensor) -> None:
        """skip: steps with one action; most: of an episode; reset_key, reward_key: int64 [L]."""
        self.world, self.skip, self.most = world, skip, most
        self.reset_key, self.reward_key = reset_key, reward_key

    def reset(self, members: np.ndarray, number: np.ndarray) -> Tensor:
        """States of new episodes of these members, [K, 1, S]. number: int64 [K], of the reset."""
        R = self.world.reset_uniforms
        first = torch.from_numpy(number * R)[:, None]
        return self.world.reset(reset_uniforms(self.reset_key[members], first, R), torch.from_numpy(members))

    def observe(self, state: Tensor) -> np.ndarray:
        """Observations float32 [L, N, F]."""
        seen: np.ndarray = self.world.observe(state).numpy()
        return seen

    def take(self, state: Tensor, action: np.ndarray, t: np.ndarray, before: np.ndarray) -> Tuple[Tensor, Taken]:
        """Takes actions, int64 [L, N] or float32 [L, N, A] -> the next state, which may be the same tensor. t: int64
        [L, N], steps of the episodes; before: int64 [L, N], number of their first steps, for random rewards."""
        chosen = torch.from_numpy(action)
        if self.skip == 1 and not self.world.reward_noise:
            # ``repeat`` written out: its small operations take as long as all else
            state, *of_step = self.world.step(state, chosen)
            reward, done, failed = (x.numpy() for x in of_step)
            t = t + 1
            over = (done > 0.5) | failed | (t >= self.most)
        else:
            noise = partial(self._noise, torch.as_tensor(before)) if self.world.reward_noise else None
            state, *of_step = repeat(self.world, state, chosen, torch.from_numpy(t), self.skip, self.most, noise)
            reward, done, failed, t, over = (x.numpy() for x in of_step)
        own = self.world.truncated(state)
        cut = np.zeros_like(over) if own is None else own.numpy()
        return state, Taken(reward, done, failed, cut, t, over | cut)

    def _noise(self, before: Tensor, t: Tensor) -> Tensor:
        return reward_noise(self.world, self.reward_key, before + t)


class OutsideSteps(Steps):
    """Steps of an environment from outside itself, without tensors, whose small operations take longer than most
    environments' steps. A state is changed in place."""

    @property
    def task(self) -> OutsideTask:
        return cast(OutsideTask, self.world.task)

    def observe(self, state: Tensor) -> np.ndarray:
        return self.task.observe_rows(state.numpy())

    def take(self, state: Tensor, action: np.ndarray, t: np.ndarray, before: np.ndarray) -> Tuple[Tensor, Taken]:
        rows = state.numpy()
        reward = self.task.step_rows(rows, action)
        paid, t, status = (reward * self.world.reward_scale).astype(np.float32), t + 1, rows[..., STATUS]
        done = (status == TERMINATED).astype(np.float32)
        over = (status != RUNNING) | (t >= self.most)
        return state, Taken(paid, done, status == FAILED, status == TRUNCATED, t, over)


def steps_of(world: World, skip: int, most: int, reset_key: Tensor, reward_key: Tensor) -> Steps:
    """Arguments as of ``Steps``."""
    plain = world.kind == "real" and isinstance(world.task, OutsideTask) and skip == 1
    return (OutsideSteps if plain else Steps)(world, skip, most, reset_key, reward_key)
