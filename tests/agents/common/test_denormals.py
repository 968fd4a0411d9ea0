"""Denormal numbers are 0 while a learner updates, nowhere else, and no weight is another one for it."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch

from envolve.agents.common.denormals import _are_zero, without_denormals
from envolve.agents.common.result import TrainResult
from envolve.agents.common.sections import TD3Section
from envolve.agents.kernels.common.members import train_each
from envolve.agents.train import train
from envolve.envs.classic.pendulum import Pendulum
from envolve.envs.section import EnvSection
from envolve.envs.worlds.world import init_world

needs = pytest.mark.skipif(not torch.set_flush_denormal(False), reason="this processor has no such mode")


@needs
def test_the_mode_ends_with_the_block() -> None:
    tiny = torch.full((1,), sys.float_info.min, dtype=torch.float64)
    assert tiny * 0.5 > 0 and not _are_zero()
    with without_denormals():
        assert tiny * 0.5 == 0 and _are_zero()
        with without_denormals():
            pass
        assert _are_zero()
    assert tiny * 0.5 > 0 and not _are_zero()
    with pytest.raises(KeyError), without_denormals():
        raise KeyError
    assert not _are_zero()


@needs
@pytest.mark.parametrize("threads", [1, 2])
def test_compiled_loops_run_in_it(threads: int) -> None:
    seen = [False] * 4

    def one(i: int, counts: np.ndarray) -> None:
        seen[i] = _are_zero()

    train_each(one, TrainResult.before_training(np.zeros((4, 1), np.float32), 1, 1), threads)
    assert all(seen) and not _are_zero()
    with ThreadPoolExecutor(1) as pool:
        assert not pool.submit(_are_zero).result()


@needs
@pytest.mark.parametrize("backend", ["compiled", pytest.param("torch", marks=pytest.mark.slow)])
def test_weights_have_the_same_bits(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand updates: Adam's means of dead units are denormal by then."""
    task, world = Pendulum(), EnvSection(contextual_bandit=True, hidden_size=8)
    few: dict[str, Any] = {"train_steps": 1100, "train_episodes": 1100, "test_episodes": 1}
    small: dict[str, Any] = {"hidden_size": 32, "hidden_layer": 1, "batch_size": 8, "init_episodes": 20}
    section = TD3Section(activation_fn="relu", lr=0.02, **few, **small)
    worlds = init_world("se", task, world, torch.arange(1))
    seen = []
    for flush in (torch.set_flush_denormal, lambda on: True):
        monkeypatch.setattr(torch, "set_flush_denormal", flush)
        result = train("td3", section, None, task, "se", world, worlds, np.array([5]), backend=backend)
        seen.append(result.weights.tobytes())
    assert seen[0] == seen[1]
