"""hyperparameter_sensitivity.py: the grids, which agents train where, and the picture."""

from __future__ import annotations

import contextlib

import pytest

from envolve.agents.common.sections import DDQNSection, TabularSection
from envolve.experiments.paper import hyperparameter_sensitivity, train_proxy
from envolve.experiments.paper.common.data import load
from envolve.experiments.paper.common.drawing import spread
from envolve.experiments.paper.hyperparameter_sensitivity import grid
from envolve.experiments.paper.pictures import hyperparameter_sensitivity as figure
from envolve.outer.config.load import ConfigError
from tests.experiments import command
from tests.outer.small import CARTPOLE, CARTPOLE_FILE, CLIFF, GRIDWORLD_FILE
from tests.outer.test_run import Direct

RNS = ("--set", *CLIFF, "agents.gtn.max_iterations=2", "agents.gtn.comparison_agents=0")
SES = ("--set", *CARTPOLE, "agents.gtn.max_iterations=1")
EPISODES = ("--agent-set", "train_episodes=12")


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Two RNs, two SEs."""
    folder = tmp_path_factory.mktemp("results")
    patch = pytest.MonkeyPatch()
    patch.setattr(train_proxy, "exchange", lambda args, kind: contextlib.nullcontext(Direct()))
    patch.setattr("envolve.outer.run.learning_curve", lambda *args, **more: None)
    for words in ((GRIDWORLD_FILE, *RNS), (CARTPOLE_FILE, "--vary-hp", "True", *SES)):
        assert train_proxy.main([str(w) for w in (*words, "--runs", 2, "--results-dir", folder)]) == 0
    patch.undo()
    return folder


@pytest.fixture()
def call(capsys, tmp_path, results):
    def run(*words):
        path = tmp_path / "out.json"
        words = [*words, "--results-dir", results, "--json", path, "--threads", 1]
        code, out, err, _ = command.run(hyperparameter_sensitivity.main, words, capsys, tmp_path / "-")
        return code, out, err, load(path) if path.exists() else None

    return run


def test_grids_have_the_own_value_and_stay_within_the_limits():
    section = DDQNSection(lr=0.001, batch_size=8, hidden_layer=1, gamma=0.9)
    factors = [1 / 9, 1 / 3, 1.0, 3.0, 9.0]
    assert grid(section, "lr", factors) == pytest.approx([0.001 / 9, 0.001 / 3, 0.001, 0.003, 0.009])
    assert grid(section, "batch_size", factors) == [1, 3, 8, 24, 72]
    assert grid(section, "batch_size", [0.5]) == [4, 8]
    assert grid(section, "hidden_layer", factors) == [1, 2, 3]
    assert grid(section, "gamma", factors) == pytest.approx([0.1, 0.3, 0.9, 1.0])
    assert grid(section, "activation_fn", factors)[0] == "tanh" and len(grid(section, "activation_fn", [])) == 5
    assert grid(section, "bootstrap_time_limit", factors) == [False, True]
    assert grid(TabularSection(alpha=1.0), "alpha", factors) == pytest.approx([1 / 9, 1 / 3, 1])
    with pytest.raises(ConfigError, match="found 'batchsize'.*nearest: 'batch_size'"):
        grid(section, "batchsize", factors)


def test_in_ses_and_on_the_task(call):
    words = ("--worlds", 2, "--agents", 2, "--factors", 0.5, 2, "--hyperparameters", "lr", "batch_size")
    code, out, err, data = call(CARTPOLE_FILE, *words, *EPISODES, *SES)
    assert code == 0 and "batch_size 8 *" in out
    assert list(data.series) == ["se lr", "se batch_size", "real lr", "real batch_size"]
    own = data.settings["own"]
    assert data.settings["grids"]["batch_size"] == [4, 8, 16] and own["batch_size"] == 8
    for label, q in data.series.items():
        assert len(q["return"]) == len(q["value"]) == 3 * 4 and q["failed"] == [""] * 12
        assert (q["train_steps"] == [60] * 12) == label.startswith("se")
        assert ("world" in q) == label.startswith("se")
    assert len(set(data.series["se lr"]["world"])) == 2
    for side in ("se", "real"):  # the agents' own values are trained once and stand in both grids
        rows = {
            name: [i for i, v in enumerate(data.series[f"{side} {name}"]["value"]) if v == own[name]] for name in own
        }
        returns = [[data.series[f"{side} {name}"]["return"][i] for i in rows[name]] for name in own]
        assert returns[0] == returns[1] and len(returns[0]) == 4
        assert err.count(f"{side}, ") == 5
    steps = data.series["real batch_size"]["train_steps"]
    assert steps[:4] != steps[4:8] or data.series["real lr"]["train_steps"][:4] != steps[4:8]
    drawing = figure.draw("CartPole-v0", [data])
    assert [ax.get_title(loc="left") for ax in drawing.figure.axes[:2]] == ["learning rate", "batch size"]
    lines = {line.get_label(): line for line in drawing.figure.axes[1].lines}
    x, y = lines["SE"].get_data()
    q = data.series["se batch_size"]
    assert list(x) == [4, 8, 16] and y[0] == spread(q["return"][:4], q["world"][:4])[0]
    assert drawing.figure.axes[0].get_ylim() == drawing.figure.axes[1].get_ylim()
    assert (
        "at most 12 episodes" in drawing.caption
        and "4 agents in 2 worlds" in drawing.caption
        and "SE " in drawing.caption
    )


def test_in_reward_networks(call):
    words = ("--worlds", 2, "--agents", 1, "--factors", 0.5, *EPISODES)
    code, _, _, data = call(GRIDWORLD_FILE, *words, *RNS)
    assert code == 0 and list(data.series) == ["rn alpha", "rn gamma", "real alpha", "real gamma"]
    assert data.settings["grids"] == {"alpha": [0.5, 1.0], "gamma": [0.4, 0.8]}
    assert data.series["rn alpha"]["train_steps"] != data.series["real alpha"]["train_steps"]
    assert "reward network" in figure.draw("Cliff", [data]).caption


def test_text_has_places_of_its_own(call):
    words = ("--worlds", 1, "--agents", 1, "--hyperparameters", "activation_fn", *EPISODES)
    data = call(CARTPOLE_FILE, *words, *SES)[3]
    ax = figure.draw("CartPole-v0", [data]).figure.axes[0]
    assert [t.get_text() for t in ax.get_xticklabels()] == data.settings["grids"]["activation_fn"]


def test_what_does_not_fit_is_said_before_the_work(call):
    for words, expected in (
        ((CARTPOLE_FILE, "--mode", 1), "--mode: found 1"),
        ((CARTPOLE_FILE, "--factors", 0), "--factors: found 0"),
        ((CARTPOLE_FILE, "--hyperparameters", "lrr"), "found 'lrr'"),
        ((GRIDWORLD_FILE, "--mode", 0), "--mode: found 0"),
        ((CARTPOLE_FILE, "--agent", "sarsa"), "--agent: found 'sarsa'"),
        ((CARTPOLE_FILE, "--modes", 1), "found [1]"),
    ):
        code, _, err, data = call(*words)
        assert code == 2 and expected in err and data is None
