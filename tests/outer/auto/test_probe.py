"""What is timed before a plan: less where a step of the environment is slow."""

from __future__ import annotations

import pytest

from envolve.outer.auto import probe
from envolve.outer.auto.choice import Choice
from envolve.outer.auto.facts import USUAL_SECONDS, facts_of
from envolve.outer.auto.plan import plan
from envolve.outer.config.load import config_of
from tests.outer.auto.test_plan import BASE

NAME = "gymnasium:CartPole-v1"


def test_learners_of_a_slow_environment_are_not_timed(monkeypatch: pytest.MonkeyPatch, warm: None) -> None:
    measured = config_of({**BASE, "env_name": NAME, "envs": {NAME: {}}}, (), NAME).data["envs"][NAME]["measured"]
    made = plan(facts_of(NAME, measured, 1), Choice(seconds=600.0, workers=1), ["ppo", "a2c"], True)
    data = config_of(made.config, (), NAME).data
    monkeypatch.setattr(probe, "SLOW_STEP", 0.0)
    found = probe.probe({"data": data, "files": [], "quick": False, "learners": ["ppo", "a2c"]})
    assert found["agent_seconds"] == {k: USUAL_SECONDS[k] + found["step_seconds"] for k in ("ppo", "a2c")}
    most = probe.MOST_STEPS + 2 * probe.EXPERTS * (probe.QUICK_EXPERT_STEPS + 1000)
    assert found["expert_seconds"] > 0 and found["steps"] < most, "2,048 steps of PPO are not among them"
