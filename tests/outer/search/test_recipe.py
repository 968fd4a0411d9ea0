"""A population drawn again from its recipe has the same bits."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from envolve.outer.config.section import GTNSection
from envolve.outer.search.nes import NES, perturbations
from envolve.outer.search.recipe import drawn_again

D = 7


def search(seed=3, **settings):
    section = GTNSection(num_workers=3, num_orig_evals=2, **settings)
    mask = torch.tensor([1, 1, 0, 1, 1, 0, 1.0])
    return NES(section, seed, lambda s: torch.linspace(-1, 1, D) * (s % 5 + 1), mask)


def again(recipe):
    g = recipe.ground
    noise = perturbations(g.seed, g.generation, g.n, g.noise_std, g.mask)
    return drawn_again(g.bases, noise, recipe.rows)


@given(st.integers(0, 2**31), st.booleans(), st.sampled_from([0.0, 0.5]), st.integers(1, 3), st.permutations(range(8)))
def test_every_member_of_every_generation(seed, mirrored, averaging, evals, order):
    nes = search(seed, mirrored_sampling=mirrored, iterate_averaging=averaging, num_grad_evals=evals, noise_std=0.3)
    for _ in range(3):
        population = nes.ask()
        recipe = population.recipe
        assert torch.equal(again(recipe).view(torch.int32), population.worlds.view(torch.int32))
        some = torch.tensor([i for i in order if i < len(population.worlds)])
        assert torch.equal(again(recipe.part(some)), population.worlds[some])
        nes.tell(torch.arange(len(population.worlds)).double().numpy())
    assert len(recipe.ground.bases) == (2 if averaging else 1)


@pytest.mark.parametrize("rows", [[[2, 0]], [[0, 4]], [[0, -4]], [[-3, 0]], [0, 0], [[0, 0, 0]]])
def test_rows_of_another_population(rows):
    recipe = search().ask().recipe
    with pytest.raises(IndexError):
        drawn_again(recipe.ground.bases, torch.zeros(3, D), torch.tensor(rows, dtype=torch.int32))
