"""Assignment of learners and test lengths to members: meta-training over several learners
(https://arxiv.org/abs/2406.12589, where they take turns by the generation).

A chunk carries the configuration of its members, so a worker knows nothing of this: it reads agent_name and test_steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from envolve.outer.config import problem
from envolve.outer.config.section import GTNSection


def inner_agents(gtn: GTNSection) -> list[str]:
    """All learners of the inner loop, the main one first."""
    return [gtn.agent_name, *gtn.other_agents.split()]


def inner_learners(gtn: GTNSection) -> list[str]:
    """The kinds of ``inner_agents``: "ddqn" for DDQN_vary."""
    return [problem.split_agent_name(name).learner for name in inner_agents(gtn)]


def horizon(gtn: GTNSection, max_steps: int, generation: int) -> int:
    """Steps of a test in this generation (from 1), for members that are compared with each other: grows linearly from
    horizon_start to max_steps, which it reaches in generation horizon_generations + 1."""
    share = (generation - 1) / gtn.horizon_generations if gtn.horizon_generations else 1.0
    return max_steps if share >= 1 else round(gtn.horizon_start + share * (max_steps - gtn.horizon_start))


def turns(count: int, learners: int, generation: int) -> np.ndarray:
    """The learner of each of ``count`` members of one role -> int64 [count]: member i and generation g have learner
    (i + g) modulo ``learners``, so that every generation hears all of them, and every member of a pair the same."""
    return (np.arange(count) + generation) % learners


def variants(
    data: dict[str, Any], groups: Sequence[tuple[int, bool]], generation: int
) -> tuple[list[dict[str, Any]], np.ndarray]:
    """Configurations of a generation's members, and the index of each member's configuration, int64 [P].

    groups: (members, whether the horizon of their tests grows), in the members' order.
    """
    gtn, section = problem.gtn_section(data), problem.env_section(data)
    names = inner_agents(gtn)
    full = section.test_steps or section.max_steps or 0  # a resolved configuration has max_steps
    steps = horizon(gtn, full, generation)
    which = np.concatenate(
        [turns(n, len(names), generation) + len(names) * (grows and steps < full) for n, grows in groups]
    )
    configs = [with_agent(data, name) for name in names]
    return configs + [with_test_steps(c, steps) for c in configs], which


def with_agent(data: dict[str, Any], name: str) -> dict[str, Any]:
    gtn = {**data["agents"]["gtn"], "agent_name": name}
    return {**data, "agents": {**data["agents"], "gtn": gtn}}


def with_test_steps(data: dict[str, Any], steps: int) -> dict[str, Any]:
    section = {**data["envs"][data["env_name"]], "test_steps": steps}
    return {**data, "envs": {**data["envs"], data["env_name"]: section}}
