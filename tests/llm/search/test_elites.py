"""MAP-Elites: the best of every kind is kept."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envolve.llm.search.elites import PACES, SIZES, Elites, cell, elites
from envolve.llm.search.greedy import Extras
from tests.llm.individuals import PlainPrompts, human, individual
from tests.llm.simulated import run


def sized(number: int, operations: int, score: float, curve: tuple[float, ...] = (0.0, 1.0), **fields):
    graph = {"functions": {"compute_reward": {"nodes": [{}] * operations}}}
    return individual(number, graph_file=graph, score=score, curves={"score": list(curve)}, **fields)


def search(**options) -> Elites:
    return Elites(PlainPrompts(), 4, ["m", "n"], 0, **options)


def test_cells_are_sizes_and_paces() -> None:
    assert [cell(sized(0, n, 1.0))[0] for n in (0, 8, 9, 16, 17, 10**6)] == [0, 0, 1, 1, 2, SIZES - 1]
    paces = [(0, 1, 1, 1, 1, 1), (0, 0, 0, 1, 1, 1), (0, 0, 0, 0, 0, 1), (1, 0.5, 0), (math.nan, 1.0)]
    assert [cell(sized(0, 8, 1.0, curve))[1] for curve in paces] == [0, 1, 2, PACES - 1, PACES - 1]


def test_a_worse_one_of_another_kind_is_kept_and_may_be_a_parent() -> None:
    told = [sized(0, 8, 5.0), sized(1, 8, 4.0), sized(2, 100, 1.0), individual(3, rejection=("trace", "no"))]
    assert {i.id for i in elites(told).values()} == {0, 2}
    s = search()
    s.tell(told)
    parents = {p for k in range(200) for p in s.one(k).parents}
    assert parents == {0, 2, 3}  # 3: by repairs


def test_one_after_another_is_what_an_iteration_asks_but_for_the_models() -> None:
    s = search()
    s.tell([sized(0, 8, 5.0), sized(1, 40, 4.0), human(1.0)])
    whole = s.ask(1)
    assert [(p.operator, p.parents) for p in whole] == [
        (p.operator, p.parents) for p in (s.one(k) for k in range(4, 8))
    ]


@given(st.integers(0, 50), st.integers(1, 5))
def test_it_depends_on_what_was_told_and_on_nothing_else(seed: int, iterations: int) -> None:
    told, asked = run(search(), iterations, seed)
    again = search()
    for i in reversed(told):
        again.tell([i])
    assert [again.ask(k) for k in range(iterations)] == asked


def test_edits_notes_and_the_humans_reward() -> None:
    s = search(extras=Extras(edits=1.0, notes=True, human="HUMAN CODE"))
    s.tell([human(9.0, id=-1), sized(0, 8, 5.0, reply="```python\nx\n```\nNOTES: small steps\nkeep the height")])
    asked = [s.one(k) for k in range(60)]
    improved = [p for p in asked if p.operator in ("improve", "edit")]
    assert improved and all(p.operator == "edit" for p in improved)
    assert {p.parents for p in improved} == {(-1,), (0,)}
    assert all("attempt 0 (score 5): small steps / keep the height" in p.messages[-1][1] for p in asked)
    assert all(p.messages[-1][1].endswith("what to leave alone.") for p in asked)


def test_wrong_numbers() -> None:
    with pytest.raises(ValueError, match="0 samples"):
        Elites(PlainPrompts(), 0, ["m"], 0)
    with pytest.raises(ValueError, match="edits: found 2"):
        search(extras=Extras(edits=2))
