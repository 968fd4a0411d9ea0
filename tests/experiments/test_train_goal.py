"""train_goal.py as a user meets it: flags, files, going on after an interruption."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

from envolve.agents.goal import crl_energy
from envolve.agents.goal.crl import METRICS
from envolve.agents.goal.crl_section import CRLSection
from envolve.agents.goal.off_policy_section import GoalSACSection, GoalTD3Section
from envolve.agents.goal.ppo_section import GoalPPOSection
from envolve.experiments import train_goal
from envolve.outer.checkpoint import RunError
from envolve.outer.config.yaml_lines import ConfigError
from envolve.outer.goals.arguments import build_parser, flag, make_plan, stored_plan
from envolve.outer.goals.log import from_csv, header, points_of, to_csv, wilson
from envolve.outer.goals.report import GoalTable, interval
from envolve.outer.goals.run import CHECKPOINT, GoalRun, Interrupted
from envolve.outer.goals.sections import RunSection

ROOT = Path(__file__).parents[2]
TINY = ["--task", "simple_u_maze", "--episode_length", "12", "--num_envs", "4", "--batch_size", "16",
        "--h_dim", "8", "--repr_dim", "4", "--unroll_length", "5", "--min_replay_size", "10", "--max_replay_size", "40",
        "--num_timesteps", "200", "--num_evals", "3", "--num_eval_envs", "6", "--threads", "1"]  # fmt: skip


def plan_of(*words: str):
    return make_plan(build_parser().parse([*TINY, *words]))


def problems(*words: str) -> str:
    with pytest.raises(ConfigError) as e:
        make_plan(build_parser().parse(list(words)))
    return str(e.value)


def test_flags_of_every_value_with_its_meaning(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        train_goal.main(["--help-all"])
    text = " ".join(capsys.readouterr().out.split())
    for section in (RunSection, CRLSection, GoalSACSection, GoalTD3Section, GoalPPOSection):
        for f in dataclasses.fields(section):
            if f.name != "exp_name":  # now --run-dir
                assert flag(f.name) in text and f.metadata["help"].split("%")[0][:40] in text, f.name


def test_the_seeds_commands_are_understood() -> None:
    base = ["--task", "reacher"]
    for words in (
        ["--num_envs", "16", "--batch_size", "16"],
        ["--h_dim", "128", "--n_hidden", "3", "--repr_dim", "32"],
        ["--energy_fn", "l2", "--contrastive_loss_fn", "infonce_backward"],
    ):
        plan = make_plan(build_parser().parse([*base, *words]))
        assert all(str(getattr(plan.learner, n[2:])) == v for n, v in zip(words[::2], words[1::2]))
    words = (
        "--project_name crl --group_name contrastive_loss_experiments --exp_name dp --seed 3 --num_timesteps 1e7 "
        "--num_evals 50 --batch_size 256 --num_envs 512 --discounting 0.99 --action_repeat 1 --episode_length 1000 "
        "--unroll_length 62 --min_replay_size 1000 --max_replay_size 10000 --contrastive_loss_fn dp --energy_fn l2 "
        "--multiplier_num_sgd_steps 1"
    ).split()
    plan = make_plan(build_parser().parse([*base, *words]))
    assert plan.run.num_timesteps == 10_000_000 and plan.learner.num_envs == 512 and plan.run.exp_name == "dp"
    newer = make_plan(
        build_parser().parse(
            ["--env", "reacher", "--total-env-steps", "1e6", "--no-resubs", "--logsumexp_penalty_coeff=0.1"]
        )
    )
    assert newer.run.num_timesteps == 1_000_000 and newer.learner.no_resubs and newer.learner.logsumexp_penalty == 0.1


def test_what_is_wrong_is_said_all_at_once() -> None:
    text = problems(
        "--task",
        "reachr",
        "--policy_lr",
        "-1",
        "--h_dim",
        "3.5",
        "--energy_fn",
        "l3",
        "--per_member",
        "discountin=0.9",
        "critic_lr=1e-3,1e-4",
        "policy_lr=x",
    )
    assert "--task: goal task: found 'reachr'" in text and "nearest: 'reacher'" in text
    assert "--policy-lr: found -1.0, expected a number >= 0" in text
    assert "--h-dim: found 3.5, expected an integer" in text
    assert "--energy-fn: found 'l3', expected one of l2, norm" in text and "nearest: discounting" in text
    assert "--per-member critic_lr: found 2 values, expected one for each of 1 members" in text
    assert "--per-member policy_lr: found 'x'" in text
    assert "nearest" not in problems("--device", "cuda:77")


def test_exit_codes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as e:
        train_goal.main(["--enegry_fn", "l2"])
    assert e.value.code == 2 and "nearest: --energy-fn" in capsys.readouterr().err
    assert train_goal.main(["--resume", str(tmp_path)]) == 2
    assert "expected the folder of a run" in capsys.readouterr().err
    assert train_goal.main([*TINY, "--exp_name", "a/b", "--results_dir", str(tmp_path)]) == 2
    assert train_goal.main([*TINY, "--eval_env", "reacher", "--results_dir", str(tmp_path)]) == 1
    assert "eval_env: reacher has state_size 10" in capsys.readouterr().err


@pytest.fixture
def here(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> Callable[[list[str]], subprocess.CompletedProcess[str]]:
    """The command in this process, where pytest has what is logged."""
    caplog.set_level("INFO", "envolve")
    monkeypatch.setattr(crl_energy, "_said", set())  # each process says once what l2 is

    def call(words: list[str]) -> subprocess.CompletedProcess[str]:
        code = train_goal.main(words)
        out, err = capsys.readouterr()
        return subprocess.CompletedProcess(words, code, out, err + caplog.text)

    return call


@pytest.fixture
def apart() -> Callable[[list[str]], subprocess.CompletedProcess[str]]:
    """In a process of its own, compiled."""
    command = [sys.executable, "experiments/train_goal.py"]
    return lambda words: subprocess.run([*command, *words], cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("where", ["here", pytest.param("apart", marks=pytest.mark.slow)])
def test_a_run_and_its_files(tmp_path: Path, where: str, request: pytest.FixtureRequest) -> None:
    """As a command, with a population whose members differ, one of which diverges."""
    call = request.getfixturevalue(where)
    words = [*TINY, "--population", "3", "--per_member", "critic_lr=1e-3,1e30,1e-3", "discounting=.9,.9,.99"]
    words += ["--keep_policies"]
    done = call([*words, "--exp_name", "mine", "--results_dir", str(tmp_path)])
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "mine"
    assert {p.name for p in folder.iterdir() if not p.name.startswith("events.")} == {
        "config.yaml",
        "scores.csv",
        "learning_curve.png",
        "policies",
        "policy.pt",
        "summary.txt",
    }
    kept = sorted(p.name for p in (folder / "policies").iterdir())  # one of each evaluation, the last is policy.pt
    assert kept == ["000000000000.pt", "000000000100.pt", "000000000200.pt"]
    assert (folder / "policies" / kept[-1]).read_bytes() == (folder / "policy.pt").read_bytes()
    assert any(p.name.startswith("events.out.tfevents") for p in folder.iterdir())
    assert "1 of 3 members diverged" in done.stdout and "square root" in done.stderr
    lines = (folder / "scores.csv").read_text().splitlines()
    assert lines[0] == ",".join(header(METRICS)) and len(lines) == 1 + 3 * 3
    scores = from_csv("\n".join(lines[1:]))
    assert [s.steps for s in scores[::3]] == [0, 100, 200] and scores[-1].updates == 24  # 9 * 44 / 16
    assert math.isnan(scores[-2].success) and math.isfinite(scores[-1].success) and math.isfinite(scores[-3].near)
    assert all(s.length == 12 and 0 <= s.near <= 12 for s in scores if math.isfinite(s.near))
    stored = yaml.safe_load((folder / "config.yaml").read_text())
    assert stored["per_member"]["discounting"] == [0.9, 0.9, 0.99] and stored["learner"]["h_dim"] == 8
    assert "# git:" in (folder / "config.yaml").read_text() and stored_plan(folder).run.seed == 0
    policy = torch.load(folder / "policy.pt", weights_only=True)
    assert policy["params"].shape[0] == 3 and sum(policy["sizes"]) == policy["params"].shape[1]
    assert (folder / "learning_curve.png").read_bytes()[:4] == b"\x89PNG"
    again = call(["--resume", str(folder)])
    assert again.returncode == 1 and "this run is complete" in again.stderr


@pytest.mark.usefixtures("undrawn")
def test_a_run_that_was_interrupted_leaves_the_same_bytes(tmp_path: Path) -> None:
    """After the first look at whether it shall stop, and after the sixth; and once more after the second since then."""
    plan = plan_of("--population", "2", "--normalize_observations")
    logs = []
    for name, stops in (("whole", []), ("early", [1, 2]), ("late", [6, 2])):
        folder = tmp_path / name
        folder.mkdir()
        for count in stops:
            left = iter([False] * count + [True])
            with pytest.raises(Interrupted), GoalTable(200, "test") as table:
                GoalRun(plan, folder, resume=count != stops[0]).execute(table, lambda left=left: next(left))
            assert torch.load(folder / CHECKPOINT, weights_only=True)["training"]["counts"][0] > 0
        with GoalTable(200, "test") as table:
            GoalRun(plan, folder, resume=bool(stops)).execute(table)
        logs.append([(folder / "scores.csv").read_bytes(), (folder / "policy.pt").read_bytes()])
    assert logs[0] == logs[1] == logs[2]


@pytest.mark.usefixtures("undrawn")
def test_a_run_that_cannot_be_resumed_does_not_offer_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    advice: list[str] = []
    monkeypatch.setattr(train_goal.interrupt, "advise", advice.append)
    assert train_goal.main([*TINY, "--run-dir", str(tmp_path / "plain")]) == 0
    monkeypatch.setattr(GoalRun, "storable", False)
    assert train_goal.main([*TINY, "--run-dir", str(tmp_path / "run")]) == 0
    plain, run = ([a for a in advice if str(tmp_path / name) in a] for name in ("plain", "run"))
    assert [a.split()[0] for a in plain] == ["continue", "the"], "before the simulator is there, and at the end"
    assert run[1] == f"this run cannot go on; its policies so far are in {tmp_path / 'run' / 'policy.pt'}"


@pytest.mark.usefixtures("undrawn")
def test_ppo_as_a_command_and_after_an_interruption(tmp_path: Path) -> None:
    words = ["--task", "simple_u_maze", "--agent", "ppo", "--use_dense_reward", "--num_envs", "4", "--h_dim", "8",
             "--unroll_length", "5", "--num_minibatches", "2", "--num_updates_per_batch", "3", "--episode_length", "12",
             "--num_eval_envs", "4", "--population", "2", "--num_evals", "3", "--num_timesteps", "200", "--threads",
             "1", "--normalize_observations", "--per_member", "entropy_cost=0,0.1"]  # fmt: skip
    plan = make_plan(build_parser().parse(words))
    assert plan.agent_title == "PPO"
    assert train_goal.main([*words, "--exp_name", "whole", "--results_dir", str(tmp_path)]) == 0
    parts = tmp_path / "parts"
    parts.mkdir()
    left = iter([False] * 4 + [True])
    with pytest.raises(Interrupted), GoalTable(200, "test", metrics=("reward",)) as table:
        GoalRun(plan, parts, resume=False).execute(table, lambda: next(left))
    (parts / "config.yaml").write_text(plan.to_yaml())
    assert train_goal.main(["--resume", str(parts)]) == 0
    for name in ("scores.csv", "policy.pt"):
        assert (parts / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    lines = (parts / "scores.csv").read_text().splitlines()
    assert lines[0].endswith("length,reward,value,deviation,learning_rate")
    scores = from_csv("\n".join(lines[1:]))
    assert [(s.steps, s.updates) for s in scores[::2]] == [(0, 0), (100, 24), (200, 54)]
    assert np.isfinite(scores[-1].learning).all() and scores[-1].learning != scores[-2].learning
    policy = torch.load(parts / "policy.pt", weights_only=True)
    assert sum(policy["sizes"]) == policy["params"].shape[1] and policy["mean"].shape == (2, 6)


def test_a_checkpoint_of_something_else(tmp_path: Path) -> None:
    (tmp_path / CHECKPOINT).write_bytes(b"no checkpoint")
    with pytest.raises(RunError, match="not a checkpoint of this run"):
        GoalRun(plan_of(), tmp_path, resume=True)


@pytest.mark.usefixtures("undrawn")
def test_weights_and_biases_by_its_older_flag(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """--log-wandb is --wandb with the project that --project-name says; tests/outer/reporting/test_wandb_run.py has
    what W&B hears."""
    begun: list[tuple[Any, ...]] = []
    monkeypatch.setattr(train_goal, "followed", lambda *words: begun.append(words) or contextlib.nullcontext([]))
    words = ["--log_wandb", "--wandb_mode", "offline", "--project_name", "goals", "--group_name", "these"]
    folder = tmp_path / "run"
    monkeypatch.setattr(train_goal, "check_wandb", lambda project: None)
    assert train_goal.main([*TINY, *words, "--run-dir", str(folder)]) == 0
    assert begun == [("goals", folder, "offline", "these")]
    monkeypatch.undo()
    monkeypatch.setitem(sys.modules, "wandb", None)
    assert train_goal.main([*TINY, "--log_wandb", "--results_dir", str(tmp_path / "other")]) == 2
    assert "pip install wandb" in capsys.readouterr().err and not (tmp_path / "other").exists()


def test_intervals() -> None:
    assert wilson(0.5, 128) == pytest.approx((0.4147, 0.5853), abs=1e-3)
    low, high = wilson(1.0, 128)
    assert low == pytest.approx(1 / (1 + 1.959964**2 / 128), abs=1e-9) and high == 1.0
    assert wilson(0.0, 128)[0] == 0.0
    line = "0,100,3,0,128,0.5,0.41,0.58,7,6,8,0.2,12," + ",".join(["nan"] * len(METRICS)) + "\n"
    other = line.replace("0,100,3,0", "0,100,3,1").replace("0.5,", "0.7,", 1)
    assert to_csv(from_csv(line)) == line
    point = points_of(from_csv(line + other))[0]
    assert point.success == pytest.approx(0.6) and point.near == 7 and point.failed == 0
    assert 0 <= point.success_interval[0] < 0.5 < 0.7 < point.success_interval[1] <= 1, "of two, but shares they are"
    assert all(map(np.isnan, point.near_interval)), "two equal members tell nothing of others"
    assert interval(7.0, point.near_interval) == "7"


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("agent", ["sac", "td3"])
def test_the_baselines_leave_the_same_files(tmp_path: Path, agent: str) -> None:
    words = ["--task", "reacher", "--agent", agent, "--use_her", "--num_envs", "2", "--h_dim", "8",
             "--batch_size", "16", "--unroll_length", "10", "--min_replay_size", "20", "--episode_length", "12",
             "--num_eval_envs", "4", "--population", "2", "--num_evals", "2", "--num_timesteps", "80"]  # fmt: skip
    plan = make_plan(build_parser().parse([*words, "--per_member", "discounting=0.9,0.95"]))
    assert plan.agent_title == f"{agent.upper()} with hindsight" and plan.learner.use_her
    with GoalTable(80, "test", metrics=("reward", "value")) as table:
        text = GoalRun(plan, tmp_path, resume=False).execute(table)
    assert f"reacher, {agent.upper()} with hindsight, 2 members, 80 steps" in text
    lines = (tmp_path / "scores.csv").read_text().splitlines()
    assert lines[0].endswith("length,reward,value" + ",alpha" * (agent == "sac")) and len(lines) == 5
    assert all(np.isfinite(s.learning).all() for s in from_csv("\n".join(lines[3:])))
    (tmp_path / "config.yaml").write_text(plan.to_yaml())
    assert stored_plan(tmp_path) == plan
    assert torch.load(tmp_path / "policy.pt", weights_only=True)["params"].shape[0] == 2


def test_flags_of_another_agent() -> None:
    text = problems("--task", "reacher", "--agent", "sac", "--policy_delay", "3", "--policy_lr", "1e-3")
    assert "--policy-delay: SAC has no such value (--agent td3 has)" in text
    assert "--policy-lr: SAC has no such value (--agent crl has)" in text
    text = problems("--task", "reacher", "--agent", "td3", "--per_member", "policy_lr=1")
    assert "expected one of learning_rate, discounting, tau" in text
    text = problems("--task", "reacher", "--agent", "ppo", "--use_her")
    assert "--use-her: PPO has no such value (--agent sac, td3 has)" in text
    assert "--agent: found 'dqn', expected" in problems("--task", "reacher", "--agent", "dqn")
