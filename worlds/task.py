"""The task of a world, as agents that were trained in the world expect it."""

from __future__ import annotations

import os
from typing import Any

import gymnasium
from gymnasium import spaces, wrappers

from envolve.worlds.file import WorldError, ZooWorld
from envolve.worlds.shelf import open_world
from envolve.worlds.units import box, units_of

LIMIT = 1000  # steps of an episode where the task sets no limit


def make_task(name: str | os.PathLike[str], normalised: bool = False, **options: Any) -> gymnasium.Env[Any, Any]:
    """The environment of Gymnasium whose policy the world ``name`` teaches: with the wrappers that the world was made
    for, flat observations [F], and an end, after LIMIT steps where the task sets none. normalised: for agents of the
    world that ``gymnasium.make("envolve/NAME", normalised=True)`` makes; options: of ``gymnasium.make``. Raises
    WorldError, and what ``gymnasium.make`` raises."""
    world = open_world(name)
    env = task_of(world, **options)
    if not normalised:
        return env
    return wrappers.TransformObservation(env, units_of(world).of, box(env.observation_space.shape or ()))


def task_of(world: ZooWorld, **options: Any) -> gymnasium.Env[Any, Any]:
    """See :func:`make_task`."""
    env: gymnasium.Env[Any, Any] = gymnasium.make(world.task, **options)
    for name, arguments in world.wrappers:
        try:
            env = getattr(wrappers, name)(env, **arguments)
        except (TypeError, ValueError, AssertionError) as e:
            raise WorldError(
                f"{world.task}: wrapper {name} {arguments}: {(str(e).splitlines() or [''])[0]:.200}"
            ) from e
    if not isinstance(env.observation_space, spaces.Box) or len(env.observation_space.shape) != 1:
        env = wrappers.FlattenObservation(env)
    has_end = env.spec is not None and env.spec.max_episode_steps
    return env if has_end else wrappers.TimeLimit(env, LIMIT)
