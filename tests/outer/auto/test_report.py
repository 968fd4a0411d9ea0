"""Figures of unseen agents, the file of finished ones, and what real steps were for."""

from __future__ import annotations

import io
import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from torch import Tensor

from envolve.agents.train import train
from envolve.envs.outside.spaces import action_of
from envolve.envs.task import make_task
from envolve.envs.worlds.file import save_world
from envolve.envs.worlds.world import init_world
from envolve.outer.auto import report, unseen
from envolve.outer.auto.report_plan import ReportPlan
from envolve.outer.auto.sentence import helper, share, verdict
from envolve.outer.auto.unseen import (
    RANDOM,
    REAL,
    REAL_10X,
    WORLD,
    UnseenAgent,
    impatient,
    indexed,
    real_env,
    unseen_learners,
)
from envolve.outer.checkpoint import RunError
from envolve.outer.config import problem
from envolve.outer.config.load import load_config


def row(learner: str, where: str, value: float, **values: Any) -> dict[str, Any]:
    usual = {"key": f"{learner} {where} {value}", "learner": learner, "where": where, "seed": 0, "return": value,
             "test_returns": [value], "train_steps": 100, "real_steps": 0 if where == WORLD else 100, "test_steps": 7,
             "failed": "", "seconds": 1.0}  # fmt: skip
    return {**usual, **values}


ROWS = [
    row(RANDOM, REAL, 1.0, train_steps=0, real_steps=0, test_returns=[0.0, 1.0, 2.0]),
    *[row("ppo", WORLD, x) for x in (8.0, 9.0, 10.0)], row("ppo", WORLD, math.nan, failed="not finite"),
    *[row("ppo", REAL, x) for x in (2.0, 3.0)], *[row("ppo", REAL_10X, 9.0, train_steps=1000) for _ in range(2)],
]  # fmt: skip


def test_figures_count_agents_that_failed_and_have_no_interval_of_equal_values() -> None:
    found = report.findings(ROWS, ["ppo"], 123)
    world = found.world["ppo"]
    assert (world.mean, world.agents, world.failed) == (7.0, 4, 1)  # of 8, 9, 10 and random actions' 1
    assert world.interval is not None and world.interval[0] < 5 < 9 < world.interval[1]
    assert found.real_10x["ppo"].interval is None and found.real_10x["ppo"].steps == 1000
    assert found.random.mean == 1.0 and found.random.interval is not None
    content = report.as_json(found)
    assert content["ppo"]["world"]["mean_return"] == 7.0 and len(content["ppo"]["world"]["interval"]) == 2
    assert json.loads(json.dumps(content, allow_nan=False)) == content


def test_a_learner_whose_agents_all_failed_has_no_figure() -> None:
    rows = [ROWS[0], *[row("ppo", WORLD, math.nan, failed="not finite") for _ in range(2)]]
    world = report.findings(rows, ["ppo"], 123).world["ppo"]
    assert math.isnan(world.mean) and (world.agents, world.failed) == (2, 2)


@pytest.mark.parametrize("of", [("dqn", "ddqn"), ("ddqn", "dqn"), ("ddqn", "duelingddqn"), ("dqn", "duelingddqn")])
def test_learners_of_one_family_are_kin_in_either_direction(of: tuple[str, str]) -> None:
    one, other = of
    assert unseen.related(one, [other]) and unseen.related(other, [one, "ppo"]) and unseen.related(one, [one])
    assert not unseen.related(one, ["ppo"]) and not unseen.related("td3", [one])


def test_real_steps_by_what_they_were_for() -> None:
    spent = report.real_steps(ROWS, 50, 123)
    assert spent == {"measuring": 50, "evolution": 123, "tests": 4 * 7, "baselines": 4 * 107 + 7}


