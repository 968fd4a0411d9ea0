"""envs/worlds/units.py: the same bandit in units of its contexts' spread."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from envolve.envs.nets.networks import forward
from envolve.envs.section import EnvSection
from envolve.envs.task import Task, make_task
from envolve.envs.worlds import units
from envolve.envs.worlds.contextual_bandit import ContextualBandit
from envolve.envs.worlds.file import read_world
from envolve.envs.worlds.world import init_world, world_nets
from envolve.outer.config import problem
from envolve.worlds import units as without_torch
from tests.test_layout import ROOT

WORLD = ROOT / "results" / "continuous_control" / "half_cheetah" / "run-0" / "distilled.pt"
SMALL = EnvSection(contextual_bandit=True, hidden_size=16, hidden_layer=1, activation_fn="leakyrelu")


@pytest.fixture(scope="module")
def bandit() -> tuple[Task, EnvSection, torch.Tensor]:
    found = read_world(str(WORLD))
    return make_task(found.env_name), problem.env_section(found.config), found.flat


@pytest.mark.parametrize("stored", [0, 50])
@pytest.mark.parametrize("name", ["Pendulum-v0", "CartPole-v0", "HalfCheetah-v5"])
def test_units_move_into_the_outer_layers(name: str, stored: int) -> None:
    task, section = make_task(name), dataclasses.replace(SMALL, stored_contexts=stored)
    init, reward = (shape for _, shape in world_nets("se", task, section))
    flat = init_world("se", task, section, torch.tensor([3]))[0]
    g = torch.Generator().manual_seed(0)
    F = task.observation_size
    mean, scale = torch.randn(F, generator=g), torch.rand(F, generator=g) * 5 + 0.1
    own = units.observed(task, section, flat, mean, scale)
    z = torch.randn(1, init.inputs, 50, generator=g)

    def contexts(flat: torch.Tensor) -> torch.Tensor:
        return flat[: init.size].view(50, F) if stored else forward(init, flat[None, : init.size], z)[0].T

    drawn = contexts(flat)
    torch.testing.assert_close(contexts(own), drawn * scale + mean, rtol=1e-4, atol=1e-4)
    action = torch.rand(50, reward.inputs - F, generator=g)
    paid = forward(reward, flat[None, init.size :], torch.cat((action, drawn), 1).T[None])
    moved = torch.cat((action, drawn * scale + mean), 1)
    torch.testing.assert_close(forward(reward, own[None, init.size :], moved.T[None]), paid, rtol=1e-4, atol=1e-4)


def test_a_world_in_other_units_shows_and_pays_the_same(bandit: tuple[Task, EnvSection, torch.Tensor]) -> None:
    task, section, flat = bandit
    seen = units.units_of(task, section, flat)
    assert seen.deviation.max() / seen.deviation.min() > 10, "without this the units would not matter"
    plain = ContextualBandit(task, section, flat[None])
    other = ContextualBandit(task, section, units.in_units(task, section, flat, seen)[None])
    u = torch.from_numpy(np.random.default_rng(1).random((1, 20_000, task.observation_size)))
    contexts, scaled = plain.reset(u), other.reset(u)
    assert torch.allclose(scaled, (contexts - seen.mean) / seen.deviation, atol=1e-4)
    assert scaled.mean(1).abs().max() < 0.05 and (scaled.std(1) - 1).abs().max() < 0.05
    action = torch.rand(1, 20_000, task.action_size) * 2 - 1
    assert torch.allclose(plain.step(contexts, action)[1], other.step(scaled, action)[1], atol=1e-3)


def test_what_has_no_such_units_is_refused(bandit: tuple[Task, EnvSection, torch.Tensor]) -> None:
    task, section, flat = bandit
    with pytest.raises(ValueError, match="found stored contexts or codes"):
        units.units_of(task, dataclasses.replace(section, stored_contexts=5), flat)


def test_they_are_the_units_of_the_twin_without_torch() -> None:
    assert (units.CONTEXTS, units.EPSILON) == (without_torch.CONTEXTS, without_torch.EPSILON)
