"""The report of a study: what it says of one trial, of many and of failures, and what lies in the folder then."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from envolve.core import commands
from envolve.outer.hpo.axes import Axis, axes_of, short_names
from envolve.outer.hpo.report import _how_to_go_on, write_report
from envolve.outer.hpo.standings import agreements, last_of_each, ranked, rungs
from tests.outer.hpo.small import study
from tests.outer.hpo.trials import SPACE, loss_of, many, record

PICTURES = ("parallel_coordinates.png", "budget_loss.png", "importance.png")
V = {"agents.gtn.step_size": 0.5, "agents.gtn.mirrored_sampling": True, "agents.gtn.agent_name": "DDQN"}


def test_the_next_command_is_typed_as_this_one_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "_door", ["envolve"])
    last = _how_to_go_on(tmp_path, tmp_path, None, [], "")[-1]
    assert last == f"  envolve run {tmp_path}/best.yaml --single"


def test_rungs_ranks_and_the_best() -> None:
    rs = many()
    assert [(r.budget, r.trials, r.failed) for r in rungs(rs)] == [(5.0, 36, 0), (15.0, 12, 0), (45.0, 4, 0)]
    order = ranked(rs)
    assert [r.trial.budget for r in order] == [45.0] * 4
    assert [r.result.loss for r in order] == sorted(loss_of(r.trial.values, 45.0) for r in order)
    first, second = agreements(rs)
    assert (first.low, first.high, first.configurations) == (5.0, 15.0, 12)
    assert first.rho == pytest.approx(1.0)  # the losses of one budget are those of another, but for a constant
    assert (second.configurations, second.rho) == (4, pytest.approx(1.0))


def test_of_each_configuration_the_largest_budget_counts() -> None:
    rs, last = many(), last_of_each(many())
    largest = {c: max(r.trial.budget for r in rs if r.trial.config_id == c) for c in {r.trial.config_id for r in rs}}
    assert {r.trial.config_id: r.trial.budget for r in last} == largest and len(last) == 36
    assert [r.trial.id for r in last] == sorted(r.trial.id for r in last)


def test_rank_correlation_against_scipy() -> None:
    stats = pytest.importorskip("scipy.stats")
    random = np.random.default_rng(1)
    x, y = random.integers(0, 6, 20).astype(float), random.integers(0, 6, 20).astype(float)  # with equal ones
    rs = [record(2 * k, (0, 0, k), V, 5.0, x[k]) for k in range(20)]
    rs += [record(2 * k + 1, (0, 0, k), V, 15.0, y[k]) for k in range(20)]
    assert agreements(rs)[0].rho == pytest.approx(stats.spearmanr(x, y).statistic)


def test_a_failure_at_the_largest_budget_leaves_the_best_of_the_next(tmp_path: Path) -> None:
    rs = [record(0, (0, 0, 0), V, 5.0), record(1, (0, 0, 1), V, 5.0, 1.0), record(2, (0, 0, 1), V, 15.0, error="no")]
    assert ranked(rs) == [rs[1], rs[0]]
    assert "No trial at a budget of 15 succeeded.\nThe best of 2 at a budget of 5" in write_report(tmp_path, None, rs)


def test_many_trials(tmp_path: Path) -> None:
    rs = many()
    text = write_report(tmp_path, None, rs)
    assert text + "\n" == (tmp_path / "summary.txt").read_text()
    assert "52 trials of 36 configurations: 12 of the model, 24 at random; 0 failed." in text
    best = min((r for r in rs if r.trial.budget == 45), key=lambda r: r.result.loss)
    columns = next(line for line in text.splitlines() if line.startswith("  loss ")).split()
    assert float(columns[1]) == pytest.approx(best.result.loss, rel=1e-3)
    assert "generations 7" in text
    for name in PICTURES:
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
        assert name in text
    assert not list(tmp_path.glob("*.tmp"))
    assert not (tmp_path / "best.yaml").exists() and "There is no best.yaml: the study's YAML is not here." in text


def test_one_trial(tmp_path: Path) -> None:
    text = write_report(tmp_path, None, [record(0, (0, 0, 0), V, 5.0)])
    assert "1 trial of 1 configuration: 0 of the model, 1 at random; 0 failed." in text
    assert "not known, it takes 10 trials that succeed at one budget, and there are 1" in text
    assert all((tmp_path / name).exists() for name in PICTURES)


@pytest.mark.parametrize("backend, words", [("bohb", "bohb, brackets hyperband, seed 0"), ("random", "random, seed 0")])
def test_brackets_of_a_search_that_has_some(tmp_path: Path, backend: str, words: str) -> None:
    assert f"  search     {words}, 3 at a time" in write_report(
        tmp_path, study(tmp_path, f"search.backend={backend}"), []
    )


def test_no_trial_yet(tmp_path: Path) -> None:
    assert "No trial has finished." in write_report(tmp_path, None, [])


def test_all_failed(tmp_path: Path) -> None:
    trace = "Traceback (most recent call last):\n  somewhere\nRuntimeError: worker {} died on chunk \ud800{}\n"
    rs = [record(k, (0, 0, k), V, 5.0, error=trace.format(k, 2 * k)) for k in range(3)]
    rs += [record(3, (0, 0, 3), V, 5.0, error="all members diverged"), record(4, (0, 0, 4), V, 5.0, math.inf)]
    text = write_report(tmp_path, None, rs)
    assert "All trials failed: there is no best configuration." in text
    assert "3 x RuntimeError: worker 0 died on chunk ?0 (trials 0, 1, 2)" in text  # numbers make no other reason
    assert "1 x all members diverged (trial 3)" in text
    assert "1 x no reason given (trial 4)" in text
    assert not (tmp_path / "best.yaml").exists()
    assert all((tmp_path / name).exists() for name in PICTURES)


@pytest.mark.parametrize("losses", [[5.0] * 12, [1e-12, 1e12] * 6, [-1e9, 1.0, 2.0] * 4, [0.0] * 11 + [1e300]])
def test_odd_losses_are_drawn(tmp_path: Path, losses: list[float]) -> None:
    rs = [record(k, (0, 0, k), V | {"agents.gtn.step_size": 0.1 + k / 50}, 5.0, x) for k, x in enumerate(losses)]
    write_report(tmp_path, None, rs)
    assert json.loads((tmp_path / "importance.json").read_text())


def test_axes_of_a_space_and_of_values() -> None:
    rs = many()
    axes = {a.name: a for a in axes_of(SPACE, rs)}
    assert axes["agents.gtn.step_size"] == Axis("agents.gtn.step_size", 0.1, 1.0, log=True)
    assert axes["agents.gtn.step_size"].place(10**-0.5) == pytest.approx(0.5)
    assert [axes["agents.gtn.mirrored_sampling"].place(v) for v in (True, False)] == [0.0, 1.0]
    guessed = {a.name: a for a in axes_of(None, rs)}
    assert guessed["agents.gtn.agent_name"].choices == ("DDQN", "DDQN_icm")
    assert not guessed["agents.gtn.step_size"].log and guessed["agents.icm.lr"].log is (
        guessed["agents.icm.lr"].high > 100 * guessed["agents.icm.lr"].low
    )
    odd = [record(0, (0, 0, 0), {"agents.gtn.step_size": 2.0, "agents.gtn.agent_name": "PPO", "new": 3}, 5.0, 1.0)]
    wider = {a.name: a for a in axes_of(SPACE, odd)}
    assert wider["agents.gtn.step_size"].high == 2.0
    assert wider["agents.gtn.agent_name"].choices == ("DDQN", "DDQN_icm", "PPO")
    assert wider["new"] == Axis("new", 3.0, 3.0, whole=True) and wider["new"].place(3) == 0.5
    assert Axis("mixed", choices=(1, True, "1")).position(True) == 1


def test_short_names_stay_apart() -> None:
    names = ["agents.gtn.step_size", "1-agents.ddqn.gamma", "agents.ddqn.gamma", "envs.A.b.x", "envs.B.b.x", "plain"]
    short = short_names(names)
    assert list(short.values()) == ["gtn.step_size", "1-ddqn.gamma", "ddqn.gamma", "A.b.x", "B.b.x", "plain"]
    assert short_names(["1-plain"]) == {"1-plain": "1-plain"}


def test_texts_out_of_files_move_no_cursor_and_are_no_mathematics(tmp_path: Path) -> None:
    v = {"$\\frac$ \x1b[2J\ud800": "$x^$ \x1b" + 300 * "a", **{f"p{k}": f"${k}" for k in range(30)}}
    rs = [record(k, (0, 0, k), v | {"n": 300 * str(k)}, 5.0, float(k)) for k in range(3)]
    rs.append(record(3, (0, 0, 3), v, 5.0, 0.0, error="\x1b[2J $x$"))
    text = write_report(tmp_path / "", None, rs)
    assert text.isprintable() or set(c for c in text if not c.isprintable()) == {"\n"}
    assert max(map(len, text.splitlines())) < 250
