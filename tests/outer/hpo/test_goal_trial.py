"""Studies of goal-conditioned agents: their file, their trials, and a search from end to end."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from envolve.agents.goal.crl_train import CRLEvaluation
from envolve.outer.config.yaml_lines import ConfigError
from envolve.outer.goals.arguments import stored_plan
from envolve.outer.hpo.goal_trial import GoalTrials, trial_result
from envolve.outer.hpo.study import Study, dump_study, read_study
from envolve.outer.hpo.trial import Trial

ROOT = Path(__file__).resolve().parents[3]
SMALL = {
    "run": {"env_name": "simple_u_maze", "agent": "sac", "num_eval_envs": 6, "episode_length": 12},
    "learner": {"h_dim": 8, "batch_size": 16, "num_envs": 4, "unroll_length": 5, "min_replay_size": 10},
}
CONTENT = {
    "config": SMALL, "evaluate": "goal", "loss": "near", "agents": 2,
    "search": {"backend": "random", "parallel": 2}, "budget": {"unit": "steps", "least": 100, "most": 400, "eta": 2},
    "stop": {"trials": 3}, "set": {"learner.use_her": True},
    "space": {"learner.learning_rate": {"range": [1e-4, 1e-2], "log": True},
              "learner.discounting": {"one_minus": [0.01, 0.2], "log": True},
              "learner.her_goals": {"choices": ["future", "final"]}},
}  # fmt: skip
VALUES = {"learner.learning_rate": 1e-3, "1-learner.discounting": 0.05, "learner.her_goals": "final"}


def study(folder: Path, *overrides: str, **changes: Any) -> Study:
    path = folder / "goals.yaml"
    path.write_text(yaml.safe_dump({**CONTENT, **changes}))
    return read_study(path, overrides)


def trial(budget: float, rung: int = 0, **values: Any) -> Trial:
    return Trial(0, (0, 0, 4), {**VALUES, **values}, budget, rung)


def problems(folder: Path, *overrides: str, **changes: Any) -> str:
    with pytest.raises(ConfigError) as e:
        study(folder, *overrides, **changes)
    return str(e.value)


def test_what_a_study_says(tmp_path: Path) -> None:
    s = study(tmp_path, "learner.tau=0.02")
    assert s.env_name == "simple_u_maze" and s.evaluate == "goal" and s.agents == 2
    data = s.member_config(VALUES).data
    learner = data["learner"]
    assert learner["use_her"] and learner["tau"] == 0.02 and learner["her_goals"] == "final"
    assert learner["discounting"] == pytest.approx(0.95) and learner["h_dim"] == 8
    assert data["run"]["population"] == 2 and data["run"]["num_timesteps"] == 400
    (tmp_path / "copy.yaml").write_text(dump_study(s))
    assert read_study(tmp_path / "copy.yaml").digest == s.digest != study(tmp_path).digest
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(SMALL))
    named = study(tmp_path, "learner.tau=0.02", config="config.yaml")
    assert named.digest == s.digest and named.config.path.endswith("config.yaml")


def test_what_is_wrong_is_said(tmp_path: Path) -> None:
    space = CONTENT["space"]
    text = problems(tmp_path, space={**space, "learner.lerning_rate": {"range": [0.1, 1]}})
    assert "an unknown key" in text and "did you mean learner.learning_rate" in text
    assert "a key of the run, expected one of learner" in problems(
        tmp_path, space={"run.num_eval_envs": {"range": [1, 9]}}
    )
    text = problems(tmp_path, space={"learner.policy_lr": {"range": [1e-4, 1e-3]}})
    assert "an unknown key" in text  # contrastive RL's; this agent is SAC
    assert "expected one of success, near, because evaluate is goal" in problems(tmp_path, loss="return")
    assert "expected one of steps, because evaluate is goal" in problems(
        tmp_path, budget={"unit": "generations", "least": 1, "most": 2}
    )
    assert "only evaluate agent reads it" in problems(tmp_path, worlds="real")
    assert "reachr" in problems(tmp_path, config={"run": {"env_name": "reachr"}})
    text = problems(tmp_path, config={**SMALL, "per_member": {"tau": [1, 2]}, "lerner": {}})
    assert "expected none: agents of a trial have the same values" in text and "did you mean learner" in text
    assert "expected the sections run and learner" in problems(tmp_path, config=[1])


def test_a_promoted_configuration_goes_on_where_it_was(tmp_path: Path) -> None:
    """With the same result as one that is trained in one go, whatever was evaluated meanwhile; and once more, as after
    a master that died before it could tell."""
    s = study(tmp_path)
    parts, whole = GoalTrials(s, tmp_path / "parts"), GoalTrials(s, tmp_path / "whole")
    first = parts(trial(100))
    stored = tmp_path / "parts/0_4/checkpoint.pt"
    assert first.info["train_steps"] == 100 and stored.exists()
    second = parts(trial(200, rung=1))
    assert second == whole(trial(200)) == parts(trial(200, rung=1)) and second.info["updates"] > first.info["updates"]
    assert second.info["distance"] != first.info["distance"]
    last = parts(trial(400, rung=2))
    assert last == GoalTrials(s, tmp_path / "anew")(trial(400)) and not stored.exists()
    assert last != GoalTrials(s, tmp_path / "other")(trial(400, **{"learner.learning_rate": 1e-2}))
    assert 0 <= last.loss <= 1 and last.info["failed"] == 0


def test_one_that_cannot_be_trained_has_failed(tmp_path: Path) -> None:
    s = study(tmp_path, set={"learner.max_replay_size": 4})
    result = GoalTrials(s, tmp_path / "a")(trial(100))
    assert result.loss == math.inf and "max_replay_size: found 4" in result.error


def test_losses() -> None:
    nan = math.nan
    near = torch.tensor([[1.0, 3.0], [0.0, 0.0], [nan, nan]], dtype=torch.float64)
    success = torch.where(near.isnan(), near, (near > 0).double())
    e = CRLEvaluation(100, 5, near, success, near, torch.full_like(near, 4.0), torch.zeros(3, 1))
    assert trial_result(e, "near").loss == pytest.approx((0.5 + 1 + 1) / 3)
    result = trial_result(e, "success")
    assert result.loss == pytest.approx((0 + 1 + 1) / 3) and result.info["failed"] == 1
    assert result.info["success"] == 0.5 and result.info["near"] == 0.25
    e.success[1:].fill_(nan)
    assert trial_result(e, "near").loss == math.inf and "2 of 3 agents diverged" in trial_result(e, "near").error
    e.success.fill_(nan)
    assert "3 of 3 agents diverged" in trial_result(e, "near").error


@pytest.mark.slow
def test_a_search_from_end_to_end(tmp_path: Path) -> None:
    study(tmp_path)
    command = [sys.executable, "experiments/optimize_params.py", str(tmp_path / "goals.yaml"), "--run-dir",
               str(tmp_path / "run")]  # fmt: skip
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    summary = (tmp_path / "run/summary.txt").read_text()
    assert "near of 2 agents in simple_u_maze" in summary and "3 trials of 3 configurations" in summary
    assert "train_goal.py --resume results/best" in summary
    best = tmp_path / "best"
    best.mkdir()
    (best / "config.yaml").write_bytes((tmp_path / "run/best.yaml").read_bytes())
    plan = stored_plan(best)
    assert plan.run.population == 2 and plan.run.num_timesteps == 400 and plan.learner.use_her
