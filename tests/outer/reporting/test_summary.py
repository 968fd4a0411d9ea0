"""The closing summary: what may be compared, what it has cost, and that nothing is oversold."""

from __future__ import annotations

import math
from pathlib import Path

import gymnasium
import numpy as np
import pytest

from envolve.core.statistics import AgentRuns
from envolve.envs.outside.define import define
from envolve.envs.outside.flat import Flat
from envolve.envs.outside.measure import _measure
from envolve.envs.task import make_task
from envolve.outer.reporting.comparison import break_even, random_return, side, why_not
from envolve.outer.reporting.plots import _mark
from envolve.outer.reporting.report import number
from envolve.outer.reporting.summary import RunSummary, cell, summary_text

NAN = float("nan")
SOLVES, FAILS = [198.0, 199.0, 200.0, 197.0] * 5, [9.0, 9.5, 9.2, 9.7] * 5


def run_summary(**changes: object) -> RunSummary:
    values: dict = dict(kind="se", env_name="CartPole-v0", solved=True, generations=43, seconds=28.4)
    values |= dict(total_steps=4_123_456, run_dir="results/x", solved_reward=195.0, floor=22.0, real_steps=3_000_000)
    return RunSummary(**(values | changes))


def runs(returns: list[float], steps: float) -> AgentRuns:
    return AgentRuns(returns, [steps] * len(returns))


def test_summary_of_a_solved_world(tmp_path: Path) -> None:
    for name in ("model.pt", "config.yaml", "events.out.tfevents.1.host"):
        (tmp_path / name).touch()
    text = summary_text(
        run_summary(run_dir=str(tmp_path), restarts=1, proxy=runs([198.0] * 20, 800.0), real=runs(SOLVES, 14_000.0))
    )
    assert text.splitlines()[:2] == [
        "CartPole-v0, synthetic environment: SOLVED (mean return of at least 195.0)",
        "  43 generations, 1 restart, 28 s, 4,123,456 environment steps of all agents together",
    ]
    words = " ".join(text.split())
    assert "training steps needed 800.0 (20 of 20) 14,000 (20 of 20)" in words
    assert "test return, real task 198.0 (20 of 20; at most 14 % fail (95 %)) 198.5 [" in words
    assert "number of agents 20 20" in words and "failures (below 195.0) 0 of 20 0 of 20" in words
    assert "[198.0, 198.0]" not in words and "17.5 times fewer" in words
    assert "Price per agent: 800.0 synthetic steps, no real ones; on the task 14,000 real steps." in words
    assert "3,000,000 real steps were spent on evolving; this has paid after 215 agents." in words
    assert "model.pt the evolved world config.yaml" in words and f"tensorboard --logdir {tmp_path}" in words
    assert "scores.csv" not in words  # only what is there
    assert text.endswith(f"experiments/evaluate_proxy.py {tmp_path}/model.pt --agent ddqn --agents 20")
    assert "another seed" not in text and "agents trained in the evolved world failed" not in text


@pytest.mark.parametrize(
    ("paid", "said", "warned"),
    [
        ([190.0], "returns 190.0 on the task.", False),
        ([60.0, 180.5], "returns 60.0 on the task (180.5 in the first world).", True),
        ([60.0, NAN], "returns 60.0 on the task.", True),  # its episodes failed
        ([NAN, 180.5], "", False),
    ],
)
def test_what_a_bandit_pays_most_for(paid: list[float], said: str, warned: bool) -> None:
    """Agents that pass a good policy on the way to a bad one, which the world pays more, get worse if they go on."""
    text = summary_text(run_summary(proxy=runs(SOLVES, 800.0), real=runs(SOLVES, 900.0), paid=paid))
    assert said in text and ("Without an agent" in text) == bool(said)
    assert ("in longer trainings they may get worse" in text) == warned


def test_no_steps_are_compared_with_those_of_agents_that_fail() -> None:
    text = summary_text(run_summary(solved=False, proxy=runs(FAILS, 1500.0), real=runs(SOLVES, 9000.0)))
    assert "fewer" not in text and "paid after" not in text
    assert "No comparison of steps: agents from this world do not solve the task (9.3 against 198.5)." in text
    assert "failures (below 195.0)   20 of 20" in text and "3,000,000 real steps were spent on evolving." in text
    text = summary_text(run_summary(proxy=runs(SOLVES, 1500.0), real=runs(FAILS, 9000.0)))
    assert "fewer" not in text and "agents from the task do not solve the task" in text


def test_a_world_that_needs_more_steps_is_said_to() -> None:
    text = summary_text(run_summary(kind="rn", proxy=runs(SOLVES, 9000.0), real=runs(SOLVES, 3000.0)))
    assert "An agent needs 3.0 times more training steps in the evolved world." in text
    assert "Price per agent: 9,000 real steps; on the task 3,000 real steps." in text
    assert "this never pays in real steps" in text


