"""What the paper's commands refuse: flags that would change nothing, and worlds that are not there."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from envolve.experiments.paper import (
    compare_proxies,
    correlation,
    generalization_gap,
    histograms,
    hyperparameter_sensitivity,
    learned_reward,
    model_based_baseline,
    transfer,
    unseen_agents,
)
from tests.experiments import command

SE, RN = "default_config_cartpole_syn_env.yaml", "default_config_gridworld_reward_env.yaml"


@pytest.mark.parametrize(
    "module, words, said",
    [
        (compare_proxies, [RN, "--published"], "--published: found True, expected none"),
        (compare_proxies, [RN, "--stop", "early-out"], "--stop: found early-out, expected none"),
        (compare_proxies, [RN, "--evolved", "fixed"], "--evolved: found ['fixed'], expected none"),
        (compare_proxies, [SE, "--objective", "auc"], "--objective: found auc, expected none"),
        (transfer, [RN, "--vary-hp", "--published"], "--published: found True, expected none"),
        (hyperparameter_sensitivity, [RN, "--stop", "budget"], "--stop: found budget, expected none"),
        (hyperparameter_sensitivity, [SE, "--evolved", "fixed"], "--evolved: found ['fixed'], expected none"),
        (model_based_baseline, [SE, "--evolved", "fixed"], "--evolved: found ['fixed'], expected none"),
        (correlation, [SE, "--modes", "1"], "found --modes, expected a flag"),
        (correlation, [SE, "--worlds", "3"], "found --worlds, expected a flag"),
        (generalization_gap, [SE, "--modes", "1"], "found --modes, expected a flag"),
        (learned_reward, ["--agents", "3"], "found --agents, expected a flag"),
    ],
)
def test_a_flag_that_would_not_be_heard_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, module: ModuleType, words: list[str], said: str
) -> None:
    code, _, err, _ = command.run(module.main, [*words, "--results-dir", tmp_path], capsys, tmp_path / "-")
    assert code == 2 and said in err and not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "module, words, said",
    [
        (histograms, ["--model", "nowhere.pt"], "--model: found no 'nowhere.pt'"),
        (unseen_agents, ["--world", "nowhere.pt"], "--world: found no 'nowhere.pt'"),
    ],
)
def test_a_world_that_is_not_there(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, module: ModuleType, words: list[str], said: str
) -> None:
    code, _, err, _ = command.run(module.main, [*words, "--results-dir", tmp_path], capsys, tmp_path / "-")
    assert code == 2 and said in err
