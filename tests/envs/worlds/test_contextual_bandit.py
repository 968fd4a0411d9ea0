"""The SE of one-step episodes: its formulas, its twin in compiled training, its file and its Gymnasium side."""

from __future__ import annotations

from dataclasses import fields, replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from gymnasium.utils.env_checker import check_env
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from envolve.agents.common.hyper import draw
from envolve.agents.common.learners import LEARNERS
from envolve.agents.common.result import WORLD_DIVERGED
from envolve.agents.common.sections import VarySection
from envolve.agents.train import train
from envolve.envs.section import EnvSection
from envolve.envs.task import make_task
from envolve.envs.worlds.contextual_bandit import encoded
from envolve.envs.worlds.export import load_world, load_world_vec
from envolve.envs.worlds.file import read_world, save_world
from envolve.envs.worlds.synthetic import synthetic_world
from envolve.envs.worlds.world import OUTPUT_BOUND, init_world, world_nets, world_size
from tests.agents.same import same_run
from tests.examples import some_slow

SECTION = EnvSection(contextual_bandit=True, hidden_size=11, activation_fn="tanh")


def worlds_of(name, P, section=SECTION):
    return init_world("se", make_task(name), section, torch.arange(P) + 3)


def layer(flat, inputs, outputs):
    """One linear layer in float64: [K, M] weights, then biases."""
    return flat[: inputs * outputs].double().view(inputs, outputs), flat[inputs * outputs :].double()


@pytest.mark.parametrize("name", ["CartPole-v0", "Pendulum-v0"])
def test_formulas(name):
    """state = init_net(sqrt(12) (u - 1/2)), reward = reward_net(action, state), written out in float64."""
    task, flat = make_task(name), worlds_of(name, 2)
    F, A, H = task.observation_size, task.action_inputs, 11
    world = synthetic_world(task, SECTION, flat)
    u = torch.rand(2, 5, F, generator=torch.Generator().manual_seed(1))
    state = world.reset(u)
    action = torch.rand(2, 5, A) if task.action_size else torch.tensor([[0, 1, 1, 0, 1]] * 2)
    code = action if task.action_size else torch.eye(A)[action]
    next_state, reward, done, failed = world.step(state, action)
    for p in range(2):
        sizes = (F * H + H, H * F + F, (A + F) * H + H, H + 1)
        nets = [layer(part, k, m) for part, k, m in zip(flat[p].split(sizes), (F, H, A + F, H), (H, F, H, 1))]
        (w1, b1), (w2, b2), (w3, b3), (w4, b4) = nets
        wanted = torch.tanh(12**0.5 * (u[p].double() - 0.5) @ w1 + b1) @ w2 + b2
        torch.testing.assert_close(state[p], wanted.float(), rtol=1e-5, atol=1e-6)
        pays = torch.tanh(torch.cat((code[p].double(), wanted), 1) @ w3 + b3) @ w4 + b4
        torch.testing.assert_close(reward[p], pays[:, 0].float(), rtol=1e-5, atol=1e-6)
    assert torch.equal(next_state, state) and bool((done == 1).all()) and not failed.any()


def test_its_networks_are_two():
    task = make_task("CartPole-v0")
    assert [name for name, _ in world_nets("se", task, SECTION)] == ["init_net", "reward_net"]
    assert world_size("se", task, SECTION) == (4 * 11 + 11 + 11 * 4 + 4) + (6 * 11 + 11 + 11 + 1)


def test_outputs_are_bounded_and_what_is_not_finite_fails():
    task, flat = make_task("CartPole-v0"), worlds_of("CartPole-v0", 3)
    flat[0] *= 1e4
    flat[1, 4 * 11 + 11] = float("inf")  # of init_net's second layer
    world = synthetic_world(task, SECTION, flat)
    state = world.reset(torch.full((3, 1, 4), 0.3))
    _, reward, _, failed = world.step(state, torch.zeros(3, 1, dtype=torch.int64))
    assert state[0].abs().max() <= OUTPUT_BOUND and reward[0].abs().max() <= OUTPUT_BOUND
    assert torch.isnan(state[1]).all() and failed[:, 0].tolist() == [False, True, False]


