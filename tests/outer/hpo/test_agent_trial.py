"""A configuration judged by agents alone."""

from __future__ import annotations

import json
import math

import pytest

import envolve.outer.run
from envolve.outer.hpo.agent_trial import AgentTrials, trial_result
from tests.outer.hpo.small import study
from tests.outer.hpo.small import trial as nes_trial
from tests.outer.small import GRIDWORLD_FILE, cliff
from tests.outer.test_run import Direct, go

ALPHA = "agents.ql.alpha"
BASE = {
    "config": str(GRIDWORLD_FILE), "evaluate": "agent", "loss": "steps",
    "set": {"agents.ql.train_episodes": 60, "agents.ql.eps_init": 0.2, "agents.ql.eps_min": 0.2},
    "space": {ALPHA: {"range": [0.01, 1.0]}},
}  # fmt: skip
AGENTS = {"unit": "agents", "least": 2, "most": 18, "eta": 3}
STEPS = {"unit": "steps", "least": 200, "most": 1800, "eta": 3}


def agent_study(folder, budget=AGENTS, **changes):
    changes = {**BASE, "budget": budget, "repeats": None, "agents": None if budget is AGENTS else 4, **changes}
    return study(folder, **changes)


def trial(budget, alpha=1.0, number=4):
    t = nes_trial(budget)
    t.values.clear()
    t.values[ALPHA] = alpha
    object.__setattr__(t, "config_id", (0, 0, number))
    return t


class Counting(Direct):
    def evaluate(self, chunks, unfit=None):
        self.agents = getattr(self, "agents", []) + [len(chunk.seeds) for chunk in chunks]
        self.modes = getattr(self, "modes", set()) | {chunk.mode for chunk in chunks}
        return super().evaluate(chunks)


def test_a_promoted_configuration_keeps_the_agents_that_it_has(tmp_path):
    s, direct = agent_study(tmp_path), Counting()
    trials = AgentTrials(s, tmp_path / "a", direct)
    small, large = trials(trial(2)), trials(trial(6))
    assert direct.agents == [2, 4] and direct.modes == {"real_budget"}
    assert large == AgentTrials(s, tmp_path / "b", Direct())(trial(6))
    assert (small.info["agents"], large.info["agents"]) == (2, 6)
    again = Counting()
    assert AgentTrials(s, tmp_path / "a", again)(trial(6)) == large and not hasattr(again, "agents")


def test_agents_of_other_values_are_not_taken_for_these(tmp_path):
    s = agent_study(tmp_path)
    trials = AgentTrials(s, tmp_path / "a", Direct())
    assert trials(trial(4, 1.0)) != trials(trial(4, 0.02)), "the folder is that of another configuration"
    assert trials(trial(4, 0.02)) == AgentTrials(s, tmp_path / "b", Direct())(trial(4, 0.02))
    (tmp_path / "a/0_4/agents.json").write_text("{")
    assert trials(trial(4, 0.02)).info["agents"] == 4


def test_learning_rates_that_do_not_learn_lose(tmp_path):
    trials = AgentTrials(agent_study(tmp_path), tmp_path / "a", Direct())
    good, bad = trials(trial(6, 1.0, 0)), trials(trial(6, 0.01, 1))
    assert good.loss < bad.loss and good.info["solved"] > bad.info["solved"]


def test_a_budget_of_steps_limits_the_training(tmp_path):
    s = agent_study(tmp_path, STEPS)
    trials = AgentTrials(s, tmp_path / "a", Direct())
    small, large = trials(trial(200, 0.01)), trials(trial(1800, 0.01))
    assert small.info["agents"] == large.info["agents"] == 4
    assert 200 <= small.info["train_steps"] < 300 < large.info["train_steps"]


def test_agents_in_worlds_that_were_evolved(tmp_path, monkeypatch):
    monkeypatch.setattr(envolve.outer.run, "learning_curve", lambda *args, **kwargs: None)
    for seed in (0, 1):
        go(cliff("agents.gtn.max_iterations=2", f"seed={seed}"), tmp_path / f"run{seed}")
    worlds = [str(tmp_path / f"run{seed}/model.pt") for seed in (0, 1)]
    s, direct = agent_study(tmp_path, worlds=worlds), Counting()
    result = AgentTrials(s, tmp_path / "a", direct)(trial(6))
    assert direct.agents == [3, 3] and direct.modes == {"proxy_budget"}
    assert result.info["agents"] == 6 and math.isfinite(result.loss)
    agents = json.loads((tmp_path / "a/0_4/agents.json").read_text())["agents"]
    assert len({a["train_steps"] for a in agents[0::2]} | {a["train_steps"] for a in agents[1::2]}) > 1


def agent(mean_return, train_steps=100.0, failed=""):
    return {"mean_return": mean_return, "train_steps": train_steps, "episodes": 5.0, "updates": 1.0, "failed": failed}


def test_the_three_losses():
    agents = [agent(-20.0), agent(-40.0, 300.0)]
    assert trial_result(agents, "return", -20.0).loss == 30
    assert trial_result(agents, "steps", -20.0).loss == (100 + 300 * 1.5) / 2  # d = 1: half of it again
    assert trial_result(agents, "episodes", -50.0).loss == 5
    assert trial_result(agents, "steps", -20.0).info["solved"] == 0.5


def test_failed_agents_count_as_the_worst_of_the_others():
    agents = [agent(-20.0), agent(-40.0), agent(math.nan, failed="diverged")]
    assert trial_result(agents, "return", -20.0).loss == pytest.approx((20 + 40 + 40) / 3)
    nobody = trial_result([agent(math.nan, failed="diverged")] * 3, "return", -20.0)
    assert nobody.loss == math.inf and nobody.error == "3 of 3 agents failed, one: diverged"


def test_a_configuration_of_which_half_fails_has_failed():
    """One agent of 200 and 19 that diverged would be better than 20 of 199."""
    lucky = trial_result([agent(200.0), *[agent(math.nan, failed="diverged")] * 19], "return", 195.0)
    assert lucky.loss == math.inf and lucky.error == "19 of 20 agents failed, one: diverged"
    assert trial_result([agent(200.0), agent(math.nan, failed="diverged")], "return", 195.0).loss == math.inf
