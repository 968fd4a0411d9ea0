"""unseen_agents.py: agents of every kind at equal steps, those of Stable-Baselines3 too, and the figure."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from matplotlib.collections import PathCollection

from envolve.agents import peers
from envolve.agents.common import rollout
from envolve.agents.common.result import REASONS
from envolve.core import rng
from envolve.envs.task import make_task
from envolve.envs.worlds.file import read_world, save_world
from envolve.experiments.paper import unseen_agents
from envolve.experiments.paper.common import baselines3, drawing
from envolve.experiments.paper.common.data import Data, load
from envolve.experiments.paper.common.drawing import mean
from envolve.experiments.paper.common.fixed_steps import at_fixed_steps, chosen_kinds, seen_kinds
from envolve.experiments.paper.common.training import no_world, train_agents
from envolve.experiments.paper.common.unseen import by_world, share, short_names
from envolve.experiments.paper.pictures import unseen_agents as figure
from envolve.outer.config import problem
from envolve.outer.config.load import config_of, load_config
from tests.envs.worlds.test_file import make_flat
from tests.experiments import command
from tests.outer.small import CARTPOLE, CARTPOLE_FILE, GRIDWORLD_FILE, ROOT, cartpole

TASK = make_task("CartPole-v0", solved_reward=1e9)
SMALL = ("sb3_dqn.learning_starts=8", "sb3_ppo.n_steps=32", "sb3_ppo.batch_size=16")


@pytest.fixture()
def models(tmp_path):
    """Three SEs; the last one's networks overflow."""
    config = cartpole().data
    paths = []
    for i in range(3):
        flat = make_flat("se", config, seed=i)
        paths.append(tmp_path / f"seed{i}" / "model.pt")
        paths[-1].parent.mkdir()
        flat = torch.full_like(flat, 3e38) if i == 2 else flat
        save_world(str(paths[-1]), "se", "CartPole-v0", flat, config, budget=60)
    return paths


@pytest.fixture()
def call(capsys, tmp_path):
    def run(*words):
        path = tmp_path / "out.json"
        words = [*words, "--json", path, "--threads", 1]
        code, out, err, _ = command.run(unseen_agents.main, words, capsys, tmp_path / "-")
        data = load(path) if path.exists() else None
        path.unlink(missing_ok=True)
        return code, out, err, data

    return run


def test_equal_steps_in_worlds_and_on_the_task(call, models):
    pytest.importorskip("stable_baselines3")
    words = ("--world", *models[:2], "--learners", "ddqn", "sb3_ppo", "sb3_dqn", "--steps", 70, "--agents", 2)
    code, out, _, data = call(*words, "--tests", 3, "--agent-set", *SMALL)
    assert code == 0 and data.task == "CartPole-v0" and data.settings["seen"] == ["ddqn"]
    assert list(data.series) == [f"{k} {w}" for k in ("ddqn", "sb3_ppo", "sb3_dqn") for w in ("real", "worlds")]
    for name, q in data.series.items():
        steps = {"ddqn": 70, "sb3_ppo": 64, "sb3_dqn": 68}[name.split()[0]]  # whole rollouts of 32 and of 4
        assert q["train_steps"] == [steps] * 4 and q["failed"] == [""] * 4
        assert [len(row) for row in q["test_returns"]] == [3] * 4
        assert q["return"] == pytest.approx([np.mean(row) for row in q["test_returns"]])
        if name.endswith("worlds"):
            assert q["world"] == [str(models[0])] * 2 + [str(models[1])] * 2
    used = data.settings["hyperparameters"]
    assert used["sb3_dqn"]["target_update_interval"] == 10_000 and used["sb3_dqn"]["learning_starts"] == 8
    assert used["ddqn"]["hidden_size"] == 8, "the section of the configuration"
    assert data.settings["mark"] == 190 and "ddqn (seen), SEs" in out and "in 0 of 2 worlds" in out and "seed1" in out
    assert figure.draw("CartPole-v0", [data]).caption.count("2 SEs") == 3


def test_agents_that_fail_are_reported(call, models):
    pytest.importorskip("stable_baselines3")
    words = ("--world", *models[1:], "--learners", "ddqn", "sb3_a2c", "--steps", 20, "--agents", 1, "--tests", 2)
    code, out, _, data = call(*words)
    assert code == 0
    for kind in ("ddqn", "sb3_a2c"):
        q = data.series[f"{kind} worlds"]
        assert q["failed"] == ["", REASONS[1]] and math.isnan(q["return"][1]) and q["test_returns"][1] == []
    lines = [line for line in out.splitlines() if ", SEs" in line]
    assert [line.split()[-1] for line in lines] == ["1", "1"] and all("2 of 2" in line for line in lines)


