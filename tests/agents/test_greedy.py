"""A trained agent as a function acts as the learner's own final test acted: the same returns, episode by episode."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from envolve.agents.common.learners import LEARNERS
from envolve.agents.common.rollout import test_episodes as episodes_of
from envolve.agents.common.sections import VarySection
from envolve.agents.greedy import policies
from envolve.agents.train import train
from envolve.core import rng
from envolve.envs.section import EnvSection
from envolve.envs.task import make_task

CASES = [
    ("ddqn", "CartPole-v0", {"train_episodes": 3, "init_episodes": 1, "test_episodes": 3, "hidden_size": 8}),
    ("duelingddqn", "CartPole-v0", {"train_episodes": 3, "init_episodes": 1, "test_episodes": 3, "hidden_size": 8}),
    ("td3", "Pendulum-v0", {"train_episodes": 2, "init_episodes": 1, "test_episodes": 2, "hidden_size": 8}),
    ("sac", "Pendulum-v0", {"train_episodes": 2, "init_episodes": 1, "test_episodes": 2, "hidden_size": 8}),
    (
        "ppo",
        "CartPole-v0",
        {"train_episodes": 6, "test_episodes": 3, "hidden_size": 8, "rollout_steps": 16, "ppo_epochs": 2},
    ),
    ("ql", "Cliff", {"train_episodes": 8, "test_episodes": 2}),
]


@pytest.mark.parametrize("name, task_name, values", CASES, ids=[c[0] for c in CASES])
def test_the_function_plays_as_the_learner_was_tested(name: str, task_name: str, values: dict[str, int]) -> None:
    task, keys = make_task(task_name, max_steps=25), np.array([5, 6, 7])
    learner = LEARNERS[name].section(**values)
    vary = None if name == "ql" else VarySection(vary_hp=True, vary_layers=True)
    if name in ("ppo",):
        vary = None
    result = train(name, learner, vary, task, "real", EnvSection(), torch.zeros(3, 1), keys, backend="torch")
    assert (result.updates > 0).all() and len(set(map(tuple, result.test_return))) > 1, "members that differ"
    found = policies(name, learner, vary, task, result.weights, keys)
    assert len(found) == 3
    for i, policy in enumerate(found):
        key = rng.fold(torch.as_tensor(keys[i : i + 1]), rng.FINAL_TEST)
        returns, _ = episodes_of(
            task, lambda obs, step, policy=policy: policy(obs), key, torch.zeros_like(key), learner.test_episodes, 1
        )
        np.testing.assert_allclose(returns[0].numpy(), result.test_return[i], rtol=1e-5)
