"""The archive: nothing is lost but a torn last line, nothing wrong is read, and a run resumed from it is the run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from llm.archive import Archive, ArchiveError, read_archive, replay
from llm.greedy import Greedy
from llm.individual import Individual, Search
from llm.islands import Islands
from tests.llm.individuals import PlainPrompts, individual, individuals, same
from tests.llm.simulated import run

SEARCHES: dict[str, Callable[[], Search]] = {
    "greedy": lambda: Greedy(PlainPrompts(), 3, ["a", "b"]),
    "islands": lambda: Islands(PlainPrompts(), 3, 2, ["a", "b"], seed=5, migration_every=2, survivors=3),
}


@given(st.lists(individuals, max_size=5, unique_by=lambda i: i.id), st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=50)
def test_whole_lines_survive_any_tear(tmp_path: Path, some: list[Individual], data: st.DataObject) -> None:
    path = tmp_path / "individuals.jsonl"
    path.unlink(missing_ok=True)
    cut = data.draw(st.integers(0, len(some)))
    archive = Archive(path)
    archive.append(some[:cut])
    archive.append(some[cut:])
    assert same(read_archive(path), some)
    content = path.read_bytes()
    path.write_bytes(content[: data.draw(st.integers(0, len(content)))])
    whole = path.read_bytes().count(b"\n")
    resumed = Archive(path)
    assert same(resumed.individuals, some[:whole])
    resumed.append(some[whole:])
    assert same(read_archive(path), some) and path.read_bytes() == content


@pytest.mark.parametrize(
    "line, text",
    [
        ("{", r":2: found no JSON, expected one individual per line"),
        ("", r":2: found no JSON"),
        ("[]", r":2: found \[\], expected an individual as an object"),
        ('{"score": NaN}', r":2: found no JSON.*NaN"),
        ("[" * 100_000, r":2: found no JSON"),
        ("\udcff", r":2: found no JSON"),
        (json.dumps({**individual(3).to_json(), "scor": 1}), r":2: unknown key 'scor', nearest: 'score'"),
        (json.dumps(individual(0).to_json()), r":2: found id 0 again, first in line 1"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, line: str, text: str) -> None:
    path = tmp_path / "individuals.jsonl"
    lines = [json.dumps(individual(0).to_json()), line, json.dumps(individual(1).to_json())]
    path.write_text("".join(text + "\n" for text in lines), encoding="utf-8", errors="surrogateescape")
    before = path.read_bytes()
    with pytest.raises(ArchiveError, match=f"individuals.jsonl{text}"):
        Archive(path)
    assert path.read_bytes() == before


def test_an_id_is_written_once(tmp_path: Path) -> None:
    archive = Archive(tmp_path / "individuals.jsonl")
    archive.append([individual(0)])
    for again in ([individual(0)], [individual(1), individual(1)]):
        with pytest.raises(ArchiveError, match="is there already"):
            archive.append(again)
    assert [i.id for i in read_archive(archive.path)] == [0]


@pytest.mark.parametrize("name", SEARCHES)
@given(st.integers(0, 2**32), st.data())
@settings(deadline=None, max_examples=25)
def test_any_prefix_replayed_asks_what_the_run_asked(name: str, seed: int, data: st.DataObject) -> None:
    told, asked = run(SEARCHES[name](), iterations=5, seed=seed)
    prefix = told[: data.draw(st.integers(0, len(told)))]
    resumed = SEARCHES[name]()
    iteration, begun = replay(resumed, data.draw(st.permutations(prefix)))
    per_iteration = len(asked[0])
    assert iteration == max(0, len(prefix) - 1) // per_iteration
    assert [i.id for i in begun] == [i.id for i in prefix[1 + iteration * per_iteration :]]
    if iteration < len(asked):
        assert resumed.ask(iteration) == (asked[iteration] if prefix else SEARCHES[name]().ask(0))
    for k in range(iteration):  # what was asked before is still what would be asked
        assert resumed.ask(k) == asked[k]


def test_a_run_of_other_settings_is_refused() -> None:
    told, _ = run(SEARCHES["greedy"](), iterations=3, seed=0)
    with pytest.raises(ArchiveError, match="found model 'b', expected 'a'; was the run begun with other settings"):
        replay(Greedy(PlainPrompts(), 3, ["a"]), told)
    with pytest.raises(ArchiveError, match="iteration 0: found 3 individuals, expected 2"):
        replay(Greedy(PlainPrompts(), 2, ["a", "b"]), told)


def test_a_gap_is_refused() -> None:
    told, _ = run(SEARCHES["greedy"](), iterations=3, seed=0)
    with pytest.raises(ArchiveError, match="found iteration 2, but 1 is not finished"):
        replay(SEARCHES["greedy"](), [i for i in told if i.iteration != 1])
