"""File formats of the exchange: what was written comes back, and nothing else is ever accepted, executed, or fatal."""

from __future__ import annotations

import errno
import io
import json
import os
import pickle
import zipfile

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from envolve.outer.exchange.heartbeat import Heartbeat, _parsed, read_beat
from envolve.outer.exchange.machine import ExchangeError, Files, Host, NotReady, Rejected
from envolve.outer.exchange.messages import Chunk, chunk_content, chunk_from, result_content, result_from, result_of
from envolve.outer.exchange.pairs import (
    MAX_CHECK_BYTES,
    SCHEMA,
    pack,
    read_pair,
    reject_pair,
    remove_pair,
    unpack,
    write_pair,
)
from tests.examples import examples
from tests.outer.virtual import chunks_of

NAME = "0_0_input"
shared = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(60))


@pytest.fixture
def files(tmp_path):
    return Files(str(tmp_path / "sync"))


def read_chunk(files):
    """A chunk, or None; anything wrong must be one of the two exceptions the callers handle."""
    pair = read_pair(files, NAME, "input")
    return None if pair is None else chunk_from(pair[0])


plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=10,
)


@shared
@given(
    config=st.dictionaries(st.text(max_size=8), plain, max_size=4),
    p=st.integers(1, 5),
    size=st.integers(0, 9),
    generation=st.integers(0, 2**40),
    mode=st.sampled_from(["proxy", "real"]),
    run_id=st.text(max_size=30),
)
def test_chunk_comes_back(files, config, p, size, generation, mode, run_id):
    worlds, seeds = torch.randn(p, size), torch.randint(-(2**62), 2**62, (p,))
    chunk = Chunk(run_id, generation, 3, 1, mode, config, worlds, seeds)
    sha256 = write_pair(files, NAME, chunk_content(chunk, "x"))
    content, seen = read_pair(files, NAME, "input")
    back = chunk_from(content)
    assert seen == sha256 and torch.equal(back.worlds, worlds) and torch.equal(back.seeds, seeds)
    assert (back.run_id, back.generation, back.chunk_id, back.attempt, back.mode) == (run_id, generation, 3, 1, mode)
    assert back.config == config and json.dumps(back.config) == json.dumps(config)


def test_result_comes_back_bit_for_bit(files):
    chunk = chunks_of(1)[0]
    weights = torch.randn(3, 4).double()
    returned = {
        "score": [1.5, float("nan"), -float("inf")],
        "length": weights.to(torch.int32).numpy(),
        "weights": weights,
        "ok": torch.tensor([True, False, True]),
        "reason": ["", "the world's output is not finite", "x" * 9999],
    }
    result = result_of(chunk, "a" * 64, returned)
    write_pair(files, "0_0_result", result_content(result))
    back = result_from(read_pair(files, "0_0_result", "result")[0])
    assert back.values["score"].dtype == torch.float64 and back.values["score"][1].isnan()
    assert torch.equal(back.values["weights"], weights) and back.values["ok"].tolist() == [True, False, True]
    assert back.reasons[:2] == ["", "the world's output is not finite"] and len(back.reasons[2]) == 2000
    assert back.input_sha256 == "a" * 64


def test_a_row_of_a_population_is_saved_alone(files):
    population = torch.zeros(250, 10_000)
    chunk = Chunk("run", 0, 0, 0, "proxy", {}, population[3:4], torch.arange(250)[3:4])
    assert len(pack(chunk_content(chunk, "x"))) < 50_000


def test_no_check_file_means_nothing_there(files):
    assert read_chunk(files) is None
    files.write(NAME + ".pt", b"half")
    assert read_chunk(files) is None


def test_check_file_before_its_data_means_wait(files):
    write_pair(files, NAME, chunk_content(chunks_of(1)[0], "old"))
    old = files.read(NAME + ".pt", 10**6)
    write_pair(files, NAME, chunk_content(chunks_of(1)[0], "new"))
    new = files.read(NAME + ".pt", 10**6)
    files.write(NAME + ".pt", old)
    with pytest.raises(NotReady, match="checksum"):
        read_chunk(files)
    files.remove(NAME + ".pt")
    with pytest.raises(NotReady, match="missing"):
        read_chunk(files)
    files.write(NAME + ".pt", new)
    assert read_chunk(files) is not None


