"""The compiled DDQN: its arithmetic against float64, and members that do not notice each other, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from envolve.agents.common.hyper import draw
from envolve.agents.common.job import Job
from envolve.agents.common.population import initial_weights, nets_of, size
from envolve.agents.common.replay import capacity
from envolve.agents.common.result import AGENT_DIVERGED, OK, REASONS, WORLD_DIVERGED
from envolve.agents.common.sections import DDQNSection
from envolve.agents.kernels import tabular
from envolve.agents.kernels.common import worlds
from envolve.agents.kernels.dense import adam, gemm, layer_norm, mlp, vector
from envolve.agents.kernels.off_policy.population import train_population, why_not
from envolve.agents.off_policy.ddqn import DDQN
from envolve.agents.tabular import loop as tabular_loop
from envolve.core import rng
from envolve.envs.nets.networks import ACTIVATIONS, LEAKY_SLOPE, NORM_EPSILON, MLPShape, fast_tanh_, forward, init_flat
from envolve.envs.section import EnvSection
from envolve.envs.task import make_task
from envolve.envs.worlds.world import OUTPUT_BOUND, init_world
from tests.agents.same import assert_same_bytes

F4 = np.float32
SECTION = dict(
    train_steps=150,
    init_episodes=0,
    hidden_size=16,
    hidden_layer=1,
    activation_fn="tanh",
    batch_size=37,
    eps_init=0.5,
    test_episodes=3,
    lr=1e-3,
)


# ------------------------------------------------------------------------------------------------------- arithmetic


def test_codes_are_those_of_the_torch_side():
    assert [ACTIVATIONS[i] for i in (mlp.TANH, mlp.RELU, mlp.LEAKYRELU, mlp.PRELU, mlp.IDENTITY)] == [
        "tanh",
        "relu",
        "leakyrelu",
        "prelu",
        "identity",
    ]
    assert float(worlds.OUTPUT_BOUND) == OUTPUT_BOUND and mlp.LEAKY_SLOPE == F4(LEAKY_SLOPE)
    assert layer_norm.EPSILON == F4(NORM_EPSILON)
    assert int(tabular.DRAWN_IN_UPDATE) == tabular_loop.DRAWN_IN_UPDATE


def test_log_one_plus():
    x = np.concatenate([[0, 1], np.linspace(0, 1, 10_001), np.geomspace(1e-37, 1, 1000)]).astype(F4)
    found = np.array([vector.log_one_plus(v) for v in x])
    np.testing.assert_allclose(found, np.log1p(x.astype(np.float64)), rtol=3e-7)


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


def net(shape, seed):
    """Parameters [D] with every one of them in play: the slope and the layer norm differ from how they begin."""
    flat, generator = init_flat(shape, torch.tensor([seed]))[0], torch.Generator().manual_seed(seed)
    if shape.slope_slots:
        flat[-1] = (0.25, 0.0, -0.3)[seed % 3]  # learnt, it can be anything
    if shape.norm_slots:
        norm = flat[shape.norm_offset : shape.norm_offset + shape.norm_slots]
        norm += torch.rand(norm.shape, generator=generator) - 0.5
    return flat


@pytest.mark.parametrize("hidden", [1, 3, 16, 57, 83])
@pytest.mark.parametrize("layers, norm", [(1, False), (2, False), (3, False), (1, True), (2, True), (3, True)])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_forward_and_backward_against_float64(activation, layers, norm, hidden):
    if norm and hidden == 1:
        pytest.skip("one unit is normalised to 0: what is left is 316 times the rounding error")
    K, M, B = (6, 3, 199) if layers == 2 else (4, 2, 37)
    L = (B + 15) // 16 * 16
    shape = MLPShape(K, M, hidden, layers, activation, norm)
    generator = torch.Generator().manual_seed(hidden)
    flat = net(shape, hidden)
    x, dq = torch.zeros(K, L), torch.zeros(M, L)
    x[:, :B], dq[:, :B] = torch.randn(K, B, generator=generator), torch.randn(M, B, generator=generator) / B
    before, behind = 7, 5  # other nets' parameters in the same vector, which nothing may touch
    p = np.concatenate([np.full(before, np.nan, F4), flat.numpy(), np.full(behind, np.nan, F4)])
    code = ACTIVATIONS.index(activation)
    h, dh = mlp.activations(hidden, layers, L, code, norm), mlp.workspace(hidden, L)
    dx, dx2, q = mlp.aligned((K, L)), np.zeros((K, L), F4), np.zeros((M, L), F4)
    g, g2 = np.full(len(p), 9, F4), np.full(len(p), 9, F4)
    at = (before, mlp.Net(K, hidden, layers, M, code))
    assert mlp.size(K, hidden, layers, M, code, norm) == shape.size
    mlp.forward(p, *at, x.numpy(), h, q, L, norm)
    mlp.backward(p, *at, x.numpy(), h, dq.numpy(), dh, L, g, norm)
    mlp.backward_both(p, *at, x.numpy(), h, dq.numpy(), dh, L, g2, dx, norm)
    mlp.backward_input(p, *at, x.numpy(), h, dq.numpy(), dh, L, dx2, norm)
    exact, x64 = flat.double().requires_grad_(), x.double().requires_grad_()
    wanted = forward(shape, exact[None], x64[None])[0]
    gradient, by_input = torch.autograd.grad(wanted, (exact, x64), dq.double())
    np.testing.assert_allclose(q[:, :B], wanted.detach().numpy()[:, :B], rtol=1e-5, atol=4e-6 if norm else 1e-6)
    own, error = slice(before, before + shape.size), 4e-6 if norm else 1e-6
    assert np.linalg.norm(g[own] - gradient.numpy()) <= error * gradient.norm().item()
    assert np.linalg.norm(dx - by_input.numpy()) <= error * by_input.norm().item()
    assert np.array_equal(g, g2) and np.array_equal(dx, dx2)
    assert (np.delete(g, np.arange(len(p))[own]) == 9).all()
    if shape.slope_slots:  # not lost among the others
        assert g[own][-1] == pytest.approx(gradient[-1].item(), rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("activation", ["tanh", "prelu"])
def test_padding_changes_nothing(activation):
    """Neither more columns nor what other columns hold, as long as it is finite."""
    shape, B = MLPShape(5, 2, 19, 2, activation, True), 21
    p, code, results = net(shape, 3).numpy(), ACTIVATIONS.index(activation), []
    r = np.random.default_rng(0)
    samples, by_q = r.standard_normal((5, B)).astype(F4), r.standard_normal((2, B)).astype(F4)
    for L, filling in ((32, 0), (32, 3), (96, -2)):
        x, dq, q, g = np.full((5, L), filling, F4), np.zeros((2, L), F4), np.zeros((2, L), F4), np.zeros(len(p), F4)
        x[:, :B], dq[:, :B] = samples, by_q
        h, dh = mlp.activations(19, 2, L, code, True), mlp.workspace(19, L)
        mlp.forward(p, 0, mlp.Net(5, 19, 2, 2, code), x, h, q, L, True)
        mlp.backward(p, 0, mlp.Net(5, 19, 2, 2, code), x, h, dq, dh, L, g, True)
        results.append((q[:, :B].copy(), g))
    for q, g in results[1:]:
        assert np.array_equal(q, results[0][0])
        np.testing.assert_allclose(g, results[0][1], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "rows, columns, R", [(1, 1, 1), (8, 32, 5), (9, 33, 3), (3, 70, 16), (23, 15, 7), (64, 64, 64)]
)
def test_product_of_any_size_writes_its_own_numbers_alone(rows, columns, R):
    r, width = np.random.default_rng(rows), (columns + 15) // 16 * 16
    a, x = r.standard_normal((R, rows)).astype(F4), np.full((R, width), np.nan, F4)
    x[:, :columns] = r.standard_normal((R, columns))
    flat, c = np.concatenate([a.ravel(), np.arange(rows, dtype=F4)]), np.full((rows + 1, columns + 3), 7, F4)
    wanted = a.T.astype(float) @ x[:, :columns]
    for bias in (-1, R * rows):  # C from its first column on, in longer rows
        gemm.product(flat, 0, 1, rows, bias, x, width, c, 0, columns + 3, R, rows, columns)
        extra = np.arange(rows)[:, None] if bias >= 0 else 0
        np.testing.assert_allclose(c[:rows, :columns], wanted + extra, rtol=1e-5, atol=1e-5)
        assert (c[rows] == 7).all() and (c[:, columns:] == 7).all()
    y, t = r.standard_normal((rows, width)).astype(F4), np.zeros((width, (rows + 15) // 16 * 16), F4)
    s = np.full(rows + 1, 7, F4)
    gemm.transpose(y, rows, width, t, s, 0)
    assert np.array_equal(t[:, :rows], y.T) and s[rows] == 7
    np.testing.assert_allclose(s[:rows], y.sum(1), rtol=1e-5, atol=1e-5)


def test_arrays_that_are_not_contiguous_do_not_compile():
    """A product reads flat memory, so anything else would be read wrongly."""
    z = np.zeros((16, 32), F4)
    with pytest.raises(Exception, match="contiguous"):
        gemm.product(z, 0, 16, 1, -1, z[:, ::2], 16, z, 0, 16, 16, 16, 16)


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
        adam.adam(ours, *state, g, lo, hi, step, scale, F4(1e-5), clip)
        adam.adam(alone, *state2, g, lo, hi, step, scale)
        adam.soft_update(alone, apart, lo, hi, F4(0.1))
        adam.adam_soft_update(fused, together, *state3, g, lo, hi, step, scale, F4(0.1))
    np.testing.assert_allclose(ours[lo:hi], wanted.detach().numpy(), rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(fused, alone, rtol=1e-6)
    np.testing.assert_allclose(together, apart, rtol=1e-6, atol=1e-7)
    for array, old in ((ours, p), (alone, p), (apart, target)):
        assert (array[lo:hi] != old[lo:hi]).all()
        assert np.array_equal(array[:lo], old[:lo]) and np.array_equal(array[hi:], old[hi:])
    assert adam.norm_squared(g, lo, hi) == pytest.approx((g[lo:hi].astype(np.float64) ** 2).sum())


@pytest.mark.parametrize("layers, norm", [(1, False), (2, False), (3, False), (1, True), (2, True), (3, True)])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_predict_two_nets_behind_each_other(activation, layers, norm):
    shapes = MLPShape(6, 4, 83, layers, activation, norm), MLPShape(6, 1, 83, layers, activation, norm)
    flats = [net(s, 7 + i) for i, s in enumerate(shapes)]
    params, x, at = torch.cat(flats).numpy(), np.linspace(-1, 1, 6, dtype=F4), 0
    for shape, flat in zip(shapes, flats):
        out, h, h2 = np.zeros(shape.outputs, F4), np.zeros(83, F4), np.zeros(83, F4)
        code = ACTIVATIONS.index(activation)
        at = mlp.predict(params, at, mlp.Net(6, 83, layers, shape.outputs, code), x, out, h, h2, norm)
        wanted = forward(shape, flat.double()[None], torch.from_numpy(x).double()[None, :, None])[0, :, 0]
        np.testing.assert_allclose(out, wanted.numpy(), rtol=1e-5, atol=4e-6 if norm else 1e-6)
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
    job = Job(task, kind, env, torch.as_tensor(worlds[rows]), hyper.take(rows), keys[rows], kind == "rn")
    return train_population(DDQN, job, threads)


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
    for task in ("CartPole-v0", "Cliff"):
        assert why_not(DDQN, make_task(task), draw(DDQNSection(), keys)) is None
