"""Starts and goals as worlds of the outer loop: the meaning of the flat vector, and the training of a chunk.

A world is (plain, u_1 .. u_D). A member with plain 1 has the task's own starts and goals, whatever u is; one with 0 has
those of the families at u (``envs/goal/shapers.py``). Python 3.8.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any, Dict, Mapping, NamedTuple

import numpy as np
import torch
from torch import Tensor

from envolve.agents.goal.crl_train import GoalSection, GoalTraining
from envolve.envs.goal.shapers import Shaped, ShapeSpace
from envolve.envs.goal.task import make_goal_task
from envolve.outer.goals.evolve_sections import SECTION, EvolveSection, Inner
from envolve.outer.goals.sections import AGENTS

DIVERGED = "diverged"  # how the reason of a member begins that did
WHOLE = 10**6  # members of a chunk that holds a whole generation


class GoalProblem(NamedTuple):
    """What members train in."""

    inner: Inner
    evolve: EvolveSection
    learner: GoalSection

    def space(self) -> ShapeSpace:
        """Raises ValueError."""
        return ShapeSpace(make_goal_task(self.inner.env_name), self.evolve.goal_family, self.evolve.start_family)

    def config(self) -> Dict[str, Any]:
        """A configuration for workers. Threads are theirs."""
        parts = {name: asdict(part) for name, part in zip(self._fields, self)}
        gtn = {"chunk_size": self.evolve.chunk_size or WHOLE}
        return {"env_name": self.inner.env_name, "agents": {"gtn": gtn}, SECTION: parts}

    @classmethod
    def of(cls, config: Mapping[str, Any], threads: int) -> GoalProblem:
        parts = config[SECTION]
        inner = replace(Inner(**parts["inner"]), threads=threads)
        return cls(inner, EvolveSection(**parts["evolve"]), AGENTS[inner.agent][0](**parts["learner"]))


def world_of(u: Tensor, plain: Tensor) -> Tensor:
    """Worlds float32 [P, 1 + D] of u [P, D] and plain, bool [P]."""
    return torch.cat((plain.float()[:, None], u), 1)


def evaluate_goals(config: Mapping[str, Any], worlds: Tensor, seeds: Tensor, threads: int) -> Dict[str, Any]:
    """Trains one agent per member side by side -> as ``envolve.outer.evaluate.networks.evaluate``.

    worlds: float32 [p, 1 + D]; seeds: int64 [p]. A member's numbers depend on its world and its seed; on the others of
    its chunk by rounding only. A chunk gives the same bits wherever it is evaluated with as many threads.
    """
    training, scores = train(GoalProblem.of(config, threads), worlds[:, 1:], seeds, worlds[:, 0] > 0)
    p = len(seeds)
    steps = torch.full((p,), training.steps, dtype=torch.int64)
    return {
        "score": torch.from_numpy(scores),
        "mean_return": torch.from_numpy(scores),
        "train_steps": steps,
        "real_steps": steps,
        "episodes": torch.zeros(p, dtype=torch.int64),  # not counted
        "updates": torch.full((p,), training.updates, dtype=torch.int64),
        "reason": ["" if np.isfinite(score) else f"{DIVERGED}: its weights are not finite" for score in scores],
    }


def train(problem: GoalProblem, u: Tensor, keys: Tensor, plain: Tensor) -> tuple[GoalTraining, np.ndarray]:
    """Trains a member for each row of u [P, D] -> the training and scores [P], NaN where one diverged. keys: int64
    [P]; plain: bool [P]."""
    inner, evolve, learner = problem
    space, device = problem.space(), torch.device(inner.device)
    training = GoalTraining(
        space.task,
        make_goal_task(inner.env_name),
        learner,
        keys.to(device),
        episode_length=inner.episode_length,
        action_repeat=inner.action_repeat,
        num_eval_envs=inner.num_eval_envs,
        engine=inner.engine,
        threads=inner.threads,
        beginnings=Shaped(space, space.theta(u.to(device)), plain),
    )
    found = []
    for number in range(1, evolve.score_evals + 1):
        while training.steps < inner.num_timesteps * number / evolve.score_evals:
            training.iteration()
        e = training.evaluate()
        value = {"success": e.success, "near": e.near / e.length, "distance": -e.distance}[evolve.score]
        found.append(value.mean(1).numpy())
    return training, np.mean(found, 0).astype(np.float64)
