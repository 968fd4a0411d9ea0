"""calls.jsonl and recordings: what is read, what is refused, and that a killed writer loses at most a line."""

from __future__ import annotations

import json
import logging

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from envolve.core.cleaning import printable
from envolve.llm.models.record import HEADER, Record, RecordError, ReplayMismatch, read_recording
from envolve.llm.models.request import Call, Request
from tests.examples import examples

TEXT = st.text(max_size=20)
REQUEST = Request("m", (("user", "hi"),))
LINE = {
    "index": 0, "sha256": REQUEST.sha256(), "request": REQUEST.values(), "model": "m", "reply": "yes", "finish": "stop",
    "tokens": [1, 2], "usd": None, "seconds": 0.5, "attempts": 1, "time": "",
}  # fmt: skip
HEAD = json.dumps({HEADER: 1, "models": ["m"]}) + "\n"


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("record") / "calls.jsonl"


def read(path, data):
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return read_recording(path)


@example(replies=[], cut=1)
@settings(deadline=None, max_examples=examples(40))  # every line is an fsync, on a disk that others use
@given(replies=st.lists(TEXT, max_size=5), cut=st.integers(0, 10_000))
def test_a_killed_writer_loses_at_most_the_last_line(path, replies, cut) -> None:
    path.unlink(missing_ok=True)
    record = Record(path, ["m"])
    for index, reply in enumerate(replies):
        record.append({**LINE, "index": index, "reply": reply})
        assert record.recording.entries[index].reply.text == printable(reply)
    data = path.read_bytes()
    path.write_bytes(data[: len(data) - cut % (len(data) + 1)])
    kept = max(0, path.read_bytes().count(b"\n") - 1)
    again = Record(path, ["m"])
    assert [again.recording.entries[i].reply.text for i in range(len(again.recording.entries))] == [
        printable(reply) for reply in replies[:kept]
    ]
    again.append({**LINE, "index": 99})
    assert len(read_recording(path).entries) == kept + 1 and read_recording(path).models == ["m"]


@settings(deadline=None)
@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_any_bytes_are_read_or_refused(path, data) -> None:
    try:
        read(path, data)
    except RecordError as error:
        assert str(error).startswith(f"{path}, line ")


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT | st.just(10**400),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*LINE, "role", "content"]), inner),
    max_leaves=6,
)


@settings(deadline=None)
@given(changes=st.dictionaries(st.sampled_from([*LINE, "failure", "unconfirmed", "model_is_out"]), VALUES, max_size=3))
def test_any_line_is_read_or_refused(path, changes) -> None:
    try:
        recording = read(path, HEAD + json.dumps({**LINE, **changes}) + "\n")
    except RecordError as error:
        assert str(error).startswith(f"{path}, line 2: ")
    else:
        [entry] = recording.everything
        assert (entry.reply is None) != (entry.failure is None) and entry.index >= 0
        if entry.reply is not None:
            assert entry.reply.prompt_tokens >= 0 and (entry.usd is None or entry.usd >= 0)


@settings(deadline=None)
@given(st.lists(st.fixed_dictionaries({"reply": TEXT}, optional={"model": TEXT, "comment": TEXT}), max_size=4))
def test_lines_written_by_hand(path, written) -> None:
    recording = read(
        path, "\n".join(json.dumps(line, ensure_ascii=False) for line in written).encode("utf-8", "replace")
    )
    assert recording.models is None
    for i, line in enumerate(written):
        assert recording.entries[i].reply.text == printable(line["reply"].encode("utf-8", "replace").decode())


@pytest.mark.parametrize(
    "data, message",
    [
        ('{"reply": "a"}\n{"repli": "b"}\n', "line 2: unknown key 'repli'; known: reply, model, comment, expect"),
        ('{"reply": 3}\n', "line 1: 'reply': expected a text, found 3"),
        ('["reply"]\n', "line 1: found list, expected an object"),
        ('{"reply": \n{"reply": "b"}\n', "line 1: not JSON"),
        ('{"reply": "a"}\n{"reply": "b', "line 2: not JSON"),
        ('{"reply": NaN}\n', "line 1: not JSON (NaN is not JSON)"),
        (
            json.dumps(LINE) + "\n",
            "line 1: a line of a recorded run, but the first line, {'envolve_calls': ...}, is mi",
        ),
        ('{"envolve_calls": 2, "models": []}\n', "line 1: format 2; this program reads 1"),
        (HEAD + HEAD, "line 2: 'envolve_calls' belongs in the first line"),
        (
            HEAD + json.dumps({**LINE, "tokens": [1, -2]}) + "\n",
            "line 2: 'tokens': expected numbers of tokens, found -2",
        ),
        (HEAD + '{"index": 0}\n', "line 2: 'request': expected an object with messages"),
        (HEAD + '{"index": 0, "sent": 0}\n', "line 2: 'sent': expected 1, 2, ..., found 0"),
        (HEAD + '{"index": 0, "sent": 1}\n', "line 2: 'model': expected a text, found None"),
        (HEAD + '{"index": 0, "sent": 1, "model": "m", "most": [1]}\n', "line 2: 'most': expected [tokens, usd]"),
    ],
)
def test_what_is_refused(tmp_path, data, message) -> None:
    with pytest.raises(RecordError) as caught:
        read(tmp_path / "r.jsonl", data)
    assert f"{tmp_path / 'r.jsonl'}, {message}" in str(caught.value)


def test_a_torn_line_is_reported(tmp_path, caplog) -> None:
    with caplog.at_level(logging.WARNING, "envolve"):
        recording = read(tmp_path / "r.jsonl", HEAD + json.dumps(LINE))
    assert not recording.entries and "the last line is torn and was dropped" in caplog.text


def test_the_last_entry_of_an_index_counts(tmp_path) -> None:
    failed = {key: LINE[key] for key in ("index", "sha256", "request")} | {"failure": "HTTP 500"}
    data = HEAD + json.dumps(failed) + "\n" + json.dumps(LINE) + "\n"
    recording = read(tmp_path / "r.jsonl", data)
    assert recording.find(Call(0, REQUEST)).reply.text == "yes" and len(recording.everything) == 2


def test_nothing_is_added_to_a_file_written_by_hand(tmp_path) -> None:
    (tmp_path / "r.jsonl").write_text('{"reply": "a"}\n')
    with pytest.raises(RecordError, match="written by hand; a run adds nothing to it"):
        Record(tmp_path / "r.jsonl", ["m"])


def test_a_call_without_an_answer_may_be_asked_otherwise(path) -> None:
    """A repair depends on what another call answered. One that was refused for good, or answered, must be the same."""
    other = Call(0, Request("m", (("user", "ho"),)))
    failure = {k: v for k, v in LINE.items() if k not in ("reply", "finish", "tokens", "usd")}
    for line, found in (
        ({**failure, "failure": "stopped", "final": False}, None),
        ({**failure, "failure": "no", "final": True}, ReplayMismatch),
        (LINE, ReplayMismatch),
    ):
        recording = read(path, HEAD + json.dumps(line) + "\n")
        if found is None:
            assert recording.find(other) is None and recording.find(Call(0, REQUEST)) is not None
        else:
            with pytest.raises(found, match="differs in message 0"):
                recording.find(other)
