"""Learners on an environment from outside: compiled between its steps, against the PyTorch path."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from envolve.agents.common.learners import LEARNERS
from envolve.agents.common.result import TrainResult
from envolve.agents.train import train
from envolve.envs.outside.define import define
from envolve.envs.outside.measure import _measure
from envolve.envs.section import EnvSection
from envolve.envs.task import Task
from tests.agents.same import same_run
from tests.envs.outside.test_outside import PLAIN, Moody
from tests.examples import some_slow

SMALL: dict[str, Any] = {"hidden_size": 12, "hidden_layer": 1, "lr": 3e-3, "test_episodes": 2, "train_episodes": 9}
OWN: dict[str, dict[str, Any]] = {
    "ppo": {"num_envs": 2, "rollout_steps": 16, "minibatches": 2, "ppo_epochs": 3, "advantage": "gae", **SMALL},
    "ddqn": {"batch_size": 10, "init_episodes": 1, **SMALL},
    "td3": {"batch_size": 10, "init_episodes": 1, **SMALL},
}
CASES = [("ddqn", "CartPole-v1"), ("ppo", "Pendulum-v1"), ("td3", "Pendulum-v1"), ("ppo", "CartPole-v1")]


def trained(name: str, task: Task, backend: str, **more: Any) -> TrainResult:
    learner = LEARNERS[name].section(**{**OWN[name], "train_steps": 90, **more})
    worlds, keys = torch.zeros(3, 1), np.array([5, 6, 7])
    return train(name, learner, None, task, "real", EnvSection(), worlds, keys, backend=backend)


@pytest.mark.parametrize(("name", "env"), some_slow(CASES, CASES[:2]))
@pytest.mark.parametrize("bootstrap", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_equals_the_pytorch_path(name: str, env: str, bootstrap: bool) -> None:
    section = {**PLAIN, "env_kwargs": {"max_episode_steps": 17}}
    full = f"gymnasium:{env}"
    task = define(full, {**section, "measured": _measure(full, section, 0, None)})(max_steps=25)
    a, b = (trained(name, task, backend, bootstrap_time_limit=bootstrap) for backend in ("torch", "compiled"))
    assert (b.updates > 5).all() and (b.episode_length.max(1) <= 17).all()
    same_run(a, b, tolerance=1e-3)
    assert not task._live  # type: ignore[attr-defined]


class Numbers(Moody):
    action_space = spaces.Box(-1, 1, (1,), np.float32)


@pytest.mark.parametrize("mood", ["cut", "raises", "nan"])
@pytest.mark.parametrize("name", ["ddqn", "ppo", pytest.param("td3", marks=pytest.mark.slow)])
def test_an_environment_that_misbehaves(name: str, mood: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or that cuts its episodes itself."""
    kind = Numbers if name == "td3" else Moody
    section = {**PLAIN, "measured": _measure("gymnasium:Moody-v0", PLAIN, 0, kind)}
    task = define("gymnasium:Moody-v0", section)(max_steps=6)
    monkeypatch.setattr(task, "_make", lambda: kind(mood))
    a, b = (trained(name, task, backend) for backend in ("torch", "compiled"))
    same_run(a, b, tolerance=1e-3)
    assert a.complaints == b.complaints and len(b.complaints) == (0 if mood == "cut" else 3)
    assert (b.status == (0 if mood == "cut" else 1)).all() and (mood != "cut" or (b.episode_length == 3).any())
