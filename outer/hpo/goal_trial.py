"""Evaluates a configuration by goal-conditioned agents: a population trained side by side, and tested at the end."""

from __future__ import annotations

import io
import math
from pathlib import Path

import numpy as np
import torch

from envolve.agents.goal.crl_train import CRLEvaluation, GoalTraining
from envolve.envs.goal.task import make_goal_task
from envolve.envs.sim.simulator import SimulatorError
from envolve.envs.worlds.file import write_atomic
from envolve.outer.goals.checkpoint import read_training
from envolve.outer.goals.sections import AGENTS, RunSection
from envolve.outer.hpo.study import Study
from envolve.outer.hpo.trial import Trial, TrialResult
from envolve.outer.names import CHECKPOINT
from envolve.outer.search.nes import TRIAL, member_seeds


class GoalTrials:
    """Evaluates trials in this process: agent i of every configuration has the same seed. A promoted configuration goes
    on from ``<folder>/<bracket>_<number>/checkpoint.pt``, where its engine can be stored."""

    def __init__(self, study: Study, folder: Path) -> None:
        self.study, self.folder = study, folder

    def __call__(self, trial: Trial) -> TrialResult:
        """Evaluates one trial. Raises ConfigError, OSError."""
        study, (bracket, _, number) = self.study, trial.config_id
        data = study.member_config(trial.values).data
        run = RunSection(**data["run"])
        learner = AGENTS[run.agent][0](**data["learner"])
        keys = torch.from_numpy(member_seeds(study.seed, TRIAL, 0, study.agents)).to(run.device)
        try:
            training = GoalTraining(
                make_goal_task(run.env_name),
                make_goal_task(run.eval_env or run.env_name),
                learner,
                keys,
                None,
                run.resample,
                run.episode_length,
                run.action_repeat,
                run.num_eval_envs,
                engine=run.engine,
                threads=run.threads,
            )
        except (ValueError, SimulatorError) as e:
            return TrialResult(math.inf, error=str(e))
        stored = self.folder / f"{bracket}_{number}" / CHECKPOINT
        if trial.rung and stored.exists():
            training.load_state_dict(read_training(stored, training))
        while training.steps < trial.budget:
            training.iteration()
        if training.episodes.storable and trial.budget < study.budget.most:
            stored.parent.mkdir(parents=True, exist_ok=True)
            buffer = io.BytesIO()
            torch.save(training.state_dict(), buffer)
            write_atomic(str(stored), buffer.getvalue())
        else:
            stored.unlink(missing_ok=True)
        return trial_result(training.evaluate(), study.loss)


def trial_result(e: CRLEvaluation, loss: str) -> TrialResult:
    """Mean over agents of 1 minus the share of episodes near the goal at least once (loss "success"), or of decisions
    near it ("near"). Agents that diverged count as the worst of the others; if half of them did, the configuration has
    failed."""
    figures = {"success": e.success.mean(1), "near": (e.near / e.length).mean(1), "distance": e.distance.mean(1)}
    fine = figures["success"].isfinite().numpy()
    if 2 * fine.sum() <= len(fine):
        words = f"{(~fine).sum()} of {len(fine)} agents diverged: their weights are not finite"
        return TrialResult(math.inf, error=words)
    losses = 1 - figures[loss].numpy()
    losses = np.where(fine, losses, losses[fine].max())
    info = {name: float(figure.numpy()[fine].mean()) for name, figure in figures.items()}
    info |= {"train_steps": float(e.steps), "updates": float(e.updates), "failed": float((~fine).sum())}
    return TrialResult(float(losses.mean()), info)
