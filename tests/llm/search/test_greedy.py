"""Eureka's loop."""

from __future__ import annotations

import pytest

from envolve.llm.search.greedy import Greedy, repairable
from tests.llm.individuals import PlainPrompts, human, individual


def told(search: Greedy, iteration: int) -> list[str]:
    return [p.messages[0][1] for p in search.ask(iteration)]


def test_it_begins_without_parents() -> None:
    search = Greedy(PlainPrompts(), 3, ["m"])
    proposals = search.ask(0)
    assert [(p.operator, p.parents, p.island, p.model) for p in proposals] == [("initial", (), 0, "m")] * 3
    assert told(search, 0) == ["initial"] * 3 and search.best() is None


def test_every_sample_improves_the_best_and_the_best_is_kept_for_ever() -> None:
    search = Greedy(PlainPrompts(), 2, ["m"])
    search.tell([human(5.0), individual(0, score=1.0), individual(1, score=2.0)])
    assert told(search, 1) == ["improve 1 beside 10000"] * 2
    assert [(p.parents, p.island) for p in search.ask(1)] == [((1,), 0)] * 2
    search.tell([individual(2, iteration=1, score=1.5), individual(3, iteration=1)])
    best = search.best()
    assert told(search, 2) == ["improve 1 beside 10000"] * 2 and best is not None and best.id == 1
    search.tell([individual(4, iteration=2, score=2.5)])
    assert told(search, 3) == ["improve 4 beside 10000"] * 2


def test_when_nothing_ran_half_are_repairs_with_their_messages() -> None:
    search = Greedy(PlainPrompts(), 4, ["m"])
    search.tell(
        [
            individual(0, rejection=("extract", "no code")),
            individual(1, rejection=("trace", "line 3")),
            individual(2, failure="NotFinite"),
            individual(3, rejection=("call", "429")),
        ]
    )
    assert told(search, 1) == ["repair 2: NotFinite", "repair 1: ('trace', 'line 3')", "initial", "initial"]
    assert [(p.parents, p.island) for p in search.ask(1)] == [((2,), 0), ((1,), 0), ((), 0), ((), 0)]


def test_when_nothing_ran_later_the_best_is_still_improved() -> None:
    search = Greedy(PlainPrompts(), 3, ["m"])
    search.tell([individual(0, score=1.0), individual(1, iteration=1, failure="KeyError")])
    assert told(search, 2) == ["repair 1: KeyError", "improve 0 beside None", "improve 0 beside None"]


def test_of_equal_code_one_is_repaired() -> None:
    a, b, c = (individual(k, code="x", failure="f") for k in range(3))
    assert [i.id for i in repairable([a, b, c])] == [0]


def test_later_iterations_change_no_earlier_proposal() -> None:
    search = Greedy(PlainPrompts(), 2, ["m"])
    search.tell([individual(0, score=1.0)])
    before = search.ask(1)
    search.tell([individual(1, iteration=1, score=9.0), human(2.0, iteration=1)])
    assert search.ask(1) == before


def test_it_needs_a_model_and_a_sample() -> None:
    with pytest.raises(ValueError, match="0 samples"):
        Greedy(PlainPrompts(), 0, ["m"])
    with pytest.raises(ValueError, match="of 0 models"):
        Greedy(PlainPrompts(), 1, [])
    assert len(Greedy(PlainPrompts(), 1, ["m"]).ask(0)) == 1