@shared
@given(data=st.data(), which=st.sampled_from([".pt", "_check.pt"]))
def test_flipped_and_truncated_bytes_are_not_accepted(files, data, which):
    write_pair(files, NAME, chunk_content(chunks_of(1)[0], "x"))
    good = files.read(NAME + which, 10**6)
    if data.draw(st.booleans()):
        bad = good[: data.draw(st.integers(0, len(good) - 1))]
    else:
        at = data.draw(st.integers(0, len(good) - 1))
        bad = good[:at] + bytes([good[at] ^ data.draw(st.integers(1, 255))]) + good[at + 1 :]
    files.write(NAME + which, bad)
    try:
        chunk = read_chunk(files)
    except (NotReady, Rejected):
        return
    # bytes of the check file's archive that nobody reads may differ; then it says the same
    assert which == "_check.pt" and torch.equal(chunk.worlds, chunks_of(1)[0].worlds) and chunk.run_id == "run"


@shared
@given(data=st.data())
def test_bytes_that_carry_their_own_checksum_are_still_checked(files, data):
    """Whoever can write a check file can make it fit: the content must be harmless all the same."""
    good = pack(chunk_content(chunks_of(1)[0], "x"))
    bad = bytearray(good)
    for _ in range(data.draw(st.integers(1, 4))):
        bad[data.draw(st.integers(0, len(bad) - 1))] = data.draw(st.integers(0, 255))
    _write_with_fitting_check(files, bytes(bad))
    try:
        chunk = read_chunk(files)
    except (NotReady, Rejected):
        return
    assert chunk.worlds.shape == (3, 5) and chunk.seeds.shape == (3,)


@shared
@given(st.binary(max_size=300))
def test_junk_is_not_accepted(files, junk):
    _write_with_fitting_check(files, junk)
    with pytest.raises(Rejected):
        read_chunk(files)
    files.write(NAME + "_check.pt", junk)
    with pytest.raises(NotReady):
        read_chunk(files)


def saved(thing):
    """As torch writes it: a view with the whole that it looks into."""
    buffer = io.BytesIO()
    torch.save(thing, buffer)
    return buffer.getvalue()


