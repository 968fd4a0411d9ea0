"""The compiled DDQN: its arithmetic against float64, and members that do not notice each other, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from agents import tabular_loop
from agents.ddqn import DDQN
from agents.hyper import draw
from agents.kernels import mlp, tabular, worlds
from agents.kernels.off_policy_population import train_population, why_not
from agents.population import initial_weights, nets_of, size
from agents.replay import capacity
from agents.result import AGENT_DIVERGED, OK, REASONS, WORLD_DIVERGED
from agents.sections import DDQNSection
from envs import rng
from envs.networks import ACTIVATIONS, LEAKY_SLOPE, MLPShape, fast_tanh_, init_flat
from envs.section import EnvSection
from envs.task import make_task
from envs.world import OUTPUT_BOUND, init_world
from tests.agents.same import assert_same_bytes

F4 = np.float32
LEARNT = [a for a in ACTIVATIONS if a != "prelu"]  # the kernel does not learn a slope
SECTION = dict(train_steps=150, init_episodes=0, hidden_size=16, hidden_layer=1, activation_fn="tanh", batch_size=37,
               eps_init=0.5, test_episodes=3, lr=1e-3)  # fmt: skip


# ------------------------------------------------------------------------------------------------------- arithmetic


def test_codes_are_those_of_the_torch_side():
    assert [ACTIVATIONS[i] for i in (mlp.TANH, mlp.RELU, mlp.LEAKYRELU, mlp.PRELU, mlp.IDENTITY)] == [
        "tanh", "relu", "leakyrelu", "prelu", "identity"]  # fmt: skip
    assert float(worlds.OUTPUT_BOUND) == OUTPUT_BOUND and mlp.LEAKY_SLOPE == F4(LEAKY_SLOPE)
    assert int(tabular.DRAWN_IN_UPDATE) == tabular_loop.DRAWN_IN_UPDATE


def test_tanh():
    """Error bounds of both approximations, over the whole range and in the tails."""
    z = np.concatenate([np.linspace(-12, 12, 400_001), [-1e30, -100, 100, 1e30], np.geomspace(1e-30, 1, 1000)]).astype(
        F4
    )
    exact = np.tanh(z.astype(np.float64))
    ours = z.copy()
    mlp.activate(ours, len(z), mlp.TANH, F4(0))
    assert np.abs(ours - exact).max() < 4e-7 and np.abs(ours).max() <= 1 + 2e-7
    assert np.abs(fast_tanh_(torch.from_numpy(z.copy())).numpy() - exact).max() < 2e-7


def test_nan_does_not_vanish_in_an_activation():
    """A kernel must notice that a member diverged."""
    for code in (mlp.RELU, mlp.LEAKYRELU, mlp.TANH, mlp.PRELU, mlp.IDENTITY):
        x = np.full(16, np.nan, F4)
        mlp.activate(x, 16, code, F4(0.25))
        assert np.isnan(x).all(), ACTIVATIONS[code]


def reference(shape, p, x):
    """Float64 outputs [M, B] of one net, layer by layer, with torch's own tanh."""
    act = {"tanh": torch.tanh, "relu": torch.relu, "leakyrelu": torch.nn.LeakyReLU(), "identity": torch.nn.Identity()}
    act["prelu"] = lambda z: torch.where(z > 0, z, p[-1] * z)
    layers = shape.layer_offsets()
    for i, (o, k, m) in enumerate(layers):
        x = p[o : o + k * m].view(k, m).T @ x + p[o + k * m : o + k * m + m, None]
        x = act[shape.activation](x) if i < len(layers) - 1 else x
    return x


