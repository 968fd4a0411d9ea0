"""What the pictures of a study say, by their texts; how they look was looked at (docs/results/studies.md)."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import pytest

from envolve.outer.hpo import pictures
from envolve.outer.hpo.axes import axes_of
from envolve.outer.hpo.importance import FANOVA, Importance, Share
from envolve.outer.hpo.pictures import LossScale, budget_loss, importance_bars, number_ticks, parallel_coordinates
from envolve.outer.hpo.standings import ranked
from envolve.outer.hpo.trial import Record, TrialResult
from envolve.outer.reporting.report import precise
from envolve.outer.reporting.style import new_figure
from tests.outer.hpo.trials import SPACE, many


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    made: list[Any] = []

    def kept(*args: Any, **options: Any) -> Any:
        figure, axes = new_figure(*args, **options)
        made.append(figure)
        return figure, axes

    monkeypatch.setattr(pictures, "new_figure", kept)
    return made


def texts(figure: Any) -> list[str]:
    from matplotlib.text import Text

    return [t.get_text() for t in figure.findobj(Text) if t.get_text()]


def with_a_failure(records: list[Record]) -> list[Record]:
    """The worst of all, which no one promoted."""
    worst = max(records, key=lambda r: r.result.loss)
    return [dataclasses.replace(r, result=TrialResult(math.inf, {}, "no")) if r is worst else r for r in records]


def test_parallel_coordinates(tmp_path: Path, figures: list[Any]) -> None:
    rs = with_a_failure(many())
    parallel_coordinates(tmp_path / "p.png", rs, axes_of(SPACE, rs), "a study", "loss (steps)")
    found, best = texts(figures[0]), ranked(rs)[0]
    assert {"gtn.step_size", "icm.lr", "budget", "loss (steps)", "true", "DDQN_icm"} <= set(found)
    assert "not\nactive" in found
    assert {precise(best.result.loss), precise(float(best.trial.values["agents.gtn.step_size"]))} <= set(found)
    top = sum(r.trial.budget == 45 for r in rs)
    assert f"36 configurations; lower is better; losses at budget 45, which {top} reached" in figures[0].get_suptitle()
    lines = figures[0].axes[0].lines
    thick = [line for line in lines if line.get_linewidth() == 2.8]
    assert len(thick) == 1 and len(thick[0].get_xdata()) > 50  # one best
    curves = [line for line in lines if len(line.get_xdata()) > 40]
    whole = [line for line in curves if line.get_xdata()[-1] == len(axes_of(SPACE, rs)) + 1]
    assert len(whole) == top + 1 and len(curves) == 36 + 1  # the best has a white edge
    assert {line.get_color() for line in curves if line not in whole} == {pictures.GREY}, "no loss, so no colour of one"
    ends = {round(float(line.get_ydata()[-1]), 6) for line in whole}
    assert 0.0 in ends and max(ends) <= 1.0
    rs = [r for r in with_a_failure([r for r in rs if r.trial.budget == 5]) if r.trial.budget == 5]
    parallel_coordinates(tmp_path / "p.png", rs, axes_of(SPACE, rs), "a study", "loss")
    ends = {round(float(line.get_ydata()[-1]), 6) for line in figures[1].axes[0].lines if len(line.get_xdata()) > 40}
    assert pictures.FAILED in ends and "failed" in texts(figures[1])


def test_many_parameters_take_rows(tmp_path: Path, figures: list[Any]) -> None:
    rs = many(1)
    more = {f"p{k}": float(k) for k in range(21)}
    rs = [dataclasses.replace(r, trial=dataclasses.replace(r.trial, values=r.trial.values | more)) for r in rs]
    axes = axes_of(None, rs)
    assert len(axes) == 25
    parallel_coordinates(tmp_path / "p.png", rs, axes, "a study", "loss")
    labels = [[t.get_text() for t in ax.get_xticklabels()] for ax in figures[0].axes]
    assert [len(row) for row in labels] == [9 + 2, 9 + 2, 7 + 2]
    assert all(row[-2:] == ["budget", "loss"] for row in labels)
    width, height = figures[0].get_size_inches()
    assert width < 13 and height < 18


def test_loss_against_budget(tmp_path: Path, figures: list[Any]) -> None:
    rs = with_a_failure(many())
    budget_loss(tmp_path / "b.png", rs, "a study", "loss (steps)", "budget (generations)")
    found = texts(figures[0])
    assert any("5 → 15: 1.00 (12)" in t and "15 → 45: 1.00 (4)" in t for t in found)
    assert {"proposed by the model (12)", "drawn at random (24)", "failed", "loss (steps)"} <= set(found)
    assert f"best at 45: {precise(ranked(rs)[0].result.loss)}" in found
    left, right = figures[0].axes
    (step,) = (line for line in right.lines if str(line.get_label()).startswith("best at"))
    heights = list(step.get_ydata())
    assert heights == sorted(heights, reverse=True)
    total = sum(r.trial.budget for r in rs) / 45
    assert step.get_xdata()[-1] == pytest.approx(total)
    promoted = [line for line in left.lines if len(line.get_xdata()) > 1 and line.get_linestyle() == "-"]
    assert len(promoted) == 12


def test_importance_bars(tmp_path: Path, figures: list[Any]) -> None:
    importance = Importance(FANOVA, 45.0, 40, {"a.b": Share(0.625, 40), "c": Share(0.1, 12)})
    importance_bars(tmp_path / "i.png", importance, "a study")
    found = texts(figures[0])
    assert {" 62.5 %", " 10.0 %, among 12 of 40 trials", "a.b"} <= set(found)
    assert [bar.get_width() for bar in figures[0].axes[0].patches] == [62.5, 10.0]
    importance_bars(tmp_path / "i.png", Importance(reason="too few"), "a study")
    assert "importance is not known: too few" in figures[1].axes[0].get_title()


def test_losses_far_off_do_not_flatten_the_rest() -> None:
    scale = LossScale([*(float(k) for k in range(-10, 20)), 1e6, math.inf])
    assert scale.cut and scale.place(1e6) == scale.place(19.0) == 1.0 and scale.place(-10.0) == 0.0
    assert scale.ticks()[-1] == (1.0, "≥ 19")
    log = LossScale([1.0, 10.0, 100.0])
    assert log.log and log.place(10.0) == pytest.approx(0.5) and not log.cut
    assert LossScale([3.0]).place(3.0) == 0.5 and LossScale([0.0]).place(0.0) == 0.5
    assert LossScale([math.inf]).ticks() == []


def test_ticks_are_round_and_do_not_crowd() -> None:
    assert [t for _, t in number_ticks(1e-5, 1e-3, log=True)] == ["1e-5", "1e-4", "0.001"]
    assert [t for _, t in number_ticks(0.0, 7.0, log=False, whole=True)] == ["0", "2", "4", "6", "7"]
    assert [t for _, t in number_ticks(3116.0, 3188.0, log=False)] == ["3,116", "3,140", "3,160", "3,180", "3,188"]
    wide = [t for _, t in number_ticks(-0.5, 1e7, log=False)]
    assert (wide[0], wide[-1]) == ("-0.5", "1e7")
    wide_or_narrow = ((3116.25, 3116.5, False), (-200.0, 9.5, False), (0.1, 1.0, True), (1e-12, 1e12, True))
    for low, high, log in (*wide_or_narrow, (64.0, 256.0, False)):
        heights = [p for p, _ in number_ticks(low, high, log)]
        assert heights == sorted(heights) and 2 <= len(heights) <= 9
        assert len({t for _, t in number_ticks(low, high, log)}) == len(heights)
        assert min(b - a for a, b in zip(heights, heights[1:])) > 0.05
