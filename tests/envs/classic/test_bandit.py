"""The bandit: its means, and that nothing but the reward ever changes."""

from __future__ import annotations

import random

import numpy as np
import torch

from envolve.envs.classic.bandit import MEANS
from envolve.envs.task import make_task


def test_means_are_the_originals():
    wanted = [(i + 1) / 20 for i in range(20)]
    random.Random(0).shuffle(wanted)
    assert list(MEANS) == wanted and max(MEANS) == 1.0


def test_steps():
    task = make_task("Bandit")
    assert (task.num_states, task.num_actions, task.observation_size, task.reset_uniforms) == (1, 20, 1, 0)
    state = task.reset(torch.zeros(2, 20, 0))
    assert state.shape == (2, 20, 1) and (task.observe(state) == 1).all()
    next_state, reward, terminated = task.step(state, torch.arange(20).expand(2, 20))
    assert torch.equal(next_state, state) and not terminated.any()
    np.testing.assert_array_equal(reward[1].numpy(), np.float32(MEANS))
