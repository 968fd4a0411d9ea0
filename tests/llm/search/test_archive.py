"""The archive: nothing is lost but a torn last line, nothing wrong is read, and a run resumed from it is the run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from envolve.llm import json_lines
from envolve.llm.search.archive import Archive, ArchiveError
from envolve.llm.search.greedy import Greedy
from envolve.llm.search.individual import Individual, RewardSearch
from envolve.llm.search.islands import Islands
from tests.examples import examples
from tests.llm.individuals import PlainPrompts, individual, individuals, same
from tests.llm.simulated import answers, run

SEARCHES: dict[str, Callable[[], RewardSearch]] = {
    "greedy": lambda: Greedy(PlainPrompts(), 3, ["a", "b"]),
    "islands": lambda: Islands(PlainPrompts(), 5, ["a", "b"], seed=5, islands=3, survivors=3),
}


@given(st.lists(individuals, max_size=4, unique_by=lambda i: i.id), st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=examples(40))
def test_whole_lines_survive_any_tear(tmp_path: Path, some: list[Individual], data: st.DataObject) -> None:
    archive = Archive(tmp_path / "individuals.jsonl")
    archive.path.unlink(missing_ok=True)
    assert archive.load() == []
    some.sort(key=lambda i: i.id)
    for i in some:
        archive.put([i])
    assert same(archive.load(), some)
    content = archive.path.read_bytes() if some else b""
    torn = content[: data.draw(st.integers(0, len(content)))]
    archive.path.write_bytes(torn)
    whole = torn.count(b"\n")
    assert same(archive.load(), some[:whole])
    for i in some[whole:]:
        archive.put([i])
    assert same(archive.load(), some) and (not some or archive.path.read_bytes()[: len(content)] == content)


def test_a_disk_that_takes_nothing_is_named() -> None:
    with pytest.raises(OSError) as error:
        json_lines.append(Path("/dev/full"), {"id": 0})
    assert error.value.filename == "/dev/full"


def test_of_several_lines_of_an_id_the_last_counts(tmp_path: Path) -> None:
    archive = Archive(tmp_path / "individuals.jsonl")
    for i in (individual(1, score=1.0), individual(0), individual(1, score=2.0)):
        archive.put([i])
    assert [(i.id, i.ok) for i in archive.load()] == [(0, False), (1, True)] and archive.load()[1].score == 2.0


def test_what_is_evaluated_again_leaves_no_trace(tmp_path: Path) -> None:
    first, last = [individual(0), individual(1, score=1.0)], [individual(2, score=5.0), individual(3, score=6.0)]
    whole, again = Archive(tmp_path / "whole.jsonl"), Archive(tmp_path / "again.jsonl")
    whole.put(first)
    whole.put(last)
    again.put(first)
    again.put([individual(2, score=2.0), individual(3)])
    again.path.write_bytes(again.path.read_bytes() + b'{"id": 4, "it')  # killed in the middle of a line
    again.put(last)
    assert again.path.read_bytes() == whole.path.read_bytes()


def test_a_kill_while_one_is_replaced_loses_neither(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever write is the last: what was trained is there, as it was or as it is now."""
    archive = Archive(tmp_path / "individuals.jsonl")
    archive.put([individual(0, score=1.0), individual(1, score=2.0)])

    def killed(*args: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("envolve.llm.json_lines.append", killed)
    try:
        archive.put([individual(0, score=5.0)])
    except KeyboardInterrupt:
        pass
    assert [i.id for i in archive.load()] == [0, 1]


@pytest.mark.parametrize(
    "line, text",
    [
        ("{", "not JSON"),
        ("", "not JSON"),
        ("[]", "found list, expected an object"),
        ('{"score": NaN}', "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("\udcff", "not JSON"),
        (json.dumps({**individual(3).to_json(), "scor": 1}), "unknown key 'scor', nearest: 'score'"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, line: str, text: str) -> None:
    path = tmp_path / "individuals.jsonl"
    lines = [json.dumps(individual(0).to_json()), line, json.dumps(individual(1).to_json())]
    path.write_text("".join(text + "\n" for text in lines), encoding="utf-8", errors="surrogateescape")
    with pytest.raises(ArchiveError, match=f"individuals.jsonl, line 2: {text}"):
        Archive(path).load()


@pytest.mark.parametrize("name", SEARCHES)
@given(st.integers(0, 2**32), st.data())
@settings(deadline=None, max_examples=examples(25))
def test_a_search_told_any_prefix_asks_what_the_run_asked(name: str, seed: int, data: st.DataObject) -> None:
    told, asked = run(SEARCHES[name](), iterations=5, seed=seed)
    samples = len(asked[0])
    prefix = told[: data.draw(st.integers(1, len(told)))]
    resumed = SEARCHES[name]()
    for i in data.draw(st.permutations(prefix)):
        resumed.tell([i])
    finished = (len(prefix) - 1) // samples
    for k in range(min(finished + 1, len(asked))):  # an iteration that is begun changes nothing that is asked in it
        assert resumed.ask(k) == asked[k]
    for k in range(finished, len(asked)):  # and then the run goes on as it went
        resumed.tell(answers(resumed.ask(k), k, 1 + k * samples, seed))
    final, expected = resumed.best(), max((i for i in told[1:] if i.ok), key=lambda i: (i.score, -i.id), default=None)
    assert resumed.ask(5) and (final is None if expected is None else final is not None and same(final, expected))
