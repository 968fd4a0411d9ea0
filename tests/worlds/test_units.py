"""benchmarks/worlds/units.py: agents that are tested in the units of a world."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks.worlds import continuous_control, continuous_figure, units
from benchmarks.worlds.own_agents import section_of
from envolve.agents.common.result import TrainResult
from envolve.agents.train import train
from envolve.envs.task import make_task
from envolve.envs.worlds.contextual_bandit import ContextualBandit
from envolve.envs.worlds.file import read_world
from envolve.envs.worlds.units import Units
from envolve.outer.checkpoint import RunError
from envolve.outer.config import problem

WORLD = continuous_figure.DATA / "half_cheetah" / "run-0" / "distilled.pt"


def test_a_world_that_asks_for_a_share_pays_for_it_what_it_paid_for_the_whole() -> None:
    found = read_world(str(WORLD))
    task, section = make_task(found.env_name), problem.env_section(found.config)
    plain = ContextualBandit(task, section, found.flat[None])
    other = ContextualBandit(task, section, units.asking(task, section, found.flat, 0.5)[None])
    u = torch.from_numpy(np.random.default_rng(1).random((1, 1000, task.observation_size)))
    contexts, action = plain.reset(u), torch.rand(1, 1000, task.action_size) * 2 - 1
    assert torch.equal(contexts, other.reset(u))
    assert torch.allclose(plain.step(contexts, action)[1], other.step(contexts, 0.5 * action)[1], atol=1e-5)


def test_policies_are_tested_as_those_that_train() -> None:
    """With units of mean 0 and deviation 1 the returns are those of ``train``."""
    found = read_world(str(WORLD))
    task, section = make_task(found.env_name, 20), problem.env_section(found.config)
    name, learner = section_of("ppo", 2048, 0, 3)
    keys = np.array([3, 4], dtype=np.int64)
    result = train(name, learner, None, task, "se", section, found.flat.repeat(2, 1), keys)
    same = Units(torch.zeros(task.observation_size), torch.ones(task.observation_size))
    greedy = continuous_control.policies(name, learner, None, task, result.weights, keys)
    returns = units.test_returns(task, greedy, same, keys, 3)
    np.testing.assert_allclose(returns, result.test_return, rtol=1e-3, atol=1e-2)


@pytest.mark.parametrize("learner", ["td3_normalised", "sac_normalised", "ppo_normalised"])
def test_a_cell_of_agents_in_these_units(monkeypatch: pytest.MonkeyPatch, learner: str) -> None:
    results = []

    def trained(*args: Any, **keywords: Any) -> TrainResult:
        results.append(train(*args, **keywords, backend="torch"))
        return results[-1]

    monkeypatch.setattr(continuous_control, "train", trained)
    config = Path("configs/zoo/half_cheetah.yaml")
    steps = 2048 if learner.startswith("ppo") else 110
    row = continuous_control.cell(config, WORLD.parents[1], "distilled", learner, 0, range(2), steps, 1, "cpu")
    assert np.isfinite(row["returns"]).all() and len(set(row["returns"])) == 2
    assert (results[0].updates > 0).all()  # PPO's from its one rollout


def test_there_are_no_such_units_on_the_task(tmp_path: Path) -> None:
    config = Path("configs/zoo/half_cheetah.yaml")
    with pytest.raises(RunError, match="--learners td3_normalised: found task, expected worlds"):
        continuous_control.cell(config, tmp_path, "task", "td3_normalised", 0, range(1), 10, 1, "cpu")