@pytest.mark.parametrize(
    "world, real, why",
    [
        (SOLVES, SOLVES, ""),
        ([190.0, 191.0, 192.0, 190.5] * 5, SOLVES, ""),  # 95 % of the way from 22
        ([182.0, 183.0, 184.0, 182.5] * 5, SOLVES, "agents from this world do not solve"),
        ([198.0, 200.0, 196.0, 199.0, 30.0], SOLVES, "too uncertain"),
        ([100.0, 101.0, 102.0] * 5, [100.0, 101.0, 102.0] * 5, "do not solve"),
        ([NAN] * 12 + [198.0] * 8, SOLVES, "agents from this world do not solve"),
        (FAILS, FAILS, "do not solve"),
    ],
)
def test_what_may_be_compared(world: list[float], real: list[float], why: str) -> None:
    sides = (side(runs(x, 100.0), 22.0, 195.0) for x in (world, real))
    found = why_not(*sides, 22.0, 195.0, number)
    assert why in found and bool(why) == bool(found)


def test_break_even_counts_what_agents_cost_in_the_world() -> None:
    assert break_even(1000, 0.0, 100.0) == 10 and break_even(1001, 0.0, 100.0) == 11
    assert break_even(1000, 60.0, 100.0) == 25 and break_even(1000, 100.0, 100.0) == math.inf


@pytest.mark.parametrize(
    "name, low, high",
    [("CartPole-v0", 15, 35), ("Cliff", -5000, -13), ("Pendulum-v0", -2000, -900), ("MountainCar-v0", -200, -200)],
)
def test_a_random_policy_is_what_returns_are_measured_from(name: str, low: float, high: float) -> None:
    task = make_task(name)
    assert low <= random_return(task) <= high and random_return(task) == random_return(make_task(name))


class Falling(gymnasium.Env):
    """Truncates itself after five steps. The third and the fourth episode of a process fail; all do with ``always``."""

    observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    always, made, begun = False, 0, 0

    def __init__(self) -> None:
        type(self).made += 1

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        type(self).begun += 1
        self.t = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.t += 1
        if self.t == 2 and (self.always or self.begun in (3, 4)):
            raise RuntimeError("it fell")
        return np.zeros(1, np.float32), 1.0, False, self.t == 5, {}


