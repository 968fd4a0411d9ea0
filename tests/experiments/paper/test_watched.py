"""Agents whose steps are watched or disturbed: histograms.py, noise_threshold.py, gridworld.py, and their pictures."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import torch

from envolve.agents.train import train
from envolve.envs.task import make_task
from envolve.envs.worlds.file import save_world
from envolve.envs.worlds.world import RealTask, init_world
from envolve.experiments.paper import gridworld, histograms, noise_threshold
from envolve.experiments.paper.common.data import Data, data_path, load
from envolve.experiments.paper.common.learners import LearnerSettings
from envolve.experiments.paper.common.proxies import ProxyRun, write_result
from envolve.experiments.paper.common.watched import StepRecorder, Steps, train_watched, walk
from envolve.experiments.paper.pictures import gridworld as gridworld_figure
from envolve.experiments.paper.pictures import histograms as histograms_figure
from envolve.experiments.paper.pictures import noise_threshold as noise_figure
from envolve.outer.config import problem
from envolve.outer.search.nes import RETEST, member_seeds
from tests.experiments import command
from tests.outer.small import CARTPOLE, ROOT, cartpole

TASK = make_task("CartPole-v0")
DATA = cartpole().data
SECTION = problem.env_section(DATA)
LEARNER = LearnerSettings(*problem.learner(DATA)[:2])
SEEDS = member_seeds(0, RETEST, 0, 4)
WORLDS = init_world("se", TASK, SECTION, torch.tensor([1, 1, 2, 2]))


def plain(world, run):
    return world


@pytest.fixture(scope="module")
def expected():
    return train(LEARNER.name, LEARNER.section, None, TASK, "se", SECTION, WORLDS, SEEDS, backend="torch")


def same(a, b):
    for field in dataclasses.fields(a):
        assert np.array_equal(getattr(a, field.name), getattr(b, field.name), equal_nan=True), field.name


@pytest.mark.parametrize("how", ["watched", "no noise"])
def test_watching_and_noise_of_zero_change_nothing(expected, how):
    wrap = StepRecorder().wrap if how == "watched" else noise_threshold.noisy(np.zeros(4), np.arange(4))
    same(train_watched(LEARNER, TASK, SECTION, WORLDS, SEEDS, wrap).result, expected)


def test_noise_changes_the_agents_it_disturbs_and_no_other(expected):
    std = np.array([0.0, 0.5, 0.0, 0.5])
    output = np.array([0, 1, 2, 4])
    result = train_watched(LEARNER, TASK, SECTION, WORLDS, SEEDS, noise_threshold.noisy(std, output)).result
    equal = (result.weights == expected.weights).all(1)
    assert equal.tolist() == [True, False, True, False]
    alone = noise_threshold.noisy(std[1:2], output[1:2])  # with whom it is trained does not matter
    again = train_watched(LEARNER, TASK, SECTION, WORLDS[1:2], SEEDS[1:2], alone).result
    assert np.allclose(again.weights, result.weights[1:2], atol=1e-5)


def test_noise_is_on_its_output_and_as_large_as_said():
    n, F = 3000, 4
    world = noise_threshold.Noisy(
        RealTask(TASK, n), torch.full((n,), 2.0), torch.arange(n) % (F + 2), torch.arange(n), [0]
    )
    state = world.reset(torch.rand(n, 1, 4, generator=torch.Generator().manual_seed(0)))
    action = torch.zeros(n, 1, dtype=torch.int64)
    a, b = world.inner.step(state, action), world.step(state, action)
    difference = torch.cat((b[0] - a[0], (b[1] - a[1])[..., None], (b[2] - a[2])[..., None]), -1)[:, 0].numpy()
    for i in range(F + 2):
        rows = np.arange(n) % (F + 2) == i
        assert difference[rows, i].std() == pytest.approx(2.0, rel=0.1) and abs(difference[rows, i].mean()) < 0.3
        assert not difference[~rows, i].any()
    again = world.step(state, action)[1] - a[1]
    assert not torch.equal(again, b[1] - a[1])  # other noise at the next step


def test_all_steps_are_noted_and_tests_are_those_of_the_training(expected):
    recorder = StepRecorder()
    trained = train_watched(LEARNER, TASK, SECTION, WORLDS, SEEDS, recorder.wrap)
    seen = recorder.steps()
    assert len(seen.reward) == expected.train_steps.sum() and seen.observation.shape == seen.next_observation.shape
    tests = walk(TASK, trained, LEARNER.section.test_episodes)
    assert tests.reward.sum() == pytest.approx(expected.test_return.sum())  # each step of CartPole pays 1
    assert (np.abs(tests.observation).max(0) < [2.5, 10, 0.3, 10]).all()


def test_the_se_answers_what_it_does_in_training():
    recorder = StepRecorder()
    train_watched(LEARNER, TASK, SECTION, WORLDS[:1], SEEDS[:1], recorder.wrap)
    seen = recorder.steps()
    from envolve.envs.worlds.synthetic import SyntheticEnv

    out = histograms.answers(SyntheticEnv(TASK, SECTION, WORLDS[:1]), seen)
    assert np.allclose(out.next_observation, seen.next_observation, atol=1e-6)
    assert np.allclose(out.reward, seen.reward, atol=1e-6)


def test_deviations_and_rows():
    steps = Steps(
        np.zeros((2, 4)), np.zeros(2), np.array([[0, 1, 2, 3], [2, 1, 2, 3.0]]), np.array([1, 5.0]), np.zeros(2)
    )
    assert noise_threshold.deviations(steps).tolist() == [1, 0, 0, 0, 2, 0]
    assert histograms.spread_rows(3, 10).tolist() == [0, 1, 2] and histograms.spread_rows(101, 3).tolist() == [
        0,
        50,
        100,
    ]


@pytest.fixture()
def results(tmp_path):
    """A folder with an SE as train_proxy.py leaves it, and the options that name it."""
    folder = tmp_path / "cartpole_syn_env_paper_varied" / "seed0"
    folder.mkdir(parents=True)
    config = cartpole("agents.gtn.agent_name=DDQN_vary").data
    save_world(str(folder / "model.pt"), "se", "CartPole-v0", WORLDS[0], config, budget=60, score=9.0)
    write_result(folder, ProxyRun(0, 9.0, False, 9.0, 1, 1, 60, 1.0, "model.pt", ""))
    options = [ROOT / "default_config_cartpole_syn_env_paper.yaml", "--results-dir", tmp_path]
    return tmp_path, options, ["--set", *CARTPOLE]


def test_histograms_command(capsys, results):
    folder, options, values = results
    code, _, err, _ = command.run(
        histograms.main, [*options, "--agents", "2", "--steps", "50", *values], capsys, folder / "no"
    )
    assert code == 0, err
    data = load(data_path(folder, "histograms", "CartPole-v0"))
    assert data.series["SE in training"]["steps"] == [120] and len(data.series["SE in training"]["reward"]) == 50
    assert data.series["task in tests"]["steps"] == data.series["SE, asked as in tests"]["steps"]
    out = histograms_figure.draw("CartPole-v0", [data])
    assert [ax.get_xlabel() for ax in out.figure.axes][:5] == [
        "next position, m",
        "next velocity, m/s",
        "next pole angle, rad",
        "next angular velocity, rad/s",
        "reward",
    ]
    assert "2 agents in one SE" in out.caption and "120 (SE in training)" in out.caption


def test_noise_command(capsys, results):
    folder, options, values = results
    words = [*options, "--agents", "2", "--points", "3", "--outputs", "1", "reward", "--at-once", "5", *values]
    code, _, err, _ = command.run(noise_threshold.main, words, capsys, folder / "no")
    assert code == 0, err
    data = load(data_path(folder, "noise_threshold", "CartPole-v0"))
    assert list(data.series) == ["no noise", "1", "reward"]
    assert len(data.series["1"]["return"]) == 6 and len(data.series["no noise"]["return"]) == 2
    assert data.series["1"]["noise_over_std"] == pytest.approx([0.01] * 2 + [10**-0.25] * 2 + [10**1.5] * 2)
    assert "2 DDQN agents for each noise" in noise_figure.draw("CartPole-v0", [data]).caption


@pytest.mark.parametrize(
    ("module", "args", "words"),
    [
        (noise_threshold, ["--outputs", "4"], "--outputs: found '4', expected some of 0, 1, 2, 3, reward, done"),
        (noise_threshold, ["--agent", "ppo"], "--agent: found ppo, expected one of ddqn"),
        (histograms, ["--evolved", "both"], "--evolved: found 'both', expected varied or fixed"),
        (histograms, ["--worlds", "2"], "--worlds: found 2, expected 1"),
        (histograms, ["--model", ROOT / "README.md"], "README.md: cannot be read as a torch file"),
    ],
)
def test_wrong_arguments(capsys, results, module, args, words):
    folder, options, values = results
    code, _, err, _ = command.run(module.main, [*options, *args, *values], capsys, folder / "no")
    assert code in (1, 2) and words in err


def test_noise_figure_tells_what_is_borne():
    def q(returns):
        x = [0.1, 0.1, 1.0, 1.0, 10.0, 10.0]
        return {"return": returns, "noise_over_std": x, "failed": [""] * 6, "std": [1.0]}

    series = {
        "no noise": {"return": [100.0, 100.0], "failed": ["", ""]},
        "0": q([100.0, 100.0, 91.0, 91.0, 50.0, 50.0]), "reward": q([80.0, 80.0, 100.0, 100.0, 10.0, math.nan]),
        "done": q([99.0] * 6),
    }  # fmt: skip
    out = noise_figure.draw(
        "CartPole-v0", [Data("noise_threshold", "CartPole-v0", {"agent": "ddqn"}, True, series, 1.0)]
    )
    ax = out.figure.axes[0]
    assert ax.get_xlabel() == "standard deviation of the noise / of the output" and ax.get_xscale() == "log"
    lines = {line.get_label(): line.get_ydata() for line in ax.lines}
    assert list(lines["position"]) == [100, 91, 50] and list(lines["reward"]) == [80, 100, 10]
    assert "position 1.00; reward none of those tried (1 agents failed); done all (10.00)" in out.caption


def test_gridworld_behaviour_of_the_task_and_its_picture(tmp_path):
    task = make_task("EmptyRoom22")
    world = gridworld.behaviour(RealTask(task, 1))
    assert world["next_state"] == task.next_state.tolist() and world["done"] == task.done.astype(float).tolist()
    agents = {"q": np.ones((3, 4, 4)).tolist(), "return": [0.5, 0.5, 0.5], "train_steps": [4, 4, 4]}
    series = {"task": world, "SE": world, "agents, task": agents, "agents, SE": agents}
    out = gridworld_figure.draw("EmptyRoom22", [Data("gridworld", "EmptyRoom22", {"agent": "ql"}, False, series, 1.0)])
    left, right = out.figure.axes[:2]
    arrows = [a for a in left.texts if a.get_text() == ""]
    assert len(arrows) == 6 and len(left.collections) == 6  # three cells where steps begin: 2 ways on, 2 walls each
    assert len(right.collections[0].get_array()) == 12
    assert "from the SE 0.500 (3 of 3) after 4.00 (3 of 3) steps (3 agents)" in out.caption
