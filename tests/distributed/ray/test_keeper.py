"""A run whose hub is on another node than its folder: two copies, through a hub that dies at any moment, and through
the loss of the command's node."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any, Callable, Iterable

import pytest
import torch

from envolve.distributed.files.run_folder import DONE, REPLAY, RunSettings
from envolve.distributed.memory.rows import Chunk
from envolve.distributed.ray import keeper
from envolve.distributed.ray.hub import RunHub
from envolve.distributed.ray.keeper import BEGUN_WITH, COPY, TERM, Copy, Keeper, MirroredLog, empty_folder, name_of
from envolve.distributed.ray.programs import programs_of
from envolve.distributed.ray.run import Run
from envolve.outer.checkpoint import RunError
from envolve.outer.ray import actors
from tests.distributed import toy
from tests.distributed.programs.test_faults import prepare
from tests.distributed.ray.stand_in import Killed, install
from tests.distributed.toy import results, small

SETTINGS = RunSettings(3, 2)


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where hubs have their folders."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    return tmp_path / "tmp"


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("expected")
    toy.Run(small(), folder, 2).finish()
    return results(folder)


# ------------------------------------------------------------------------------------------------------- whole runs


class Stop(Exception):
    pass


def go(folder: Path, watch: Callable[[Run], None] = lambda _: None) -> Run:
    if not folder.exists():
        prepare(folder, SETTINGS)
    run = Run(SETTINGS, folder, programs_of(2))
    assert run.to_its_end(lambda: watch(run)) == ""
    return run


def test_the_hub_is_elsewhere_and_the_bytes_stay(
    tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch, expected: dict[str, bytes]
) -> None:
    made, seen = install(monkeypatch, other="second"), []

    def watch(run: Run) -> None:
        seen.extend(p.name for p in temporary.glob("envolve_hub_*"))

    go(tmp_path / "run", watch)
    assert made["RunHub"][0].node == "second" and made["Keeper"][0].node == "node"
    assert results(tmp_path / "run") == expected and (tmp_path / "run" / DONE).exists()
    assert "iteration 6/6" in (tmp_path / "run/logs/learner.log").read_text()
    assert list((tmp_path / "run/learner").glob("events.out.tfevents*"))
    name = (tmp_path / "run" / COPY).read_text().strip()
    assert set(seen) == {name} and not list(temporary.glob("envolve_hub_*")), "removed when the run ends"


@pytest.mark.parametrize("call", [25, 40])
def test_a_hub_that_is_lost_with_its_disk_goes_on_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, expected: dict[str, bytes], call: int
) -> None:
    made, calls, answer = install(monkeypatch, other="second"), [0], RunHub.call

    def counted(hub: RunHub, name: str, data: bytes) -> bytes:
        calls[0] += 1
        if calls[0] == call:
            made["RunHub"][0].die()  # the next begins with an empty folder
            return b""  # lost
        return answer(hub, name, data)

    monkeypatch.setattr(RunHub, "call", counted)
    go(tmp_path / "run")
    assert results(tmp_path / "run") == expected
    assert (tmp_path / "run/session").read_text() == "0\n", "one learner"


def test_the_node_of_the_command_is_lost_and_the_run_goes_on_from_the_hubs(
    tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch, expected: dict[str, bytes]
) -> None:
    install(monkeypatch, other="second")

    def lose(run: Run) -> None:
        if (tmp_path / "run/learner.pt").exists():
            (own,) = temporary.glob("envolve_hub_*/*")
            shutil.copytree(own, tmp_path / "second")  # what a lost driver leaves
            raise Stop

    with pytest.raises(Stop):
        go(tmp_path / "run", lose)
    shutil.rmtree(tmp_path / "run")
    assert not (tmp_path / "second" / DONE).exists(), "the run was not over"
    go(tmp_path / "second")
    assert results(tmp_path / "second") == expected


# -------------------------------------------------------------------------------------------------- every moment


class Dying:
    """A keeper at whose n-th call the hub dies, before or after the call is made."""

    def __init__(self, real: Keeper, at: int, after: bool) -> None:
        self.real, self.left, self.after = real, at, after

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any) -> Any:
            self.left -= 1
            if self.left < 0 or (self.left == 0 and not self.after):
                raise Killed
            answer = getattr(self.real, name)(*args)
            if self.left == 0:
                raise Killed
            return answer

        return call


def chunk(number: int) -> Chunk:
    rows = torch.full((1, 3, 5), float(number))
    return Chunk(0, number, number % 2, number, rows, torch.zeros(1, 2))


def tickets(log: MirroredLog) -> list[int]:
    return [c.ticket for c in log.read()]


def contents(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in (folder / REPLAY).glob("*")}


def begin_log(there: Any, file_rows: int = 6) -> tuple[MirroredLog, Path]:
    """The log of a new hub -> it, and the hub's folder."""
    copy = Copy(there)
    folder = empty_folder("hub", copy.term)
    copy.fill(folder)
    return MirroredLog(folder / REPLAY, 1, 5, file_rows, copy), folder