def test_a_torn_line_is_trained_again_and_a_wrong_one_refused(tmp_path: Path) -> None:
    path = tmp_path / report.FILE
    for r in ROWS[:2]:
        report.append(path, r)
    with open(path, "a") as file:
        file.write('{"key": "half')
    assert [r["key"] for r in report.finished(path)] == [r["key"] for r in ROWS[:2]]
    report.append(path, ROWS[4])  # NaN is written as null
    assert [r["return"] for r in report.finished(path)] == [1.0, 8.0, None]
    path.write_text("[1]\n")
    with pytest.raises(RunError, match="unseen.jsonl:1: found .* expected a row of an agent"):
        report.finished(path)


def test_finished_agents_are_not_trained_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = ReportPlan(("ppo", "dqn"), 2, (2048, 2048), 3, False)
    jobs = report.jobs_of(tmp_path, plan, 5)
    assert len(jobs) == 1 + 2 * 3 * 2 and len({j.key for j in jobs}) == len(jobs)
    assert {j.steps for j in jobs if j.where == REAL_10X} == {20480}
    short = report.jobs_of(tmp_path, ReportPlan(("ppo", "dqn"), 2, (2048, 2048), 3, False, ten=False), 5)
    assert [j.key for j in short] == [j.key for j in jobs if j.where != REAL_10X]
    seen: list[str] = []

    def trained(pool: object, left: list[UnseenAgent]) -> Any:
        for job in reversed(left):
            seen.append(job.key)
            yield row(job.learner, job.where, float(len(seen)), key=job.key)

    monkeypatch.setattr(report, "_trained", trained)
    path = tmp_path / report.FILE
    for job in jobs[:4]:
        report.append(path, row(job.learner, job.where, 0.5, key=job.key))
    text = io.StringIO()
    rows = report.train_all(jobs, path, 1, Console(file=text))
    assert [r["key"] for r in rows] == [j.key for j in jobs] and len(seen) == len(jobs) - 4
    assert "dqn" in text.getvalue()
    before = path.read_bytes()
    assert report.train_all(jobs, path, 1, Console(file=text)) == report.finished(path)[:4] + rows[4:]
    assert path.read_bytes() == before and len(seen) == len(jobs) - 4


def test_an_agent_whose_environment_raises_is_a_row_with_a_reason(tmp_path: Path) -> None:
    row = report.guarded(UnseenAgent(str(tmp_path), "ppo", WORLD, 10, 0, 1, True))
    assert math.isnan(row["return"]) and "ConfigError" in row["failed"]


