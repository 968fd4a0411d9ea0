"""Individuals as JSON: nothing is lost, nothing wrong is let in."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import pytest
from hypothesis import given

from envolve.llm.search.individual import Individual, IndividualError, best_of, curves_of, ranking
from tests.llm.individuals import human, individual, individuals, same


@given(individuals)
def test_json_keeps_everything(i: Individual) -> None:
    text = json.dumps(i.to_json(), allow_nan=False)
    assert same(Individual.from_json(json.loads(text)), i)


def test_numbers_that_are_not_finite_are_null() -> None:
    content = individual(score=math.inf, agent_scores=[1.0, math.nan]).to_json()
    assert content["score"] is None and content["agent_scores"] == [1.0, None]


@pytest.mark.parametrize(
    "change, text",
    [
        ({"scor": 1.0}, "unknown key 'scor', nearest: 'score'"),
        ({"id": None}, "key 'id': found nothing, expected an integer"),
        ({"id": True}, "key 'id': found true, expected an integer"),
        ({"operator": "mutate"}, "key 'operator': found 'mutate', expected one of initial, improve"),
        ({"operator": []}, "key 'operator': found "),
        ({"rejection": ["trace"]}, "expected [stage, message] or null"),
        ({"interval": 3}, "key 'interval': found 3, expected a list"),
        ({"score": "1"}, "key 'score': found '1', expected a number or null"),
        ({"curves": {"score": [True]}}, "key 'curves': found true, expected a number or null"),
        ({"parents": ["a"]}, "key 'parents': found 'a', expected an integer"),
    ],
)
def test_what_is_wrong_is_named(change: dict[str, Any], text: str) -> None:
    with pytest.raises(IndividualError, match=re.escape(text)):
        Individual.from_json({**individual().to_json(), **change})


def test_a_missing_key_is_named() -> None:
    content = individual().to_json()
    del content["model"]
    with pytest.raises(IndividualError, match="key 'model' is missing"):
        Individual.from_json(content)


def test_the_best_has_the_highest_score_the_earlier_of_equals_and_is_no_human() -> None:
    known = [individual(2, score=3.0), individual(1, score=3.0), individual(0), human(9.0), individual(3, score=-1.0)]
    assert [i.id for i in ranking(known)] == [1, 2, 3]
    assert best_of(known) is known[1]
    assert best_of([human(9.0), individual()]) is None


def test_components_cannot_hide_the_score() -> None:
    i = individual(curves=curves_of([1.0], [2.0], {"score": [3.0], "a": [4.0]}))
    assert i.curves["score"] == [1.0] and i.components == {"score (component)": [3.0], "a": [4.0]}