def _write_with_fitting_check(files, data, **changes):
    import hashlib

    check = {"schema": SCHEMA, "kind": "input", "sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}
    check.update(run_id="run", generation=0, chunk_id=0, attempt=0)
    check.update(changes)
    files.write(NAME + ".pt", data)
    files.write(NAME + "_check.pt", pack(check))


def content(**changes):
    result = chunk_content(chunks_of(1)[0], "x")
    result.update(changes)
    return {k: v for k, v in result.items() if v is not ...}


deep = current = []
for _ in range(50):
    current.append([])
    current = current[0]


@pytest.mark.parametrize(
    "changes",
    [
        {"worlds": torch.zeros(3, 5, dtype=torch.float64)},
        {"worlds": torch.zeros(15)},
        {"worlds": torch.zeros(2, 5)},
        {"worlds": torch.zeros(1, 1).expand(3, 10**12)},
        {"worlds": torch.zeros(100)[:15].view(3, 5)},
        {"worlds": torch.zeros(3, 5).to_sparse()},
        {"worlds": [[0.0] * 5] * 3},
        {"worlds": torch.nn.Parameter(torch.zeros(3, 5))},
        {"seeds": torch.zeros(3)},
        {"seeds": torch.zeros(0, dtype=torch.int64), "worlds": torch.zeros(0, 5)},
        {"config": "agents"},
        {"config": {"deep": deep}},
        {"config": {"tensor": torch.zeros(1)}},
        {"config": {("tuple",): 1}},
        {"config": {"set": {1}}},
        {"mode": 3},
        {"mode": "x" * 100},
        {"mode": ...},
        {"extra": 1},
        {"generation": -1},
        {"generation": True},
        {"generation": 1.0},
        {"chunk_id": "0"},
        {"attempt": 2**60},
        {"run_id": 5},
        {"run_id": "x" * 1000},
    ],
)
def test_wrong_schema_is_not_accepted(files, changes):
    bad = content(**changes)
    keys = ("run_id", "generation", "chunk_id", "attempt")
    _write_with_fitting_check(files, saved(bad), **{k: bad[k] for k in keys if k in bad})
    with pytest.raises(Rejected):
        read_chunk(files)


@pytest.mark.parametrize(
    "changes",
    [
        {"schema": 2},
        {"schema": "1"},
        {"schema": True},
        {"kind": "result"},
        {"run_id": "other"},
        {"generation": 1},
        {"chunk_id": 7},
        {"attempt": 1},
    ],
)
def test_data_and_check_file_must_agree(files, changes):
    _write_with_fitting_check(files, pack(content()))
    assert read_chunk(files).run_id == "run"
    _write_with_fitting_check(files, pack(content()), **changes)
    with pytest.raises(Rejected):
        read_chunk(files)
    if "schema" in changes:
        with pytest.raises(Rejected, match="same version"):
            read_chunk(files)


def test_a_result_is_not_taken_for_an_input(files):
    result = result_of(chunks_of(1)[0], "a" * 64, {"score": [0.0] * 3})
    write_pair(files, NAME, result_content(result))
    with pytest.raises(Rejected, match="kind"):
        read_chunk(files)


@pytest.mark.parametrize(
    "changes",
    [
        {"values": {}},
        {"values": {"score": torch.zeros(3)}},
        {"values": {"score": torch.zeros(2, dtype=torch.float64)}},
        {"values": {"score": torch.zeros(3, 1, dtype=torch.float64)}},
        {"values": {"score": torch.zeros(3, dtype=torch.float64), "n": torch.tensor(1)}},
        {"values": {"score": torch.zeros(3, dtype=torch.float64), 1: torch.zeros(3)}},
        {"values": {"score": torch.zeros(3, dtype=torch.float64), "z": torch.zeros(3, dtype=torch.complex64)}},
        {"reasons": ["", ""]},
        {"reasons": ["", "", 3]},
        {"reasons": ["", "", "x" * 5000]},
        {"error": None},
        {"input_sha256": b"a"},
    ],
)
def test_wrong_results_are_not_accepted(changes):
    good = result_content(result_of(chunks_of(1)[0], "a" * 64, {"score": [0.0] * 3}))
    assert result_from(unpack(pack(good), "x")).reasons == [""] * 3
    with pytest.raises(Rejected):
        result_from(unpack(pack({**good, **changes}), "x"))


class Hostile:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.system, (f"touch {self.path}",)


def _archive(pickled, compression=zipfile.ZIP_STORED, extra=b""):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        archive.writestr("archive/data.pkl", pickled)
        archive.writestr("archive/version", b"3\n")
        archive.writestr("archive/data/0", extra)
    return buffer.getvalue()


@pytest.mark.parametrize(
    "make", [pickle.dumps, lambda o: _archive(pickle.dumps(o, 2)), lambda o: pack({"schema": 1, "config": o})]
)
def test_hostile_pickles_are_not_executed(files, tmp_path, make):
    target = tmp_path / "executed"
    data = make(Hostile(target))
    _write_with_fitting_check(files, data)
    with pytest.raises(Rejected):
        read_chunk(files)
    files.write(NAME + "_check.pt", data)
    with pytest.raises(NotReady):
        read_chunk(files)
    assert not target.exists()


def test_archives_that_unpack_to_more_than_they_are_are_not_opened():
    good = pack(content())
    with pytest.raises(Rejected, match="torch.save"):
        unpack(_archive(good, zipfile.ZIP_DEFLATED, bytes(10**7)), "x")


def test_tensor_that_claims_more_than_the_file_holds(files):
    data = pack(content(worlds=torch.zeros(3, 300)))
    numel = b"M\x84\x03"  # 900, as the pickle says it
    assert data.count(numel) == 1
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        entries = {e.filename: archive.read(e) for e in archive.infolist()}
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, entry in entries.items():
            archive.writestr(name, entry.replace(numel, b"J\x00\x00\x00\x7f"))
    with pytest.raises(Rejected):
        chunk_from(unpack(out.getvalue(), "x"))


def test_odd_things_in_the_folder_neither_block_nor_crash(files):
    check = files.path(NAME + "_check.pt")
    os.mkfifo(check)
    with pytest.raises(Rejected, match="plain file"):
        read_chunk(files)
    reject_pair(files, NAME)
    assert not os.path.exists(check)
    os.mkdir(check)
    with pytest.raises(Rejected, match="plain file"):
        read_chunk(files)
    os.rmdir(check)
    os.symlink("/nowhere", check)
    assert read_chunk(files) is None
    os.remove(check)
    files.write(NAME + "_check.pt", bytes(MAX_CHECK_BYTES + 1))
    with pytest.raises(Rejected, match="expected at most"):
        read_chunk(files)
    assert len(os.listdir("/proc/self/fd")) < 200


def test_removing_and_putting_aside(files):
    write_pair(files, NAME, content())
    reject_pair(files, NAME)
    reject_pair(files, NAME)
    assert sorted(files.names()) == [NAME + ".pt.rejected", NAME + "_check.pt.rejected"]
    write_pair(files, NAME, content())
    remove_pair(files, NAME)
    remove_pair(files, NAME)
    assert read_chunk(files) is None


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EDQUOT])
def test_failing_writes_say_which_file_and_why_and_leave_nothing(files, monkeypatch, code):
    files.write("0_0_input.pt", b"old")

    def fail(*args):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(ExchangeError) as e:
        files.write("0_0_input.pt", b"new")
    assert (
        files.path("0_0_input.pt") in str(e.value)
        and os.strerror(code) in str(e.value)
        and "--sync-dir" in str(e.value)
    )
    monkeypatch.undo()
    assert files.names() == ["0_0_input.pt"] and files.read("0_0_input.pt", 9) == b"old"


