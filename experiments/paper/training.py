"""Trains agents for an experiment, in batches, and gives what they did as a data file has it."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from agents.result import REASONS, TrainResult
from agents.train import train
from envs.section import EnvSection
from envs.task import Task
from envs.world_file import WorldFile
from experiments.paper.learners import Learner

AT_ONCE = 20  # agents per batch: what is said in between, and the memory; results do not depend on it
AT_ONCE_TORCH = 100  # where PyTorch trains all at once, more cost little more


def train_agents(
    learner: Learner, task: Task, kind: str, section: EnvSection, worlds: Tensor, seeds: np.ndarray, test_each: bool,
    threads: int, title: str,
) -> dict[str, list[Any]]:  # fmt: skip
    """One agent per row of worlds float32 [P, D] (of the task itself any D) -> quantities, each [P].

    kind: "real", "se" or "rn"; seeds: int64 [P]; test_each: test on the task after every training episode.
    """
    began = time.monotonic()
    parts: list[dict[str, list[Any]]] = []
    batch = AT_ONCE_TORCH if learner.icm is not None or task.on_host else AT_ONCE
    for lo in range(0, len(seeds), batch):
        rows = slice(lo, lo + batch)
        result = train(
            learner.name, learner.section, learner.vary, task, kind, section, worlds[rows], seeds[rows], test_each,
            learner.backend, learner.device, threads, learner.icm,
        )  # fmt: skip
        parts.append(quantities(result, test_each))
        done, seconds = min(lo + batch, len(seeds)), time.monotonic() - began
        print(f"{title}: {done} of {len(seeds)} {learner.title} agents, {seconds:.0f} s", file=sys.stderr)
    return {name: [value for part in parts for value in part[name]] for name in parts[0]}


def quantities(result: TrainResult, curves: bool) -> dict[str, list[Any]]:
    """curves: with the test return after every training episode."""
    fine = result.status == 0
    out: dict[str, list[Any]] = {
        "return": np.where(fine, result.test_return.mean(1), np.nan).tolist(),
        "train_steps": result.train_steps.tolist(),
        "episodes": result.episodes.tolist(),
        "failed": [REASONS[s] for s in result.status],
    }
    if curves:
        begun = (result.episode_length > 0).sum(1)
        out["episode_return"] = [row[:n] for row, n in zip(result.episode_return, begun)]
        out["episode_length"] = [row[:n].tolist() for row, n in zip(result.episode_length, begun)]
    else:
        out["test_returns"] = [row if ok else [] for row, ok in zip(result.test_return.tolist(), fine)]
    return out


def steps_to_solved(q: dict[str, list[Any]], solved_reward: float, window: int = 10) -> list[float]:
    """Training steps of each run until it solved the task: until a test that solves is the first of ``window`` in a row
    whose mean is at least solved_reward; NaN if none is. As the early-out rule says it, but when it began to be so."""
    out = []
    for returns, lengths in zip(q["episode_return"], q["episode_length"]):
        sums = np.cumsum([0.0, *returns])
        means = (sums[window:] - sums[:-window]) / window if len(returns) >= window else np.zeros(0)
        solves = np.asarray(returns[: len(means)]) >= solved_reward  # a good window may begin with a bad test
        first = np.flatnonzero((means >= solved_reward) & solves)
        out.append(float(np.sum(lengths[: first[0] + 1])) if len(first) else math.nan)
    return out


def each(worlds: Tensor, agents: int) -> Tensor:
    """worlds [W, D] -> [W * agents, D], the agents of one world together."""
    return worlds.repeat_interleave(agents, 0)


def each_path(worlds: Sequence[WorldFile] | None, agents: int) -> list[str]:
    """The world of each row of ``each``, by its file; none for agents on the task."""
    return [world.path for world in worlds or () for _ in range(agents)]


def no_world(count: int) -> Tensor:
    return torch.zeros(count, 1)
