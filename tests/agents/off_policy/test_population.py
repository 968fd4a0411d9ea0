"""``AgentPopulation``: the algorithm that it holds, learning, and members that are kept, stored and loaded."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from envolve.agents.common.hyper import draw
from envolve.agents.common.sections import SACSection, TD3Section
from envolve.agents.off_policy.population import AgentPopulation, Widths
from envolve.agents.off_policy.sac import SAC
from envolve.agents.off_policy.td3 import TD3
from envolve.core import rng

WIDTHS, KEYS, B = Widths(3, 2), np.array([5, -6, 7]), 8
KINDS = {"sac": (SAC, SACSection), "td3": (TD3, TD3Section)}


def population(name: str, keys: np.ndarray = KEYS) -> AgentPopulation:
    kind, section = KINDS[name]
    return AgentPopulation(kind, WIDTHS, draw(section(hidden_size=6, batch_size=B), keys), torch.as_tensor(keys))


def batch(number: int, members: int = len(KEYS)) -> Tensor:
    generator = torch.Generator().manual_seed(number)
    return torch.rand(members, 2 * 3 + 2 + 2, B, generator=generator)


def taught(name: str, updates: int = 3) -> AgentPopulation:
    agents = population(name)
    for number in range(1, updates + 1):
        agents.learn(batch(number), agents.actors_turn(number))
    return agents


def same(a: AgentPopulation, b: AgentPopulation) -> None:
    for name, part in a.state_dict().items():
        assert torch.equal(part, b.state_dict()[name]), name


@pytest.mark.parametrize("name", KINDS)
def test_learning_is_the_algorithms_update(name: str) -> None:
    agents, other = taught(name), population(name)
    one, keys = torch.ones(3, dtype=torch.int64), rng.fold(torch.as_tensor(KEYS), rng.UPDATE)
    for number in (1, 2, 3):
        turn = number % other.algorithm.policy_delay == 0
        other.algorithm.update(batch(number), torch.full((3, B), 1 / B), one > 0, one * number, keys, turn)
    assert torch.equal(agents.params, other.params) and agents.updates.tolist() == [3, 3, 3]
    assert not torch.equal(agents.params, population(name).params) and agents.finite().all()


@pytest.mark.parametrize("name", KINDS)
def test_loaded_agents_go_on_alike(name: str) -> None:
    agents, loaded = taught(name), population(name)
    loaded.load_state_dict(agents.state_dict())
    for each in (agents, loaded):
        each.learn(batch(4), True)
    same(agents, loaded)


@pytest.mark.parametrize("name", KINDS)
def test_those_that_are_kept_learn_as_before(name: str) -> None:
    agents, kept, rows = taught(name), taught(name), torch.tensor([2, 0])
    kept.keep(rows)
    agents.learn(batch(4), True)
    kept.learn(batch(4)[rows], True)
    torch.testing.assert_close(kept.params, agents.params[rows], rtol=1e-5, atol=1e-6)
    assert kept.updates.tolist() == [4, 4] and torch.equal(kept.key, agents.key[rows])


def test_environments_side_by_side_take_decisions_one_after_another() -> None:
    agents, key = population("td3"), torch.as_tensor(KEYS)
    for together, alone in zip(agents.side_by_side(key, 10, 4), zip(*(agents.draws(key, 10 + n, 1) for n in range(4)))):
        assert torch.equal(together, torch.cat([part[0] for part in alone], 1))


def test_a_compiled_update_stays_compiled_when_members_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    from envolve.agents.kernels.off_policy import update

    made: list[int] = []
    monkeypatch.setattr(update, "why_not", lambda algorithm: None)
    monkeypatch.setattr(update, "update_of", lambda algorithm: made.append(len(algorithm.rows.params)))
    agents = population("sac")
    assert agents.compile() and made == [3]
    agents.keep(torch.tensor([1]))
    assert made == [3, 1]