def test_worlds_of_a_configuration(call, models, tmp_path, monkeypatch):
    folders = []

    def found(folder, count):
        folders.append((folder, count))
        return [read_world(str(path)) for path in models[:2]]

    monkeypatch.setattr("envolve.experiments.paper.common.comparison.best_worlds", found)
    words = (CARTPOLE_FILE, "--learners", "ddqn", "--steps", 20, "--quick", "--set", *CARTPOLE)
    code, _, _, data = call(*words, "--results-dir", tmp_path / "results")
    assert code == 0 and data.quick and data.settings["worlds"] == 2
    assert folders == [(tmp_path / "results" / "cartpole_syn_env_paper_fixed", 2)]
    assert len(data.series["ddqn worlds"]["test_returns"][0]) == 5


@pytest.mark.parametrize("settings", [("rollout_steps=32",), ("rollout_steps=8", "num_envs=4", "same_action_num=3")])
def test_ppo_never_trains_for_more_than_its_steps(settings):
    data = cartpole().data
    who = at_fixed_steps(data, TASK, "ppo", 100, 2, [*settings, "ppo_epochs=1"])
    q = train_agents(who, TASK, "real", problem.env_section(data), no_world(2), np.arange(2), False, 1, "")
    assert all(100 - 96 <= 100 - n < 96 and n <= 100 for n in q["train_steps"])
    if len(settings) == 1:
        assert q["train_steps"] == [96, 96]


def test_nothing_ends_early():
    """A budget of 300 steps, the published rule would look from 10 episodes on; and tests are greedy."""
    data = load_config(CARTPOLE_FILE, []).data
    for name in ("td3_discrete", "ppo", "duelingddqn"):
        who = at_fixed_steps(data, TASK, name, 300, 2, [])
        assert who.section.early_out_min_steps > 300 and who.section.train_episodes == 300
        assert not getattr(who.section, "test_noise", False) and who.section.test_episodes == 2
    who = at_fixed_steps(cartpole().data, TASK, "ddqn", 300, 2, [])
    section = problem.env_section(data)
    q = train_agents(who, TASK, "real", section, no_world(2), np.arange(2), False, 1, "")
    assert q["train_steps"] == [300, 300]


def test_learners_that_take_turns_are_all_seen():
    config = load_config(
        ROOT / "default_config_cartpole_contextual_bandit.yaml", ["agents.gtn.other_agents=DuelingDDQN"]
    )
    assert seen_kinds(config.data) == ["ddqn", "duelingddqn"]


def test_their_tests_are_ours():
    """The same starts for the same seed: an agent that always pushes left falls at the same step."""

    class Left:
        def predict(self, observation, deterministic):
            assert deterministic and observation.dtype == np.float32
            return np.zeros(len(observation), np.int64), None

    first, again, other = (baselines3.tested(Left(), TASK, seed, 12) for seed in (5, 5, 6))
    assert first == again != other and all(8 <= r <= 11 for r in first)


@pytest.mark.slow
def test_processes_change_nothing(call, models):
    """Two spawned processes, 2 x 5 s to start."""
    pytest.importorskip("stable_baselines3")
    who = baselines3.baseline("sb3_a2c", 40, {})
    results = []
    for count in (1, 2):
        with baselines3.processes(count) as run:
            worlds = [str(path) for path in models[:2]]
            results.append(baselines3.train_baselines(who, TASK, worlds, np.arange(2), 3, run, ""))
    assert results[0] == results[1]


def test_agents_are_tested_in_the_units_of_an_environment_from_outside() -> None:
    """Before, they saw observations as this project's learners do, and their torque counted twice."""
    name = "gymnasium:Pendulum-v1"
    agents = {"gtn": {"agent_name": "TD3"}, "td3": {}}
    task = make_task(config_of({"env_name": name, "agents": agents, "envs": {name: {}}}, (), "test").data["env_name"])
    seen: list[np.ndarray] = []

    class Torque:
        def predict(self, observation: np.ndarray, deterministic: bool) -> tuple[np.ndarray, None]:
            seen.append(observation)
            return np.full((len(observation), 1), 1.0, np.float32), None

    returns = baselines3.tested(Torque(), task, 5, 3)
    cos, sin, speed = np.concatenate(seen).T
    np.testing.assert_allclose(cos**2 + sin**2, 1.0, atol=1e-5)
    assert np.abs(speed).max() > 1.5
    key = rng.fold(torch.tensor([5]), rng.FINAL_TEST)
    half = rollout.test_episodes(task, lambda obs, step: torch.full((1, 3, 1), 0.5), key, torch.zeros_like(key), 3, 1)[
        0
    ]
    assert returns == half[0].tolist(), "a torque of 1 is half of the largest"


