"""Trains agents for an experiment, in batches, and gives what they did as a data file has it."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from envolve.agents.common.result import REASONS, TrainResult
from envolve.agents.train import Hardware, train
from envolve.envs.section import EnvSection
from envolve.envs.task import Task, mark_of
from envolve.envs.worlds.file import WorldFile
from envolve.experiments.paper.common.learners import LearnerSettings
from envolve.outer.evaluate.networks import first_solved_steps, solved_steps
from envolve.outer.search.nes import RETEST, member_seeds

FIRST_TEST, RULE_FIRES = "steps_to_solved_first_test", "steps_to_solved_rule_fires"
AT_ONCE = 20  # agents per batch: what is said in between, and the memory; results do not depend on it
AT_ONCE_TORCH = 100  # where PyTorch trains all at once, more cost little more


def train_agents(
    learner: LearnerSettings,
    task: Task,
    kind: str,
    section: EnvSection,
    worlds: Tensor,
    seeds: np.ndarray,
    test_each: bool,
    threads: int,
    title: str,
) -> dict[str, list[Any]]:
    """One agent per row of worlds float32 [P, D] (of the task itself any D) -> quantities, each [P].

    kind: "real", "se" or "rn"; seeds: int64 [P]; test_each: test on the task after every training episode.
    """
    began = time.monotonic()
    parts: list[dict[str, list[Any]]] = []
    batch = AT_ONCE_TORCH if learner.icm is not None or task.on_host else AT_ONCE
    for lo in range(0, len(seeds), batch):
        rows = slice(lo, lo + batch)
        result = train(
            learner.name,
            learner.section,
            learner.vary,
            task,
            kind,
            section,
            worlds[rows],
            seeds[rows],
            test_each,
            learner.backend,
            Hardware(learner.device, threads),
            learner.icm,
        )
        parts.append({**quantities(result, test_each), **solved_on_task(result, learner, task, kind, test_each)})
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


def solved_on_task(
    result: TrainResult, learner: LearnerSettings, task: Task, kind: str, curves: bool
) -> dict[str, list[Any]]:
    """Steps until agents on the task solved it, counted both ways; nothing where ``steps_to_solved`` tells it, or where
    the task has no mark."""
    if kind != "real" or curves or mark_of(task.solved_reward) is None:
        return {}
    first = first_solved_steps(result, task.solved_reward, learner.section.early_out_num)
    fires = np.where(np.isnan(first), np.nan, result.train_steps)
    return {FIRST_TEST: first.tolist(), RULE_FIRES: fires.tolist()}


def steps_to_solved(q: dict[str, list[Any]], solved_reward: float, window: int = 10) -> dict[str, list[float]]:
    """Training steps of each run until it solved the task, counted both ways
    (``envolve.outer.evaluate.networks.solved_steps``): to the first test that solves of ``window`` in a row whose mean
    does, and to when the rule fires, their last one. NaN: never."""
    runs = zip(q["episode_return"], q["episode_length"])
    both = [solved_steps(list(r), list(n), solved_reward, window) for r, n in runs]
    return {FIRST_TEST: [first for first, _ in both], RULE_FIRES: [fires for _, fires in both]}


def agent_seeds(seed: int, worlds: Sequence[WorldFile], agents: int, on_task: int) -> np.ndarray:
    """Seeds of ``agents`` agents in each world, or without worlds of ``on_task`` on the task -> int64. A world's are
    its own, by its digest: else the hyperparameters that agents draw would be the same in all worlds."""
    if not worlds:
        return member_seeds(seed, RETEST, 0, on_task)
    return np.concatenate([member_seeds(seed, RETEST, 1 + w.digest(), agents) for w in worlds])


def each(worlds: Tensor, agents: int) -> Tensor:
    """worlds [W, D] -> [W * agents, D], the agents of one world together."""
    return worlds.repeat_interleave(agents, 0)


def each_path(worlds: Sequence[WorldFile] | None, agents: int) -> list[str]:
    """The world of each row of ``each``, by its file; none for agents on the task."""
    return [world.path for world in worlds or () for _ in range(agents)]


def no_world(count: int) -> Tensor:
    return torch.zeros(count, 1)
