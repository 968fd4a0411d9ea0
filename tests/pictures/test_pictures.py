"""Every picture has labels, units, room for its texts and limits that fit its data; one style draws all of them."""

from __future__ import annotations

import re
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from envolve.core.places import CODE
from envolve.outer.reporting import style
from tests.examples import some_slow
from tests.pictures.__main__ import main
from tests.pictures.drawn import DRAWN
from tests.pictures.rules import figure_of, problems, unit_problems

FAST = (
    "compare_Cliff",
    "histograms_Acrobot-v1",
    "transfer_CartPole-v0_se_ppo",
    "run_outliers",
    "shapers",
    "written_scores",
    "goal_evolution_reacher",
)
VISION = {  # of linear RGB: Machado, Oliveira and Fernandes, A Physiologically-based Model ..., 2009, severity 1
    "all cones": np.eye(3),
    "no L cones": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "no M cones": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
    "no S cones": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]],
}


@pytest.mark.parametrize("name", some_slow(tuple(DRAWN), fast=FAST))
def test_a_picture_can_be_read(name: str, tmp_path: Path) -> None:
    figure = figure_of(DRAWN[name], tmp_path / "picture.png")
    assert not problems(figure) + unit_problems(figure)


def planted(defect: str) -> Any:
    """A picture with one defect."""
    figure, (ax, other) = style.new_figure(6, 3, 2)
    x = np.arange(100.0)
    for panel in (ax, other):
        panel.plot(x, np.sin(x / 9), label="a")
        panel.set(xlabel="step", ylabel="return")
    if defect == "outside":
        ax.set_title("a title that is far wider than the figure " * 4)
    elif defect == "covers":
        ax.set_ylim(-1, 1)
        ax.legend(["a long name of a curve " * 2], loc="center")
    elif defect == "no label":
        other.set(ylabel="", xlabel="")
        ax.set(ylabel="")
    elif defect == "flattened":
        ax.plot([3], [-10_000.0], "o")
    elif defect == "marks are inside":
        ax.set_ylim(0.5, 1)
    elif defect == "on each other":
        ax.set_xticks(range(0, 100, 5), [f"{1000 * k:,}" for k in range(0, 100, 5)])
    elif defect == "folder":
        ax.set_title("cartpole_2026-11-25-024343_seed3")
    elif defect == "computers":
        ax.set_xticks([50], ["1.3e+02"])
    elif defect == "configurations":
        ax.set_title("duelingddqn agents")
    elif defect == "letters":
        ax.text(50, 0, "small", fontsize=4)
    elif defect == "unit":
        ax.set_ylabel("velocity")
    return lambda path: figure.savefig(path)


@pytest.mark.parametrize(
    "defect",
    ["outside", "covers", "no label", "flattened", "marks are inside", "on each other", "folder", "computers",
     "configurations", "letters", "unit", ""],
)  # fmt: skip
def test_the_rules_find_defects(defect: str, tmp_path: Path) -> None:
    figure = figure_of(planted(defect), tmp_path / "picture.png")
    found = problems(figure) + unit_problems(figure)
    assert any(defect in p for p in found) if defect else not found, found


def test_every_picture_of_the_source_is_drawn_here() -> None:
    """A function that saves a picture is called by a sample, and by no other style."""
    own = [
        p
        for room in ("outer", "llm", "experiments", "distributed", "agents", "envs")
        for p in (CODE / room).rglob("*.py")
    ]
    saves = {p for p in own if "savefig(" in p.read_text()}
    here = "\n".join((Path(__file__).parent / f"{n}.py").read_text() for n in ("drawn", "others"))
    for path in saves:
        module = ".".join(path.relative_to(CODE).with_suffix("").parts)
        parent, _, last = module.rpartition(".")
        assert module in here or re.search(rf"{re.escape(parent)} import .*\b{last}\b", here), f"{path} has no sample"
    for path in own:
        assert not re.search(r"matplotlib\.pyplot|rcParams", path.read_text()), f"{path} has a style of its own"


def lab(colour: str, vision: Any) -> np.ndarray:
    """CIE L*a*b* of a colour as it is seen."""
    s = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    linear = np.clip(np.asarray(vision) @ np.where(s <= 0.04045, s / 12.92, ((s + 0.055) / 1.055) ** 2.4), 0, 1)
    xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]) @ linear
    f = np.cbrt(xyz / [0.9505, 1.0, 1.089])
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def test_colours_are_told_apart_with_any_colour_vision() -> None:
    """By at least 15 in L*a*b*; 2.3 can just be noticed. On white, every colour has some contrast."""
    for name, vision in VISION.items():
        for a, b in combinations((*style.COLOURS, "#ffffff"), 2):
            assert np.linalg.norm(lab(a, vision) - lab(b, vision)) > 15, (name, a, b)
    assert max(lab(c, np.eye(3))[0] for c in style.COLOURS) < 75, "a line as light as this is lost on paper"


def test_pages_have_the_same_colours() -> None:
    """In the light; on a dark page they are others, told apart as well."""
    css = (CODE / "outer" / "page" / "static" / "style.css").read_text()
    light, dark = (re.findall(r"--c\d: (#[0-9a-f]{6})", line) for line in css.splitlines() if "--c0" in line)
    assert tuple(c.upper() for c in light) == tuple(c.upper() for c in style.COLOURS)
    for name, vision in VISION.items():
        for a, b in combinations(dark, 2):
            assert np.linalg.norm(lab(a, vision) - lab(b, vision)) > 10, (name, a, b)


def test_a_legend_takes_as_many_columns_as_there_is_room_for() -> None:
    columns = []
    for width in (12, 3):
        figure, (ax,) = style.new_figure(width, 3)
        for k in range(4):
            ax.plot([0, 1], [0, k], label=f"a curve with a name, {k}")
        legend = style.legend_above(ax, 4)
        columns.append(legend._ncols)
        assert len(figure.legends) == 1 and legend.get_window_extent().width <= figure.bbox.width
    assert columns[0] == 4 > columns[1] >= 1


def test_a_cut_says_what_it_leaves_out() -> None:
    _, (ax,) = style.new_figure(3, 3)
    curve = np.linspace(-100, -13, 200)
    assert style.cut_low(ax, [curve], [curve - 5, curve + 5]) == "" and ax.get_autoscaley_on()
    low = curve - 5
    low[7] = -10_000
    assert style.cut_low(ax, [curve], [low, curve + 5]).startswith("Cut at -2") and ax.get_ylim()[0] > -400
    curve[3:6] = -9_000.0
    said = style.cut_low(ax, [curve], [low, curve + 5])
    assert "curves and bands reach down to -10,000" in said and ax.get_ylim()[1] > -13
    assert style.cut_low(ax, [np.full(9, -1.0)], [np.full(9, -1.0)]) == ""


def test_the_command_draws_what_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path), "study_importance"]) == 0
    assert capsys.readouterr().out.split() == [str(tmp_path / "study_importance.png")]
    assert (tmp_path / "study_importance.png").read_bytes()[:4] == b"\x89PNG"
    assert main([]) == 2
