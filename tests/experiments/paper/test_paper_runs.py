"""The figures of SE agents, of evolutions and of step sizes, from made-up runs whose figures are known."""

from __future__ import annotations

import pytest

from envolve.experiments.paper import step_size
from envolve.experiments.paper.common.data import Data, DataError
from envolve.experiments.paper.common.drawing import in_words
from envolve.experiments.paper.pictures import correlation, generalization_gap, inference_time, se, success
from envolve.experiments.paper.pictures import step_size as step_size_figure
from envolve.outer.hpo.study import read_study
from envolve.outer.hpo.trial import Record, Trial, TrialResult
from envolve.outer.hpo.trial_log import TrialLog
from envolve.outer.reporting.scores import ScoreRow, ScoresCSV


def agents(steps, returns, world=()):
    return {
        "return": returns,
        "train_steps": steps,
        "test_returns": [[r] * 2 if r == r else [] for r in returns],
        "failed": ["" if r == r else "it broke" for r in returns],
        "world": list(world),
    }


def se_data():
    series = {
        "ddqn real": agents([100, 300], [200.0, 180.0]),
        "ddqn varied": agents([50, 50, 70, 70], [140.0, 140.0, 170.0, float("nan")], "aabb"),
        "td3_discrete real": agents([10, 10], [9.0, 9.0]),
    }
    return Data("compare_proxies", "CartPole-v0", {"vary_hp": True}, False, series, 1.0)


def test_se_figure():
    out = se.draw("CartPole-v0", [se_data()])
    top, td3, bottom, _ = out.figure.axes
    assert (top.get_title(loc="left"), td3.get_title(loc="left")) == ("CartPole-v0: DDQN", "discrete TD3")
    assert top.get_xlabel() == "test return on the task" and bottom.get_ylabel() == "training steps"
    assert [bar.get_height() for bar in bottom.patches] == [200, 60]
    steps, returns, worlds = (in_words(x) for x in ([100, 300], [200.0, 180.0], [50, 70]))
    assert f"DDQN: real task {steps} steps, return {returns} (means 200.0, 190.0; 2 agents)" in out.caption
    assert f"varied {worlds} steps, return {in_words([140.0, 170.0])} (" in out.caption
    assert "4 agents in 2 worlds, 1 failed" in out.caption


def test_se_figure_of_other_data():
    data = Data("compare_proxies", "CartPole-v0", {}, False, {"mode 1": agents([1], [1.0])}, 1.0)
    with pytest.raises(DataError, match="found the series mode 1, expected 'ddqn real'"):
        se.draw("CartPole-v0", [data])


def write_run(folder, scores):
    folder.mkdir(parents=True)
    with ScoresCSV(folder / "scores.csv") as out:
        for g, score in enumerate(scores, 1):
            rows = [ScoreRow(i, "orig", score + d, 1.0, 1.0, 1.0) for i, d in enumerate((-1.0, 1.0))]
            out.write(g, [*rows, ScoreRow(0, "plus", 1e6, 1.0, 1.0, 1.0)])


def test_success(tmp_path):
    for seed, scores in enumerate(([10, 20, 30], [20, float("nan"), 196], [30, 40])):
        write_run(tmp_path / "cartpole_syn_env_varied" / f"seed{seed}", [float(s) for s in scores])
    (need,) = success.NEEDS["CartPole-v0"]
    runs = need.read(tmp_path)
    assert list(runs.curves.values()) == [[10, 20, 30], [20, 20, 196], [30, 40]] and not runs.quick
    out = success.draw("CartPole-v0", [runs])
    ax = out.figure.axes[0]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("generation", "test return, agents of the unperturbed SE")
    mean = next(line for line in ax.lines if "interquartile mean of 3 runs" in line.get_label())
    assert mean.get_ydata() == pytest.approx([20, 80 / 3, 266 / 3])
    assert "3 runs" in out.caption and "1 of 3 runs reached 195" in out.caption


def test_success_prefers_full_runs_and_names_damaged_files(tmp_path):
    (need,) = success.NEEDS["CartPole-v0"]
    assert need.read(tmp_path) is None
    write_run(tmp_path / "cartpole_syn_env_varied_quick" / "seed0", [1.0])
    assert need.read(tmp_path).quick
    write_run(tmp_path / "cartpole_syn_env_varied" / "seed0", [1.0])
    assert not need.read(tmp_path).quick
    path = tmp_path / "cartpole_syn_env_varied" / "seed0" / "scores.csv"
    path.write_text("generation,member\n1,0\n")
    with pytest.raises(DataError, match=str(path)):
        need.read(tmp_path)


