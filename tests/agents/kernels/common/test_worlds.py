"""Compiled worlds against those of ``envs/``: continuous actions, which no learner of the other tests takes."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from envolve.agents.common.rollout import make_world, repeat, reset_uniforms
from envolve.agents.kernels.common import worlds
from envolve.envs.section import EnvSection
from envolve.envs.task import make_task
from envolve.envs.worlds.world import init_world

WORLDS = {
    "real": dict(kind="real"),
    "se": dict(kind="se"),
    "se, raw done": dict(kind="se", env=dict(raw_done=True, activation_fn="tanh", hidden_layer=2)),
    "bandit": dict(kind="se", env=dict(contextual_bandit=True)),
    "bandit, deep": dict(kind="se", env=dict(contextual_bandit=True, activation_fn="prelu", hidden_layer=2)),
    "bandit, stored": dict(kind="se", env=dict(contextual_bandit=True, stored_contexts=5)),
    **{f"rn {t}": dict(kind="rn", env=dict(reward_env_type=t)) for t in (0, 1, 2, 5, 6)},
}


@pytest.mark.parametrize("skip", [1, 3])
@pytest.mark.parametrize("name", ["Pendulum-v0", "MountainCarContinuous-v0"])
@pytest.mark.parametrize("case", WORLDS)
def test_continuous_actions(case, name, skip):
    """Episodes of 20 steps with random actions, beyond the bounds too: every number that the loops read."""
    kind, task = WORLDS[case]["kind"], make_task(name, max_steps=20)
    env = EnvSection(**{"hidden_size": 9, **WORLDS[case].get("env", {})})
    key, gamma = torch.tensor([5]), torch.tensor([0.9])
    params = torch.zeros(1, 1) if kind == "real" else init_world(kind, task, env, key)
    ours = make_world(kind, task, env, params, gamma)
    twin = worlds.create_world(task, kind, env, 0.9, params[0].numpy())
    generator = torch.Generator().manual_seed(1)
    for episode in range(3):
        R = ours.reset_uniforms
        state = ours.reset(reset_uniforms(key, torch.tensor([[episode * R]]), R))
        worlds.reset(twin, np.uint64(5), episode)
        rounding = 1e-6 if env.contextual_bandit else 0  # a bandit's states come from a network
        np.testing.assert_allclose(twin.obs, ours.observe(state)[0, 0], rtol=rounding, atol=rounding)
        t, over = torch.zeros(1, 1, dtype=torch.int64), torch.zeros(1, 1, dtype=torch.bool)
        while not over.item():
            action = torch.randn(1, 1, task.action_size, generator=generator) * 2
            left = task.max_steps - t.item()
            state, reward, done, failed, t, over = repeat(ours, state, action, t, skip, task.max_steps)
            r, d, stops, fails, steps = worlds.repeat(twin, 0, action[0, 0].numpy(), skip, left)
            assert steps == left - (task.max_steps - t.item()) and not fails and not failed.item()
            np.testing.assert_allclose([r, d], [reward.item(), done.item()], rtol=1e-5, atol=1e-5)
            np.testing.assert_allclose(twin.obs, ours.observe(state)[0, 0], rtol=1e-5, atol=1e-5)
            assert bool(stops) or t.item() >= task.max_steps or not over.item()
