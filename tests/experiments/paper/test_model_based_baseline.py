"""model_based_baseline.py: which steps of the task, what is fitted to them, and who learns in it."""

from __future__ import annotations

import csv
import io

import numpy as np
import pytest
import torch
from rich.console import Console

from envolve.agents.train import train
from envolve.envs.task import make_task
from envolve.envs.worlds.file import read_world
from envolve.envs.worlds.synthetic import SyntheticEnv
from envolve.envs.worlds.world import world_nets
from envolve.experiments.paper import model_based_baseline
from envolve.experiments.paper.common import dynamics
from envolve.experiments.paper.common.data import load
from envolve.experiments.paper.common.search_steps import Sample, search_steps, test_steps
from envolve.experiments.paper.common.watched import Steps
from envolve.experiments.paper.pictures import model_based_baseline as figure
from envolve.outer.config import problem
from envolve.outer.reporting.report import LiveTable
from envolve.outer.run import Run
from envolve.outer.search.nes import RETEST, generator, member_seeds
from tests.experiments import command
from tests.outer.small import CARTPOLE, CARTPOLE_FILE, GRIDWORLD_FILE, cartpole
from tests.outer.test_run import Direct

test_steps.__test__ = False  # it is no test of pytest's
TASK = make_task("CartPole-v0")
SES = (*CARTPOLE, "agents.gtn.max_iterations=2")


def numbered(first, count):
    """Steps that can be told apart."""
    x = np.arange(first, first + count, dtype=np.float32)
    return Steps(np.repeat(x[:, None], 4, 1), np.zeros(count, np.int64), np.repeat(x[:, None], 4, 1), x, x * 0)


def test_a_sample_is_even_and_bounded():
    counts = np.zeros(60)
    for seed in range(300):
        sample = Sample(20, generator(seed, RETEST, 3))
        for first, count in ((0, 5), (5, 40), (45, 0), (45, 15)):
            sample.add(numbered(first, count), np.full(count, first))
        assert sample.seen == 60 and len(sample.agent) == len(sample.steps.reward) == 20
        kept = sample.steps.reward.astype(int)
        assert len(set(kept)) == 20
        assert (sample.agent == np.where(kept < 5, 0, np.where(kept < 45, 5, 45))).all()
        counts[kept] += 1
    assert abs(counts.mean() - 100) < 1e-9 and counts.min() > 65 and counts.max() < 135  # 4 standard deviations: 33


def test_the_tests_of_compiled_agents_are_repeated():
    """Each agent's steps are as many, and their rewards sum up to as much, as in the tests that scored it."""
    config = cartpole("agents.gtn.agent_name=DDQN_vary", "agents.gtn.backend=torch")
    name, section, vary = problem.learner(config.data)
    assert vary.vary_layers  # nets of different depths, which cannot be stacked
    keys = member_seeds(0, RETEST, 0, 9)
    result = train(name, section, vary, TASK, "real", problem.env_section(config.data), torch.zeros(9, 1), keys)
    result.status[4] = 2
    steps, whose = test_steps(config, result, keys)
    assert set(whose) == set(range(9)) - {4}
    for i in set(whose):
        assert steps.reward[whose == i].sum() == result.test_return[i].sum()
        assert (steps.done[whose == i].sum()) == (result.test_return[i] < 200).sum()
    result.status[:] = 2
    steps, whose = test_steps(config, result, keys)
    assert len(whose) == len(steps.done) == 0


def test_the_search_is_that_of_a_run(tmp_path):
    config = cartpole()
    found = search_steps(config, 50, 1)
    run = Run(config, tmp_path, Direct())
    with LiveTable(3, "", Console(file=io.StringIO())) as table:
        run.search(table)
    with open(tmp_path / "scores.csv") as file:
        expected = [float(row["mean_return"]) for row in csv.DictReader(file)]
    assert found.returns == pytest.approx(expected) and found.generations == 3 and len(expected) == 3 * 8
    assert found.seen == sum(expected) * 2 and len(found.agent) == 50  # two tests each, a reward of 1 per step
    assert (found.agent < 24).all()


def known(P, n, seed=0):
    """Rows of a linear task that an SE's nets can learn, with done in a third of it."""
    random = np.random.default_rng(seed)
    s, action = random.normal(size=(P * n, 4)).astype(np.float32), random.integers(0, 2, P * n)
    change = 0.1 * np.roll(s, 1, 1) + 0.2 * (action[:, None] * 2 - 1)
    done = (s[:, 0] > 0.5).astype(np.float32)
    steps = Steps(s, action, (s + change).astype(np.float32), np.ones(P * n, np.float32), done)
    return dynamics.rows(TASK, steps).view(P, n, -1)


