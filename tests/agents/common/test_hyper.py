"""Draws of hyperparameters: their ranges, their distribution, and that a member's depend on its key alone."""

from __future__ import annotations

import numpy as np
import pytest

from envolve.agents.common.hyper import draw
from envolve.agents.common.sections import DDQNSection, TabularSection, VarySection

KEYS = np.arange(4000) * 7919 + 13
BASE = DDQNSection(lr=1e-3, batch_size=128, hidden_size=64, hidden_layer=2, train_steps=1000)


def kolmogorov_smirnov(u: np.ndarray) -> float:
    """Distance between the empirical distribution of u and U(0, 1), times sqrt(n); above 1.95 with p = 0.001."""
    u, n = np.sort(u), len(u)
    return np.sqrt(n) * max((np.arange(1, n + 1) / n - u).max(), (u - np.arange(n) / n).max())


def test_without_vary_everyone_has_the_sections_values():
    hyper = draw(BASE, KEYS[:5])
    assert len(hyper) == 5 and hyper.section is BASE
    assert hyper["lr"].tolist() == [1e-3] * 5 and hyper["batch_size"].tolist() == [128] * 5
    assert hyper["hidden_size"].dtype == np.int64
    assert "activation_fn" not in hyper.values and "bootstrap_time_limit" not in hyper.values


def test_ranges():
    hyper = draw(BASE, KEYS, VarySection())
    assert (hyper["lr"] >= 1e-3 / 3 - 1e-12).all() and (hyper["lr"] <= 3e-3 + 1e-12).all()
    for name, base in (("batch_size", 128), ("hidden_size", 64)):
        drawn = hyper[name]
        assert drawn.dtype == np.int64 and drawn.min() >= base // 3 and drawn.max() <= base * 3
        assert drawn.min() < base * 0.35 and drawn.max() > base * 2.9, "the whole range is used"
    assert set(hyper["hidden_layer"]) == {1, 2, 3}
    assert np.bincount(hyper["hidden_layer"])[1:].min() > 0.28 * len(KEYS)
    for name in ("gamma", "tau", "eps_init", "train_steps"):
        assert (hyper[name] == getattr(BASE, name)).all(), name


@pytest.mark.parametrize("name, base", [("lr", 1e-3), ("train_steps", 1000)])
def test_log_uniform(name, base):
    factor = 3.0 if name == "lr" else 4.0
    drawn = draw(BASE, KEYS, VarySection(train_steps_factor=4.0))[name]
    u = (np.log(drawn / base) / np.log(factor) + 1) / 2
    assert kolmogorov_smirnov(u) < 1.95
    assert kolmogorov_smirnov((drawn - base / factor) / (base * factor - base / factor)) > 10, "not uniform"


def test_numbers_are_drawn_independently():
    hyper = draw(BASE, KEYS, VarySection(train_steps_factor=4.0))
    names = ("lr", "batch_size", "hidden_size", "hidden_layer", "train_steps")
    correlation = np.corrcoef([np.log(hyper[n]) for n in names])
    assert np.abs(correlation - np.eye(len(names))).max() < 4 / np.sqrt(len(KEYS))


def test_a_draw_depends_on_the_members_key_alone():
    vary = VarySection(train_steps_factor=2.0)
    whole = draw(BASE, KEYS[:50], vary)
    order = np.random.default_rng(0).permutation(50)
    for part in (np.arange(7), np.array([33]), order):
        for name, values in draw(BASE, KEYS[part], vary).values.items():
            assert np.array_equal(values, whole[name][part]), name
    assert len(np.unique(whole["lr"])) == 50


def test_small_numbers_stay_possible():
    smallest = DDQNSection(batch_size=1, hidden_size=1, hidden_layer=0)
    hyper = draw(smallest, KEYS[:500], VarySection())
    assert hyper["batch_size"].min() == 1 and hyper["hidden_size"].min() == 1
    assert set(hyper["hidden_layer"]) == {0, 1}


@pytest.mark.parametrize("steps, factor", [(1, 3.0), (50, 100.0)])
def test_a_small_budget_never_becomes_none(steps, factor):
    """0 means no limit."""
    vary = VarySection(vary_hp=False, train_steps_factor=factor)
    assert draw(DDQNSection(train_steps=steps), KEYS[:2000], vary)["train_steps"].min() == 1
    assert not draw(DDQNSection(train_steps=0), KEYS[:10], vary)["train_steps"].any()


def test_switches():
    hyper = draw(BASE, KEYS[:100], VarySection(vary_layers=False))
    assert (hyper["hidden_layer"] == 2).all() and len(set(hyper["lr"])) == 100
    hyper = draw(BASE, KEYS[:100], VarySection(vary_hp=False, train_steps_factor=2.0))
    assert (hyper["lr"] == BASE.lr).all() and (hyper["hidden_size"] == 64).all()
    assert hyper["train_steps"].min() >= 500 and hyper["train_steps"].max() <= 2000
    assert len(set(hyper["train_steps"])) > 50


def test_tabular_learners_vary_alpha_and_gamma():
    hyper = draw(TabularSection(), KEYS, VarySection())
    for name in ("alpha", "gamma"):
        assert kolmogorov_smirnov((hyper[name] - 0.1) / 0.9) < 1.95
    assert (hyper["batch_size"] == 1).all(), "updates per step are no minibatch"
