from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from envolve.distributed.memory.rows import RANDOM, Chunk, Handout
from envolve.distributed.programs.collector import Collector
from tests.distributed.toy import Steps, small

KEYS = torch.tensor([3])


def make(
    config: dict[str, Any] | None = None,
    workers: int = 1,
    lockstep: bool = False,
    worker: int = 0,
    keys: torch.Tensor = KEYS,
    **values: Any,
) -> Collector:
    return Collector(small(config, **values), worker, workers, keys, lockstep)


def turn(c: Collector, version: int, session: int = 0, policy: torch.Tensor | None = None) -> Chunk:
    policy = c.agent.actor().clone() if policy is None else policy
    return c.collect(Handout(session, version, policy))


def columns(chunk: Chunk, member: int = 0) -> dict[str, np.ndarray]:
    rows = chunk.rows[member].numpy()
    names = ("reward", "terminated", "truncated", "version")
    return {
        "s": rows[:, :4],
        "next": rows[:, 4:8],
        "action": rows[:, 8:10],
        **{name: rows[:, 10 + i] for i, name in enumerate(names)},
    }


def test_no_row_crosses_the_end_of_an_episode() -> None:
    c = make({"length": 4, "counts": True}, horizon=50)
    found = columns(turn(c, 0))
    assert np.array_equal(found["s"][:, 0], found["next"][:, 0])  # the same episode
    assert np.array_equal(found["s"][:, 1] + 1, found["next"][:, 1])  # one step later
    assert found["s"][:, 1].tolist() == [i % 4 for i in range(50)]
    ends = found["next"][:, 1] == 4
    assert np.array_equal(found["terminated"] + found["truncated"], ends)
    seen = np.array(c.seats[0].env.actions)
    assert np.array_equal(found["terminated"][ends] == 1, seen[ends, 0] > 0)
    assert 0 < found["terminated"].sum() < ends.sum()  # both kinds came


def test_rows_of_goals_keep_what_was_achieved() -> None:
    """Observation, desired goal; the goal that the action led to, of the same episode."""
    c = make({"length": 4, "counts": True}, algorithm="CRL", horizon=50)
    rows = turn(c, 0).rows[0].numpy()
    assert rows.shape == (50, 4 + 2 + 2 + 2 + 4)
    seen, desired, achieved = rows[:, :4], rows[:, 4:6], rows[:, 6:8]
    assert np.array_equal(achieved[:, 0], seen[:, 0]) and np.array_equal(achieved[:, 1], seen[:, 1] + 1)
    assert (desired[:, 0] == 2).all() and np.array_equal(desired[:, 1], seen[:, 3])
    actions = np.array(c.seats[0].env.steps.actions)
    np.testing.assert_allclose(actions, np.stack([2 * rows[:, 8], 5 + 5 * rows[:, 9]], 1), atol=1e-6)
    assert np.array_equal(rows[:, 11:13].sum(1), achieved[:, 1] == 4)


def test_actions_are_between_the_bounds_and_stored_as_shares() -> None:
    c = make({"length": 4})
    found = columns(turn(c, RANDOM))
    seen = np.array(c.seats[0].env.actions)
    np.testing.assert_allclose(seen, np.stack([2 * found["action"][:, 0], 5 + 5 * found["action"][:, 1]], 1), atol=1e-6)
    np.testing.assert_allclose(found["reward"], seen.sum(1), atol=1e-5)
    assert seen[:, 1].min() < 2.5 and seen[:, 1].max() > 7.5  # uniform ones


def test_the_horizon_cuts_and_is_no_end() -> None:
    found = columns(turn(make({"length": 100}, horizon=10, n_train_episodes_per_iter=3), 0))
    assert np.flatnonzero(found["truncated"]).tolist() == [9, 19, 29] and not found["terminated"].any()


def test_episodes_go_on_from_turn_to_turn_and_are_reported_once() -> None:
    c = make({"length": 6}, workers=3, horizon=10)  # 4 steps a turn
    chunks = [turn(c, v) for v in range(3)]
    steps = np.concatenate([columns(chunk)["s"][:, 1] for chunk in chunks])
    assert steps.tolist() == [0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5]
    assert [chunk.episodes[:, 1].tolist() for chunk in chunks] == [[], [6], [6]]
    rewards = np.concatenate([columns(chunk)["reward"] for chunk in chunks])
    np.testing.assert_allclose(chunks[1].episodes[0, 0], rewards[:6].sum(), rtol=1e-5)
    assert [columns(chunk)["version"][0] for chunk in chunks] == [0, 1, 2]


def test_a_curriculum_drops_the_episode_under_way() -> None:
    curriculum = {"curriculum": {"mass": {"iters": [1, 3], "range": [5.0, 7.0]}}}
    c = make({"length": 100, "counts": True, **curriculum}, horizon=10)
    c.params.horizon = 1000  # so that nothing else ends an episode; a turn keeps its ten steps
    c.steps_of = lambda version: 10  # type: ignore[method-assign]
    found = [columns(turn(c, v)) for v in range(4)]
    assert [f["s"][0, 0] for f in found] == [0, 1, 1, 2]  # episodes
    assert [f["s"][0, 2] for f in found] == [0, 5, 5, 7]  # mass
    assert not any(f["truncated"].any() or f["terminated"].any() for f in found)
    late = make({"length": 100, **curriculum}, horizon=10)
    assert columns(turn(late, 2))["s"][0, 2] == 5  # caught up


def test_lockstep_begins_anew_where_the_learner_keeps_a_checkpoint() -> None:
    c = make({"length": 100}, lockstep=True, horizon=1000, n_train_episodes_per_iter=1, checkpoint_period=3)
    c.steps_of = lambda version: 10  # type: ignore[method-assign]
    policy = c.agent.actor().clone()
    first = [turn(c, v, 0, policy) for v in range(6)]
    assert [columns(f)["s"][0, 1] for f in first] == [0, 10, 20, 0, 10, 20]
    later = make({"length": 100}, lockstep=True, horizon=1000, checkpoint_period=3)
    later.steps_of = c.steps_of  # type: ignore[method-assign]
    for version in (3, 4):  # another process goes on from that checkpoint
        found, expected = columns(turn(later, version, 1, policy)), columns(first[version])
        assert all(np.array_equal(found[name], expected[name]) for name in expected)


def test_workers_and_members_draw_apart() -> None:
    two = make(keys=torch.tensor([3, 4]))
    alone = make(keys=torch.tensor([4]))
    chunk = turn(two, RANDOM)
    assert torch.equal(chunk.rows[1], turn(alone, RANDOM).rows[0])
    assert not torch.equal(chunk.rows[0], chunk.rows[1])
    assert not torch.equal(turn(make(workers=2), RANDOM).rows, turn(make(workers=2, worker=1), RANDOM).rows)


@pytest.mark.parametrize(("workers", "steps"), [(1, 10), (3, 4), (10, 1)])
def test_workers_share_the_steps_of_an_iteration(workers: int, steps: int) -> None:
    c = make(workers=workers)
    assert (c.steps_of(0), c.steps_of(RANDOM)) == (steps, -(-20 // workers))


def test_the_environment_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[int] = []
    monkeypatch.setattr(Steps, "close", lambda self: closed.append(1))
    make(keys=torch.tensor([1, 2])).close()
    assert closed == [1, 1]
