"""Goals out of a row's own future: which rows, with what probability, and never of another trajectory."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from envolve.distributed.memory.hindsight import HindsightReplay, rows_left
from envolve.distributed.memory.rows import Widths

WIDTHS = Widths(2, 1, (-1.0,), (1.0,), goal_size=1)  # 8 columns
KEYS = torch.tensor([5, 6])


def chunk(first: int, lengths: list[int], terminated: bool = False) -> Tensor:
    """Rows whose observation and whose goal are their number; episodes of these lengths, the last one cut off."""
    T = sum(lengths)
    rows = torch.zeros(2, T, WIDTHS.row)
    rows[..., 0] = rows[..., 2] = torch.arange(first, first + T)
    ends = torch.tensor(lengths).cumsum(0)[:-1] - 1
    rows[:, ends, -3 if terminated else -2] = 1
    return rows


def replay_of(chunks: list[list[int]], capacity: int, batch: int = 64) -> tuple[HindsightReplay, Tensor]:
    """-> memory, the last row of each row's trajectory."""
    replay, last = HindsightReplay(KEYS, capacity, WIDTHS, batch, 0.8), []
    for i, lengths in enumerate(chunks):
        replay.append(chunk(len(last), lengths, i % 2 == 0))
        for length in lengths:
            last += [len(last) + length - 1] * length
    return replay, torch.tensor(last)


def drawn(replay: HindsightReplay, first: int = 0, count: int = 50) -> tuple[Tensor, Tensor]:
    """Numbers of the rows, and of those whose goals they got, [P, count B]."""
    batches = replay.sample(first, count).transpose(0, 1).long()
    return batches[:, :, 0].flatten(1), batches[:, :, 2].flatten(1)


CHUNKS = [[3, 1, 4], [8], [5, 2], [1, 1, 1], [30, 2], [6]]  # 8, 8, 7, 3, 32 and 6 rows


@pytest.mark.parametrize("capacity", [100, 64, 20, 7])
def test_goals_stay_in_their_episode_and_chunk_and_are_alive(capacity: int) -> None:
    """Also once the ring has gone round, and where a chunk is longer than the memory."""
    for count in range(1, len(CHUNKS) + 1):
        replay, last = replay_of(CHUNKS[:count], capacity)
        now, goal = drawn(replay)
        oldest = max(0, len(last) - capacity)
        assert set(now.flatten().tolist()) == set(range(oldest, len(last)))
        assert (goal >= now).all() and (goal <= last[now]).all()
        # every later row of the same trajectory that is not too unlikely
        assert {(int(n), int(g)) for n, g in zip(now[0], goal[0])} >= {
            (n, g) for n in range(oldest, len(last)) for g in range(n, min(int(last[n]), n + 1) + 1)
        }


def test_steps_ahead_are_geometric() -> None:
    """P(k) = gamma^(k - 1) (1 - gamma) / (1 - gamma^K)."""
    replay, _ = replay_of([[12, 3]], 100, 1000)
    now, goal = drawn(replay, count=300)
    for row, K in ((0, 12), (4, 8), (10, 2), (11, 1), (12, 3)):
        k = (goal - now)[now == row]
        expected = 0.8 ** torch.arange(K) * 0.2 / (1 - 0.8**K) * len(k)
        counts = torch.bincount(k, minlength=K)
        assert len(counts) == K and len(k) > 30_000
        assert float(((counts - expected) ** 2 / expected).sum()) < 45  # chi^2 of 11 degrees: 39 at p = 5e-5


def test_all_else_is_of_the_row_itself() -> None:
    replay, _ = replay_of(CHUNKS, 100)
    plain = replay.ring.sample(replay.draws(3, 1)[0])
    found = replay.sample(3, 1)[0]
    assert torch.equal(found[:, :2], plain[:, :2]) and torch.equal(found[:, 3:], plain[:, 3:])
    assert not torch.equal(found[:, 2], plain[:, 2])


def test_a_minibatch_depends_on_its_number_and_the_content_alone() -> None:
    """The ring's phase is part of that: a memory that is made again from the last chunks draws like the whole one."""
    whole, last = replay_of(CHUNKS, 30)
    assert torch.equal(whole.sample(3, 6)[2:4], whole.sample(5, 2))
    assert not torch.equal(*drawn(whole, 5, 1)) and not torch.equal(whole.sample(5, 1), whole.sample(6, 1))
    later = HindsightReplay(KEYS, 30, WIDTHS, 64, 0.8)
    later.append(torch.ones(2, 40, WIDTHS.row))
    later.clear(16)
    first = 16
    for lengths in CHUNKS[2:]:
        later.append(chunk(first, lengths))
        first += sum(lengths)
    columns = slice(0, WIDTHS.action.stop)  # without the kind of end
    assert torch.equal(whole.sample(5, 3)[:, :, columns], later.sample(5, 3)[:, :, columns])


def test_rows_left() -> None:
    assert rows_left(chunk(0, [3, 1, 2]))[0].tolist() == [3, 2, 1, 1, 2, 1]
    assert rows_left(torch.zeros(1, 0, WIDTHS.row)).shape == (1, 0)
