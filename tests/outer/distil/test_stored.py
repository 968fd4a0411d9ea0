"""States that a bandit stores: which ones, how often, and what the bandit then teaches."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from envolve.envs.section import EnvSection
from envolve.envs.task import make_task
from envolve.envs.worlds.synthetic import synthetic_world
from envolve.outer.config.load import ConfigError, config_of
from envolve.outer.distil.bandit import fit_bandit
from envolve.outer.distil.stored import chosen, slots
from tests.outer.distil.test_begin import CARTPOLE


@given(st.lists(st.integers(1, 30), min_size=1, max_size=8), st.integers(0, 20))
@settings(max_examples=50, deadline=None)
def test_every_distinct_state_is_stored_and_the_frequent_ones_more_often(counts: list[int], spare: int) -> None:
    total = len(counts) + spare
    given_ = slots(torch.tensor(counts), total)
    assert int(given_.sum()) == total and int(given_.min()) >= 1
    order = np.argsort(counts)
    assert (np.diff(given_.numpy()[order]) >= 0).all() or len(set(counts)) < len(counts)
    states = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))[:, None].float().repeat(1, 3)
    kept = chosen(states[torch.randperm(len(states))], total, 1)
    assert torch.equal(kept[:, 0].long().bincount(), given_)


def test_of_more_states_than_fit_random_ones_are_stored() -> None:
    states = torch.arange(1000.0)[:, None]
    kept = chosen(states, 100, 3)
    assert len(kept.unique()) == 100 and torch.equal(kept, chosen(states, 100, 3))
    assert not torch.equal(kept, chosen(states, 100, 4)) and 400 < float(kept.mean()) < 600


@pytest.mark.parametrize("name", ["CartPole-v0", "Pendulum-v0"])
def test_a_bandit_of_stored_contexts_pays_most_for_the_policys_action(name: str) -> None:
    task = make_task(name)
    section = EnvSection(contextual_bandit=True, hidden_size=32, hidden_layer=1, stored_contexts=200)
    contexts = torch.randn(1000, task.observation_size, generator=torch.Generator().manual_seed(0))

    def act(x: torch.Tensor) -> torch.Tensor:
        return (x[:, 0] > 0).long() if task.num_actions else task.max_action * x[:, :1].tanh()

    flat = fit_bandit(task, section, contexts, act, 5, 1000)[None]
    world = synthetic_world(task, section, flat)
    state = world.reset(torch.arange(200.0).view(1, -1, 1) / 200 + 1e-4)
    assert {tuple(x) for x in state[0].tolist()} <= {tuple(x) for x in contexts.tolist()}
    tried = torch.arange(2) if task.num_actions else torch.linspace(-task.max_action, task.max_action, 41)[:, None]
    paid = torch.stack([world.step(state, a.expand(1, 200, *a.shape))[1][0] for a in tried])
    best, wanted = tried[paid.argmax(0)], act(state[0])
    if task.num_actions:
        assert (best == wanted).float().mean() > 0.95
    else:
        assert (best - wanted).abs().mean() < 0.15 * task.max_action


def test_only_a_bandit_stores_contexts() -> None:
    raw = {**CARTPOLE, "envs": {"CartPole-v0": {"hidden_size": 8, "stored_contexts": 5}}}
    raw["agents"] = {k: v for k, v in CARTPOLE["agents"].items() if "expert" not in k}
    raw["agents"]["gtn"] = {**raw["agents"]["gtn"], "init": "random"}
    with pytest.raises(ConfigError, match="envs.CartPole-v0.stored_contexts: found 5, expected 0: only a bandit"):
        config_of(raw, (), "test")