def test_a_fit_learns_what_the_world_then_answers():
    section = problem.env_section(cartpole("envs.CartPole-v0.hidden_size=32").data)
    train_rows, held_out, keys = known(2, 4000), known(2, 500, 1), np.array([3, 4])
    fitted = dynamics.fit(TASK, section, train_rows, held_out, keys, epochs=30, batch=100, lr=3e-3)
    assert fitted.train_error.shape == fitted.held_out_error.shape == (2, 30, 3)
    assert (fitted.held_out_error[:, -1] < [0.002, 0.002, 0.05]).all()
    assert (fitted.held_out_error[:, -1] < fitted.held_out_error[:, 0] / 5).all()
    x = held_out
    world = SyntheticEnv(TASK, section, fitted.flat)
    next_state, reward, done, failed = world.step(x[:, :, 2:6], x[:, :, 1].long())  # the second of a one-hot pair
    errors = [(next_state - x[:, :, 6:10]).square().mean(1), (reward - x[:, :, 10]).square().mean(1)[:, None]]
    assert fitted.output_error[:, :5] == pytest.approx(torch.cat(errors, 1).numpy(), rel=1e-3)
    assert ((done > 0.5) == (x[:, :, 11] > 0.5)).float().mean() > 0.95 and not failed.any()
    assert fitted.output_change == pytest.approx((x[:, :, 6:10] - x[:, :, 2:6]).square().mean(1).numpy(), rel=1e-4)
    size = world_nets("se", TASK, section)[-1][1].size
    plain = dynamics.without_done(TASK, section, fitted)
    assert torch.equal(plain[:, :-size], fitted.flat[:, :-size])
    assert torch.equal(plain[:, -size:], fitted.fresh[:, -size:])
    assert not torch.equal(fitted.flat[:, -size:], fitted.fresh[:, -size:])


def test_a_fit_is_that_of_torch():
    """Adam on the mean squared error, from the same weights and in one batch: no order to differ in."""
    section = problem.env_section(cartpole().data)
    part, keys = known(1, 64), np.array([5])
    fitted = dynamics.fit(TASK, section, part, part, keys, epochs=4, batch=64, lr=0.01)
    nets, weights = [], []
    begin = 0
    for _, shape in world_nets("se", TASK, section):
        layers = [torch.nn.Linear(6, 8), torch.nn.LeakyReLU(), torch.nn.Linear(8, shape.outputs)]
        for layer, (offset, k, m) in zip((layers[0], layers[2]), shape.layer_offsets()):
            at = begin + offset
            layer.weight.data = fitted.fresh[0, at : at + k * m].view(k, m).T.clone()
            layer.bias.data = fitted.fresh[0, at + k * m : at + k * m + m].clone()
            weights.append((layer, at, k, m))
        nets.append(torch.nn.Sequential(*layers))
        begin += shape.size
    adam = torch.optim.Adam([p for net in nets for p in net.parameters()], lr=0.01)
    for epoch in range(4):
        answers = torch.cat([net(part[0, :, :6]) for net in nets], 1)
        target = part[0, :, 6:]
        losses = [torch.nn.functional.mse_loss(answers[:, c], target[:, c]) for c in (slice(0, 4), 4, 5)]
        assert fitted.train_error[0, epoch] == pytest.approx([loss.item() for loss in losses], rel=1e-4)
        adam.zero_grad()
        sum(losses).backward()
        adam.step()
    for layer, at, k, m in weights:
        assert torch.allclose(fitted.flat[0, at : at + k * m].view(k, m).T, layer.weight, atol=1e-5)
        assert torch.allclose(fitted.flat[0, at + k * m : at + k * m + m], layer.bias, atol=1e-5)


def test_worlds_do_not_see_each_other():
    section, rows = problem.env_section(cartpole().data), known(3, 200)
    both = dynamics.fit(TASK, section, rows[:2], rows[:2], np.array([1, 2]), epochs=2, batch=64)
    other = dynamics.fit(TASK, section, rows[1:], rows[1:], np.array([2, 9]), epochs=2, batch=64)
    assert torch.allclose(both.flat[1], other.flat[0], atol=1e-6) and not torch.allclose(both.flat[0], both.flat[1])


@pytest.fixture()
def call(capsys, tmp_path):
    def run(*words):
        path = tmp_path / "out.json"
        words = [*words, "--results-dir", tmp_path, "--json", path, "--threads", 1]
        code, out, err, _ = command.run(model_based_baseline.main, words, capsys, tmp_path / "-")
        return code, out, err, load(path) if path.exists() else None

    return run


DDQN = ("--learners", "ddqn", "--agent-set", "train_episodes=12")
FEW = ("--worlds", 2, "--agents", 2, *DDQN, "--steps", 400, "--epochs", 3)


