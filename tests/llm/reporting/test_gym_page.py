"""The lineage of rewards for a user's environment: the parent is the best of all iterations before."""

from __future__ import annotations

from pathlib import Path

import pytest

from envolve.llm.reporting.gym_page import read, samples
from envolve.outer.page.parts import Lineage
from envolve.outer.page.reading import Folder
from tests.outer.page.folders import gym


def lineage_of(folder: Path) -> Lineage:
    parts = [part for section in read(Folder(folder)).sections for part in section.parts]
    (found,) = (part for part in parts if isinstance(part, Lineage))
    return found


def test_parents_states_and_curves(tmp_path: Path) -> None:
    found = lineage_of(gym(tmp_path / "run"))
    by_id = {node["id"]: node for node in found.nodes}
    assert [by_id[i]["state"] for i in (-1, 0, 1, 2, 3, 4, 5)] == [
        "human",
        "trained",
        "rejected",
        "failed",
        *["trained"] * 3,
    ]
    assert [by_id[i]["parents"] for i in (0, 1, 2)] == [[]] * 3 and [by_id[i]["parents"] for i in (3, 4, 5)] == [
        [0]
    ] * 3
    assert by_id[1]["why"] == "line 2: found import os, expected none" and by_id[1]["stage"] == "allowlist"
    assert by_id[2]["why"] == "the total reward is nan" and by_id[5]["score"] == 12 and found.best == 5
    curves = dict(found.details["5"]["curves"])
    assert list(curves) == ["score", "reward", "speed"] and curves["score"] == [0.1, 0.2, 0.3]
    assert found.details["5"]["code"].endswith("return x + 12\n")


@pytest.mark.parametrize(
    "text, said",
    [
        ("{", "code/iteration_1/sample_2/outcome.json"),
        ("[]", "found list, expected an object"),
        ('{"iteration": true, "number": 0, "code": "", "reply": ""}', "iteration: found True, expected int"),
        ('{"iteration": 0, "number": -1, "code": "", "reply": ""}', "number: found -1, expected int"),
    ],
)
def test_a_damaged_outcome_is_said_and_the_others_are_shown(tmp_path: Path, text: str, said: str) -> None:
    folder = gym(tmp_path / "run")
    (folder / "code/iteration_1/sample_2/outcome.json").write_text(text)
    page = read(Folder(folder))
    assert len(page.problems) == 1 and said in page.problems[0]
    assert len(samples(Folder(folder))) == 5 and lineage_of(folder).best == 4
