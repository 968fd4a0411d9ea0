"""Who came from whom."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from envolve.core.places import CODE
from envolve.llm.reporting.lineage import MARKS, ancestors, lineage_picture, score_text, shown_range, tree_text
from envolve.llm.search.individual import HUMAN, OPERATORS
from tests.llm.attempts import evolution, human

PNG = b"\x89PNG\r\n"


def small():
    """0 <- 1 <- 3, (0, 1) <- 4 by crossover; 2 and 5 are rejected."""
    six = [replace(i, island=0, model="m") for i in evolution(1, 6)]
    for i, parents in zip(six, ((), (0,), (), (1,), (1, 0), (0,))):
        i.parents, i.operator = parents, "crossover" if len(parents) == 2 else "improve" if parents else "initial"
        i.score, i.interval, i.rejection, i.failure = float(i.id), None, None, None
    six[2].rejection, six[5].rejection = ("trace", "line 1"), ("smoke", "line 2")
    six[2].score = six[5].score = float("nan")
    return six


def test_the_tree_of_a_small_evolution():
    assert tree_text(small()) == (
        "i000 initial  0\n"
        "├─ i001 improve  1\n"
        "│  ├─ i003 improve  3\n"
        "│  └─ i004 crossover  with i000  4  *\n"
        "└─ 1 rejected: smoke 1\n"
        "1 rejected: trace 1\n"
        "\n"
        "* the best of them, i004\n"
    )


def test_rejected_ones_with_children_stay_and_the_human_is_no_ancestor():
    six = small()
    six[3].parents, six[3].operator = (2,), "repair"
    text = tree_text([*six, human()])
    assert "i002 initial  rejected: trace\n└─ i003 repair  3" in text
    assert "human" not in text


def test_islands_and_models_are_named_where_there_are_several():
    text = tree_text(evolution(2, 6, islands=2))
    assert "island 1" in text and "llama-b" in text
    assert "island" not in tree_text(small())


def test_parents_that_are_unknown_or_no_older_are_no_parents():
    six = small()
    six[0].parents, six[1].parents = (99,), (4,)
    assert tree_text(six).count("\ni001") == 1  # at the left
    assert ancestors(six[4], six) == {0, 1, 4}  # 1 and 4 name each other


def test_a_line_of_descent_may_be_long():
    many = [replace(small()[0], id=k, parents=(k - 1,) if k else ()) for k in range(3000)]
    assert tree_text(many).count("\n") > 3000


def test_an_empty_tree():
    assert tree_text([]) == "\n"


def test_why_there_is_no_score():
    three = evolution(1, 3)
    three[0].rejection, three[0].score = ("trace", "x"), float("nan")
    three[1].rejection, three[1].failure, three[1].score = None, "NotFinite", float("nan")
    three[2].rejection, three[2].failure, three[2].score, three[2].interval = None, None, 1.25, (1.0, 1.5)
    assert [score_text(i) for i in three] == ["rejected: trace", "failed in training", "1.25 [1, 1.5]"]


@pytest.mark.parametrize("scores", [[], [1.0], [0.0, 0.0], [-5.0, -4.0, -1000.0, -4.5, 3.0]])
def test_the_axis_shows_the_better_half(scores):
    low, high = shown_range(scores)
    assert low < high
    for x in sorted(scores)[len(scores) // 2 :]:
        assert low < x < high


@pytest.mark.parametrize("individuals", [[], small()[2:3], small(), evolution(4, 8, islands=3)], ids=len)
def test_pictures_of_any_evolution(tmp_path, individuals):
    for reference in (None, human()):
        path = tmp_path / f"{reference is None}.png"
        lineage_picture(path, individuals, reference, "title $x_1$", "m/s")
        assert path.read_bytes().startswith(PNG)


def test_every_operator_has_a_mark_in_both_pictures():
    assert MARKS.keys() == {*OPERATORS} - {HUMAN}
    script = (CODE / "outer" / "page" / "static" / "lineage.js").read_text()
    symbols = re.search(r"SYMBOLS = {(.*?)}", script)
    assert symbols is not None and re.findall(r"(\w+):", symbols[1]) == [*MARKS, HUMAN]