@pytest.mark.parametrize("name", ["CartPole-v0", "Pendulum-v0"])
def test_stored_contexts_are_rows_of_a_table(name):
    task, K = make_task(name), 7
    section, F = replace(SECTION, stored_contexts=K), task.observation_size
    assert [name for name, _ in world_nets("se", task, section)] == ["contexts", "reward_net"]
    flat = worlds_of(name, 3, section)
    flat[1, F] = 2 * OUTPUT_BOUND
    flat[2, F] = float("nan")  # of row 1
    world = synthetic_world(task, section, flat)
    assert world.reset_uniforms == 1
    u = (torch.arange(K) + torch.tensor([[0.0], [0.5], [0.999]])).view(1, -1, 1) / K
    state = world.reset(u.expand(3, -1, -1))
    table = flat[:, : K * F].view(3, K, F).repeat(1, 3, 1)
    assert torch.equal(state[0], table[0]) and torch.equal(state[1], table[1].clamp(max=OUTPUT_BOUND))
    bad = torch.isnan(state[2]).all(-1)
    assert bad.nonzero()[:, 0].tolist() == [1, K + 1, 2 * K + 1] and torch.equal(state[2][~bad], table[2][~bad])
    assert torch.equal(world.reset(torch.full((2, 1, 1), 1.0), torch.tensor([1, 0])), state[[1, 0], -1:])


@given(arrays(np.float32, (3, 2, 7), elements=st.floats(-2, 2, width=32)))
def test_one_hot_parts_have_their_1_at_the_largest_output(state):
    found = encoded(torch.from_numpy(state), [(1, 4), (5, 7)]).numpy()
    assert (found[..., [0, 4]] == state[..., [0, 4]]).all()
    for start, stop in ((1, 4), (5, 7)):
        assert (found[..., start:stop] == np.eye(stop - start)[state[..., start:stop].argmax(-1)]).all()


def test_states_are_coded_as_the_tasks_observations_are(monkeypatch):
    task, flat = make_task("CartPole-v0"), worlds_of("CartPole-v0", 3)
    flat[2, 4 * 11 + 11] = float("inf")
    u = torch.rand(3, 50, 4, generator=torch.Generator().manual_seed(1))
    plain = synthetic_world(task, SECTION, flat).reset(u)
    monkeypatch.setattr(type(task), "codes", ((1, 4),))
    state = synthetic_world(task, SECTION, flat).reset(u)
    assert torch.equal(state[:2, :, 0], plain[:2, :, 0]) and torch.isnan(state[2]).all()
    assert torch.equal(state[:2, :, 1:], torch.eye(3)[plain[:2, :, 1:].argmax(-1)])


LEARNING = {
    "ddqn": dict(batch_size=20, init_episodes=0),
    "duelingddqn": dict(batch_size=20, feature_dim=9, hidden_layer=1, init_episodes=0),
    "td3_discrete": dict(batch_size=20, init_episodes=5),
    "ppo": dict(rollout_steps=32, ppo_epochs=3),
}


def part(result, rows):
    return type(result)(**{f.name: getattr(result, f.name)[rows] for f in fields(result)})


LATE = ("duelingddqn", "sac", "td3_discrete")  # compiled by the slow tests alone


STORED = replace(SECTION, stored_contexts=40)
CASES = {"numbers": ((), SECTION), "codes": (((0, 2), (2, 4)), SECTION), "stored": (((2, 4),), STORED)}