def test_this_projects_ppo_learns_from_the_last_rollout_of_a_bandit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There are as many episodes as steps, so the limit of episodes is reached when the last rollout is full."""
    found = []

    def evaluated(data: dict[str, Any], worlds: Tensor, seeds: Tensor, mode: str) -> dict[str, Any]:
        data["agents"]["gtn"]["backend"] = "torch"
        task = make_task("CartPole-v0")
        learner = problem.learner(data)[1]
        result = train(
            "ppo", learner, None, task, "se", problem.env_section(data), worlds, seeds.numpy(), False, "torch"
        )
        found.append(result)
        returns = torch.from_numpy(result.test_return)
        return {"train_steps": result.train_steps, "real_steps": [0], "test_returns": returns, "reason": [""]}

    monkeypatch.setattr(unseen, "evaluate", evaluated)
    data = load_config("default_config_cartpole_contextual_bandit.yaml").data
    section = problem.env_section(data)
    world = init_world("se", make_task("CartPole-v0"), section, torch.tensor([0]))[0]
    save_world(
        str(tmp_path / "model.pt"),
        "se",
        "CartPole-v0",
        world,
        data,
        budget=64,
        score=0.0,
        solved=False,
        evolution_steps=0,
    )
    row = unseen._own(UnseenAgent(str(tmp_path), "ppo", WORLD, 64, 0, 1, False), data)
    assert row["train_steps"] == 64 and found[0].updates[0] > 0


def test_the_verdict_leaves_out_the_kin_of_the_evolution_in_the_world_alone() -> None:
    kinds = [
        (("dqn", WORLD), (99.0, 98.0)), (("dqn", REAL), (50.0, 52.0)), (("dqn", REAL_10X), (100.0, 100.0)),
        (("ppo", WORLD), (60.0, 61.0)), (("ppo", REAL), (12.0, 11.0)), (("ppo", REAL_10X), (30.0, 31.0)),
    ]  # fmt: skip
    steps = {WORLD: 100, REAL: 100, REAL_10X: 1000}
    rows = [row(*kind, value, train_steps=steps[kind[1]]) for kind, values in kinds for value in values]
    rows.append(row(RANDOM, REAL, 10.0, test_returns=[10.0, 10.0]))
    of_ddqn = report.findings(rows, ["ppo", "dqn"], 123, inner=["ddqn"])
    of_td3 = report.findings(rows, ["ppo", "dqn"], 123, inner=["td3_discrete"])
    assert of_ddqn.kin == {"dqn"} and not of_td3.kin
    assert share(of_ddqn) == pytest.approx(50.5 / 90) and share(of_td3) == pytest.approx(88.5 / 90)
    assert helper(of_ddqn) is None and helper(of_td3) is not None
    assert verdict(of_ddqn).startswith("The world did not help enough: ppo") and "dqn after" in verdict(of_ddqn)
    console = Console(record=True, width=200)
    console.print(report.table_of(of_ddqn, "title"))
    assert "dqn *" in console.export_text()
    alone = report.findings(rows, ["dqn"], 123, inner=["ddqn"])
    assert verdict(alone).startswith("No verdict: the only agents in the world are dqn, of a family")


def test_kinds_that_the_world_has_seen_are_no_unseen_agents() -> None:
    assert unseen_learners(True, ["td3"], True) == ["ppo", "sac", "a2c"]
    assert unseen_learners(False, ["ddqn", "ppo"], False) == ["duelingddqn", "td3_discrete"]


def test_an_environment_that_hangs_ends_its_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    import gymnasium

    class Slow(gymnasium.Env):
        observation_space = action_space = gymnasium.spaces.Discrete(2)

        def reset(self, **options: Any) -> Any:
            return 0, {}

        def step(self, action: Any) -> Any:
            try:
                time.sleep(60)
            except Exception:  # an environment that swallows errors
                pass

    monkeypatch.setattr("envolve.envs.outside.watch.STEP_SECONDS", 0.2)
    env = impatient(Slow())
    assert env.reset(seed=0) == (0, {})
    with pytest.raises(RuntimeError, match="longer than 0.2 s: does it hang"):
        env.step(0)


def test_a_box_of_whole_numbers_gets_whole_numbers_from_agents_that_choose_any() -> None:
    import gymnasium
    import numpy as np

    class Whole(gymnasium.Env):
        observation_space = gymnasium.spaces.Discrete(2)
        action_space = gymnasium.spaces.Box(np.array([-2, 0]), np.array([2, 5]), (2,), np.int32)

        def step(self, action: Any) -> Any:
            assert self.action_space.contains(action), action
            return action

    env = indexed(Whole(), {"measured": {"action": action_of(Whole.action_space)}})
    assert env.action_space == gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)
    for chosen, own in (([-1.0, -1.0], [-2, 0]), ([0.1, 0.9], [0, 5]), ([1.0, 1.0], [2, 5])):
        assert env.step(np.array(chosen, np.float32)).tolist() == own
    plain = gymnasium.Env()
    plain.action_space = gymnasium.spaces.Box(-2.0, 2.0, (1,), np.float32)
    assert indexed(plain, {"measured": {"action": action_of(plain.action_space)}}) is plain


def test_a_task_of_this_project_is_tested_on_gymnasiums_own() -> None:
    env = real_env({"env_name": "Pendulum-v0", "envs": {"Pendulum-v0": {"max_steps": 3}}})
    assert env.spec is not None and env.spec.id == "Pendulum-v1"
    env.reset(seed=0)
    ends = [env.step(env.action_space.sample())[3] for _ in range(3)]
    assert ends == [False, False, True]
    env.close()
