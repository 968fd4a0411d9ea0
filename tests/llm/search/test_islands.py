"""Islands: who lives where, who are parents, what is asked."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envolve.llm.search.greedy import drawn_rank
from envolve.llm.search.individual import Individual
from envolve.llm.search.islands import Islands, Mix
from tests.examples import examples
from tests.llm.individuals import PlainPrompts, human, individual
from tests.llm.simulated import run


def search(**options: object) -> Islands:
    defaults = {"samples": 12, "models": ["m"], "seed": 0, "islands": 3, "migration_every": 2, "survivors": 3}
    return Islands(PlainPrompts(), **{**defaults, **options})  # type: ignore[arg-type]


def ids(populations: list[list[Individual]]) -> list[list[int]]:
    return [[i.id for i in p] for p in populations]


def test_islands_take_turns_and_begin_without_parents() -> None:
    s = search(samples=4)
    assert [p.island for p in s.ask(0)] == [0, 1, 2, 0] and [p.island for p in s.ask(1)] == [1, 2, 0, 1]
    assert {(p.operator, p.parents) for p in s.ask(0)} == {("initial", ())}


def test_an_island_whose_turn_comes_seldom_repairs_what_it_had() -> None:
    s = search(samples=1)
    s.tell([individual(k, iteration=k, island=k, failure="KeyError") for k in range(3)])
    assert [s.ask(k)[0].parents for k in (3, 4, 5)] == [(0,), (1,), (2,)]


def test_the_best_of_each_island_join_the_next_along_the_ring() -> None:
    s = search()
    s.tell([individual(k, island=k, score=float(k)) for k in range(3)])
    assert ids(s.populations(1)) == [[0], [1], [2]]
    s.tell([individual(3, iteration=1, island=0, score=9.0), individual(4, iteration=1, island=1)])
    assert ids(s.populations(2)) == [[3, 2, 0], [3, 1], [2, 1]]
    assert ids(s.populations(3)) == ids(s.populations(2))
    assert ids(search(migration_every=0).populations(2)) == [[], [], []]


def test_an_island_keeps_its_best_and_no_more_than_survivors() -> None:
    s = search(islands=1, migration_every=0)
    s.tell([individual(k, score=float(k % 5), iteration=k // 4) for k in range(8)])
    assert ids(s.populations(2)) == [[4, 3, 2]]


@given(st.integers(0, 2**32), st.integers(1, 4), st.integers(0, 3), st.integers(1, 4))
@settings(deadline=None, max_examples=examples(30))
def test_parents_live_where_they_should(seed: int, islands: int, migration: int, survivors: int) -> None:
    s = search(islands=islands, migration_every=migration, survivors=survivors, seed=seed)
    told, asked = run(s, 5, seed)
    by_id = {i.id: i for i in told}
    for iteration, proposals in enumerate(asked):
        assert len(proposals) == 12
        populations = ids(s.populations(iteration))
        assert all(len(p) <= survivors and len(set(p)) == len(p) for p in populations)
        repaired = Counter(p.parents for p in proposals if p.operator == "repair")
        assert all(n == 1 for n in repaired.values())
        for p in proposals:
            if p.operator in ("improve", "crossover"):
                assert p.parents[0] in populations[p.island] and len(set(p.parents)) == len(p.parents)
                assert all(any(parent in living for living in populations) for parent in p.parents)
                assert len(p.parents) == (2 if p.operator == "crossover" else 1)
            elif p.operator == "repair":
                broken = by_id[p.parents[0]]
                assert not broken.ok and broken.island == p.island and broken.iteration < iteration
            else:
                assert p.operator == "initial" and p.parents == ()


def test_the_mix_is_what_was_asked_for_and_crosses_islands() -> None:
    s = search(samples=6000, mix=Mix(improve=1, crossover=2, initial=1, repair=0, across=0.25))
    other = search(samples=6000, mix=s.mix, seed=1)
    for each in (s, other):
        each.tell([individual(k, island=k % 3, score=float(k)) for k in range(9)])
    island = [p for p in s.ask(1) if p.island == 1]
    counts = Counter(p.operator for p in island)
    assert counts["crossover"] == pytest.approx(1000, abs=100) and counts["improve"] == pytest.approx(500, abs=80)
    across = [p for p in island if p.operator == "crossover" and p.parents[1] % 3 != 1]
    assert len(across) / counts["crossover"] == pytest.approx(0.25, abs=0.05)
    first = Counter(p.parents[0] for p in island if p.parents)
    assert first[7] > first[4] > first[1] > 0  # by rank: 7 is the best of island 1
    assert s.ask(1) == s.ask(1) and [p.parents for p in s.ask(1)] != [p.parents for p in other.ask(1)]


def test_ranks_are_drawn_as_one_over_k() -> None:
    rng = np.random.default_rng(0)
    counts = np.bincount([drawn_rank(rng, 3) for _ in range(6000)]) / 6000
    assert counts == pytest.approx(np.array([6, 3, 2]) / 11, abs=0.03)


def test_an_island_on_which_nothing_ran_repairs_and_begins_anew() -> None:
    s = search(samples=8, islands=2)
    s.tell([individual(0, failure="KeyError"), individual(1, island=1, score=1.0), human()])
    messages = [p.messages[0][1] for p in s.ask(1) if p.island == 0]
    assert messages == ["repair 0: KeyError", "initial", "initial", "initial"]
    other = [p for p in s.ask(1) if p.island == 1]
    assert all(p.parents in ((), (1,)) for p in other)


def test_alone_with_one_it_crosses_with_another_island() -> None:
    s = search(islands=2, mix=Mix(improve=0, crossover=1, initial=0, repair=0, across=0.0))
    s.tell([individual(0, score=1.0), individual(1, island=1, score=1.0)])
    assert {p.parents for p in s.ask(1) if p.island == 0} == {(0, 1)}


@pytest.mark.parametrize("options", [{"islands": 0}, {"samples": 0}, {"models": []}, {"survivors": 0}])
def test_settings_have_limits(options: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(options))}: found 0, expected at least 1"):
        search(**options)
    with pytest.raises(ValueError, match="weights of at least 0"):
        Mix(improve=-1)
