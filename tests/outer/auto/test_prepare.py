"""The learners of a report, beside those that its world evolves with."""

from __future__ import annotations

import pytest

from envolve.outer.auto.prepare import _unseen_of
from envolve.outer.config.load import ConfigError, load_config

FITTING = ["ppo", "dqn", "a2c"]
EVOLVED_WITH_DDQN = "default_config_cartpole_syn_env.yaml"


def test_a_learner_of_the_evolutions_family_stays_beside_others() -> None:
    data = load_config(EVOLVED_WITH_DDQN).data
    assert _unseen_of(data, FITTING, FITTING, asked=False) == FITTING
    assert _unseen_of(data, ["dqn", "ppo"], FITTING, asked=True) == ["dqn", "ppo"]


def test_a_report_of_its_family_alone_is_refused() -> None:
    data = load_config(EVOLVED_WITH_DDQN).data
    with pytest.raises(ConfigError, match="found dqn alone, of a family that the world .* one of ppo, a2c with it"):
        _unseen_of(data, ["dqn"], FITTING, asked=True)


def test_a_learner_that_the_world_evolves_with_is_refused() -> None:
    data = load_config(EVOLVED_WITH_DDQN).data
    fitting = ["ddqn", "duelingddqn", "ppo"]
    with pytest.raises(ConfigError, match="found ddqn, which the world evolves with, expected some of ppo"):
        _unseen_of(data, ["ddqn"], fitting, asked=True)
    with pytest.raises(ConfigError, match="found duelingddqn alone, of a family .*, expected one of ppo with it"):
        _unseen_of(data, ["duelingddqn"], fitting, asked=True)
