"""Film of agents in an evolved world beside the task: fresh agents are trained in the world, then play in both.

Of a reward network, whose dynamics are the task's, the other side is agents trained on the task for as many steps.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from envolve.agents.common.result import OK
from envolve.agents.greedy import Policy, policies
from envolve.agents.train import of_one_step_episodes
from envolve.core.cleaning import printable
from envolve.envs.task import Task
from envolve.envs.worlds.file import WorldFile
from envolve.envs.worlds.world import RealTask, World
from envolve.outer.config.problem import learner, learner_key
from envolve.outer.evaluate.networks import BUDGET, PROXY, REAL_BUDGET, on_task, train_members
from envolve.outer.film.bodies import ROBOTS
from envolve.outer.film.drawing import Drawing
from envolve.outer.film.tiles import tiled
from envolve.outer.reporting.names import plain_name
from envolve.outer.search.nes import RETEST, member_seeds
from envolve.outer.shapers.video import VideoError, captioned

WIDTH = 300  # px, of one picture
SECONDS = {  # of a step
    "CartPole": 0.02,
    "Pendulum": 0.05,
    "Acrobot": 0.2,
    "MountainCar": 1 / 30,
    "MountainCarContinuous": 1 / 30,
    "LunarLander": 0.02,
    "LunarLanderContinuous": 0.02,
    "BipedalWalker": 0.02,
    **{name: model.dt for name, model in ROBOTS.items()},
}
CONTEXT = 0.4  # s that one context of a bandit, or one cell, is shown
MOST_FPS = 20
HOLD = 0.8  # s that the last picture stands


class Episode(NamedTuple):
    """observations: float [T, F], of which the last has no action; actions: [T - 1]; rewards: float [T - 1]."""

    observations: np.ndarray
    actions: list[Any]
    rewards: np.ndarray


class Scene(NamedTuple):
    """One tile: an episode and the words below it."""

    title: str
    episode: Episode
    alone: bool  # every step is an episode of its own


def trained(
    config: dict[str, Any], file: WorldFile, seed: int, count: int, threads: int, mode: str
) -> tuple[list[Policy], np.ndarray]:
    """Agents trained in the world, or on the task -> their policies and steps. Those that diverged are left out. Raises
    VideoError if all did."""
    seeds = member_seeds(seed ^ file.digest(), RETEST, 0, count)
    result = train_members(config, file.flat.expand(count, -1), torch.from_numpy(seeds), mode, threads)
    fine = np.flatnonzero(result.status == OK)
    if not len(fine):
        raise VideoError(f"{file.path}: all {count} agents diverged")
    name, section, vary = learner(config)
    if mode == REAL_BUDGET:
        section = on_task(name, section, file.section.contextual_bandit)
    elif file.kind == "se" and file.section.contextual_bandit:
        section = of_one_step_episodes(section, vary)  # without TD3's second critic
    if vary is not None and mode != PROXY:
        vary = dataclasses.replace(vary, train_steps_factor=1.0)
    found = policies(name, section, vary, file.task(), result.weights[fine], seeds[fine])
    return found, result.train_steps[fine]


def play(task: Task, world: World, policy: Policy, seed: int, steps: int, alone: bool) -> Episode:
    """One episode, of at most ``steps`` steps. alone: the world's episodes have one step; then so many of them."""
    rng = np.random.default_rng(seed)

    def begin() -> torch.Tensor:
        return world.reset(torch.from_numpy(rng.random((1, 1, world.reset_uniforms), dtype=np.float32)))

    state = begin()
    seen, acts, paid = [world.observe(state)[0, 0].numpy().astype(float)], [], []
    for _ in range(min(steps, task.max_steps)):
        with torch.no_grad():
            action = policy(world.observe(state))
            state, reward, done, failed = world.step(state, action)
        acts.append(action[0, 0].item() if task.num_actions else action[0, 0].numpy().copy())
        paid.append(float(reward[0, 0]))
        over = bool(done[0, 0] > 0.5) or bool(failed[0, 0])
        if alone:
            state, over = begin(), False
        seen.append(world.observe(state)[0, 0].numpy().astype(float))
        if over:
            break
    return Episode(np.stack(seen), acts, np.asarray(paid))