def test_a_random_episode_that_fails_is_left_out_and_its_environments_are_given_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its NaN was the floor, against which every comparison of steps was fine."""
    section: dict = {"env_kwargs": {}, "wrappers": []}
    section["measured"] = {**_measure("gymnasium:Falling-v0", section, 0, Falling), "max_steps": 9}
    task = define("gymnasium:Falling-v0", section)(max_steps=9)
    monkeypatch.setattr(task, "_open", lambda: Flat(Falling(), task.observations, task.actions))
    Falling.made = Falling.begun = 0
    assert random_return(task) == 5.0
    assert Falling.made == 3, "one for all episodes, and a new one after each that failed"
    assert not task._live and len(task._free) == 1
    task = define("gymnasium:Falling-v0", section)(max_steps=3)
    monkeypatch.setattr(task, "_open", lambda: Flat(Falling(), task.observations, task.actions))
    assert random_return(task) == 3.0 and not task._live, "cut by the time limit"
    monkeypatch.setattr(Falling, "always", True)
    floor = random_return(task)
    assert math.isnan(floor)
    world, real = (side(runs(x, 100.0), floor, None) for x in ([10.0, NAN, 10.0, 11.0], [400.0] * 4))
    assert why_not(world, real, floor, None, number) == "the return of a random policy is not known"
    text = summary_text(run_summary(floor=None, proxy=runs(FAILS, 100.0), real=runs(SOLVES, 9000.0)))
    assert "No comparison of steps: the return of a random policy is not known." in text and "fewer" not in text


def test_returns_of_a_random_policy_are_those_of_the_tables_in_docs() -> None:
    """Computed before episodes could fail; tables and reports have them."""
    known = {"CartPole-v0": 18.2, "Acrobot-v1": -500.0, "Bandit": 26.32250000741333}
    assert {name: random_return(make_task(name)) for name in known} == known


def test_what_evolution_cost_is_said_or_said_to_be_unknown() -> None:
    assert "3,000,000 real steps were spent on evolving" in summary_text(run_summary())
    assert "unknown; the real steps spent on it were not recorded" in summary_text(run_summary(real_steps=None))


def test_bandit_runs_name_the_learner_on_the_task() -> None:
    text = summary_text(run_summary(real_learner="ddqn so and so", proxy=runs(SOLVES, 10.0), real=runs(SOLVES, 90.0)))
    assert "Agents on the real task: ddqn so and so." in text


def test_steps_until_solved_are_counted_both_ways() -> None:
    def both(first: float, fires: float) -> AgentRuns:
        return AgentRuns(SOLVES, [fires + i for i in range(20)], [first + i for i in range(20)])

    words = " ".join(summary_text(run_summary(kind="rn", proxy=both(50, 150), real=both(1500, 1700))).split())
    assert "training steps until the rule fires 159.5 [" in words
    assert "until the first test of its window 59.5 [" in words


@pytest.mark.parametrize("seed", [0, 1, 2, 41])
def test_another_seed_is_another(seed: int) -> None:
    text = summary_text(run_summary(solved=False, seed=seed))
    assert f"--seed {seed + 1})" in text


def test_summary_of_an_unsolved_world_without_comparison() -> None:
    text = summary_text(run_summary(kind="rn", env_name="Cliff", solved=False, seconds=328.0, solved_reward=-20.0))
    assert text.startswith("Cliff, reward network: NOT SOLVED (mean return of at least -20.0)\n")
    assert "5.5 minutes" in text
    assert "--seed" in text and "trained" not in text and "Written" not in text


@pytest.mark.parametrize("mark", [1e9, math.inf, None])
def test_a_task_without_a_mark_has_neither_failures_nor_a_verdict(mark: float | None) -> None:
    """Configurations say 1e9, which was a mark that nobody reached."""
    both = {"proxy": runs(FAILS, 1500.0), "real": runs(FAILS, 9000.0)}
    text = summary_text(run_summary(solved=False, solved_reward=mark, floor=1.0, **both))
    assert text.startswith("CartPole-v0, synthetic environment: evolved, with no mark to reach\n")
    assert "SOLVED" not in text and "failures" not in text and "000,000,000" not in text and "inf" not in text
    assert "6.0 times fewer" in text and "another seed" not in text


def test_no_side_is_less_than_the_other_where_neither_beats_random_actions() -> None:
    huge = [2e9] * 20
    text = summary_text(run_summary(solved_reward=None, floor=2e9, proxy=runs(huge, 9.0), real=runs(huge, 90.0)))
    assert "No comparison of steps: no agents reach more than random actions (2,000,000,000)." in text
    lost = summary_text(run_summary(solved_reward=None, floor=9.0, proxy=runs(FAILS, 9.0), real=runs([NAN] * 3, 9.0)))
    assert "Price per agent: 9.0 synthetic steps, no real ones.\n" in lost and "failures" in lost


def test_no_interval_of_steps_reaches_below_zero() -> None:
    few = [20.0, 90.0, 400.0]
    assert "[-" in cell(few)
    proxy = AgentRuns([1.0, 2.0, 3.0], few, few)
    text = summary_text(run_summary(proxy=proxy, real=proxy))
    rows = [line for line in text.splitlines() if line.startswith(("  training steps", "  until"))]
    assert len(rows) == 2 and all("[0.0, " in row and "[-" not in row for row in rows)
    assert _mark(0, few, few, False)[2][0][0] == pytest.approx(170.0)


def test_summary_with_one_comparison_only() -> None:
    text = summary_text(run_summary(proxy=AgentRuns([1.0, 2.0], [10.0, 20.0])))
    assert "in the evolved world" in text and "in the real task" not in text and "fewer" not in text


def test_summary_says_what_became_of_failed_agents() -> None:
    failing = AgentRuns([100.0, 100.0, NAN], [50.0, 50.0, 1.0])
    left_out = summary_text(run_summary(proxy=failing, solved_reward=None))
    assert "1 of 3 agents trained in the evolved world failed and are left out." in left_out
    assert "100.0 (2 of 2)" in left_out and "50.0 (2 of 2)" in left_out
    assert "failures 1 of 3" in " ".join(left_out.split())
    fine = AgentRuns([100.0, 100.0], [50.0, 50.0])
    assert "100.0 (2 of 2; at most 78 % fail (95 %))" in summary_text(run_summary(proxy=fine, solved_reward=None))
    assert "% fail" not in summary_text(run_summary(proxy=fine, solved_reward=195.0)), "all have failed"
    nothing = summary_text(run_summary(proxy=AgentRuns([NAN], [1.0])))
    assert "1 of 1 agents" in nothing


def test_a_shaper_run_speaks_of_shapers() -> None:
    text = summary_text(
        run_summary(
            kind="shaper",
            env_name="Cartpole",
            proxy=runs(SOLVES, 500.0),
            score_unit="steps",
            real=runs(FAILS, 500.0),
            floor=None,
        )
    )
    assert "(score of at least 195.0)" in text and "score, steps" in text
    assert "with the evolved shaper" in text and "with the human's shapers" in text
    assert "world" not in text and "real task" not in text


def test_a_cell_shows_no_interval_without_width() -> None:
    assert cell([]) == "-" and cell([7.0] * 4) == "7.0 (4 of 4)"
    assert cell([200.0] * 40, failing=True) == "200.0 (40 of 40; at most 7 % fail (95 %))"