def test_kinds_without_stable_baselines3(capsys, monkeypatch):
    monkeypatch.setattr(peers, "installed", lambda: False)
    assert chosen_kinds(TASK, None) == ["ddqn", "duelingddqn", "td3_discrete", "ppo"]
    err = capsys.readouterr().err
    assert "sb3_dqn" in err and "pip install 'stable-baselines3>=2.4'" in err
    with pytest.raises(Exception, match="pip install 'stable-baselines3"):
        chosen_kinds(TASK, ["ddqn", "sb3_dqn"])
    assert chosen_kinds(TASK, ["ddqn"]) == ["ddqn"]
    assert "sb3_dqn" not in baselines3.fitting(make_task("Pendulum-v0")) and "sb3_ppo" in baselines3.fitting(TASK)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "found neither CONFIG nor --world"),
        ([CARTPOLE_FILE, "--world", "model.pt"], "found both CONFIG and --world"),
        ([GRIDWORLD_FILE], "expected the configuration of SEs"),
        ([CARTPOLE_FILE, "--learners", "sb3_dqm"], "nearest: sb3_dqn"),
        ([CARTPOLE_FILE, "--steps", 0], "--steps: found 0"),
        ([CARTPOLE_FILE, "--learners", "sb3_ppo", "--steps", 2000], "expected at least 2048: one rollout of sb3_ppo"),
        ([CARTPOLE_FILE, "--learners", "ppo", "--steps", 150], "expected at least 200: one rollout of ppo"),
        ([CARTPOLE_FILE, "--learners", "ddqn", "--agent-set", "lr=1"], "expected NAME.KEY=VALUE"),
        ([CARTPOLE_FILE, "--learners", "ddqn", "--agent-set", "ddqn.train_steps=9"], "--steps and --tests say"),
        ([CARTPOLE_FILE, "--learners", "sb3_dqn", "--agent-set", "sb3_dqn.lr=1"], "expected e.g. learning_rate"),
        ([CARTPOLE_FILE, "--learners", "sb3_dqn", "--agent-set", "sb3_dqn.learning_rate=x"], "found 'x', expected"),
    ],
)
def test_wrong_arguments(call, words, said):
    if "sb3" in str(words):
        pytest.importorskip("stable_baselines3")
    code, _, err, data = call(*words)
    assert code == 2 and said in err and data is None


def made_up():
    real = {"return": [20.0, 200.0, math.nan], "train_steps": [5000] * 3, "failed": ["", "", "it broke"]}
    worlds = {**real, "return": [200.0, 190.0, 100.0], "failed": [""] * 3, "world": ["a/model.pt"] * 2 + ["b/model.pt"]}
    settings = {"kinds": ["ppo"], "mark": 190.0, "seen": ["ddqn"], "steps": 5000}
    return Data("unseen_agents", "CartPole-v0", settings, False, {"ppo real": real, "ppo worlds": worlds}, 1.0)


def test_numbers():
    q = made_up().series["ppo worlds"]
    means = {path: mean(values) for path, values in by_world(q).items()}
    assert means == {"a/model.pt": 195, "b/model.pt": 100} and share(list(means.values()), 190) == "1 of 2"
    assert share(made_up().series["ppo real"]["return"], 190) == "1 of 3", "what failed does not reach it"
    assert short_names(["x/a/m.pt", "x/b/m.pt"]) == ["a", "b"] and short_names(["x/a/m", "y/a/m"]) == ["x/a/m", "y/a/m"]


def test_figure():
    out = figure.draw("CartPole-v0", [made_up()])
    low, high = drawing.spread([200.0, 190.0, 100.0], ["a", "a", "b"])[1:]
    assert f"SEs 147.5 [{drawing.number(low)}, {drawing.number(high)}]" in out.caption
    assert "mean reaches it in 1 of 2 SEs" in out.caption and "3 agents, 1 failed" in out.caption
    [ax] = out.figure.axes
    dots = [c.get_offsets()[:, 1].tolist() for c in ax.collections if isinstance(c, PathCollection)]
    assert dots == [[20, 200], [195, 100]], "agents on the task, means of worlds"
    assert any(line.get_ydata()[0] == 190 for line in ax.lines)
