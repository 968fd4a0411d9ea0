"""TensorBoard events of a goal-conditioned run that goes on. ``tests/experiments/test_train_goal.py`` has the rest."""

from __future__ import annotations

from pathlib import Path

import pytest

from envolve.outer.goals.arguments import build_parser, make_plan
from envolve.outer.goals.report import GoalTable
from envolve.outer.goals.run import GoalRun, Interrupted
from tests.outer.reporting.events import scalars

TINY = ["--task", "simple_u_maze", "--episode_length", "12", "--num_envs", "4", "--batch_size", "16",
        "--h_dim", "8", "--repr_dim", "4", "--unroll_length", "5", "--min_replay_size", "10", "--max_replay_size", "40",
        "--num_timesteps", "200", "--num_evals", "3", "--num_eval_envs", "6", "--threads", "1"]  # fmt: skip


def test_a_run_stopped_right_after_an_evaluation_keeps_its_point(tmp_path: Path) -> None:
    """The evaluation is not repeated, so that nothing may hide what was written of it."""
    plan = make_plan(build_parser().parse(TINY))
    with pytest.raises(Interrupted), GoalTable(200, "test") as table:
        GoalRun(plan, tmp_path, resume=False).execute(table, lambda: True)
    assert [step for step, _ in scalars(tmp_path)["eval/success"]] == [0]
    with GoalTable(200, "test") as table:
        run = GoalRun(plan, tmp_path, resume=True)
        run.execute(table)
    steps = [s.steps for s in run.scores]
    assert len(steps) == 3 and [step for step, _ in scalars(tmp_path)["eval/success"]] == steps
