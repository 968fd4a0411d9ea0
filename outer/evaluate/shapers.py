"""Shapers as worlds of the outer loop: the meaning of the flat vector, and the evaluation of a chunk in one simulator.

A world is (i, u_1 .. u_D): the index i of a candidate file of the configuration, and for every number p in its PARAMS
the relative change u: the value is p + u |p|, or u if the file says 0. A graph file defines its own unit. So one
noise_std fits numbers of any size, and u = 0 is the file as written. Python 3.8.
"""

from __future__ import annotations

from typing import Any, Dict, List, Mapping

import numpy as np
import torch
from torch import Tensor

from envolve.agents.shaped.training import make_envs, make_learner, train_shaped
from envolve.envs.shaping.candidate import Candidate
from envolve.envs.shaping.section import candidates_of
from envolve.outer.config.problem import gtn_section, learner, shaped_section
from envolve.outer.names import HUMAN


def world_length(candidates: List[Candidate]) -> int:
    """Length of the longest vector: 1 + D."""
    return 1 + max(0 if c.params is None else len(c.params) for c in candidates)


def params_of(candidate: Candidate, u: Tensor) -> Tensor:
    """Parameter values for u [D], float32 [D]."""
    own = candidate.params
    assert own is not None
    scales = torch.where(own == 0, torch.ones_like(own), own.abs()) if candidate.scales is None else candidate.scales
    return own + u[: len(own)] * scales


def candidate_of(candidates: List[Candidate], world: Tensor) -> Candidate:
    """Candidate of a world [1 + D]; a world of length 1 is a file as written."""
    candidate = candidates[int(world[0])]
    if candidate.params is None or len(world) == 1:
        return candidate
    return candidate.with_params(params_of(candidate, world[1:]))


def evaluate_shapers(
    config: Mapping[str, Any], worlds: Tensor, seeds: Tensor, human: bool, threads: int
) -> Dict[str, Any]:
    """Train one agent per member, all in one simulator -> as ``envolve.outer.evaluate.networks.evaluate``.

    worlds: float32 [p, 1 + D]; seeds: int64 [p], of environments and agents; human: the task's own shapers instead.
    """
    section, gtn = shaped_section(config), gtn_section(config)
    name, hyper, _ = learner(config)
    known = candidates_of(section, config["env_name"])
    members = [Candidate(HUMAN) if human else candidate_of(known, world) for world in worlds]
    keys = seeds.tolist()
    envs = make_envs(
        config["env_name"], members, section.num_envs_per_shaper, keys, section.engine, threads, config["device"]
    )
    try:
        agents = make_learner(name, envs, hyper, seeds.numpy(), gtn.backend, threads)
        result = train_shaped(envs, agents, section.iterations)
    finally:
        envs.task.sim.close()  # a process has one simulation of Isaac Lab at a time
    steps = np.array([result.steps] * len(members))
    return {
        "score": torch.from_numpy(result.score),
        "mean_return": torch.from_numpy(result.score),
        "train_steps": torch.from_numpy(steps),
        "episodes": torch.from_numpy(np.sum([p.episodes for p in result.curve], axis=0)),
        "updates": torch.from_numpy(np.array([len(result.curve)] * len(members))),
        "real_steps": torch.from_numpy(steps),
        "first_solved_steps": torch.full((len(members),), float("nan"), dtype=torch.float64),
        "test_returns": torch.from_numpy(result.episode_score),
        "reason": ["" if f is None else str(f) for f in result.failures],
    }
