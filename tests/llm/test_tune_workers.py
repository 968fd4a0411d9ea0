"""Tuning through the exchange: worker processes train what one process would, and GTN_master.py can go on."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from envolve.agents.shaped.halving import Training
from envolve.agents.shaped.training import default_section
from envolve.experiments import run as GTN_master
from envolve.llm.tune import TuneSettings, tune
from envolve.llm.tune_workers import Workers
from envolve.outer.config.load import load_config
from envolve.outer.evaluate.shapers import evaluate_shapers
from tests.llm.test_evolution import graph_file

SECTION = dataclasses.replace(default_section("ppo"), hidden_size=8, rollout_steps=8, ppo_epochs=1, minibatches=2)
TRAINING = Training("Cartpole", "ppo", SECTION, 8, 4, agents=2)


@pytest.mark.slow
def test_a_generation_on_workers_and_what_it_leaves(tmp_path, capsys):
    graph = graph_file("cos", 2.0)
    candidate = graph.candidate()
    with Workers(TRAINING, graph, 3, tmp_path, 1) as workers:
        points, keys = torch.tensor([[0.0], [0.5]]), [11, 12]
        scores, steps = workers.score(points, 2, keys)
        s = TuneSettings("nes", generations=1, population=3, workers=1)
        tuned = tune(TRAINING, candidate, s, 0, 3, tmp_path / "log.jsonl", workers=workers)
    assert np.isfinite(scores).all() and steps == 2 * 2 * 8 * 8 * 2
    assert tuned.steps == 3 * 2 * 8 * 8 * 4 and torch.isfinite(tuned.params).all()
    # the same points with the same keys, without an exchange
    config = load_config(tmp_path / "tune_3.yaml", ["envs.Cartpole.iterations=2"])
    worlds = torch.tensor([[0.0, 0.0], [0.0, 0.0], [0.0, 0.5], [0.0, 0.5]])
    values = evaluate_shapers(config.data, worlds, torch.tensor(keys * 2), False, 1)
    assert scores.tolist() == values["score"].reshape(2, 2).mean(1).tolist()
    # and GTN_master.py takes the configuration
    assert GTN_master.main([str(tmp_path / "tune_3.yaml"), "--check"]) == 0
    assert "Cartpole" in capsys.readouterr().out