def test_sync_folder_that_is_a_file(tmp_path):
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "sync"):
        with pytest.raises(ExchangeError, match="cannot make the sync folder"):
            Files(str(path))


def test_sync_folder_that_was_deleted_is_made_again(files):
    os.rmdir(files.folder)
    assert files.names() == [] and files.read("x", 1) is None
    files.write("x", b"1")
    assert files.read("x", 1) == b"1"


@shared
@given(st.binary(max_size=60) | plain.map(lambda x: json.dumps(x).encode()))
def test_odd_heartbeats_are_no_news(files, data):
    files.write("0_0_heartbeat", data)
    assert read_beat(files, "0_0_heartbeat") is None


@pytest.mark.parametrize(
    "key, value",
    [("interval", float("nan")), ("interval", 0), ("counter", "1"), ("pid", True), ("pid", 2**80), ("more", 1)],
)
def test_heartbeats_with_odd_fields_are_no_news(files, key, value):
    beat = Heartbeat(files, Host(), "0_0_heartbeat")
    assert beat.claim() is None
    good = json.loads(files.read("0_0_heartbeat", 9999))
    assert read_beat(files, "0_0_heartbeat") is not None
    files.write("0_0_heartbeat", json.dumps({**good, key: value}).encode())
    assert read_beat(files, "0_0_heartbeat") is None


BEAT = (
    '{"uuid": "%s", "counter": 5, "machine": "m", "host": "h", "pid": 1, "started": 7, "interval": 1.0, "run_id": "", '
)
BEAT = BEAT % ("a" * 32) + '"doing": "", "note": "", "code": "c"}'


@pytest.mark.parametrize(
    "old, new",
    [
        ("5", "12"), ("5", "05"), ("5", "-5"), ("5", "5.0"), ("5", "9" * 15), ("5", "9" * 16), ("5", "true"),
        ('"doing": ""', '"doing": "%s"' % ("b" * 64)), ('"doing": ""', '"doing": "starting"'),
        ('"doing": ""', '"doing": "", "doing": "x"'), ('"doing": ""', '"doing": "x", "doing": ""'),
        ('"c"}', '"c", "counter": 9}'), ('"c"}', '"c", "counter": 0}'), ('"c"}', '"c"} '), ('"c"}', '"c"}}'),
        ('"c"}', '"c", "more": 1}'), (', "code": "c"', ""), ('"note": ""', '"note": "\\", \\"doing\\": \\"x"'),
        ('"m"', '"\u00e4\n"'), ('"m"', '"\\ud800"'), ('"m"', '["m"]'), ("1.0", "0"), ("1.0", "NaN"),
        ("a" * 32, "a" * 31), (BEAT[-1], ""), (BEAT, ""), ("", ""),
    ],
)  # fmt: skip
def test_heartbeats_are_what_json_says(files, old, new):
    for other in (0, 3):  # the second one is a known worker's
        data = BEAT.replace(old, new, 1).replace('"counter": 5', f'"counter": {5 + other}').encode()
        files.write("0_0_heartbeat", data)
        assert read_beat(files, "0_0_heartbeat") == _parsed(data)


def test_host_knows_the_living_from_the_dead():
    host = Host()
    assert host.alive(host.pid, host.started)
    assert not host.alive(host.pid, host.started + 1), "a later process with the same pid"
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    started = host.start_time(pid)
    os.waitpid(pid, 0)
    assert started == -1, "a zombie counts as dead"
    assert host.start_time(pid) == -1 and host.start_time(-1) == -1
