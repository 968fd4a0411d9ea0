"""agents/peers.py: what Stable-Baselines3's learners are called, how long their rollouts are, and how training ends."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import stable_baselines3
import torch

from envolve.agents import peers
from envolve.agents.common.result import AGENT_DIVERGED, OK, WORLD_DIVERGED


def test_names_are_those_of_the_classes() -> None:
    assert peers.installed() and peers.version() == stable_baselines3.__version__
    for name in peers.NAMES:
        assert peers.algorithm(name).__name__ == name.upper()


@pytest.mark.parametrize("name, length", [("ppo", 2048), ("a2c", 5), ("dqn", 4), ("sac", 1), ("td3", 1), ("ddpg", 1)])
def test_rollouts(name: str, length: int) -> None:
    assert peers.rollout(name) == length
    assert peers.whole_rollouts(name, 3) == max(length, 3 // length * length)
    assert peers.whole_rollouts(name, 10_000) == 10_000 // length * length


def test_rollouts_of_other_settings() -> None:
    assert peers.rollout("ppo", {"n_steps": 64}) == 64
    assert peers.rollout("dqn", {"train_freq": (1, "episode")}) == 1


@pytest.mark.parametrize(
    "raised, weight, status",
    [
        (None, 1.0, OK),
        (None, float("nan"), AGENT_DIVERGED),
        (FloatingPointError, 1.0, WORLD_DIVERGED),
        (ValueError, float("inf"), AGENT_DIVERGED),
    ],
)
def test_how_training_ends(raised: type[Exception] | None, weight: float, status: int) -> None:
    assert peers.learn(model(raised, weight), 10) == status


def test_an_error_of_a_sound_model_is_raised() -> None:
    with pytest.raises(ValueError):
        peers.learn(model(ValueError, 1.0), 10)


def model(raised: type[Exception] | None, weight: float) -> Any:
    def learn(steps: int) -> None:
        assert steps == 10
        if raised:
            raise raised

    return SimpleNamespace(learn=learn, policy=SimpleNamespace(parameters=lambda: iter([torch.tensor([weight])])))
