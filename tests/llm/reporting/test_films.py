"""Who is filmed after a run of ``envolve write``, and which film a candidate has on its page."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from envolve.llm.finals import Final, Result
from envolve.llm.reporting import films
from envolve.llm.reporting.page_parts import node_films
from envolve.llm.search.individual import Individual
from envolve.outer.page.reading import Folder
from envolve.outer.shapers import compare_film
from tests.llm.attempts import evolution, human


def result() -> tuple[Result, list[Individual]]:
    """Finals, best first: i000 with tuned numbers, human, i001. They were trained in the order human, i001, i000."""
    six = [
        replace(i, rejection=None, failure=None, score=float(i.id), agent_scores=[1.0, 2.0]) for i in evolution(1, 6)
    ]
    nan = float("nan")
    six[2] = replace(six[2], score=nan, failure="Diverged: the agent's weights are not finite\nTraceback")
    six[4] = replace(six[4], score=nan, rejection=("trace", "line 3: no while"))
    tuned = replace(six[0], score=9.0, tuned={"a": 1.0})
    finals = [Final(i, None) for i in (tuned, human(), six[1])]  # type: ignore[arg-type]
    halved: Any = SimpleNamespace(envs="envs", learner="learner")
    return Result(six, human(), finals, halved, [2, 0, 1], {}, ""), six


def test_the_best_the_humans_the_worst_and_what_failed_in_training() -> None:
    found, six = result()
    shown = films.columns(found)
    assert [(c.role, c.outcome.name, c.number) for c in shown[:3]] == [
        ("best", "i000_tuned", 2),
        ("human's", "human", 0),
        ("worst", "i001", 1),
    ]
    failed = shown[3]
    assert (failed.role, failed.outcome.name) == ("failed", "i002"), "it was trained: that says more than a refusal"
    assert "the agent's weights are not finite" in failed.outcome.reason and "Traceback" not in failed.outcome.reason
    six[2].failure, six[2].rejection = None, ("smoke", "line 1")
    assert [c.outcome.name for c in films.columns(found)][3] == "i004", "the newest refusal"
    assert films.columns(found)[3].outcome.reason.startswith("rejected, trace: line 3")
    assert compare_film.named(shown) == "best i000_tuned, human's, worst i001, failed i002"


def test_every_candidate_of_the_last_test_has_a_film(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found, _ = result()
    calls: dict[str, Any] = {}

    def film(path: Any, folder: Path, envs: Any, learner: Any, agent: int, seed: int, caption: str) -> Any:
        calls["best"] = (agent, caption)
        return SimpleNamespace(path=tmp_path / "best.gif", score=0.5)

    def compare(path: Any, folder: Path, envs: Any, learner: Any, columns: Any, K: int, seed: int) -> Path:
        calls["compare"] = len(columns)
        return tmp_path / "compare.gif"

    def each(folder: Path, envs: Any, learner: Any, columns: Any, K: int, seed: int) -> list[Path]:
        calls["each"] = [(c.outcome.name, c.number) for c in columns]
        return [folder / f"{c.outcome.name}.gif" for c in columns]

    for name, stand_in in (("film", film), ("compare", compare), ("each", each)):
        monkeypatch.setattr(films, name, stand_in)
    plan: Any = SimpleNamespace(
        folder=tmp_path, settings=SimpleNamespace(retest=2, seed=7), task=SimpleNamespace(name="Ant", score_unit="m/s")
    )
    files, lines = films.films_of(plan, found, None)
    assert files == [tmp_path / "best.gif", tmp_path / "compare.gif"] and len(lines) == 3
    assert calls["best"] == (2 * 2 + 1, "Ant, i000: 9 m/s, seed 7"), "its better agent"
    assert calls["compare"] == 4 and calls["each"] == [("i000_tuned", 2), ("human", 0), ("i001", 1)]


def test_a_candidate_on_the_page_has_its_own_film(tmp_path: Path) -> None:
    (tmp_path / "films").mkdir()
    for name in ("i000", "i000_tuned", "i001", "human", "i999"):
        (tmp_path / "films" / f"{name}.gif").write_bytes(b"GIF89a")
    everyone = [human(), *evolution(1, 3)]
    found = node_films(Folder(tmp_path), everyone)
    assert {k: f.path.name for k, f in found.items()} == {"-1": "human.gif", "0": "i000_tuned.gif", "1": "i001.gif"}
    assert found["0"].caption == "i000, with tuned numbers: a fresh agent of the last test"
    assert node_films(Folder(tmp_path / "films"), everyone) == {}
