"""Inner loop as called by the outer loop: worlds in, scores out. Workers run this.

A member's result depends on the configuration, its world and its seed alone: not on the chunk, the worker or the clock.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Dict, List, Mapping, Tuple

import numpy as np
import torch
from torch import Tensor

from envolve.agents.common.result import OK, REASONS, TrainResult
from envolve.agents.common.sections import LearnerSection
from envolve.agents.train import Hardware, train
from envolve.envs.outside.define import register_of
from envolve.envs.outside.task import OutsideTask
from envolve.envs.task import Task, make_task, mark_of
from envolve.envs.worlds.best_paid import greedy
from envolve.envs.worlds.synthetic import synthetic_world
from envolve.outer.config.problem import curiosity, env_section, gtn_section, learner
from envolve.outer.config.section import RN, SHAPER, GTNSection
from envolve.outer.distil.policy import play
from envolve.outer.goals.evolve_sections import SECTION as GOALS

PROXY, BUDGET, EARLY_OUT = "proxy", "proxy_budget", "proxy_early_out"
DISTIL = "distil"  # no world, but an expert on the task, and the world that it teaches
REAL, REAL_BUDGET = "real", "real_budget"
ON_REAL = (REAL, REAL_BUDGET)
MODES = {
    PROXY: "train in the world, as the outer loop does",
    BUDGET: "train in the world for the budget that it was evolved for",
    EARLY_OUT: "train in the world until its own early-out rule fires, without a budget",
    REAL: "train on the real task until it is solved",
    REAL_BUDGET: "train on the real task until it is solved, for train_steps at most",
}
# A bandit's episodes have one step, so a decay per episode is a different schedule on the task. There agents explore as
# the published ones do (experiments/paper/common/learners.py).
GREEDY = {"eps_init": 1.0, "eps_min": 0.01, "eps_decay": 0.9, "init_episodes": 10}
PUBLISHED_EXPLORATION: Dict[str, Dict[str, Any]] = {"ddqn": GREEDY, "duelingddqn": GREEDY}


def evaluate(config: Mapping[str, Any], worlds: Tensor, seeds: Tensor, mode: str, threads: int = 1) -> Dict[str, Any]:
    """Train and test one agent per member.

    config: a resolved configuration; worlds: float32 [p, D]; seeds: int64 [p]; mode: a key of ``MODES``, or
    ``DISTIL``, which also returns ``world`` (outer/distil/begin.py).

    Returns tensors [p]: ``score`` float64 (NaN where the member failed), ``mean_return``, ``train_steps``,
    ``episodes``, ``updates``, ``real_steps``; ``first_solved_steps`` float64 (see there; ``train_steps`` count to when
    the rule fires); ``test_returns`` [p, T]; and ``reason``, a list of p strings, empty for members that are fine.
    """
    if "plugins" in config:
        from envolve.outer.plugins import use  # what is executed, and from where: envolve.core.plugins

        use(config)
    register_of(config)
    if mode == DISTIL:
        from envolve.outer.distil.begin import distil  # only if needed: few runs begin so

        return distil(config, seeds, threads)
    if mode not in MODES:
        raise ValueError(f"mode {mode!r}: expected one of {', '.join(MODES)}")
    if GOALS in config:
        from envolve.outer.evaluate.goals import evaluate_goals

        return evaluate_goals(config, worlds, seeds, threads)
    if gtn_section(config).synthetic_env_type == SHAPER:
        from envolve.outer.evaluate.shapers import evaluate_shapers  # only if needed: it loads a physics engine

        return evaluate_shapers(config, worlds, seeds, mode in ON_REAL, threads)
    values = values_of(config, train_members(config, worlds, seeds, mode, threads), mode)
    if gtn_section(config).best_paid_share and mode not in ON_REAL:
        _add_best_paid(config, worlds, seeds, values)
    return values


def _add_best_paid(config: Mapping[str, Any], worlds: Tensor, seeds: Tensor, values: Dict[str, Any]) -> None:
    """Makes a bandit's score (1 - c) R + c B, with R of its agent and B the mean return on the task of the action that
    the world pays most for, in as many episodes. c: ``best_paid_share``. Adds the steps of these episodes."""
    share, section = gtn_section(config).best_paid_share, env_section(config)
    task = make_task(config["env_name"], section.test_steps or section.max_steps, section.solved_reward)
    policies = greedy(synthetic_world(task, section, worlds))
    played = play(task, policies, seeds.numpy(), learner(config)[1].test_episodes)
    score = (1 - share) * values["score"] + share * torch.from_numpy(played.returns.mean(1))
    for i in torch.nonzero(torch.isfinite(values["score"]) & ~torch.isfinite(score)).flatten().tolist():
        values["reason"][i] = "an episode of the action that the world pays most for failed"
    values["score"] = score
    values["real_steps"] = values["real_steps"] + torch.from_numpy(played.steps)


def on_task(name: str, hyper: LearnerSection, bandit: bool) -> LearnerSection:
    """Learner with its settings for the task, for comparison with agents in worlds. bandit: those train in contextual
    bandits."""
    if not bandit:
        return hyper
    known = {f.name: f.default for f in dataclasses.fields(hyper)}
    usual = PUBLISHED_EXPLORATION.get(name) or {k: known[k] for k in GREEDY if k in known}
    return dataclasses.replace(hyper, **usual)


def exploration(name: str, hyper: LearnerSection, bandit: bool) -> str:
    """Describes where agents on the task explore differently from those in worlds; "": nowhere."""
    own = vars(on_task(name, hyper, bandit))
    if own == vars(hyper):
        return ""
    keys = [k for k in GREEDY if k in own]
    source = "published" if name in PUBLISHED_EXPLORATION else "the learner's defaults"
    values = ", ".join(f"{k} {own[k]:g}" for k in keys)
    return f"{name} with an exploration of its own ({source}: {values}), as the bandit's is for episodes of one step"


def train_members(config: Mapping[str, Any], worlds: Tensor, seeds: Tensor, mode: str, threads: int = 1) -> TrainResult:
    """Trains the agents of SEs and RNs for ``evaluate``."""
    gtn, section = gtn_section(config), env_section(config)
    name, hyper, vary = learner(config)
    task = make_task(config["env_name"], section.max_steps, section.solved_reward)
    task.test_steps = min(section.test_steps or task.max_steps, task.max_steps)
    kind = "rn" if gtn.synthetic_env_type == RN else "se"
    # An RN's agent walks the real task anyway: it is tested after every episode, whatever its reward.
    test_each = kind == "rn" or (kind == "se" and gtn.se_test_on_real and mode not in ON_REAL)
    if mode in ON_REAL:
        kind, hyper = "real", on_task(name, hyper, section.contextual_bandit)
    if mode in (EARLY_OUT, REAL):
        hyper = dataclasses.replace(hyper, train_steps=0)
    if mode != PROXY and vary is not None:
        vary = dataclasses.replace(vary, train_steps_factor=1.0)
    result = train(
        name,
        hyper,
        vary,
        task,
        kind,
        section,
        worlds,
        seeds.numpy(),
        test_each,
        gtn.backend,
        Hardware(config["device"], threads),
        curiosity(config),
    )
    if isinstance(task, OutsideTask):
        said = next(iter(task.complaints.values()), "")
        for member in np.flatnonzero((result.status == OK) & np.isnan(result.test_return).any(1)).tolist():
            result.complaints.setdefault(member, f"a test on the task failed: {said}")
    return result


def values_of(config: Mapping[str, Any], result: TrainResult, mode: str = PROXY) -> Dict[str, Any]:
    """Converts trained agents to the return value of ``evaluate``."""
    gtn, section = gtn_section(config), env_section(config)
    task = make_task(config["env_name"], section.max_steps, section.solved_reward)
    returns = result.test_return.mean(1)
    score = np.where(result.status == 0, scores(result, gtn, task, returns), np.nan)
    bad = ~np.isfinite(score) & (result.status == 0)
    reasons: List[str] = [REASONS[s] for s in result.status]
    for i in np.flatnonzero(bad):
        reasons[i] = "the score is not finite"
    for member, complaint in result.complaints.items():
        reasons[member] = complaint or reasons[member]
    # the rule that ends training when the task is solved is of those that see the task after every episode
    sees_task = gtn.synthetic_env_type == RN or gtn.se_test_on_real or mode in ON_REAL
    first = first_solved_steps(result, task.solved_reward, learner(config)[1].early_out_num)
    return {
        "score": torch.from_numpy(np.where(bad, np.nan, score)),
        "mean_return": torch.from_numpy(returns),
        "train_steps": torch.from_numpy(result.train_steps),
        "episodes": torch.from_numpy(result.episodes),
        "updates": torch.from_numpy(result.updates),
        "real_steps": torch.from_numpy(result.real_steps),
        "first_solved_steps": torch.from_numpy(first if sees_task else np.full(len(first), np.nan)),
        "test_returns": torch.from_numpy(result.test_return),
        "reason": reasons,
    }


def first_solved_steps(result: TrainResult, solved_reward: float, window: int) -> np.ndarray:
    """Training steps until the task was first solved -> float64 [P], NaN: never. Counts to the first test in the first
    solving window (``window`` consecutive episodes with a mean return of at least solved_reward) that itself reaches
    solved_reward. The early-out rule fires at the end of that window."""
    out = np.full(len(result.train_steps), np.nan)
    for i, (returns, lengths) in enumerate(zip(result.episode_return, result.episode_length)):
        begun = int((lengths > 0).sum())
        out[i] = solved_steps(returns[:begun].tolist(), lengths[:begun].tolist(), solved_reward, window)[0]
    return out


def solved_steps(returns: List[float], lengths: List[float], solved_reward: float, window: int) -> Tuple[float, float]:
    """Training steps of one agent until it solved the task, counted in two ways: to the first test of the first solving
    window that reaches solved_reward, and to the end of that window, where the early-out rule fires. NaN: never.

    returns, lengths: the test after each training episode, and the episode's steps. A window with a test that has no
    finite return solves nothing.
    """
    if len(returns) < window:
        return np.nan, np.nan
    tests = np.asarray(returns, np.float64)
    lost = ~np.isfinite(tests)  # counted, not summed: a sum would not be finite from there on
    sums, losses = np.cumsum([0.0, *np.where(lost, 0.0, tests)]), np.cumsum([0, *lost])
    means = (sums[window:] - sums[:-window]) / window
    solved = np.flatnonzero((means >= solved_reward) & (losses[window:] == losses[:-window]))
    if not len(solved):
        return np.nan, np.nan
    ends = np.cumsum(lengths)
    # a good window may begin with a bad test
    last = solved[0] + window - 1
    first = next((i for i in range(solved[0], last) if returns[i] >= solved_reward), last)
    return float(ends[first]), float(ends[last])


def scores(result: TrainResult, gtn: GTNSection, task: Task, returns: np.ndarray) -> np.ndarray:
    """Score of each member, higher is better -> float64 [P]. An SE's score is the mean test return R
    (``_add_best_paid``: of a bandit also another one); an RN's:

    reward_threshold  -sum_e L_e - unsolved_weight max(0, solved_reward - R); R where solved_reward is out of reach
    auc               sum_e r_e L_e, with r_e the mean test return after training episode e and L_e its length
    mean_return       R
    """
    if gtn.synthetic_env_type != RN or gtn.rn_objective == "mean_return":
        return returns
    if gtn.rn_objective == "reward_threshold" and mark_of(task.solved_reward) is None:
        return returns
    if gtn.rn_objective == "reward_threshold":
        return -result.train_steps - gtn.unsolved_weight * np.maximum(0.0, task.solved_reward - returns)
    # Episodes of length 0 are padding. A test that failed is none: its NaN makes the score NaN, and not better.
    tested = np.where(result.episode_length > 0, result.episode_return, 0.0)
    return (tested.astype(np.float64) * result.episode_length).sum(1)
