"""Hooks of a run without a run: when a world is solved, and when it is left. tests/outer/test_run.py has whole runs."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from envolve.outer.checkpoint import Progress
from envolve.outer.config.section import GTNSection
from envolve.outer.evaluate.members import worst_for_failed
from envolve.outer.loop.loop import Evaluated, Generation
from envolve.outer.loop.policies import Collapse, Confirmation, collapse_note
from envolve.outer.loop.run_keeper import RunKeeper, mean_orig
from envolve.outer.search.nes import Population

ROLES = ["orig"] * 2 + ["plus"] * 10


def generation(scores: list[float], length: float = 50.0, number: int = 1, last: bool = False) -> Generation:
    """Values of agents that had 10 training episodes of this length."""
    P = len(scores)
    members = Population(torch.zeros(P, 3), torch.arange(P), ROLES[:P], np.full(P, -1))
    values = {"train_steps": np.full(P, int(10 * length)), "episodes": np.full(P, 10), "real_steps": np.full(P, 7)}
    found = Evaluated(np.array(scores), 0, [""] * P, values)
    return Generation(number, members, P, found, *worst_for_failed(found.scores), last)


class Strategy:
    """Remembers what it was asked for."""

    def __init__(self) -> None:
        self.state, self.renewed, self.stages = SimpleNamespace(restarts=0), 0, list[tuple[int, int]]()

    def renew(self) -> None:
        self.renewed += 1
        self.state.restarts += 1

    def confirmation(self, agents: int, stage: int) -> Population:
        self.stages.append((agents, stage))
        return Population(torch.zeros(agents, 3), torch.arange(agents), ["confirm"] * agents, np.full(agents, -1))


def keeper_of(kind: str = "se") -> RunKeeper:
    """One that has no files."""
    keeper = RunKeeper.__new__(RunKeeper)
    keeper.target = SimpleNamespace(kind=kind, solved_reward=100.0)
    keeper.strategy, keeper.progress = Strategy(), Progress(torch.zeros(3), real_steps=0)
    return keeper


def test_the_mean_of_the_unperturbed_world() -> None:
    """A failed agent counts with the worst of the generation; if all of them failed, the others say nothing."""
    assert mean_orig(generation([4.0, math.nan, 1.0])) == 2.5
    assert math.isnan(mean_orig(generation([math.nan, math.nan, 1.0])))


@pytest.mark.parametrize(
    "kind, score, confirming, solved, stages",
    [
        ("se", 99.0, [], False, 0),
        ("rn", 101.0, [], False, 0),
        ("se", math.nan, [], False, 0),
        ("se", 101.0, [[101.0] * 4, [100.5] * 4], True, 2),
        ("se", 101.0, [[99.0] * 4], False, 1),
        ("se", 101.0, [[80.0, 80.0, 140.0, 104.0]], False, 1),  # its mean of 101 may well be luck
        ("se", 101.0, [[101.0] * 4, [101.0, 101.0, 101.0, math.nan]], False, 2),
        ("shaper", 101.0, [[101.0] * 4, [80.0, 80.0, 140.0, 104.0]], True, 2),  # the second stage asks for the mean
    ],
)
@pytest.mark.parametrize("quits", [True, False])
def test_solved_is_confirmed_in_two_stages(
    kind: str, score: float, confirming: list[list[float]], solved: bool, stages: int, quits: bool
) -> None:
    keeper, left = keeper_of(kind), iter(confirming)

    def fresh(population: Population) -> Evaluated:
        return generation(next(left)).found

    g = generation([score, score, 0.0])
    Confirmation(GTNSection(confirm_agents=4, quit_when_solved=quits), keeper, fresh)(g)
    assert g.solved is solved and g.last is (solved and quits)
    assert keeper.strategy.stages == [(4, 0), (4, 1)][:stages]
    assert len(g.confirmed) == stages and keeper.progress.real_steps == 7 * 4 * stages


def test_without_confirming_agents_the_mean_decides() -> None:
    keeper, g = keeper_of(), generation([100.0, 100.0, 0.0])
    Confirmation(GTNSection(confirm_agents=0, quit_when_solved=True), keeper, lambda p: pytest.fail("asked"))(g)
    assert g.solved and g.last and not g.confirmed


SHORT, FLAT = 2.0, [10.0] * 12
SIGNAL = [10.0] * 10 + [60.0] * 2  # a tenth of the population is far above the median


@pytest.mark.parametrize(
    "kind, scores, length, collapses",
    [
        ("se", FLAT, SHORT, True),
        ("se", FLAT, 50.0, False),
        ("se", SIGNAL, SHORT, False),
        ("rn", FLAT, SHORT, False),
        ("rn", [math.nan] * 12, 50.0, True),
        ("se", [math.nan] * 11 + [1.0], 50.0, False),
    ],
)
def test_a_world_is_left_after_so_many_generations_in_a_row(
    kind: str, scores: list[float], length: float, collapses: bool
) -> None:
    keeper = keeper_of(kind)
    hook, left = Collapse(GTNSection(collapse_generations=2, max_restarts=2), keeper), []
    for number in range(1, 9):
        g = generation(scores, length, number)
        hook(g)
        if g.instead is not None:
            g.instead()
            left.append(number)
    assert left == ([2, 4] if collapses else []), "and not more often than max_restarts"
    assert keeper.progress.restart_generations == [number + 1 for number in left]


def test_a_sound_generation_between_begins_the_count_anew() -> None:
    keeper = keeper_of()
    hook = Collapse(GTNSection(collapse_generations=2, max_restarts=2), keeper)
    for scores, count in ((FLAT, 1), (SIGNAL, 0), (FLAT, 1)):
        g = generation(scores, SHORT)
        hook(g)
        assert g.instead is None and keeper.progress.short_generations == count


def test_the_last_generation_leaves_no_world() -> None:
    keeper, g = keeper_of(), generation(FLAT, SHORT, 5, last=True)
    Collapse(GTNSection(collapse_generations=1, max_restarts=2), keeper)(g)
    assert g.instead is None and keeper.progress.restart_generations == []


def test_what_is_said_of_a_world_that_was_left() -> None:
    said = "generation 3: the world collapsed ({}); restarting from a new one"
    assert collapse_note(generation(FLAT, SHORT, 3)) == said.format("episodes of 2.0 steps")
    assert collapse_note(generation([math.nan] * 12, SHORT, 3)) == said.format("all members failed")