def test_the_command(call, tmp_path):
    code, out, _, data = call(CARTPOLE_FILE, *FEW, "--fit-done", "--set", *SES)
    assert code == 0 and "Error of the next observation" in out
    assert list(data.series) == ["steps", "fit", "ddqn real", "ddqn model-based", "ddqn done fitted"]
    fit = data.series["fit"]
    assert fit["fitted_to"][0] + fit["held_out"][0] <= 400 and fit["held_out"][0] > 0
    assert data.settings["worlds"] == 2 and fit["search"] == [0, 1]
    assert np.shape(fit["state_net held out"]) == (2, 3) and np.shape(fit["output_error"]) == (2, 6)
    assert np.shape(data.series["steps"]["agent_return"]) == (2, 16)
    paths = data.series["ddqn model-based"]["world"]
    assert paths == [str(tmp_path / "out" / f"world{i}.pt") for i in (0, 0, 1, 1)]
    plain, done = (read_world(paths[2][:-3] + suffix) for suffix in (".pt", "_done.pt"))
    assert plain.kind == "se" and plain.budget == 60 and plain.config["seed"] == 1
    same = plain.flat == done.flat
    assert same[: same.numel() // 2].all() and not same.all()
    for title in ("ddqn model-based", "ddqn done fitted"):
        q = data.series[title]
        assert len(q["return"]) == 4 and q["train_steps"] == [60] * 4
    again = call(CARTPOLE_FILE, *FEW, "--fit-done", "--set", *SES)[3]
    assert again.series == data.series
    (tmp_path / "out.json").rename(tmp_path / "first.json")
    words = ("--agents", 1, *DDQN, "--no-real", "--fitted", tmp_path / "first.json", "--set", *SES)
    other = call(CARTPOLE_FILE, *words)[3]
    assert load(tmp_path / "out" / "fit.json").series == {name: data.series[name] for name in ("steps", "fit")}
    assert other.series["fit"] == fit and other.series["ddqn model-based"]["world"] == paths[::2]
    assert list(other.series) == ["steps", "fit", "ddqn model-based"]
    (tmp_path / "out").rename(tmp_path / "moved")
    moved = model_based_baseline.fitted_before(tmp_path / "moved" / "fit.json", TASK, True)["fit"]["world_done"]
    assert moved == [str(tmp_path / "moved" / f"world{i}_done.pt") for i in range(2)]
    drawing = figure.draw("CartPole-v0", [data])
    assert "DDQN: real task" in drawing.caption and "4 agents in 2 worlds" in drawing.caption


def test_an_interrupted_call_goes_on_after_its_last_search(call, tmp_path, monkeypatch):
    """Whether it stops before the fit or after it, the data are those of a call that never stopped."""
    words = (CARTPOLE_FILE, *FEW, "--no-real", "--set", *SES)
    whole = call(*words)[3]
    (tmp_path / "out.json").unlink()
    files = [tmp_path / "out" / f"search{i}.pt" for i in range(2)]
    assert not any(file.exists() for file in files)

    def stop(*_):
        raise KeyboardInterrupt

    for name, repeated in (("fit", 0), ("train_agents", 2)):
        with monkeypatch.context() as patch:
            patch.setattr(model_based_baseline, name, stop)
            code, _, err, data = call(*words)
        assert code == 130 and data is None and err.count("finished by an earlier call") == repeated
        assert all(file.exists() for file in files) == (name == "fit")
    with monkeypatch.context() as patch:
        patch.setattr(model_based_baseline, "fit_worlds", stop)
        assert call(*words)[3].series == whole.series
    for part in tmp_path.glob("*.part.json"):
        part.unlink()
    files[0].write_bytes(b"damaged")
    (tmp_path / "out.json").unlink()
    code, _, err, data = call(*words)
    assert f"{files[0]}: " in err and "this search is repeated" in err and data.series == whole.series


def test_worlds_that_share_a_search(call):
    words = ("--searches", 1, "--agents", 1, *DDQN, "--steps", 400, "--epochs", 2, "--worlds", 2)
    data = call(CARTPOLE_FILE, *words, "--set", *SES, "agents.gtn.max_iterations=1")[3]
    assert data.series["fit"]["search"] == [0, 0] and len(data.series["steps"]["seen"]) == 1
    flats = [read_world(path).flat for path in data.series["fit"]["world"]]
    assert not torch.equal(*flats)


def test_what_does_not_fit_is_said_before_the_work(call):
    for words, expected in (
        ((GRIDWORLD_FILE,), "expected a configuration of SEs"),
        ((CARTPOLE_FILE, "--steps", 1), "--steps: found 1"),
        ((CARTPOLE_FILE, "--steps", 9, "--fitted", "x.json"), "--steps: found it beside --fitted"),
        ((CARTPOLE_FILE, "--modes", 1), "--modes: found [1]"),
        ((CARTPOLE_FILE, "--learners", "ddqm"), "found 'ddqm'"),
        ((CARTPOLE_FILE, "--set", "agents.gtn.agent_name=PPO"), "found ppo, expected one of ddqn"),
    ):
        code, _, err, data = call(*words)
        assert code == 2 and expected in err and data is None
