"""Importances of functions whose importances are known."""

from __future__ import annotations

import dataclasses
import importlib.util
import logging
import math

import numpy as np
import pytest

from envolve.outer.hpo import importance
from envolve.outer.hpo.axes import axes_of
from envolve.outer.hpo.importance import FANOVA, LEAST, PED_ANOVA, Importance, importance_of
from envolve.outer.hpo.trial import Plain, Record
from tests.outer.hpo.trials import record

pytest.importorskip("optuna")
SKLEARN = importlib.util.find_spec("sklearn") is not None
needs_sklearn = pytest.mark.skipif(not SKLEARN, reason="functional ANOVA takes scikit-learn")


@pytest.fixture(autouse=True)
def small_intervals(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """How well intervals cover is for a slow test to say; they take most of the time."""
    if "slow" not in request.keywords:
        monkeypatch.setattr(importance, "SUBSETS", 3)
        monkeypatch.setattr(importance, "SUBSET_TREES", 2)


@pytest.fixture
def few_trees(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests of which trials count; how much a parameter explains takes a whole forest."""
    monkeypatch.setattr(importance, "TREES", 8)


def sample(n: int, budget: float = 45.0, seed: int = 0) -> list[Record]:
    """loss = a + b/2 with a, b uniform in [0, 1]: of its variance a explains 1/(1 + 1/4) = 80 %, b 20 %. c, d: none.
    only: half of the trials have it; there it doubles the loss's spread."""
    random, out = np.random.default_rng(seed), []
    for k in range(n):
        a, b, c = (float(x) for x in random.random(3))
        v: dict[str, Plain] = {"a": a, "b": b, "c": 10 ** (-4 * c), "d": ("x", "y", "z")[int(3 * random.random())]}
        loss = a + b / 2
        if k % 2:
            v["only"] = int(random.integers(0, 5))
            loss += 0.5 * v["only"]  # variance 0.25 * 2 = 0.5, of 0.5 + 1/12 + 1/48 = 0.604: 83 %
        out.append(record(k, (0, 0, k), v, budget, loss))
    return out


def shares(found: Importance) -> dict[str, float]:
    return {name: s.share for name, s in found.shares.items()}


@needs_sklearn
def test_functional_anova_finds_the_shares() -> None:
    rs = [r for r in sample(200) if "only" not in r.trial.values]
    found = importance_of(rs, axes_of(None, rs))
    assert (found.method, found.budget, found.trials) == (FANOVA, 45.0, 100)
    s = shares(found)
    assert list(s)[:2] == ["a", "b"]
    assert s["a"] == pytest.approx(0.8, abs=0.08) and s["b"] == pytest.approx(0.2, abs=0.08)
    assert s["c"] < 0.04 and s["d"] < 0.04
    for share in found.shares.values():
        assert share.interval is not None and share.interval[0] <= share.share <= share.interval[1]


@needs_sklearn
def test_a_conditional_parameter_is_judged_among_those_that_have_it() -> None:
    rs = sample(120)
    found = importance_of(rs, axes_of(None, rs))
    assert found.shares["only"].trials == 60 and found.shares["a"].trials == 120
    assert found.shares["only"].share == pytest.approx(0.83, abs=0.08)
    assert "among the 60 trials that have it" in "\n".join(found.lines())


@needs_sklearn
def test_a_parameter_of_few_trials_is_left_out(few_trees: None) -> None:
    rs = sample(50)
    few = [r for r in rs if "only" not in r.trial.values] + [r for r in rs if "only" in r.trial.values][: LEAST - 1]
    found = importance_of(few, axes_of(None, few))
    assert found.left_out == ("only",) and "only" not in found.shares
    assert f"active in fewer than {LEAST} trials: only" in "\n".join(found.lines())


def test_without_scikit_learn_another_method_is_used_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "sklearn" else real(name))
    rs = sample(200)
    found = importance_of(rs, axes_of(None, rs))
    assert found.method == PED_ANOVA and "PED-ANOVA" in found.lines()[0]
    s = shares(found)
    assert s["only"] > 0.5  # alone with its trials; of the others a is first
    assert max((n for n in s if n != "only"), key=s.__getitem__) == "a" and s["a"] > 2 * max(s["c"], s["d"])


def test_the_largest_budget_with_enough_trials_counts_and_failures_do_not(few_trees: None) -> None:
    low, high = sample(40, 5.0), sample(LEAST - 1, 45.0)
    failed = [record(k, (1, 0, k), {"a": 0.5}, 45.0, 0.0, error="no") for k in range(20)]
    everything = low + high + failed
    found = importance_of(everything, axes_of(None, everything))
    assert (found.budget, found.trials) == (5.0, 40)
    one_more = everything + sample(LEAST, 45.0)[-1:]
    found = importance_of(one_more, axes_of(None, one_more))
    assert (found.budget, found.trials) == (45.0, LEAST)


def test_of_very_many_trials_some_are_taken(few_trees: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importance, "MOST", 60)
    rs = [record(k, (0, 0, k), {"a": float(k), "b": float(k % 7)}, 5.0, float(k)) for k in range(121)]
    found = importance_of(rs, axes_of(None, rs))
    assert found.trials == 60 and shares(found)["a"] > 0.9


def test_why_it_is_not_known(few_trees: None, monkeypatch: pytest.MonkeyPatch) -> None:
    rs = sample(LEAST - 1)
    (text,) = importance_of(rs, axes_of(None, rs)).lines()
    assert text.endswith(": not known, it takes 10 trials that succeed at one budget, and there are 9.")
    assert "there are 0" in importance_of([], []).reason
    same = [record(k, (0, 0, k), {"a": k / 20}, 5.0, 3.0) for k in range(20)]
    assert importance_of(same, axes_of(None, same)).reason == "all losses at budget 5 are the same"
    more = [*same, record(20, (0, 0, 20), {"a": 0.5}, 15.0, 2.0)]
    assert importance_of(more, axes_of(None, more)).reason.endswith("larger budgets have fewer than 10 that succeeded")
    assert importance_of(same + sample(20, 15.0), axes_of(None, sample(20))).budget == 15.0
    equal_above = [dataclasses.replace(r, trial=dataclasses.replace(r.trial, budget=15.0)) for r in same]
    assert importance_of(sample(20, 5.0) + equal_above, axes_of(None, sample(20))).budget == 5.0
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    rs = sample(20)
    assert "pip install optuna" in importance_of(rs, axes_of(None, rs)).reason


def test_parameters_that_never_vary_explain_nothing_and_optuna_stays_silent(
    few_trees: None, caplog: pytest.LogCaptureFixture
) -> None:
    import optuna

    before = optuna.logging.get_verbosity()
    rs = [record(k, (0, 0, k), {"a": k / 20, "b": k % 3 / 3, "same": 1, "text": "x"}, 5.0, float(k)) for k in range(20)]
    with caplog.at_level(logging.INFO):
        found = importance_of(rs, axes_of(None, rs))
    assert shares(found)["same"] == shares(found)["text"] == 0.0 and shares(found)["a"] > 0.8
    assert not caplog.records and optuna.logging.get_verbosity() == before
    assert importance_of(rs, axes_of(None, rs)) == found  # the same again
    assert math.isclose(found.as_json()["shares"]["a"]["share"], shares(found)["a"])


@needs_sklearn
def test_one_parameter_has_nothing_to_be_more_important_than() -> None:
    """Its share is 100 %, whatever it does; so is that of the only one that varies."""
    whole = [r for r in sample(60) if "only" not in r.trial.values]
    for kept in ({"a"}, {"a", "b"}):
        rs = []
        for r in whole:
            values = {k: (0.5 if k == "b" else v) for k, v in r.trial.values.items() if k in kept}
            rs.append(dataclasses.replace(r, trial=dataclasses.replace(r.trial, values=values)))
        found = importance_of(rs, axes_of(None, rs))
        assert found.shares == {} and "only a varies" in found.reason and "%" not in "\n".join(found.lines())


@pytest.mark.slow
@needs_sklearn
def test_intervals_hold_the_true_shares_and_shrink_with_trials() -> None:
    """Over eight samples each. a explains 80 % of what has no ``only``, and c nothing."""
    covered, widths = 0, {}
    for n in (60, 240):
        for seed in range(8):
            rs = [r for r in sample(2 * n, seed=seed) if "only" not in r.trial.values]
            share = importance_of(rs, axes_of(None, rs)).shares["a"]
            assert share.interval is not None and share.interval[0] <= share.share <= share.interval[1]
            covered += share.interval[0] - 0.03 <= 0.8 <= share.interval[1] + 0.03  # a forest is biased by some percent
            widths.setdefault(n, []).append(share.interval[1] - share.interval[0])
    assert covered >= 13 and np.mean(widths[240]) < 0.75 * np.mean(widths[60])


@needs_sklearn
def test_few_trials_have_no_interval_and_that_costs_nothing() -> None:
    rs = [r for r in sample(2 * LEAST + 8) if "only" not in r.trial.values]
    found = importance_of(rs, axes_of(None, rs))
    assert len(rs) < 2 * LEAST and all(s.interval is None for s in found.shares.values())
    assert "[" not in "\n".join(found.lines())
