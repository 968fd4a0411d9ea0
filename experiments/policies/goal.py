"""The policies of a run of train_goal.py: policy.pt, which holds all members as the last evaluation saw them."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from envolve.agents.common.normaliser import EPSILON
from envolve.agents.goal.crl_train import FirstEpisodes, GoalLearner, make_learner
from envolve.core import rng
from envolve.envs.goal.engines import make_episodes
from envolve.envs.goal.task import make_goal_task
from envolve.envs.sim.simulator import SimulatorError
from envolve.experiments.policies.episodes import Episodes, PolicyError, read_policy_file
from envolve.outer.goals.arguments import GoalPlan, stored_plan
from envolve.outer.goals.run import POLICY
from envolve.outer.goals.video import film_member


class GoalPolicies:
    kind = "train_goal.py"

    def __init__(self, folder: Path, stochastic: bool = False) -> None:
        """stochastic: actions are drawn as in training. Raises ConfigError, PolicyError."""
        self.plan, self.folder, self.stochastic = stored_plan(folder), folder, stochastic
        if not (folder / POLICY).exists():
            raise PolicyError(f"{folder}: found no {POLICY}, expected a run that has been evaluated once at least")
        self.task, self.names = self.plan.run.eval_env or self.plan.run.env_name, [Path(POLICY).stem]

    def play(self, name: str, episodes: int, seed: int) -> Episodes:
        """Episodes like the run's evaluations, with other starts and goals. A return is the sparse reward's: time near
        the goal."""
        learner, run = self._learner(), self.plan.run
        keys = rng.fold(torch.full((learner.P,), seed, device=run.device), rng.FINAL_TEST)
        try:
            e = make_episodes(
                make_goal_task(self.task),
                keys,
                episodes,
                engine=run.engine,
                threads=run.threads,
                episode_length=run.episode_length,
                action_repeat=run.action_repeat,
            )
        except SimulatorError as error:
            raise PolicyError(f"{self.folder}: {error}") from None
        first, act = FirstEpisodes(learner.P, episodes, keys.device), learner.act if self.stochastic else learner.greedy
        for _ in range(e.length):
            first.add(e, e.advance(act(e.features, e.goal)))
        out = learner.diverged()[:, None]

        def healthy(x: Tensor) -> np.ndarray:
            return x.double().masked_fill(out, torch.nan).cpu().numpy()

        more = {"success": healthy(first.near > 0), "distance at the end, m": healthy(first.distance)}
        return Episodes(healthy(first.near), "decisions near the goal", healthy(first.length), more)

    def film(self, name: str, member: int, seed: int, path: Path, score: str) -> None:
        run = dataclasses.replace(self.plan.run, seed=seed - member)  # the stage adds ``member`` to the seed
        film_member(dataclasses.replace(self.plan, run=run), self._learner(), member, path, score)

    def _learner(self) -> GoalLearner:
        return load_learner(self.plan, self.folder / POLICY)


def load_learner(plan: GoalPlan, path: Path) -> GoalLearner:
    """One that acts as the run's did when it wrote the file. Raises PolicyError."""
    content = read_policy_file(path, {"params": Tensor})
    run = plan.run
    keys = torch.arange(run.population, device=run.device) + run.seed
    learner = make_learner(plan.learner, make_goal_task(run.env_name), keys, plan.own)
    wanted: dict[str, Tensor] = {"params": learner.params}
    if learner.moments is not None:
        wanted.update(mean=learner.moments.mean, scale=learner.moments.mean)
    for name, tensor in wanted.items():
        found = content.get(name)
        if not isinstance(found, Tensor) or found.shape != tensor.shape or not found.is_floating_point():
            what = list(found.shape) if isinstance(found, Tensor) else type(found).__name__
            raise PolicyError(f"{path}: {name}: found {what}, expected numbers [P, D] = {list(tensor.shape)}")
    learner.params.copy_(content["params"])
    if learner.moments is not None:
        # variance + epsilon = 1 / scale^2, of one sample
        learner.moments.mean.copy_(content["mean"])
        learner.moments.squares.copy_(content["scale"].double() ** -2 - EPSILON)
        learner.moments.count = 1
    return learner
