"""Worlds against plain torch modules built from the same weights; containment of a diverging member; tables."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from envolve.envs.nets.networks import LinearShape, MLPShape, init_flat
from envolve.envs.section import EnvSection
from envolve.envs.task import make_task
from envolve.envs.worlds.reward_network import RewardNetwork
from envolve.envs.worlds.synthetic import SyntheticEnv
from envolve.envs.worlds.world import OUTPUT_BOUND, RealTask, init_world, rn_shape, se_nets, tables, world_size

ACTS = {"tanh": nn.Tanh, "relu": nn.ReLU, "leakyrelu": nn.LeakyReLU, "prelu": nn.PReLU, "identity": nn.Identity}


def module(shape: MLPShape, flat: torch.Tensor) -> nn.Sequential:
    """A torch net with the weights of one flat vector [D], read by a loop of its own."""
    widths = [shape.inputs] + [shape.hidden] * max(1, shape.layers) + [shape.outputs]
    act, layers, at = ACTS[shape.activation](), [], 0
    for k, m in zip(widths[:-1], widths[1:]):
        linear = nn.Linear(k, m)
        linear.weight.data = flat[at : at + k * m].reshape(k, m).T.clone()
        linear.bias.data = flat[at + k * m : at + k * m + m].clone()
        at += k * m + m
        layers += [linear, act]
    if shape.activation == "prelu":
        act.weight.data = flat[at : at + 1].clone()
        at += 1
    assert at == flat.numel()
    return nn.Sequential(*layers[:-1]).requires_grad_(False)


def setup(kind, name, P=3, N=4, **section):
    task, section = make_task(name), EnvSection(**{"hidden_size": 16, "raw_done": True, **section})
    params = init_world(kind, task, section, torch.arange(P) + 7)
    generator = torch.Generator().manual_seed(0)
    u = torch.rand(P, N, task.reset_uniforms, generator=generator)
    if task.action_size:
        action = (torch.rand(P, N, task.action_size, generator=generator) * 2 - 1) * task.max_action
    else:
        action = torch.randint(task.num_actions, (P, N), generator=generator)
    return SimpleNamespace(task=task, section=section, params=params, u=u, action=action)


@pytest.mark.parametrize("activation", sorted(ACTS))
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("name", ["CartPole-v0", "Acrobot-v1", "HoleRoom", "Pendulum-v0", "HalfCheetah-v3"])
def test_se_equals_three_modules(name, layers, activation):
    s = setup("se", name, activation_fn=activation, hidden_layer=layers)
    world = SyntheticEnv(s.task, s.section, s.params)
    state = world.reset(s.u)
    obs = world.observe(state)
    assert obs.dtype == torch.float32 and torch.equal(obs, s.task.observe(s.task.reset(s.u)))
    next_state, reward, done, failed = world.step(state, s.action)
    for p in range(world.P):
        code = s.action[p] if s.task.action_size else torch.eye(s.task.num_actions)[s.action[p]]
        x = torch.cat((code, obs[p]), dim=1)
        shapes = [shape for _, shape in se_nets(s.task, s.section)]
        flats = s.params[p].split([shape.size for shape in shapes])
        wanted, wanted_reward, wanted_done = (module(shape, flat)(x) for shape, flat in zip(shapes, flats))
        if s.task.num_states:
            assert torch.equal(next_state[p, :, 0], wanted.argmax(1))
        else:
            torch.testing.assert_close(next_state[p], wanted, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(reward[p], wanted_reward[:, 0], rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(done[p], wanted_done[:, 0], rtol=1e-5, atol=1e-6)
    assert not failed.any()


def test_se_done_is_raw_as_published_or_a_flag():
    raw = setup("se", "CartPole-v0", N=64)
    flag = setup("se", "CartPole-v0", N=64, raw_done=False)
    state = raw.task.observe(raw.task.reset(raw.u))
    _, _, done_raw, _ = SyntheticEnv(raw.task, raw.section, raw.params * 3).step(state, raw.action)
    _, _, done, _ = SyntheticEnv(flag.task, flag.section, flag.params * 3).step(state, raw.action)
    assert torch.equal(done, (done_raw > 0.5).float()) and set(done.unique().tolist()) == {0.0, 1.0}


def test_cartpole_se_has_the_published_size():
    assert world_size("se", make_task("CartPole-v0"), EnvSection(hidden_size=83)) == 2247


@pytest.mark.parametrize("rn_type", [0, 1, 2, 5, 6])
@pytest.mark.parametrize(
    ("name", "activation"),
    [("CartPole-v0", "tanh"), ("Acrobot-v1", "leakyrelu"), ("Cliff", "prelu"), ("Pendulum-v0", "prelu")],
)
def test_rn_formulas(name, activation, rn_type):
    s = setup("rn", name, reward_env_type=rn_type, activation_fn=activation)
    gamma = torch.tensor([0.9, 0.5, 0.99])
    world = RewardNetwork(s.task, s.section, s.params, gamma)
    state = world.reset(s.u)
    next_state, shaped, done, failed = world.step(state, s.action)
    real_next, reward, terminated = s.task.step(state, s.action)
    assert torch.equal(next_state, real_next) and torch.equal(done > 0.5, terminated) and not failed.any()
    for p in range(world.P):
        r, wanted = reward[p], reward[p]
        if rn_type:
            phi = module(rn_shape(s.task, s.section), s.params[p])
            now, then = phi(s.task.observe(state)[p])[:, 0], phi(s.task.observe(real_next)[p])[:, 0]
            potential = gamma[p] * then - now
            wanted = {1: potential, 2: r + potential, 5: then, 6: r + then}[rn_type]
        torch.testing.assert_close(shaped[p], wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("rn_type", [3, 4, 7, 8, 101, 102])
@pytest.mark.parametrize(("activation", "layers"), [("prelu", 1), ("tanh", 2)])
def test_rn_formulas_with_an_info_vector(rn_type, activation, layers):
    s = setup(
        "rn", "HalfCheetah-v3", reward_env_type=rn_type, activation_fn=activation, hidden_layer=layers, info_dim=4
    )
    if rn_type > 100:
        assert not s.params.any()  # as in the original, whose search does not move them
        s.params = torch.randn(s.params.shape, generator=torch.Generator().manual_seed(3))
    gamma = torch.tensor([0.9, 0.5, 0.99])
    world = RewardNetwork(s.task, s.section, s.params, gamma)
    state = world.reset(s.u)
    for _ in range(3):
        next_state, shaped, done, failed = world.step(state, s.action)
        real_next, reward, terminated = s.task.step(state, s.action)
        assert torch.equal(next_state, real_next) and not failed.any() and not done.any() and not terminated.any()
        v = s.task.info(state, s.action, real_next)
        assert v.shape == (3, 4, 4) and torch.equal(v[..., 0], real_next[..., 0].float())
        torch.testing.assert_close(v[..., 2] + v[..., 3], reward)
        for p in range(world.P):
            r = reward[p]
            if rn_type > 100:
                weighted = (v[p] * s.params[p]).sum(-1)
                wanted = {101: weighted, 102: r + weighted}[rn_type]
            else:
                phi = module(rn_shape(s.task, s.section), s.params[p])
                now = phi(torch.cat((s.task.observe(state)[p], v[p]), dim=1))[:, 0]
                then = phi(torch.cat((s.task.observe(real_next)[p], v[p]), dim=1))[:, 0]
                potential = gamma[p] * then - now
                wanted = {3: potential, 4: r + potential, 7: then, 8: r + then}[rn_type]
            torch.testing.assert_close(shaped[p], wanted, rtol=1e-5, atol=1e-5)
        state = next_state


def test_weights_that_are_not_finite_fail_alone():
    s = setup("rn", "HalfCheetah-v3", reward_env_type=102, info_dim=4)
    s.params[1, 2] = float("nan")
    world = RewardNetwork(s.task, s.section, s.params, torch.ones(3))
    _, reward, _, failed = world.step(world.reset(s.u), s.action)
    assert failed[1].all() and not failed[[0, 2]].any() and torch.isfinite(reward).all()


def test_networks_of_an_rn_read_what_their_type_says():
    task = make_task("HalfCheetah-v3")
    inputs = {0: 1, 1: 17, 2: 17, 3: 21, 4: 21, 5: 17, 6: 17, 7: 21, 8: 21, 101: 4, 102: 4}
    for rn_type, wanted in inputs.items():
        section = EnvSection(reward_env_type=rn_type, info_dim=4, hidden_size=128, activation_fn="prelu")
        shape = rn_shape(task, section)
        assert shape.inputs == wanted and shape.outputs == 1
        size = 4 if rn_type > 100 else wanted * 128 + 128 + 128 + 1 + 1
        assert world_size("rn", task, section) == size and isinstance(shape, LinearShape) == (rn_type > 100)


@pytest.mark.parametrize(
    ("name", "info_dim", "words"),
    [
        ("HalfCheetah-v3", 0, r"info_dim: found 0, expected 4, the length of HalfCheetah-v3's info vector \(x_pos"),
        ("HalfCheetah-v3", 5, "info_dim: found 5, expected 4"),
        ("CartPole-v0", 4, "reward_env_type: found {}, expected one of 0, 1, 2, 5, 6: CartPole-v0 has no info vector, "
                           "which type {} reads; tasks that have: HalfCheetah-v3"),
        ("Cliff", 0, "reward_env_type: found {}, expected one of 0, 1, 2, 5, 6: Cliff has no info vector"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("rn_type", [3, 4, 7, 8, 101, 102])
def test_an_info_vector_that_is_not_the_tasks_is_named(name, info_dim, words, rn_type):
    section = EnvSection(reward_env_type=rn_type, info_dim=info_dim)
    with pytest.raises(ValueError, match=words.format(rn_type, rn_type)):
        RewardNetwork(make_task(name), section, torch.zeros(1, 4), torch.ones(1))
    with pytest.raises(ValueError, match=words.format(rn_type, rn_type)):
        world_size("rn", make_task(name), section)


def test_a_task_without_info_says_so():
    task = make_task("CartPole-v0")
    state = task.reset(torch.rand(1, 1, 4))
    with pytest.raises(NotImplementedError, match="CartPole-v0 has no info vector"):
        task.info(state, torch.zeros(1, 1), state)


@pytest.mark.parametrize("name", ["Cliff", "MountainCarContinuous-v0", "HalfCheetah-v3"])
def test_real_task_is_the_task(name):
    s = setup("rn", name)
    world = RealTask(s.task, 3)
    state = world.reset(s.u)
    next_state, reward, done, failed = world.step(state, s.action)
    wanted = s.task.step(state, s.action)
    for got, want in zip((next_state, reward, done > 0.5), wanted):
        assert torch.equal(got, want)
    assert not failed.any()


@pytest.mark.parametrize("poison", [float("nan"), float("inf"), 1e38])
@pytest.mark.parametrize("kind", ["se", "rn"])
@pytest.mark.parametrize(
    ("name", "rn_type"),
    [("CartPole-v0", 2), ("Cliff", 2), ("Pendulum-v0", 2), ("HalfCheetah-v3", 4)],
)
def test_a_diverged_member_harms_no_other(kind, name, rn_type, poison):
    s = setup(kind, name, reward_env_type=rn_type, info_dim=4)
    bad = s.params.clone()
    bad[1] = poison

    def rollout(params):
        world = (
            SyntheticEnv(s.task, s.section, params)
            if kind == "se"
            else RewardNetwork(s.task, s.section, params, torch.full((3,), 0.9))
        )
        state, out = world.reset(s.u), []
        for _ in range(5):
            state, reward, done, failed = world.step(state, s.action)
            out.append((world.observe(state), reward, done, failed))
        return [torch.stack(column) for column in zip(*out)]

    good, mixed = rollout(s.params), rollout(bad)
    assert mixed[3][:, 1].all() and not mixed[3][:, [0, 2]].any() and not good[3].any()
    for a, b in zip(good, mixed):
        assert torch.equal(a[:, [0, 2]], b[:, [0, 2]])
        assert torch.isfinite(b.float()).all()


def test_se_outputs_are_bounded_before_they_fail():
    s = setup("se", "CartPole-v0")
    world = SyntheticEnv(s.task, s.section, s.params * 1e4)
    state, reward, done, failed = world.step(world.reset(s.u), s.action)
    assert not failed.any()
    assert max(x.abs().max().item() for x in (state, reward, done)) == OUTPUT_BOUND


@pytest.mark.parametrize("kind", ["real", "se", "rn"])
@pytest.mark.parametrize("name", ["EmptyRoom23", "Cliff", "Bandit"])
def test_tables_equal_stepping(kind, name):
    s = setup("se" if kind == "se" else "rn", name, reward_env_type=1)
    world = {
        "real": lambda: RealTask(s.task, 3),
        "se": lambda: SyntheticEnv(s.task, s.section, s.params),
        "rn": lambda: RewardNetwork(s.task, s.section, s.params, torch.tensor([0.9, 0.5, 0.99])),
    }[kind]()
    next_state, reward, done = tables(world)
    assert next_state.dtype == torch.int32 and next_state.shape == (3, s.task.num_states, s.task.num_actions)
    for cell in range(s.task.num_states):
        for action in range(s.task.num_actions):
            got = world.step(torch.full((3, 1, 1), cell), torch.full((3, 1), action))
            assert torch.equal(next_state[:, cell, action].long(), got[0][:, 0, 0])
            torch.testing.assert_close(reward[:, cell, action], got[1][:, 0], rtol=1e-5, atol=1e-6)
            torch.testing.assert_close(done[:, cell, action], got[2][:, 0], rtol=1e-5, atol=1e-6)


def test_noise_of_the_reward_belongs_to_worlds_that_pay_the_true_reward():
    task, gamma = make_task("Bandit"), torch.tensor([0.9, 0.9, 0.9])
    assert RealTask(task, 3).reward_noise == 1.0 and RealTask(make_task("Cliff"), 3).reward_noise == 0.0
    for rn_type, noise in ((0, 1.0), (1, 0.0), (2, 1.0), (5, 0.0), (6, 1.0)):
        s = setup("rn", "Bandit", reward_env_type=rn_type)
        assert RewardNetwork(s.task, s.section, s.params, gamma).reward_noise == noise, rn_type
    s = setup("se", "Bandit")
    assert SyntheticEnv(s.task, s.section, s.params).reward_noise == 0.0


def test_tables_of_the_real_task_are_the_gridworlds_own():
    task = make_task("Cliff")
    next_state, reward, done = (table[0].numpy() for table in tables(RealTask(task, 1)))
    np.testing.assert_array_equal(next_state, task.next_state)
    np.testing.assert_array_equal(reward, task.reward)
    np.testing.assert_array_equal(done, task.done.astype(np.float32))


def test_tables_mark_a_failed_member_and_refuse_an_infinite_task():
    s = setup("se", "EmptyRoom22")
    s.params[1, 0] = float("nan")
    _, reward, _ = tables(SyntheticEnv(s.task, s.section, s.params))
    assert reward[1].isnan().any() and reward[[0, 2]].isfinite().all()
    with pytest.raises(ValueError, match="CartPole-v0 has no finite set of states"):
        tables(RealTask(make_task("CartPole-v0"), 1))


def test_init_uses_consecutive_counters_and_torch_bounds():
    task, section, key = make_task("CartPole-v0"), EnvSection(hidden_size=8), torch.tensor([3, 4])
    params = init_world("se", task, section, key)
    assert params.shape == (2, world_size("se", task, section)) and not torch.equal(params[0], params[1])
    (_, first), (_, second), _ = se_nets(task, section)
    assert torch.equal(params[:, first.size : first.size + second.size], init_flat(second, key, first.size))
    assert params[:, : 6 * 8 + 8].abs().max() <= 6**-0.5


def test_wrong_shapes_are_named():
    task, section = make_task("CartPole-v0"), EnvSection(hidden_size=83)
    with pytest.raises(ValueError, match=r"\(1, 5\): expected \[P, 2247\]"):
        SyntheticEnv(task, section, torch.zeros(1, 5))
    section = EnvSection(hidden_size=83, reward_env_type=1)
    with pytest.raises(ValueError, match=r"\(2, 7\): expected \[P, 499\]"):
        RewardNetwork(task, section, torch.zeros(2, 7), torch.zeros(2))
    with pytest.raises(ValueError, match=r"discount of shape \(3,\): expected \[2\]"):
        RewardNetwork(task, section, torch.zeros(2, 499), torch.zeros(3))


@pytest.mark.parametrize("activation", ["leakyrelu", "prelu"])
def test_done_bias_shifts_done_and_nothing_else(activation):
    plain = setup("se", "CartPole-v0", activation_fn=activation)
    shifted = setup("se", "CartPole-v0", activation_fn=activation, done_bias=-1.0)
    worlds = [SyntheticEnv(s.task, s.section, s.params) for s in (plain, shifted)]
    state = worlds[0].reset(plain.u)
    (next_a, reward_a, done_a, _), (next_b, reward_b, done_b, _) = (w.step(state, plain.action) for w in worlds)
    assert torch.equal(next_a, next_b) and torch.equal(reward_a, reward_b)
    torch.testing.assert_close(done_b, done_a - 1.0)
