"""Evolution of goals and starts: it finds a planted optimum, and goes on to the same bytes after every interruption."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from envolve.outer.checkpoint import RunError
from envolve.outer.goals.evolution import PLAIN, GoalEvolution, GoalTarget
from envolve.outer.goals.evolution_report import difference
from envolve.outer.goals.evolve_sections import EvolveSection
from envolve.outer.goals.keeper import CHECKPOINT, GENERATIONS
from envolve.outer.loop.loop import Evaluated
from envolve.outer.search.nes import Population

PLANTED = torch.tensor([1.5, -1.0, 0.5])


def toy(u: Tensor, keys: Tensor, plain: Tensor) -> np.ndarray:
    """The nearer to PLANTED the better, with noise of the seeds; plain members know nothing of u."""
    noise = np.array([np.random.default_rng(int(k)).normal() for k in keys]) * 0.05
    away = torch.where(plain[:, None], torch.zeros_like(u), u) - PLANTED
    return -away.norm(dim=1).double().numpy() + noise


Scores = Callable[[Tensor, Tensor, Tensor], np.ndarray]


def search(folder: Path, generations: int = 40, seed: int = 3, evaluate: Scores = toy) -> GoalEvolution:
    def members(number: int, population: Population) -> Evaluated:
        plain, u = population.worlds[:, 0] > 0, population.worlds[:, 1:]
        return Evaluated(evaluate(u, population.seeds, plain), 0)

    section = EvolveSection(goal_family="box", generations=generations, num_workers=8, step_size=0.15)
    return GoalEvolution(folder, section, seed, ["a", "b", "c"], members)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_planted_optimum_is_found(tmp_path: Path, seed: int) -> None:
    evolution = search(tmp_path, seed=seed)
    evolution.loop.run()
    assert float((evolution.u - PLANTED).norm()) < 0.4 < float(PLANTED.norm())
    first, last = evolution.history[0], evolution.history[-1]
    assert last.score > first.score + 1 and abs(last.plain - first.plain) < 0.15  # 4 standard errors
    assert first.score == pytest.approx(first.plain, abs=0.01) and first.u == (0.0, 0.0, 0.0)
    evolution.compare()
    gap, (low, high) = difference(*evolution.comparison)
    assert gap > 1 and len(evolution.comparison[0]) == 16
    assert math.isnan(low) and math.isnan(high), "the same noise in both of a pair: 16 equal differences tell no more"
    gap, (low, high) = difference([1.0, 2.0, 3.5, 2.5], [0.0, 0.5, 1.0, 0.5])
    assert low < gap == 1.75 < high


def test_it_goes_on_the_same(tmp_path: Path) -> None:
    whole = search(tmp_path / "a") if (tmp_path / "a").mkdir() is None else None
    assert whole is not None
    for _ in range(6):
        whole.loop.generation()
    (tmp_path / "b").mkdir()
    for _ in range(3):  # each time anew from the folder
        part = search(tmp_path / "b")
        part.loop.generation(), part.loop.generation()
    assert (tmp_path / "a" / GENERATIONS).read_bytes() == (tmp_path / "b" / GENERATIONS).read_bytes()
    assert torch.equal(whole.u, search(tmp_path / "b").u) and len(part.history) == 6
    (tmp_path / "b" / CHECKPOINT).write_bytes(b"no checkpoint")
    with pytest.raises(RunError, match="not a checkpoint of this run"):
        search(tmp_path / "b")


def test_members_that_diverge(tmp_path: Path) -> None:
    def some(u: Tensor, keys: Tensor, plain: Tensor) -> np.ndarray:
        scores = toy(u, keys, plain)
        scores[5] = math.nan
        return scores

    evolution = search(tmp_path, evaluate=some)
    evolution.loop.generation()
    row = evolution.history[-1]
    assert row.diverged == 1 and math.isfinite(row.perturbed) and math.isfinite(row.best)
    with pytest.raises(RunError, match="every member has diverged"):
        search(tmp_path, evaluate=lambda u, k, p: np.full(len(u), math.nan)).loop.generation()


def test_plain_members_have_the_seeds_of_the_first() -> None:
    """And stand behind those of the search, whose worlds are u with a 0 before it."""
    u = torch.arange(10.0).reshape(5, 2)
    asked = Population(u, torch.arange(5), ["orig", "orig", "plus", "plus", "minus"], np.array([-1, -1, 0, 1, 0]))
    members = GoalTarget(2, 2).members(asked)
    assert torch.equal(members.worlds[:5, 1:], u) and members.worlds[:, 0].tolist() == [0] * 5 + [1] * 2
    assert members.seeds.tolist() == [0, 1, 2, 3, 4, 0, 1] and members.roles == [*asked.roles, PLAIN, PLAIN]
    assert members.perturbation.tolist() == [-1, -1, 0, 1, 0, -1, -1] and members.shares == ()


@pytest.mark.parametrize("after", [False, True])
def test_interrupted_at_every_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: bool) -> None:
    """Before or after a file is replaced, in the comparison too: no finished generation is evaluated again."""
    real, calls = os.replace, [0]

    def finished(folder: Path, stop_at: int = -1) -> tuple[bytes, bytes]:
        def replace(*args: str) -> None:
            calls[0] += 1
            if calls[0] == stop_at and not after:
                raise KeyboardInterrupt
            real(*args)
            if calls[0] == stop_at:
                raise KeyboardInterrupt

        calls[0] = 0
        monkeypatch.setattr(os, "replace", replace)
        assert search(folder, 3).run()
        return (folder / GENERATIONS).read_bytes(), (folder / CHECKPOINT).read_bytes()

    (tmp_path / "whole").mkdir()
    expected = finished(tmp_path / "whole")
    assert calls[0] == 8, "two files for each of three generations, and for the comparison"
    for n in range(1, 9):
        folder = tmp_path / str(n)
        folder.mkdir()
        with pytest.raises(KeyboardInterrupt):
            finished(folder, n)
        assert len(search(folder).history) == min(3, (n - (not after)) // 2), n
        assert finished(folder) == expected, n