def scenes_of(config: dict[str, Any], file: WorldFile, seed: int, count: int, steps: int, threads: int) -> list[Scene]:
    """Two tiles for every agent: in the world, and on the task."""
    task, world, real = file.task(), file.world(), RealTask(file.task(), 1, for_learning=False)
    found, needed = trained(config, file, seed, count, threads, BUDGET if file.budget else PROXY)
    bandit = file.section.contextual_bandit and file.kind == "se"
    others: Sequence[Policy] = found
    if file.kind == "rn":
        other_config = {**config, "agents": {k: dict(v) for k, v in config["agents"].items()}}
        own = learner_key(config["agents"], learner(config)[0])
        other_config["agents"].setdefault(own, {})["train_steps"] = int(max(1, np.median(needed)))
        others, _ = trained(other_config, file, seed, count, threads, REAL_BUDGET)
    out = []
    for i, policy in enumerate(found):
        key, after = seed * 1000 + i, f"seed {seed}, agent {i + 1}, {needed[i]:,} steps"
        if file.kind == "rn":
            out.append(Scene(f"evolved reward: {after}", play(task, real, policy, key, steps, False), False))
            if i < len(others):
                out.append(Scene("the task's reward", play(task, real, others[i], key, steps, False), False))
            continue
        inside = play(task, world, policy, key, max(1, steps // 8) if bandit else steps, bandit)
        out.append(Scene(f"in the world: {after}", inside, bandit))
        out.append(Scene("on the task", play(task, real, policy, key, steps, False), False))
    return out


def film_scenes(path: Path, task: Task, scenes: Sequence[Scene], heading: str) -> int:
    """Writes a film that loops, in which each scene has its tile -> the number of pictures. Raises VideoError."""
    import imageio.v2 as imageio

    dt = SECONDS.get(plain_name(task.name), CONTEXT)
    every = max(1, round(1 / (MOST_FPS * dt)))
    fps = 1 / (dt * every)
    drawings = [Drawing(task) for _ in scenes]  # a camera that follows has one scene
    lasts = {i: max(1, round(CONTEXT / dt)) if s.alone and dt < CONTEXT else 1 for i, s in enumerate(scenes)}
    length = max((len(s.episode.observations)) * lasts[i] for i, s in enumerate(scenes))
    times = [*range(0, length, every)]
    times += [length] * round(HOLD * fps)
    heading = printable(heading)
    ways = [drawing.moved(s.episode.observations) for drawing, s in zip(drawings, scenes)]
    tiles: dict[tuple[int, int], np.ndarray] = {}  # the newest picture of every scene

    def tile(i: int, t: int) -> np.ndarray:
        e, k = scenes[i].episode, min(t // lasts[i], len(scenes[i].episode.observations) - 1)
        if (i, k) not in tiles:
            for old in [key for key in tiles if key[0] == i]:
                del tiles[old]
            action = e.actions[min(k, len(e.actions) - 1)]
            paid = f"step {k}, return so far {e.rewards[:k].sum():.4g}"
            if scenes[i].alone:
                paid = f"context {k + 1}, reward {e.rewards[min(k, len(e.rewards) - 1)]:.3g}"
            picture = drawings[i].picture(e.observations[k], action, WIDTH, ways[i][k])
            over = k == len(e.observations) - 1 and len(e.rewards) < task.max_steps and not scenes[i].alone
            room = np.full((picture.shape[0] + 40, WIDTH, 3), 255, np.uint8)
            room[: picture.shape[0]] = picture
            upper = captioned(room[:-20], scenes[i].title)
            room[:-20] = upper
            tiles[i, k] = captioned(room, paid + (", the end" if over else ""))
        return tiles[i, k]

    gif = path.suffix.lower() == ".gif"
    options: dict[str, Any] = {"duration": 1000 / fps, "loop": 0} if gif else {"fps": fps}
    try:
        writer: Any = imageio.get_writer(str(path), **options)
        with writer:
            for t in times:
                writer.append_data(tiled([tile(i, t) for i in range(len(scenes))], 2, heading))
    except OSError as e:
        raise VideoError(f"{path}: {e.strerror or e}") from e
    finally:
        for drawing in drawings:
            drawing.close()
    return len(times)
