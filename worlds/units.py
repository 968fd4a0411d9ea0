"""Observations in units of a world's own contexts: (o - mean) / deviation, clipped, as VecNormalize shows them
(https://stable-baselines3.readthedocs.io/en/master/guide/vec_envs.html#vecnormalize).

VecNormalize learns mean and deviation from the observations so far. In a bandit these do not depend on the agent, so
here they are constants of the world, for learners of any library. Axes: N contexts, F features.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from gymnasium import spaces

from envolve.worlds.file import ZooWorld

CONTEXTS = 10_000  # as many as an agent sees
CLIP, EPSILON = 10.0, 1e-8  # of VecNormalize
SEED = 0


class Units(NamedTuple):
    """float64 [F] each, in the units of the task."""

    mean: np.ndarray
    deviation: np.ndarray

    def of(self, observation: np.ndarray) -> np.ndarray:
        """Flat observations [..., F] of the task -> float32 [..., F]."""
        return np.clip((observation - self.mean) / self.deviation, -CLIP, CLIP).astype(np.float32)


def units_of(world: ZooWorld) -> Units:
    """Raises FloatingPointError: a network of the world overflows."""
    u = np.random.default_rng(SEED).random((CONTEXTS, world.bandit.uniforms))
    contexts = world.bandit.contexts(u)[0].astype(np.float64)
    mean = contexts.mean(0) * world.scale + world.mean
    return Units(mean, np.sqrt(contexts.var(0) * world.scale**2 + EPSILON))


def normalised(world: ZooWorld) -> ZooWorld:
    """The world whose agents see normalised observations. Raises FloatingPointError."""
    units = units_of(world)
    return world._replace(
        mean=(world.mean - units.mean) / units.deviation,
        scale=world.scale / units.deviation,
        observation=box(world.observation.shape),
        bound=CLIP,
    )


def box(shape: tuple[int, ...]) -> spaces.Box:
    """Space of normalised observations."""
    return spaces.Box(-CLIP, CLIP, shape, np.float32)
