"""What an evolution leaves for people."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest

import envolve.envs.physics  # noqa: F401  registers the tasks
from envolve.envs.graph.file import load_graph_file
from envolve.envs.physics.task import physics_task
from envolve.envs.shaping.candidate import load_candidate
from envolve.llm.finals import Final, Result
from envolve.llm.models.record import Record, ReplayMismatch
from envolve.llm.models.request import Call, ChatFailure, Reply, Request
from envolve.llm.reporting.report import FILES, verdicts_text, write_report
from envolve.llm.search.archive import Archive
from envolve.llm.search.individual import best_of
from tests.llm.attempts import evolution, graph_file, human

ANT = physics_task("Ant")


def result(individuals, finals=(), tunings=None):
    finals = [Final(i, None) for i in finals]
    return Result(individuals, human(), finals, None, [], tunings or {}, "")


def tuned(individuals):
    """The best of them with other numbers."""
    best = best_of(individuals)
    assert best is not None
    numbers = {"speed_weight": 2.25, "reward_1": 0.05}
    return replace(best, score=9.0, tuned=numbers, graph_file=graph_file(*numbers.values()))


def test_everything_is_written_and_the_summary_names_it(tmp_path):
    individuals = evolution(3, 8, islands=2)
    best = tuned(individuals)
    history = SimpleNamespace(steps=0, history=[])
    text = write_report(tmp_path, result(individuals, [best, human()], {best.id: history}), ANT, "Ant: 24 candidates")
    assert {p.name for p in tmp_path.iterdir()} == set(FILES)
    for name in FILES:
        assert name in text
    assert f"best i{best.id:03d}, 9 m/s; human 1" in text
    assert "tuned" in text and "Last test: 2 fresh agents each" in text and f"--shapers {tmp_path / 'best.py'}" in text
    assert max(map(len, text.split("\n"))) <= 150
    assert load_graph_file(tmp_path / "best.graph.json").param_names == ("speed_weight", "reward_1")
    assert json.loads((tmp_path / "best.graph.json").read_text())["params"][0]["value"] == 2.25
    assert load_candidate(tmp_path / "best.py").failure is None


def test_a_long_ranking_is_cut_in_the_summary_alone(tmp_path):
    individuals = evolution(4, 12)
    text = write_report(tmp_path, result(individuals), ANT, "Ant")
    worst = min((i for i in individuals if i.ok), key=lambda i: i.score)
    assert "more in ranking.txt" in text and f"│ i{worst.id:03d} " not in text
    assert f"│ i{worst.id:03d} " in (tmp_path / "ranking.txt").read_text()


def test_an_evolution_in_which_nothing_worked(tmp_path):
    individuals = [i for i in evolution(3, 8) if i.rejection]
    for some in ([], individuals):
        text = write_report(tmp_path, result(some), ANT, "Ant")
        assert "nothing has a score; " not in text and "nothing has a score" in text
        assert not (tmp_path / "best.py").exists() and "Next:" not in text


def test_verdicts_are_counted_by_stage():
    individuals = evolution(3, 12)
    text = verdicts_text([*individuals, human()])
    assert text.startswith("36 candidates: ")
    for word in ("trained", "failed in training", "rejected (", "allowlist"):
        assert word in text
    assert verdicts_text([]) == "0 candidates: 0 trained"


HOSTILE = "a \ud800 b \x1b[2J c \u202e d \x00 e"


def test_a_report_can_be_written_whatever_a_model_has_written(tmp_path):
    """Also of a run whose files an earlier version has written, with what came as it came."""
    individuals = [i for i in evolution(2, 6) if i.ok or i.rejection]
    for i in individuals:
        i.reply, i.model, i.notes = HOSTILE, HOSTILE, (HOSTILE,)
        i.code += f"# {HOSTILE}\n"
        if i.rejection:
            i.rejection = (i.rejection[0], HOSTILE)
    archive = Archive(tmp_path / "individuals.jsonl")
    record = Record(tmp_path / "calls.jsonl", ["m"])
    for i in individuals:
        request = {"model": "m", "messages": [{"role": "user", "content": HOSTILE}]}
        record.append({"index": i.call, "sha256": "x", "request": request, "failure": HOSTILE})
    archive.put(individuals)
    known = archive.load()
    assert len(known) == len(individuals)
    write_report(tmp_path, result(known), ANT, "Ant \udcff")  # as a name of a file may be
    for path in [*(tmp_path / "transcript").iterdir(), *tmp_path.glob("*.txt"), tmp_path / "best.py"]:
        text = path.read_text(encoding="utf-8")
        assert not set(HOSTILE) & set(text) - set("a b c d e[2J"), path


def test_replies_come_in_printable_from_servers_and_from_recordings(tmp_path):
    assert Reply(HOSTILE, HOSTILE, 1, 1, 0.0, HOSTILE).text == "a \ufffd b \ufffd[2J c \ufffd d \ufffd e"
    assert "\x1b" not in str(ChatFailure(HOSTILE))
    record = Record(tmp_path / "calls.jsonl", ["m"])
    old = Request("m", (("user", f"You wrote {HOSTILE}"),))  # an earlier version quoted replies as they came
    record.append(
        {
            "index": 0,
            "sha256": old.sha256(),
            "request": old.values(),
            "model": "m",
            "reply": HOSTILE,
            "finish": "stop",
            "tokens": [1, 1],
            "usd": None,
            "seconds": 1.0,
        }
    )
    again = Request("m", (("user", "You wrote a \ufffd b \ufffd[2J c \ufffd d \ufffd e"),))
    for request in (old, again):
        entry = record.recording.find(Call(0, request))
        assert entry is not None and entry.reply is not None and "\ud800" not in entry.reply.text
    with pytest.raises(ReplayMismatch):
        record.recording.find(Call(0, Request("m", (("user", "You wrote a"),))))


def test_of_equal_finalists_the_summary_names_the_one_of_result_json(tmp_path):
    """Scores of the last test may be equal; the better of the selection is the best, in every file."""
    low, high = [i for i in evolution(3, 8, seed=1) if i.ok][:2]
    low.score, high.score = 0.1, 0.2  # in the selection; the ids are the other way round
    assert low.id < high.id
    finals = [replace(i, score=1.0, agent_scores=[1.0, 1.0]) for i in (high, low)]
    found = result([low, high], [*finals, human()])
    text = write_report(tmp_path, found, ANT, "Title")
    assert found.best is not None and found.best.individual.id == high.id
    assert f"best i{high.id:03d}" in text and text.index(f"│ 1 │ i{high.id:03d}") < text.index(f"│ 2 │ i{low.id:03d}")
    assert f"i{high.id:03d} of an evolution" in (tmp_path / "best.py").read_text()
