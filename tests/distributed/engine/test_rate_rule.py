from __future__ import annotations

from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from envolve.distributed.engine.rate_rule import RateRule
from envolve.distributed.files.policy_table import PolicyTable

WISHES = st.lists(st.integers(-1, 4), max_size=200)  # -1: the learner wants to push; else: this worker wants to pull


@given(n=st.integers(1, 5), wishes=st.lists(st.booleans(), max_size=200))
def test_the_inequality_holds_and_each_push_is_handed_out_n_times(n: int, wishes: list[bool]) -> None:
    rule, given_out = RateRule(n), Counter[int]()
    for push in wishes:
        if push and rule.may_push():
            rule.push()
        elif not push and rule.may_pull():
            given_out[rule.pull()] += 1
        assert 0 <= n * rule.pushes - rule.pulls <= 2 * n
        assert rule.may_push() or rule.may_pull()  # nobody waits for ever
    assert all(count <= n for count in given_out.values())
    assert all(given_out[i] == n for i in range(rule.pulls // n))


def test_who_has_to_wait() -> None:
    rule = RateRule(2)
    with pytest.raises(RuntimeError, match="a pull, but all 0 pushes were handed out 2 times"):
        rule.pull()
    assert [rule.push(), rule.push()] == [0, 1]
    with pytest.raises(RuntimeError, match="a push while 4 pulls are due, expected at most 2"):
        rule.push()
    assert [rule.pull(), rule.pull(), rule.push(), rule.pull()] == [0, 0, 2, 1]
    with pytest.raises(ValueError, match="found 0, expected 1 or more"):
        RateRule(0)


@given(wishes=WISHES, lockstep=st.booleans())
def test_the_table_hands_out_by_the_rule(wishes: list[int], lockstep: bool) -> None:
    n = 5
    table, handed = PolicyTable(n, lockstep), Counter[int]()
    by_worker: dict[int, list[int]] = {i: [] for i in range(n)}
    for who in wishes:
        if who < 0:
            if table.may_push():
                table.push(0, table.rule.pushes, torch.zeros(1, 1))
        elif table.may_pull(who):
            version = table.pull(who).version
            table.delivered(who, version)
            handed[version] += 1
            by_worker[who].append(version)
        assert 0 <= n * table.rule.pushes - table.rule.pulls <= 2 * n
    assert all(count <= n for count in handed.values())
    if lockstep:
        assert all(versions == list(range(len(versions))) for versions in by_worker.values())
        slowest = min(len(versions) for versions in by_worker.values())
        assert set(table.policies) == set(range(slowest, table.rule.pushes))  # what each has had is forgotten
    else:
        assert len(table.policies) <= 3


@pytest.mark.parametrize("lockstep", [True, False])
def test_a_worker_that_was_started_anew_gets_its_policy_again(lockstep: bool) -> None:
    table = PolicyTable(2, lockstep)
    table.push(7, 0, torch.zeros(1, 1))
    table.push(7, 1, torch.ones(1, 1))
    first = table.pull(1)
    assert table.pull(1) is first and table.rule.pulls == 1
    table.delivered(1, 0)
    assert table.pull(1).version == (1 if lockstep else 0)
    assert table.pull(0).version == (0 if lockstep else 1)