@pytest.mark.parametrize("codes, section", CASES.values(), ids=CASES)
@pytest.mark.parametrize("name", some_slow(LEARNING, [name for name in LEARNING if name not in LATE]))
def test_compiled_training_equals_pytorchs(name, codes, section, monkeypatch):
    task = make_task("CartPole-v0")
    monkeypatch.setattr(type(task), "codes", codes)
    learner = LEARNERS[name].section(
        **{
            **LEARNING[name],
            "train_steps": 96,
            "train_episodes": 200,
            "hidden_size": 16,
            "early_out_min_steps": 200,
            "test_episodes": 2,
        }
    )
    flat, keys = worlds_of("CartPole-v0", 3, section), np.arange(3)
    flat[2, 4 * 11 + 11] = float("inf")
    runs = [train(name, learner, None, task, "se", section, flat, keys, backend=b) for b in ("compiled", "torch")]
    same_run(*(part(run, slice(2)) for run in runs), tolerance=1e-4)
    assert runs[0].episodes[:2].tolist() == runs[0].train_steps[:2].tolist() == [96, 96]  # every step is an episode
    assert runs[0].status.tolist() == [0, 0, WORLD_DIVERGED]


def test_a_test_of_fewer_steps_is_the_start_of_a_full_one():
    """CartPole pays 1 per step: with test_steps every return is the smaller of the full one and test_steps."""
    learner = LEARNERS["ddqn"].section(train_steps=60, train_episodes=200, init_episodes=0, hidden_size=16)
    flat, keys = worlds_of("CartPole-v0", 4), np.arange(4)
    for backend in ("compiled", "torch"):
        returns = []
        for steps in (200, 9):
            task = make_task("CartPole-v0")
            task.test_steps = steps
            result = train("ddqn", learner, None, task, "se", SECTION, flat, keys, backend=backend)
            returns.append(result.test_return)
        np.testing.assert_array_equal(returns[1], np.minimum(returns[0], 9))
        assert (returns[0] > 9).any()


def test_only_the_budget_ends_training():
    """Neither the early-out rule, which one-step episodes would fire at once, nor a limit of fewer episodes."""
    learner = LEARNERS["ddqn"].section(train_steps=300, train_episodes=20, hidden_size=16, early_out_num=2)
    vary = VarySection(train_steps_factor=2.0, vary_layers=False)
    task, flat, keys = make_task("CartPole-v0"), worlds_of("CartPole-v0", 8), np.arange(8)
    result = train("ddqn", learner, vary, task, "se", SECTION, flat, keys)
    assert result.train_steps.tolist() == draw(learner, keys, vary)["train_steps"].tolist()
    assert result.train_steps.max() > 300 > result.train_steps.min() >= 150
    without = train("ddqn", replace(learner, train_steps=0), None, task, "se", SECTION, flat, keys)
    assert set(without.train_steps) == {20}


@pytest.fixture(params=[0, 600], ids=["drawn", "stored"])
def path(tmp_path, request):
    section = {"contextual_bandit": True, "hidden_size": 11, "activation_fn": "tanh", "max_steps": 200}
    section["stored_contexts"] = request.param
    config = {"env_name": "CartPole-v0", "envs": {"CartPole-v0": section}}
    flat = worlds_of("CartPole-v0", 1, replace(SECTION, stored_contexts=request.param))[0]
    save_world(str(tmp_path / "model.pt"), "se", "CartPole-v0", flat, config, budget=5)
    return SimpleNamespace(name=str(tmp_path / "model.pt"), flat=flat)


def test_file_and_gymnasium(path):
    assert torch.equal(read_world(path.name).flat, path.flat)
    env = load_world(path.name)
    check_env(env, skip_render_check=True)
    first, _ = env.reset(seed=1)
    _, _, terminated, truncated, _ = env.step(0)
    assert terminated and not truncated
    second, _ = env.reset()
    assert not np.array_equal(first, second)
    envs = load_world_vec(path.name, 3)
    states, _ = envs.reset(seed=1)
    np.testing.assert_allclose(states[0], first, rtol=1e-5)
    assert envs.step(np.zeros(3, np.int64))[2].all()
