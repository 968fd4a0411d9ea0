"""``benchmarks/worlds/own_agents.py``: this project's learners train in the world that NumPy alone makes."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from benchmarks.worlds import learner_check, own_agents
from envolve.envs.task import make_task
from envolve.envs.worlds.contextual_bandit import ContextualBandit
from envolve.worlds import open_world, share

WORLDS = sorted({world for learner in learner_check.LEARNERS.values() for world in learner.worlds})


@pytest.mark.parametrize("name", WORLDS)
def test_contexts_and_rewards_are_those_of_the_zoo(name: str) -> None:
    zoo, rng = open_world(name), np.random.default_rng(0)
    task = make_task(own_agents.TASKS.get(zoo.task, zoo.task))
    section, flat = own_agents.bandit_of(name, task)
    world = ContextualBandit(task, section, flat[None])
    u = rng.random((64, world.reset_uniforms))
    contexts, part = zoo.bandit.contexts(u)
    state = world.reset(torch.from_numpy(u)[None])
    np.testing.assert_allclose(state[0].numpy(), zoo.mean + zoo.scale * contexts, rtol=1e-4, atol=1e-5)

    if task.action_size:
        shares = rng.uniform(-1, 1, (64, task.action_size)).astype(np.float32)
        action, code = torch.from_numpy(shares), shares
    else:
        code = rng.integers(task.num_actions, size=64)
        action = torch.from_numpy(code)
    _, reward, _, _ = world.step(state, action[None])
    np.testing.assert_allclose(reward[0].numpy(), zoo.bandit.pay(part, code), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(("learner", "world", "least"), [("ppo", WORLDS[0], 0.8), ("ppo", "Swimmer-v5-bandit", 0.5)])
def test_an_agent_learns_there(learner: str, world: str, least: float) -> None:
    act = own_agents.agent_in(world, learner, 4096, 0)
    assert share(act, world) > least
