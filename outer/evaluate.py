"""The inner loop as the outer loop sees it: worlds in, scores out. This is what a worker runs.

A member's result depends on the configuration, its world and its seed alone: not on the chunk, the worker or the clock.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Dict, List, Mapping

import numpy as np
import torch
from torch import Tensor

from agents.result import REASONS, TrainResult
from agents.train import train
from envs.task import Task, make_task
from outer.problem import curiosity, env_section, gtn_section, learner
from outer.section import RN, SHAPER, GTNSection

PROXY, BUDGET, EARLY_OUT = "proxy", "proxy_budget", "proxy_early_out"
REAL, REAL_BUDGET = "real", "real_budget"
ON_REAL = (REAL, REAL_BUDGET)
UNSOLVABLE = 1e9  # a solved_reward from here on means that the task has no such mark
MODES = {
    PROXY: "train in the world, as the outer loop does",
    BUDGET: "train in the world for the budget that it was evolved for",
    EARLY_OUT: "train in the world until its own early-out rule fires, without a budget",
    REAL: "train on the real task until it is solved",
    REAL_BUDGET: "train on the real task until it is solved, for train_steps at most",
}


def evaluate(config: Mapping[str, Any], worlds: Tensor, seeds: Tensor, mode: str, threads: int = 1) -> Dict[str, Any]:
    """Train and test one agent per member.

    config: a resolved configuration; worlds: float32 [p, D]; seeds: int64 [p]; mode: a key of ``MODES``.

    Returns tensors [p]: ``score`` float64 (NaN where the member failed), ``mean_return``, ``train_steps``,
    ``episodes``, ``updates``, ``real_steps``; ``test_returns`` [p, T]; and ``reason``, a list of p strings, empty for
    members that are fine.
    """
    if mode not in MODES:
        raise ValueError(f"mode {mode!r}: expected one of {', '.join(MODES)}")
    if gtn_section(config).synthetic_env_type == SHAPER:
        from outer.shapers import evaluate_shapers  # the physics engine is for those who need it

        return evaluate_shapers(config, worlds, seeds, mode in ON_REAL, threads)
    return judge(config, train_members(config, worlds, seeds, mode, threads))


def train_members(config: Mapping[str, Any], worlds: Tensor, seeds: Tensor, mode: str, threads: int = 1) -> TrainResult:
    """The agents of SEs and RNs, as ``evaluate`` trains them."""
    gtn, section = gtn_section(config), env_section(config)
    name, hyper, vary = learner(config)
    task = make_task(config["env_name"], section.max_steps, section.solved_reward)
    task.test_steps = min(section.test_steps or task.max_steps, task.max_steps)
    kind = "rn" if gtn.synthetic_env_type == RN else "se"
    # An RN's agent walks the real task anyway: it is tested after every episode, whatever its reward.
    test_each = kind == "rn" or (kind == "se" and gtn.se_test_on_real and mode not in ON_REAL)
    if mode in ON_REAL:
        kind = "real"
    if mode in (EARLY_OUT, REAL):
        hyper = dataclasses.replace(hyper, train_steps=0)
    if mode != PROXY and vary is not None:
        vary = dataclasses.replace(vary, train_steps_factor=1.0)
    return train(
        name, hyper, vary, task, kind, section, worlds, seeds.numpy(), test_each, gtn.backend, config["device"],
        threads, curiosity(config),
    )  # fmt: skip


def judge(config: Mapping[str, Any], result: TrainResult) -> Dict[str, Any]:
    """What ``evaluate`` returns of agents that were trained."""
    gtn, section = gtn_section(config), env_section(config)
    task = make_task(config["env_name"], section.max_steps, section.solved_reward)
    returns = result.test_return.mean(1)
    score = np.where(result.status == 0, scores(result, gtn, task, returns), np.nan)
    bad = ~np.isfinite(score) & (result.status == 0)
    reasons: List[str] = [REASONS[s] for s in result.status]
    for i in np.flatnonzero(bad):
        reasons[i] = "the score is not finite"
    return {
        "score": torch.from_numpy(np.where(bad, np.nan, score)),
        "mean_return": torch.from_numpy(returns),
        "train_steps": torch.from_numpy(result.train_steps),
        "episodes": torch.from_numpy(result.episodes),
        "updates": torch.from_numpy(result.updates),
        "real_steps": torch.from_numpy(result.real_steps),
        "test_returns": torch.from_numpy(result.test_return),
        "reason": reasons,
    }


def scores(result: TrainResult, gtn: GTNSection, task: Task, returns: np.ndarray) -> np.ndarray:
    """K of spec 2.2, higher is better -> float64 [P]. An SE's score is the mean test return R; an RN's:

    reward_threshold  -sum_e L_e - unsolved_weight max(0, solved_reward - R); R where solved_reward is out of reach
    auc               sum_e r_e L_e, with r_e the mean test return after training episode e and L_e its length
    mean_return       R
    """
    if gtn.synthetic_env_type != RN or gtn.rn_objective == "mean_return":
        return returns
    if gtn.rn_objective == "reward_threshold" and task.solved_reward >= UNSOLVABLE:
        return returns
    if gtn.rn_objective == "reward_threshold":
        return -result.train_steps - gtn.unsolved_weight * np.maximum(0.0, task.solved_reward - returns)
    return (np.nan_to_num(result.episode_return).astype(np.float64) * result.episode_length).sum(1)