def add(log: MirroredLog, numbers: Iterable[int], acknowledged: set[int]) -> None:
    for number in numbers:
        if log.full():
            log.begin_file(3 * number)
        log.append(chunk(number))
        acknowledged.add(number)
    log.sync()


@pytest.mark.parametrize("after", [False, True])
def test_nothing_that_was_acknowledged_is_lost_whenever_the_hub_dies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    """Appending, cutting off a version, dropping old files, and what comes after: both copies have the same bytes."""
    monkeypatch.setattr(actors, "call", lambda actor, method, *args: getattr(actor, method)(*args))
    prepare(tmp_path / "run", SETTINGS)
    at, over = 0, False
    while not over:
        at += 1
        shutil.rmtree(tmp_path / "run" / REPLAY, ignore_errors=True)
        real, acknowledged = Keeper(str(tmp_path / "run")), set[int]()
        try:
            log, _ = begin_log(Dying(real, at, after))
            add(log, range(8), acknowledged)
            acknowledged -= {6, 7}
            list(log.read(before=6))  # a learner that goes back
            log.open_last()
            acknowledged -= {0, 1}
            log.drop_before(6)
            over = True
        except Killed:
            pass
        log, folder = begin_log(real)
        found = tickets(log)
        assert found == sorted(set(found)) and acknowledged <= set(found) <= set(range(8)), at
        assert contents(folder) == contents(tmp_path / "run"), at
        log.open_last()
        following = list(range(max(found, default=-1) + 1, max(found, default=-1) + 4))
        add(log, following, set())
        log.close()
        again, folder = begin_log(real)
        assert tickets(again)[-3:] == following
        assert contents(folder) == contents(tmp_path / "run"), at
    assert at > 15, "the hub died often enough"


