from __future__ import annotations

import contextlib
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from envolve.distributed.memory.replay import SharedReplay
from envolve.distributed.memory.replay_log import ReplayLog, encoded
from envolve.distributed.memory.rows import Chunk, Widths

WIDTHS = Widths(1, 1, (-1.0,), (1.0,))  # 7 columns
KEYS = torch.tensor([5])


def numbered(first: int, count: int, session: int = 0, version: int = 0, worker: int = 0) -> Chunk:
    """Rows whose reward is their number."""
    rows = torch.zeros(1, count, WIDTHS.row)
    rows[..., -4] = torch.arange(first, first + count)
    return Chunk(session, version, worker, first, rows, torch.tensor([[1.0, 2.0]]))


def numbers(batch: torch.Tensor) -> list[int]:
    return batch[:, :, -4].flatten().int().tolist()


def test_oldest_first_out_and_uniform() -> None:
    replay = SharedReplay(KEYS, 10, WIDTHS, 50)
    replay.append(numbered(0, 7).rows)
    assert set(numbers(replay.sample(0, 4))) == set(range(7))
    replay.append(numbered(7, 16).rows)  # longer than the memory
    found = numbers(replay.sample(0, 400))
    assert set(found) == set(range(13, 23)) and replay.written == 23
    counts = torch.bincount(torch.tensor(found) - 13).double()
    expected = len(found) / 10
    assert float(((counts - expected) ** 2 / expected).sum()) < 30  # chi^2 of 9 degrees: 27.9 at p = 0.001


def test_a_minibatch_depends_on_its_number_alone() -> None:
    replay = SharedReplay(KEYS, 10, WIDTHS, 5)
    with pytest.raises(RuntimeError, match="empty"):
        replay.sample(0, 1)
    replay.append(numbered(0, 9).rows)
    whole = replay.sample(3, 6)
    assert torch.equal(whole[2:4], replay.sample(5, 2)) and not torch.equal(whole[0], whole[1])


def make_log(folder: Path, file_rows: int = 6) -> ReplayLog:
    return ReplayLog(folder, 1, WIDTHS.row, file_rows)


def fill(log: ReplayLog, chunks: list[Chunk]) -> None:
    row = 0
    for chunk in chunks:
        if log.full():
            log.begin_file(row)
        log.append(chunk)
        row += chunk.rows.shape[1]
    log.close()


def rewards(log: ReplayLog, before: int | None = None) -> list[float]:
    return [r for chunk in log.read(before) for r in chunk.rows[0, :, -4].tolist()]


def test_the_log_gives_back_what_it_got(tmp_path: Path) -> None:
    chunks = [numbered(4 * i, 4, 1, i, i % 3) for i in range(5)]
    fill(make_log(tmp_path), chunks)
    found = list(make_log(tmp_path).read())
    assert [(c.session, c.version, c.worker) for c in found] == [(1, i, i % 3) for i in range(5)]
    assert all(torch.equal(a.rows, b.rows) and torch.equal(a.episodes, b.episodes) for a, b in zip(chunks, found))
    (tmp_path / "rows_000000000008 copy.log").touch()  # of somebody else
    assert [first for first, _ in make_log(tmp_path).files()] == [0, 8, 16]


@pytest.mark.parametrize("damage", ["torn", "flipped"])
def test_what_a_kill_tore_is_cut_off(tmp_path: Path, damage: str) -> None:
    log = make_log(tmp_path)
    fill(log, [numbered(4 * i, 4, version=i) for i in range(5)])
    _, path = log.files()[1]  # rows 8 to 15
    data, size = path.read_bytes(), len(encoded(numbered(0, 4)))
    cut = data[: size + 30] if damage == "torn" else data[: size + 60] + b"\xff" + data[size + 61 :]
    path.write_bytes(cut)
    assert rewards(log) == list(range(12))
    assert path.stat().st_size == size and len(log.files()) == 2
    log.open_last()
    log.append(numbered(12, 1))
    log.close()
    assert rewards(log) == list(range(13))


@contextlib.contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """As a disk that is full: the system writes what has room, and refuses the rest."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("rows", [3, 4000])  # less and more than Python keeps before it writes
def test_a_disk_that_was_full_for_a_moment_costs_no_chunk(tmp_path: Path, rows: int) -> None:
    chunks = [numbered(rows * i, rows, version=i) for i in range(4)]
    size, log = len(encoded(chunks[0])), make_log(tmp_path, 4 * rows)
    log.begin_file(0)
    log.append(chunks[0])
    with files_of_at_most(size + size // 2), pytest.raises(OSError, match="too large"):
        log.append(chunks[1])
    for chunk in chunks[1:]:  # it comes again, and others after it
        log.append(chunk)
    log.close()
    assert [chunk.version for chunk in log.read()] == [0, 1, 2, 3]


def test_a_training_is_taken_back(tmp_path: Path) -> None:
    log = make_log(tmp_path)
    fill(log, [numbered(4 * i, 4, version=i) for i in range(5)])
    assert rewards(log, before=3) == list(range(12))
    assert rewards(log) == list(range(12))
    assert rewards(log, before=0) == []


def test_old_files_are_dropped(tmp_path: Path) -> None:
    log = make_log(tmp_path)
    fill(log, [numbered(4 * i, 4, version=i) for i in range(5)])
    log.drop_before(15)
    assert [first for first, _ in log.files()] == [8, 16]
    log.drop_before(10**6)
    assert [first for first, _ in log.files()] == [16]  # the newest stays


def test_a_memory_from_the_middle_draws_like_the_whole_one(tmp_path: Path) -> None:
    """The ring's phase is part of what is drawn."""
    whole, later = (SharedReplay(KEYS, 7, WIDTHS, 30) for _ in range(2))
    whole.append(numbered(0, 23).rows)
    later.clear(12)
    later.append(numbered(12, 11).rows)
    assert later.written == whole.written == 23
    assert torch.equal(whole.sample(5, 3), later.sample(5, 3))
