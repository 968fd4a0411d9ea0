"""figures.py: what is drawn from known data, what captions say, and what is said where data are missing."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest

from envolve.core.statistics import IQM, interval
from envolve.experiments.paper import figures
from envolve.experiments.paper.common import drawing
from envolve.experiments.paper.common.data import Data, data_path, save
from envolve.experiments.paper.pictures import compare, score_transforms, transfer
from tests.experiments import command


def curve_data(task="Cliff", quick=False, **settings):
    """Ten worlds of two agents each with mode 2; mode 0 without worlds, its last agent failed."""
    runs = [[-50.0, -13.0 - i / 10] for i in range(20)]
    series = {
        "mode 0": {
            "episode_return": [[-50.0, -49.0], [-50.0, -49.0], [-50.0, math.nan]],
            "episode_length": [[10, 10], [10, 10], [10, 10]],
            "failed": ["", "", "it broke"],
        },
        "mode 2": {
            "episode_return": runs, "episode_length": [[50, 50]] * 20, "failed": [""] * 20,
            "world": [f"w{i // 2}" for i in range(20)],
        },
    }  # fmt: skip
    return Data("compare_proxies", task, {"agent": "ql", **settings}, quick, series, 1.0)


@pytest.fixture()
def draw(capsys, tmp_path):
    """-> exit code, stdout, stderr."""

    def call(*args):
        return command.run(figures.main, [*args, "--results-dir", tmp_path], capsys, tmp_path / "no.json")[:3]

    return call


def labels(figure):
    return {(ax.get_xlabel(), ax.get_ylabel()) for ax in figure.axes}


def test_steps_curve_holds_each_return_for_its_episode_and_the_last_one_beyond():
    curve = drawing.steps_curve([1.0, 2.0, 3.0], [2, 3, 1], np.array([0, 1, 2, 4, 5, 6, 100]))
    assert curve.tolist() == [1, 1, 2, 2, 3, 3, 3]


def test_band_of_equal_runs_has_no_width_and_others_hold_the_mean():
    middle, low, high = drawing.band(np.ones((5, 3)))
    assert middle.tolist() == low.tolist() == high.tolist() == [1, 1, 1]
    values = np.random.default_rng(1).normal(size=(40, 4))
    middle, low, high = drawing.band(values)
    assert (low < middle).all() and (middle < high).all() and (high - low < 1.2).all()
    assert middle == pytest.approx([np.sort(c)[10:30].mean() for c in values.T])
    with pytest.raises(ValueError, match="not finite"):
        drawing.band(np.array([[1.0, math.nan]]))


def test_worlds_are_what_is_counted():
    """Two worlds whose agents agree: the interval spans both, however many agents there are."""
    values, worlds = [0.0] * 30 + [10.0] * 30, ["a"] * 30 + ["b"] * 30
    assert drawing.spread(values, worlds) == (5, *interval([0.0, 10.0], IQM)), "two values, and not sixty"
    middle, low, high = drawing.spread(values)
    assert middle == 5 and 1 < low < 5 < high < 9
    assert drawing.spread([1.0, math.nan, 1.0], ["a", "b", "a"])[1:] == (1, 1)  # one world is left: its agents
    curves = np.array(values)[:, None] * np.ones(3)
    assert np.column_stack(drawing.band(curves, worlds)).tolist() == [[5, *interval([0.0, 10.0], IQM)]] * 3


def test_words():
    for x, text in ((16888.4, "16,888"), (190.666, "190.7"), (0.01234, "0.012"), (12.345, "12.35"), (math.nan, "-")):
        assert drawing.number(x) == text
    assert drawing.number(-1999.6) == "-2,000" and drawing.number(-13.24) == "-13.24" and drawing.number(0) == "0"
    assert drawing.in_words([2.0, 2.0]) == "2.00 (2 of 2)" and drawing.in_words([math.nan]) == "- [-, -]"
    assert drawing.counted([1.0, math.nan], ["a", "b"]) == "2 agents in 2 worlds, 1 failed"
    assert drawing.counted([1.0]) == "1 agent"


def test_compare_draws_each_series_and_counts_all_runs():
    out = compare.draw("Cliff", [curve_data()])
    ax = out.figure.axes[0]
    assert labels(out.figure) == {("environment steps of training", "test return on the task")}
    lines = {line.get_label(): line for line in ax.lines}
    assert set(lines) == {"no RN", "additive potential RN"}
    x, y = lines["additive potential RN"].get_data()
    assert x[0] == 0 and x[-1] == 100 and y[0] == -50
    assert y[-1] == pytest.approx(np.mean([-13.0 - i / 10 for i in range(5, 15)]))
    assert "no RN -49.00 (2 of 2) (3 agents, 1 failed)" in out.caption
    assert re.search(r"additive potential RN -13\.95 \[-14\.\d+, -13\.\d+\] \(20 agents in 10 worlds\)", out.caption)
    assert "After 100 steps" in out.caption and "Q-learning agents" in out.caption and "95 %" in out.caption


def test_compare_ends_where_the_published_figure_does():
    data = curve_data()
    data.series["mode 2"]["episode_length"] = [[4000, 4000]] * 20
    assert compare.draw("Cliff", [data]).figure.axes[0].get_xlim() == (0, 5000)


def test_transfer_tells_who_learns():
    data = curve_data(agent="sarsa", vary_hp=True)
    out = transfer.draw("Cliff_sarsa", [data])
    assert "SARSA agents, each with hyperparameters of its own" in out.caption
    assert out.figure.axes[0].get_title(loc="left").startswith("Cliff: SARSA")


def test_score_transforms_are_those_of_the_update():
    out = score_transforms.draw("", [])
    assert len(out.figure.axes) == 8
    best = [max(ax.collections[-1].get_offsets()[:, 1]) for ax in out.figure.axes]
    assert best[:7] == pytest.approx([1] * 7) and best[7] < 0.5
    assert "16 made-up scores" in out.caption


def test_files(draw, tmp_path):
    save(data_path(tmp_path, "compare_proxies", "Cliff"), curve_data(quick=True))
    code, out, err = draw("compare", "score_transforms", "--only", "Cliff")
    assert code == 0 and not err
    folder = tmp_path / "paper" / "figures"
    assert sorted(p.name for p in folder.iterdir()) == [
        f"{n}.{s}" for n in ("compare_Cliff", "score_transforms") for s in ("png", "svg", "txt")
    ]
    assert str(folder / "compare_Cliff.png") in out
    assert (folder / "compare_Cliff.png").read_bytes().startswith(b"\x89PNG") and folder.stat().st_size
    svg = (folder / "compare_Cliff.svg").read_text()
    text = "".join(ElementTree.fromstring(svg).itertext())
    assert "environment steps of training" in text and "Quick look" in text
    caption = (folder / "compare_Cliff.txt").read_text()
    assert caption.startswith("Quick look") and "(20 agents in 10 worlds)" in caption
    assert "Quick" not in (folder / "score_transforms.txt").read_text()
    draw("compare", "--only", "Cliff")
    assert (folder / "compare_Cliff.svg").read_text() == svg  # the same data, the same bytes


def test_missing_data_name_their_command(draw, tmp_path):
    code, out, err = draw("compare", "--only", "CartPole-v0")
    assert code == 1
    assert "compare_CartPole-v0: found no data" in err
    assert "python3 experiments/paper/compare_proxies.py default_config_cartpole_reward_env" in err
    assert f"--results-dir {tmp_path}" in err and not (tmp_path / "paper").exists()


def test_wrong_data_name_file_and_key(draw, tmp_path):
    path = data_path(tmp_path, "compare_proxies", "Cliff")
    path.parent.mkdir(parents=True)
    path.write_text('{"experiment": "compare_proxies"}')
    code, _, err = draw("compare", "--only", "Cliff")
    assert code == 1 and f"{path}: key 'task' is missing" in err
    save(path, Data("compare_proxies", "Cliff", {}, False, {"mode 0": {"return": [1.0]}}, 1.0))
    code, _, err = draw("compare", "--only", "Cliff")
    assert code == 1 and "compare_Cliff" in err and "'episode_length'" in err
    save(path, Data("compare_proxies", "Cliff", {}, False, {}, 1.0))
    code, _, err = draw("compare", "--only", "Cliff")
    assert code == 1 and "found no episodes" in err


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["compair"], "found 'compair', expected a figure or all; nearest: 'compare'"),
        ([], "NAME: found none"),
        (["compare", "--only", "Clif"], "--only: found 'Clif', expected one of CartPole-v0, Cliff"),
    ],
)
def test_wrong_arguments(draw, args, words):
    code, _, err = draw(*args)
    assert code == 2 and words in err


def test_list_and_help_name_every_figure(draw):
    for args in (["--list"], ["--help"]):
        code, out, _ = draw(*args)
        assert code == 0
        for name in figures.NAMES:
            assert re.search(rf"\b{name}\b", out)
    assert "experiments/paper/transfer.py default_config_gridworld_reward_env" in draw("--list")[1]


def test_all_draws_what_there_is(draw, tmp_path):
    save(data_path(tmp_path, "compare_proxies", "Cliff"), curve_data())
    code, out, err = draw("all")
    assert code == 0 and "compare_Cliff.png" in out and "pictures drawn" in out
    assert "transfer_Cliff_sarsa: found no data" in err


def test_quick_runs_what_is_missing(draw, tmp_path, monkeypatch):
    calls = []

    def run(words):
        calls.append(words)
        save(data_path(tmp_path, "compare_proxies", "Cliff"), curve_data(quick=True))
        return 0

    monkeypatch.setattr(figures, "run", run)
    assert draw("compare", "--only", "Cliff", "--quick")[0] == 0
    script = Path(calls[0][1])
    assert script.name == "compare_proxies.py" and script.is_file() and calls[0][-1] == "--quick" and len(calls) == 1
    assert draw("compare", "--only", "Cliff", "--quick")[0] == 0 and len(calls) == 1  # now it is there
    (tmp_path / "paper" / "compare_proxies" / "Cliff.json").unlink()
    monkeypatch.setattr(figures, "run", lambda words: 1)
    code, _, err = draw("compare", "--only", "Cliff", "--quick")
    assert code == 1 and "exit code 1" in err