@pytest.mark.parametrize("hidden", [1, 3, 16, 57, 83])
@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("activation", LEARNT)
def test_forward_and_backward_against_float64(activation, layers, hidden):
    K, M, B = (6, 3, 199) if layers == 2 else (4, 2, 37)
    L = (B + 15) // 16 * 16
    shape = MLPShape(K, M, hidden, layers, activation)
    generator = torch.Generator().manual_seed(hidden)
    flat = init_flat(shape, torch.tensor([hidden]))[0]
    x, dq = torch.zeros(K, L), torch.zeros(M, L)
    x[:, :B], dq[:, :B] = torch.randn(K, B, generator=generator), torch.randn(M, B, generator=generator) / B
    before, behind = 7, 5  # other nets' parameters in the same vector, which nothing may touch
    p = np.concatenate([np.full(before, np.nan, F4), flat.numpy(), np.full(behind, np.nan, F4)])
    h, dh, dx, dx2 = (
        mlp.activations(hidden, layers, L),
        mlp.workspace(hidden, L),
        mlp.aligned((K, L)),
        np.zeros((K, L), F4),
    )
    q, g, g2, code = np.zeros((M, L), F4), np.full(len(p), 9, F4), np.full(len(p), 9, F4), ACTIVATIONS.index(activation)
    net = (before, K, hidden, layers, M)
    assert mlp.size(K, hidden, layers, M, code) == shape.size
    mlp.forward(p, *net, x.numpy(), h, q, L, code)
    mlp.backward(p, *net, x.numpy(), h, dq.numpy(), dh, L, g, code)
    mlp.backward_both(p, *net, x.numpy(), h, dq.numpy(), dh, L, g2, dx, code)
    mlp.backward_input(p, *net, x.numpy(), h, dq.numpy(), dh, L, dx2, code)
    exact, x64 = flat.double().requires_grad_(), x.double().requires_grad_()
    wanted = reference(shape, exact, x64)
    gradient, by_input = torch.autograd.grad(wanted, (exact, x64), dq.double())
    np.testing.assert_allclose(q[:, :B], wanted.detach().numpy()[:, :B], rtol=1e-5, atol=1e-6)
    own = slice(before, before + shape.size)
    assert np.linalg.norm(g[own] - gradient.numpy()) <= 1e-6 * gradient.norm().item()
    assert np.linalg.norm(dx - by_input.numpy()) <= 1e-6 * by_input.norm().item()
    assert np.array_equal(g, g2) and np.array_equal(dx, dx2)
    assert (np.delete(g, np.arange(len(p))[own]) == 9).all()


def test_arrays_begin_at_a_cache_line():
    assert mlp.aligned((3, 5)).ctypes.data % 64 == 0 and mlp.aligned((7,)).shape == (7,)


@pytest.mark.parametrize("lo, hi", [(0, 50), (13, 37)])
def test_adam_is_torchs_on_its_own_range(lo, hi):
    """Clipped, at another eps, over three updates; alone and fused with the soft update."""
    r = np.random.default_rng(0)
    p, target = r.standard_normal((2, 50)).astype(F4)
    wanted = torch.from_numpy(p[lo:hi].copy()).requires_grad_()
    optimizer, clip = torch.optim.Adam([wanted], lr=1e-2, eps=1e-5), F4(0.3)
    ours, alone, fused = p.copy(), p.copy(), p.copy()
    state, state2, state3, apart, together = (
        np.zeros((2, 50), F4),
        np.zeros((2, 50), F4),
        np.zeros((2, 50), F4),
        target.copy(),
        target.copy(),
    )
    for u in range(1, 4):
        g = r.standard_normal(50).astype(F4)
        wanted.grad = torch.from_numpy(g[lo:hi] * clip)
        optimizer.step()
        step, scale = F4(1e-2 / (1 - 0.9**u)), F4(1 / np.sqrt(1 - 0.999**u))
        mlp.adam(ours, *state, g, lo, hi, step, scale, F4(1e-5), clip)
        mlp.adam(alone, *state2, g, lo, hi, step, scale)
        mlp.soft_update(alone, apart, lo, hi, F4(0.1))
        mlp.adam_soft_update(fused, together, *state3, g, lo, hi, step, scale, F4(0.1))
    np.testing.assert_allclose(ours[lo:hi], wanted.detach().numpy(), rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(fused, alone, rtol=1e-6)
    np.testing.assert_allclose(together, apart, rtol=1e-6, atol=1e-7)
    for array, old in ((ours, p), (alone, p), (apart, target)):
        assert (array[lo:hi] != old[lo:hi]).all()
        assert np.array_equal(array[:lo], old[:lo]) and np.array_equal(array[hi:], old[hi:])
    assert mlp.norm_squared(g, lo, hi) == pytest.approx((g[lo:hi].astype(np.float64) ** 2).sum())


@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_predict_two_nets_behind_each_other(activation, layers):
    shapes = MLPShape(6, 4, 83, layers, activation), MLPShape(6, 1, 83, layers, activation)
    flats = [init_flat(s, torch.tensor([7 + i]))[0] for i, s in enumerate(shapes)]
    params, x, at = torch.cat(flats).numpy(), np.linspace(-1, 1, 6, dtype=F4), 0
    for shape, flat in zip(shapes, flats):
        out, h, h2 = np.zeros(shape.outputs, F4), np.zeros(83, F4), np.zeros(83, F4)
        at = mlp.predict(params, at, 6, 83, layers, shape.outputs, ACTIVATIONS.index(activation), x, out, h, h2)
        wanted = reference(shape, flat.double(), torch.from_numpy(x).double()[:, None])[:, 0]
        np.testing.assert_allclose(out, wanted.numpy(), rtol=1e-5, atol=1e-6)
    assert at == len(params)


# ---------------------------------------------------------------------------------------------------------- members


def run(rows=slice(None), kind="se", P=6, threads=1, world=None, values=None, env=None, **section):
    task, env, keys = (
        make_task("CartPole-v0", max_steps=40),
        EnvSection(hidden_size=13, **(env or {})),
        np.arange(P) + 3,
    )
    hyper = draw(DDQNSection(**{**SECTION, **section}), keys)
    hyper.values.update(
        {"hidden_size": np.array([3, 8, 16, 31, 5, 12]), "batch_size": np.array([3, 70, 1, 37, 40, 16])}
    )
    hyper.values.update({name: np.array(v) for name, v in (values or {}).items()})
    worlds = np.zeros((P, 1), F4)
    if kind != "real":
        worlds = init_world(kind, task, env, torch.as_tensor(keys)).numpy()
    for (i, j), value in (world or {}).items():
        worlds[i, j] = value
    return train_population(DDQN, task, kind, env, worlds[rows], hyper.take(rows), keys[rows], kind == "rn", threads)


@pytest.mark.parametrize("kind", ["se", "rn", "real"])
def test_alone_and_in_a_batch_bit_for_bit(kind):
    together = run(kind=kind, env={"reward_env_type": 2})
    assert (together.updates > 0).all()
    for i in range(6):
        assert_same_bytes(together, run([i], kind=kind, env={"reward_env_type": 2}), [i])


def test_any_number_of_threads_gives_the_same_bytes():
    one = run(kind="real", train_steps=400)
    for threads in (2, 3, 16):
        assert_same_bytes(one, run(kind="real", train_steps=400, threads=threads))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [0, -1])  # in state_net, in done_net
