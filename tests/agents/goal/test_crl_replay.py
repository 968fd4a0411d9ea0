"""Goals in hindsight: which rows, with what probability, and never of another trajectory."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from envolve.agents.goal.crl_replay import TrajectoryReplay

CPU = torch.device("cpu")


def filled(P: int, N: int, rows: int, lengths: list[list[int]], writes: int) -> tuple[TrajectoryReplay, Tensor]:
    """Rows that say when they were written and to which trajectory they belong. lengths: of the episodes of each
    environment, over and over. -> replay, [P, writes, N] trajectory of each write."""
    replay = TrajectoryReplay(P, N, rows, {"when": 1, "which": 1, "env": 2}, CPU)
    number, t, episode = torch.zeros(P, N), torch.zeros(P, N, dtype=torch.int64), np.zeros((P, N), int)
    p, n = torch.meshgrid(torch.arange(P), torch.arange(N), indexing="ij")
    history = []
    for when in range(writes):
        row = {
            "when": torch.full((P, N, 1), float(when)),
            "which": number[..., None].clone(),
            "env": torch.stack((p, n), 2).float(),
        }
        replay.write(row)
        history.append(number.clone())
        t += 1
        over = torch.zeros(P, N, dtype=torch.bool)
        for i in range(P):
            for j in range(N):
                own = lengths[(i * N + j) % len(lengths)]
                over[i, j] = bool(t[i, j] == own[episode[i, j] % len(own)])
                episode[i, j] += bool(over[i, j])
        replay.end(over)
        number += over
        t[over] = 0
    return replay, torch.stack(history, 1)


LENGTHS = [[7], [3, 1, 12], [1], [50], [5, 9]]


@pytest.mark.parametrize("writes", [1, 20, 64, 200])
def test_goals_never_cross_a_trajectory_and_never_lie_behind(writes: int) -> None:
    """Also after the ring has wrapped, with trajectories whose beginning is overwritten."""
    P, N, R, B = 2, 5, 32, 4000
    replay, history = filled(P, N, R, LENGTHS, writes)
    key, draw = torch.tensor([3, 4]), torch.tensor([0, 7])
    now = replay.uniform_rows(key, draw, B)
    when, which, env = (replay.gather(name, now) for name in ("when", "which", "env"))
    assert env[..., 0].eq(torch.tensor([[0.0], [1.0]])).all()  # a member's samples are its own
    assert when.min() >= max(0, writes - R)
    assert len(now[0].unique()) == min(writes, R) * N  # every row is drawn
    for later in (replay.future(now, torch.tensor([0.9, 0.99]), key, draw), replay.final(now)):
        assert (replay.gather("which", later) == which).all() and (replay.gather("env", later) == env).all()
        assert (replay.gather("when", later) >= when).all()
    # the last row of each trajectory, from the history of writes
    left = replay.steps_left(now)
    p, n = env[..., 0].long(), env[..., 1].long()
    same = history[p, :, n] == which  # [P, B, writes]
    last = writes - 1 - same.flip(2).int().argmax(2)
    assert (left == last - when[..., 0].long()).all()
    k = replay.gather("when", replay.future(now, torch.tensor([0.9, 0.99]), key, draw)) - when
    assert ((k[..., 0] >= 1) == (left >= 1)).all()


@pytest.mark.parametrize("discount", [0.5, 0.9, 0.99])
def test_draw_against_the_closed_form(discount: float) -> None:
    """Chi-square of 40,000 draws against p(k) = discount^k / sum, k = 1 .. K, for a row with K = 30 rows after it."""
    rows, B = 31, 40_000
    replay, _ = filled(1, 1, rows, [[1000]], rows)
    key, draw = torch.tensor([11]), torch.tensor([2])
    first = torch.zeros(1, B, dtype=torch.int64)
    assert (replay.steps_left(first) == 30).all()
    k = replay.gather("when", replay.future(first, torch.tensor([discount]), key, draw)).long().flatten()
    p = discount ** np.arange(1, 31)
    expected = B * p / p.sum()
    observed = np.bincount(k.numpy(), minlength=31)[1:]
    assert observed.sum() == B
    many = expected >= 5  # the rest counts as one cell
    e, o = (np.append(x[many], x[~many].sum()) for x in (expected, observed))
    e, o = e[e > 0], o[e > 0]
    chi2 = ((o - e) ** 2 / e).sum()
    limit = len(e) - 1 + 4 * np.sqrt(2 * (len(e) - 1))  # mean and four deviations of chi-square
    assert chi2 < limit
    # and it can fail: the draw that is not truncated
    untruncated = B * (1 - discount) / discount * p
    assert discount < 0.9 or ((observed - untruncated) ** 2 / untruncated).sum() > limit


def test_rows_are_drawn_uniformly() -> None:
    replay, _ = filled(1, 4, 16, [[5]], 40)
    index = replay.uniform_rows(torch.tensor([5]), torch.tensor([1]), 65536)
    counts = np.bincount(index.flatten().numpy(), minlength=64)
    chi2 = ((counts - 1024) ** 2 / 1024).sum()
    assert chi2 < 63 + 4 * np.sqrt(2 * 63)


def test_what_is_kept_goes_on_the_same() -> None:
    replay, _ = filled(2, 5, 32, LENGTHS, 20)
    again = TrajectoryReplay(2, 5, 32, {"when": 1, "which": 1, "env": 2}, CPU)
    again.load_state_dict(replay.state_dict())
    key, draw = torch.tensor([3, 4]), torch.tensor([0, 7])
    for r in (replay, again):
        r.end(torch.ones(2, 5, dtype=torch.bool))
        r.write({"when": torch.ones(2, 5, 1), "which": torch.ones(2, 5, 1), "env": torch.ones(2, 5, 2)})
    a, b = (r.future(r.uniform_rows(key, draw, 100), torch.tensor([0.9, 0.9]), key, draw) for r in (replay, again))
    assert (a == b).all() and (replay.gather("when", a) == again.gather("when", b)).all()