def trial(i, mirrored, loss, divided=False, transform=3):
    values = {
        "agents.gtn.score_transform_type": transform,
        "agents.gtn.step_size": 0.1 * (i + 1),
        "agents.gtn.mirrored_sampling": mirrored,
        "agents.gtn.nes_step_size": divided,
    }
    return Record(Trial(i, (i, 0, 0), values, 50.0), TrialResult(loss), 0.0, 0.0, 0.0)


def test_step_size_figure(tmp_path):
    folder = tmp_path / "gridworld_step_size"
    folder.mkdir()
    log = TrialLog(folder)
    for record in (
        trial(0, True, 10.0),
        trial(1, True, 20.0, transform=0),
        trial(2, True, 77.0, divided=True),
        trial(3, False, float("inf")),
        trial(4, False, 50.0),
    ):
        log.append(record)
    study = step_size_figure.StudyFolder().read(tmp_path)
    assert len(study.records) == 5 and not study.quick
    out = step_size_figure.draw("", [study])
    mirrored, without = out.figure.axes[:2]
    assert mirrored.get_xlabel() == "step size" and mirrored.get_xscale() == "log"
    plain = mirrored.collections[0]
    assert plain.get_array().tolist() == [10, 20] and plain.get_offsets()[:, 0].tolist() == pytest.approx([0.1, 0.2])
    assert [round(y) for y in plain.get_offsets()[:, 1]] == [3, 0]
    assert "Mirrored sampling: 3 runs, 2 solved, generations 26.67" in out.caption
    assert "Without mirrored sampling: 2 runs, 1 solved, 1 failed, generations 50.00" in out.caption
    (folder / "results.json").write_text("nonsense\n")
    with pytest.raises(DataError, match=r"results\.json"):
        step_size_figure.StudyFolder().read(tmp_path)


def test_step_size_command_is_a_study(tmp_path):
    words = step_size.command(step_size.Args(quick=True, results_dir=tmp_path, seed=3, set=["stop.trials=7"]))
    study = read_study(words[0], words[words.index("--set") + 1 :])
    assert (study.trials, study.budget.most, study.seed) == (7, 10, 3)
    assert words[2] == str(tmp_path / "gridworld_step_size_quick")
    full = step_size.command(step_size.Args())
    assert read_study(full[0], full[full.index("--set") + 1 :]).trials == 400


def test_generalization_gap_is_drawn_as_the_se_figure():
    out = generalization_gap.draw("CartPole-v0", [se_data()])
    assert out.caption.startswith("All agents have") and "16" not in out.caption
    assert [bar.get_height() for bar in out.figure.axes[2].patches] == [200, 60]


def test_correlation_figure():
    def q(returns):
        return {"return": returns, "set": [0, 0, 1, 1, 2, 2], "failed": ["", "", "", "", "it broke", "it broke"]}

    nan = float("nan")
    series = {"se": q([1.0, 3.0, 5.0, 5.0, nan, nan]), "real": q([10.0, 10.0, 20.0, 20.0, 5.0, 5.0])}
    series["correlation"] = {"spearman": [1.0, 0.5, 1.0], "pearson": [0.9, 0.25, 1.0]}
    data = Data("correlation", "CartPole-v0", {"agent": "ddqn", "agents": 2}, False, series, 1.0)
    out = correlation.draw("CartPole-v0", [data])
    ax = out.figure.axes[0]
    assert ax.get_xlabel() == "test return on the task, agents from the SE"
    assert [list(v) for v in ax.lines[0].get_data()] == [[2, 5], [10, 20]]
    assert (
        "2 drawn sets" in out.caption
        and "Spearman 1.00 [0.500, 1.00]" in out.caption
        and "4 agents failed" in (out.caption)
    )


def test_inference_time_figure():
    labels = [f"{kind} {what}" for kind in ("real", "se", "rn") for what in ("single", "batched")]
    series = {label: {"ms_per_step": [0.002 * (i + 1)] * 5} for i, label in enumerate(labels)}
    data = Data("inference_time", "CartPole-v0", {"device": "cpu", "batch": 64}, False, series, 1.0)
    out = inference_time.draw("CartPole-v0", [data])
    ax = out.figure.axes[0]
    assert ax.get_ylabel() == "time per step, µs" and ax.get_yscale() == "log"
    marks = [line.get_ydata()[0] for line in ax.lines if len(line.get_ydata()) == 1 and line.get_marker() in "os"]
    assert sorted(marks) == pytest.approx([2, 4, 6, 8, 10, 12])
    assert "SE, 64 at once 8 (5 repeats)" in out.caption