def test_a_diverging_world_harms_no_other_member(value, place):
    result, sound, others = run(world={(2, place): value}), run(), [0, 1, 3, 4, 5]
    assert_same_bytes(result, sound, others, others)
    assert result.status.tolist() == [OK, OK, WORLD_DIVERGED, OK, OK, OK] and REASONS[WORLD_DIVERGED]
    assert np.isnan(result.test_return[2]).all() and result.train_steps[2] == 1 and result.real_steps[2] == 0


def test_a_diverging_reward_network_is_flagged():
    result = run(kind="rn", env={"reward_env_type": 5}, world={(0, 0): np.nan})
    assert result.status[0] == WORLD_DIVERGED and (result.status[1:] == OK).all()


def test_a_diverging_agent_harms_no_other_member():
    lr = np.full(6, 1e-3)
    sound = run(kind="real", values={"lr": lr})
    lr[2] = 1e38
    result, others = run(kind="real", values={"lr": lr}), [0, 1, 3, 4, 5]
    assert_same_bytes(result, sound, others, others)
    assert result.status.tolist() == [OK, OK, AGENT_DIVERGED, OK, OK, OK]
    assert np.isnan(result.test_return[2]).all()


def test_initial_weights_come_from_each_members_own_shape_and_key():
    task, keys = make_task("Acrobot-v1"), np.array([5, 6, 7])
    hyper = draw(DDQNSection(hidden_size=8, hidden_layer=1), keys)
    hyper.values["hidden_size"] = np.array([8, 3, 8])
    agents = nets_of(DDQN, task, hyper)
    weights, sizes = initial_weights(agents, keys), [size(nets) for nets in agents]
    for i, h in enumerate((8, 3, 8)):
        own = init_flat(MLPShape(6, 3, h, 1, "relu"), rng.fold(torch.tensor([keys[i]]), rng.INIT))[0].numpy()
        assert sizes[i] == len(own) and np.array_equal(weights[i, : sizes[i]], own) and not weights[i, sizes[i] :].any()


def test_capacity_is_no_more_than_a_training_can_fill():
    section = dict(train_episodes=10, rb_size=700)
    keys = np.arange(3)
    assert capacity(draw(DDQNSection(**section), keys), 200).tolist() == [700] * 3
    assert capacity(draw(DDQNSection(**section, same_action_num=3), keys), 200).tolist() == [670] * 3
    hyper = draw(DDQNSection(**section), keys)
    hyper.values["train_steps"] = np.array([0, 50, 5000])
    assert capacity(hyper, 200).tolist() == [700, 50, 700]


def test_what_the_kernel_cannot_do_has_a_reason():
    keys = np.arange(2)
    assert why_not(DDQN, make_task("CartPole-v0"), draw(DDQNSection(), keys)) is None
    assert "PReLU" in why_not(DDQN, make_task("CartPole-v0"), draw(DDQNSection(activation_fn="prelu"), keys))
    assert "Cliff" in why_not(DDQN, make_task("Cliff"), draw(DDQNSection(), keys))
