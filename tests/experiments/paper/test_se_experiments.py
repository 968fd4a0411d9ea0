"""generalization_gap.py, correlation.py and inference_time.py."""

from __future__ import annotations

import contextlib
import math

import numpy as np
import pytest

from envolve.experiments.paper import correlation, generalization_gap, inference_time, train_proxy
from envolve.experiments.paper.common.data import load
from envolve.outer.config.load import load_config
from envolve.outer.config.problem import env_section, gtn_section
from tests.experiments import command
from tests.outer.reporting.events import scalars
from tests.outer.small import CARTPOLE, CARTPOLE_FILE, GRIDWORLD_FILE, ROOT
from tests.outer.test_run import Direct

SES = ("--set", *CARTPOLE, "agents.gtn.max_iterations=1", "agents.ddqn.train_episodes=12")


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """An SE of each kind."""
    folder = tmp_path_factory.mktemp("results")
    patch = pytest.MonkeyPatch()
    patch.setattr(train_proxy, "exchange", lambda args, kind: contextlib.nullcontext(Direct()))
    patch.setattr("envolve.outer.run.learning_curve", lambda *args, **more: None)
    for vary in ("False", "True"):
        words = (CARTPOLE_FILE, "--vary-hp", vary, *SES, "--runs", 1, "--results-dir", folder)
        assert train_proxy.main([str(w) for w in words]) == 0
    patch.undo()
    return folder


@pytest.fixture()
def call(capsys, tmp_path, results):
    def run(main, *words):
        path = tmp_path / "out.json"
        words = [*words, "--results-dir", results, "--json", path]
        code, out, err, _ = command.run(main, words, capsys, tmp_path / "-")
        data = load(path) if path.exists() else None
        path.unlink(missing_ok=True)
        return code, out, err, data

    return run


def test_generalization_gap(call):
    code, _, err, data = call(generalization_gap.main, CARTPOLE_FILE, "--worlds", 1, "--agents", 3, *SES)
    assert code == 0 and data.settings["vary_hp"] is False and "ddqn agents" in err
    assert list(data.series) == ["ddqn real", "ddqn fixed", "ddqn varied"]
    assert all(len(q["return"]) == 3 for q in data.series.values())
    code, _, err, _ = call(generalization_gap.main, GRIDWORLD_FILE)
    assert code == 2 and "expected a configuration of SEs" in err


def test_correlation(call, tmp_path):
    words = (CARTPOLE_FILE, "--sets", 3, "--agents", 2, "--tensorboard", tmp_path / "events", *SES)
    code, out, _, data = call(correlation.main, *words)
    assert "tensorboard" not in data.settings, "the data do not depend on it"
    found = {p.name: scalars(p) for p in (tmp_path / "events").iterdir()}
    assert set(found) == {"se", "real"}
    assert found["real"]["return"] == [
        (i, pytest.approx(r, abs=1e-3)) for i, r in enumerate(data.series["real"]["return"])
    ]
    assert code == 0 and "spearman" in out and data.settings["steps"] == 60
    assert len({s["lr"] for s in data.settings["hyperparameters"]}) == len(data.settings["hyperparameters"]) == 3
    for where in ("se", "real"):
        assert data.series[where]["set"] == [0, 0, 1, 1, 2, 2] and data.series[where]["train_steps"] == [60] * 6
    means = [np.reshape(data.series[where]["return"], (3, 2)).mean(1) for where in ("se", "real")]
    for name, (value, low, high) in data.series["correlation"].items():
        expected = correlation.STATISTICS[name](*means)
        assert value == pytest.approx(expected, nan_ok=True) and -1 <= low <= high <= 1
    assert set(data.series["correlation"]) == {"spearman", "kendall", "pearson"}
    code, _, err, _ = call(correlation.main, CARTPOLE_FILE, "--sets", 1, *SES)
    assert code == 2 and "--sets: found 1" in err


def test_correlations_are_those_of_scipy():
    stats = pytest.importorskip("scipy.stats")
    rng = np.random.default_rng(0)
    for _ in range(20):
        x, y = rng.integers(0, 6, 9), rng.integers(0, 6, 9) + 0.5  # with ties
        for name, theirs in (("spearman", stats.spearmanr), ("kendall", stats.kendalltau), ("pearson", stats.pearsonr)):
            assert correlation.STATISTICS[name](x, y) == pytest.approx(theirs(x, y)[0])
    assert all(math.isnan(f([1, 1, 1], [1, 2, 3])) for f in correlation.STATISTICS.values())


@pytest.mark.parametrize(
    "file",
    [CARTPOLE_FILE, GRIDWORLD_FILE, ROOT / "default_config_mountain_car_continuous_reward_env_paper.yaml"],
    ids=lambda p: p.stem,
)
def test_inference_time(call, file):
    code, out, _, data = call(inference_time.main, file, "--batch", 10, "--repeats", 2, "--steps", 3)
    assert code == 0 and len(out.splitlines()) == 7
    assert list(data.series) == [f"{kind} {what}" for kind in ("real", "se", "rn") for what in ("single", "batched")]
    for name, q in data.series.items():
        assert len(q["ms_per_step"]) == 2 and min(q["ms_per_step"]) > 0
        share = [a / b for a, b in zip(q["ms_per_step"], q["ms_per_call"])]
        assert share == pytest.approx([0.1 if "batched" in name else 1.0] * 2)
    config = load_config(file).data
    expected = env_section(config).reward_env_type if gtn_section(config).synthetic_env_type == 1 else 2
    assert data.settings["reward_env_type"] == expected


def test_inference_time_refuses_nonsense(call):
    code, _, err, _ = call(inference_time.main, CARTPOLE_FILE, "--batch", 0)
    assert code == 2 and "--batch: found 0" in err
    code, _, err, _ = call(inference_time.main, ROOT / "default_config_cartpole_shapers.yaml")
    assert code == 2 and "synthetic_env_type 2" in err