def test_a_disk_that_is_full_leaves_both_copies_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(actors, "call", lambda actor, method, *args: getattr(actor, method)(*args))
    prepare(tmp_path / "run", SETTINGS)
    log, folder = begin_log(Keeper(str(tmp_path / "run")), 100)
    log.begin_file(0)
    log.append(chunk(0))
    with monkeypatch.context() as m:
        m.setattr(Keeper, "append", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        with pytest.raises(OSError, match="No space left"):
            log.append(chunk(1))
    log.append(chunk(2))
    assert tickets(log) == [0, 2] and contents(folder) == contents(tmp_path / "run")


def test_a_hub_that_was_cut_off_changes_nothing_any_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(actors, "call", lambda actor, method, *args: getattr(actor, method)(*args))
    prepare(tmp_path / "run", SETTINGS)
    first = Keeper(str(tmp_path / "run"))
    old, new = Copy(first), Copy(first)
    new.tell("append", f"{REPLAY}/rows_{0:012d}.log", 0, b"abc")
    again = Keeper(str(tmp_path / "run"))  # the keeper itself was killed
    new.keeper = old.keeper = again
    with pytest.raises(actors.Gone):
        old.tell("append", f"{REPLAY}/rows_{0:012d}.log", 0, b"it is the first that this keeper hears")
    new.tell("append", f"{REPLAY}/rows_{0:012d}.log", 3, b"def")
    for method, args in (("append", (0, b"x")), ("cut", (0,)), ("remove", ()), ("sync", ())):
        with pytest.raises(actors.Gone, match="another hub has taken over"):
            old.tell(method, f"{REPLAY}/rows_{0:012d}.log", *args)
    with pytest.raises(actors.Gone):
        old.tell("keep_of", DONE, b"")
    assert contents(tmp_path / "run") == {f"rows_{0:012d}.log": b"abcdef"} and not (tmp_path / "run" / DONE).exists()
    assert Copy(again).term > new.term, "whichever keeper gave it"
    monkeypatch.setattr(time, "time_ns", lambda: 5)  # a clock that went backwards
    assert Copy(Keeper(str(tmp_path / "run"))).term > new.term
    (tmp_path / "run" / TERM).write_text("soon")
    with pytest.raises(RunError, match="ray_term: found 'soon', expected a number"):
        Keeper(str(tmp_path / "run"))
    newest = Copy(again)
    newest.tell("append", f"{REPLAY}/rows_{0:012d}.log", 3, b"again, after a reply that was lost")
    assert contents(tmp_path / "run") == {f"rows_{0:012d}.log": b"abcagain, after a reply that was lost"}
    with pytest.raises(ValueError, match="found 37 bytes, expected 99"):
        newest.tell("append", f"{REPLAY}/rows_{0:012d}.log", 99, b"")


# ------------------------------------------------------------------------------------------------------- bad input


def test_the_keeper_refuses_what_no_hub_asks(tmp_path: Path) -> None:
    prepare(tmp_path / "run", SETTINGS)
    kept = Keeper(str(tmp_path / "run"))
    term = kept.begin()
    for name in ("../up", "/etc/passwd", "replay/../../x", "params.py", "replay/rows_1.log\n"):
        for method, args in (("append", (0, b"")), ("cut", (0,)), ("remove", ()), ("sync", ())):
            with pytest.raises(ValueError, match="expected a file of the log"):
                getattr(kept, method)(term, name, *args)
    for name in ("../up", "/etc/passwd", "ray_copy"):
        with pytest.raises(ValueError, match="expected a file of the run"):
            kept.piece(name, 0)
    assert kept.names() == list(BEGUN_WITH)


def test_a_file_travels_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(actors, "call", lambda actor, method, *args: getattr(actor, method)(*args))
    monkeypatch.setattr(keeper, "PIECE", 7)
    prepare(tmp_path / "run", SETTINGS)
    (tmp_path / "run/learner.pt").write_bytes(bytes(range(100)))
    Copy(Keeper(str(tmp_path / "run"))).fill(folder := empty_folder("hub", 1))
    for name in (*BEGUN_WITH, "learner.pt"):
        assert (folder / name).read_bytes() == (tmp_path / "run" / name).read_bytes()


def test_an_earlier_hub_that_still_writes_does_not_disturb_the_next(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remove, earlier = shutil.rmtree, empty_folder("hub", 1)

    def beside_a_writer(path: Path, ignore_errors: bool = False) -> None:
        (path / "late").touch()
        with monkeypatch.context() as m:
            m.setattr(os, "unlink", lambda *_, **__: None)  # what was removed is there again
            remove(path, ignore_errors=ignore_errors)

    monkeypatch.setattr(shutil, "rmtree", beside_a_writer)
    assert not list(empty_folder("hub", 2).iterdir())
    assert (earlier / "late").exists()


def test_the_hubs_folder_is_of_this_run_and_this_user(tmp_path: Path, temporary: Path) -> None:
    (tmp_path / "run").mkdir()
    name = name_of(tmp_path / "run")
    assert name == name_of(tmp_path / "run") and name.startswith("envolve_hub_")
    found = empty_folder(name, 1)
    assert found.stat().st_mode & 0o777 == found.parent.stat().st_mode & 0o777 == 0o700
    (found / "left").touch()
    following = empty_folder(name, 2)
    assert [p.name for p in temporary.glob("*/*")] == ["2"] and not list(following.iterdir())
    os.symlink(tmp_path, temporary / "link")
    with pytest.raises(FileExistsError, match="not a folder that this user alone can change"):
        empty_folder("link", 1)
    (tmp_path / "run" / COPY).write_text("../../etc")
    with pytest.raises(RunError, match=r"found '../../etc', expected envolve_hub_ and 16 hexadecimal digits"):
        name_of(tmp_path / "run")
