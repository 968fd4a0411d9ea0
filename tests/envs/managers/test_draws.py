"""Random numbers by environment."""

from __future__ import annotations

import pytest
import torch

from envolve.envs.managers.draws import Draws
from envolve.envs.sim.simulator import SimulatorError


def draws(keys: list[int], n: int) -> Draws:
    return Draws(torch.tensor(keys), n, torch.device("cpu"))


def test_an_environments_numbers_depend_on_its_own_past_alone() -> None:
    many, one = draws([1, 2], 3), draws([2], 3)
    with many:
        torch.rand(6, 2)
        with many.of(torch.tensor([0, 4])):
            torch.rand(2)
            torch.randn(6)  # for all, used by two
        a = torch.rand(6)
    with one:
        torch.rand(3, 2)
        with one.of(torch.tensor([1])):
            torch.rand(1)
            torch.randn(3)
        b = torch.rand(3)
    assert torch.equal(a[3:], b)
    assert len(set(a.tolist())) == 6


def test_numbers_are_uniform_normal_and_in_range() -> None:
    d = draws(list(range(100)), 100)
    with d:
        u, z, k = torch.rand(10000, 4), torch.randn_like(torch.zeros(10000, 4)), torch.randint(2, 5, (10000,))
        v = torch.empty(10000).uniform_(-2, 3)
        j = torch.randint_like(k, 7)
    assert 0 <= u.min() and u.max() < 1 and abs(u.mean() - 0.5) < 0.01 and abs(u.var() - 1 / 12) < 0.003
    assert abs(z.mean()) < 0.03 and abs(z.std() - 1) < 0.02
    assert k.unique().tolist() == [2, 3, 4] and j.max() == 6 and j.min() == 0 and j.dtype == torch.int64
    assert -2 <= v.min() and v.max() < 3 and abs(v.mean() - 0.5) < 0.1
    assert len(torch.unique(u)) > 39000


def test_what_cannot_be_kept_apart_is_refused() -> None:
    d = draws([1, 2], 3)
    with d:
        with pytest.raises(SimulatorError, match=r"shape \[5, 2\], expected 6 rows"):
            torch.rand(5, 2)
        with pytest.raises(SimulatorError, match="multinomial"):
            torch.multinomial(torch.ones(4), 2)
        with d.of(None, shared=True):
            assert torch.rand(1).shape == (1,)
            assert not torch.equal(torch.rand(1), torch.rand(1))
    with pytest.raises(SimulatorError, match="compiled code"), d.watched("t"):
        torch.set_rng_state(torch.manual_seed(torch.randint(0, 9, (6,))[0].item() + 1).get_state())


def test_the_global_generator_is_left_alone() -> None:
    before = torch.get_rng_state()
    d = draws([1], 2)
    with d.watched("t"):
        torch.rand(2)
    assert torch.equal(before, torch.get_rng_state())
