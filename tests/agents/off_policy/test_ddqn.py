"""The PyTorch DDQN against its compiled twin, against float64 autograd, and against itself in other company."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from envolve.agents.common import population, replay
from envolve.agents.common.early_out import early_out, window_mean
from envolve.agents.common.hyper import draw
from envolve.agents.common.result import AGENT_DIVERGED, OK, WORLD_DIVERGED
from envolve.agents.common.sections import DDQNSection
from envolve.agents.off_policy import training as off_policy
from envolve.agents.off_policy.ddqn import DDQN
from envolve.core import rng
from envolve.envs.nets.networks import ACTIVATIONS, MLPShape, forward, init_flat
from envolve.envs.task import make_task
from tests.agents import small
from tests.agents.same import same_alone, same_run
from tests.agents.small import check_padding, check_third_diverged
from tests.examples import examples, some_slow

SMALL = dict(
    train_steps=200,
    init_episodes=0,
    hidden_size=16,
    hidden_layer=1,
    activation_fn="tanh",
    batch_size=37,
    eps_init=0.5,
    test_episodes=3,
    lr=1e-3,
)


class Setup(small.Setup):
    algorithm, section_class, default_kind, small = DDQN, DDQNSection, "se", SMALL


MIXED = dict(
    hidden_size=[3, 8, 16, 31, 5],
    hidden_layer=[0, 1, 2, 1, 2],
    batch_size=[3, 70, 1, 37, 40],
    train_steps=[60, 100, 30, 80, 130],
    gamma=[0.9, 0.99, 0.8, 0.98, 1.0],
    tau=[0.01, 0.1, 1.0, 0.0, 0.02],
    eps_init=[0.1, 1.0, 0.5, 0.7, 0.9],
    lr=[1e-3, 1e-4, 3e-3, 1e-3, 1e-2],
)
CASES = {
    "se": dict(),
    "se, short episodes": dict(max_steps=31, env={"raw_done": False}),
    "se, frame skip": dict(max_steps=31, same_action_num=2, init_episodes=1),
    "se, two layers": dict(env={"hidden_layer": 2, "activation_fn": "tanh"}, hidden_layer=2, activation_fn="leakyrelu"),
    "se, prelu world": dict(env={"activation_fn": "prelu"}),
    "se, settles": dict(max_steps=7, early_out_num=2, early_out_virtual_diff=0.2, train_steps=0, train_episodes=40),
    "se, settles late": dict(max_steps=7, early_out_num=2, early_out_virtual_diff=9.0, early_out_min_steps=99),
    "se, tested": dict(test_each=True, max_steps=20, solved_reward=12.0, early_out_num=2),
    "real": dict(kind="real", init_episodes=1),
    "real, relu": dict(kind="real", activation_fn="relu", init_episodes=3),
    "real, leakyrelu, two layers": dict(kind="real", activation_fn="leakyrelu", hidden_layer=2),
    "real, replay wraps": dict(kind="real", rb_size=50),
    "real, no budget": dict(kind="real", train_steps=0, train_episodes=9),
    "real, solved": dict(kind="real", train_steps=0, train_episodes=30, early_out_num=3, solved_reward=20.0),
    "real, time limit": dict(kind="real", max_steps=9, bootstrap_time_limit=False),
    "real, time limit bootstrapped": dict(kind="real", max_steps=9, bootstrap_time_limit=True),
    "real, prelu": dict(kind="real", activation_fn="prelu"),
    "se, prelu, two layers": dict(activation_fn="prelu", hidden_layer=2, max_steps=50),
    "real, acrobot": dict(kind="real", name="Acrobot-v1", max_steps=90),
    "real, acrobot, frame skip": dict(kind="real", name="Acrobot-v1", max_steps=91, same_action_num=2),
    "se, acrobot": dict(name="Acrobot-v1", activation_fn="leakyrelu", max_steps=60),
    "real, mountain car": dict(kind="real", name="MountainCar-v0", max_steps=40),
    "rn, mountain car": dict(kind="rn", name="MountainCar-v0", max_steps=40, env={"reward_env_type": 2}),
    **{f"rn {t}": dict(kind="rn", env={"reward_env_type": t}) for t in (0, 1, 2, 5, 6)},
    "rn 2, tested, frame skip": dict(kind="rn", env={"reward_env_type": 2}, test_each=True, same_action_num=3,
                                     max_steps=20, early_out_num=2, solved_reward=15.0),
    "real, mixed": dict(kind="real", values=MIXED, activation_fn="relu"),
    "se, mixed": dict(max_steps=40, values=MIXED, rb_size=64),
}  # fmt: skip


FAST = ("se, settles", "se, tested", "real, leakyrelu, two layers", "real, replay wraps", "real, time limit", "rn 5",
        "se, prelu, two layers", "real, acrobot, frame skip", "rn 2, tested, frame skip", "real, mixed")  # fmt: skip


@pytest.mark.parametrize("case", some_slow(CASES, FAST))
def test_equals_the_compiled_twin(case):
    setup = Setup(**CASES[case])
    ours, twin = setup.torch(), setup.compiled()
    same_run(ours, twin)
    assert (ours.updates > 0).all() and (ours.status == OK).all()


@pytest.mark.parametrize("case", ["se, settles", "se, tested", "real, solved", "rn 2, tested, frame skip"])
def test_the_cases_above_do_stop_early(case):
    result, setup = Setup(**CASES[case]).compiled(), Setup(**CASES[case]).hyper
    budget = np.where(setup["train_steps"] > 0, setup["train_steps"], 10**9)
    assert ((result.train_steps < budget) & (result.episodes < setup.section.train_episodes)).any()


# ----------------------------------------------------------------------------------------------------- the gradient


def reference_gradient(shape, flat, target, batch, gamma, weight):
    """One member, float64, torch's own tanh, layer by layer."""

    def q(p, x):
        layers = shape.layer_offsets()
        for i, (o, k, m) in enumerate(layers):
            x = x @ p[o : o + k * m].view(k, m) + p[o + k * m : o + k * m + m]
            if i < len(layers) - 1:
                x = {
                    "tanh": torch.tanh,
                    "relu": torch.relu,
                    "identity": lambda z: z,
                    "leakyrelu": torch.nn.LeakyReLU(),
                    "prelu": lambda z: torch.where(z > 0, z, p[-1] * z),
                }[shape.activation](x)
        return x

    flat, target, batch, gamma, weight = (t.double() for t in (flat, target, batch, gamma, weight))
    p, F = flat.requires_grad_(), shape.inputs
    s, s2, a, r, d = batch[:, :F], batch[:, F : 2 * F], batch[:, 2 * F].long()[:, None], batch[:, -2], batch[:, -1]
    with torch.no_grad():
        y = r + gamma * (1 - d) * q(target, s2).gather(1, q(p, s2).argmax(1, keepdim=True))[:, 0]
    loss = (weight * (q(p, s).gather(1, a)[:, 0] - y) ** 2).sum()
    return torch.autograd.grad(loss, p)[0]


@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_gradient_against_float64(activation, layers):
    P, B, generator = 3, 199, torch.Generator().manual_seed(0)
    shape = MLPShape(4, 2, 57, layers, activation)
    params = init_flat(shape, torch.arange(P) + 5)
    target = init_flat(shape, torch.arange(P) + 50)
    batch = torch.randn(P, 11, B, generator=generator)
    batch[:, 8] = torch.randint(2, (P, B), generator=generator).float()
    batch[:, 10] = torch.randint(2, (P, B), generator=generator).float()
    gamma, weight = torch.tensor([[0.9], [0.99], [1.0]]), torch.full((P, B), 1 / B)
    hyper = draw(DDQNSection(hidden_size=57, hidden_layer=layers, activation_fn=activation), np.arange(P))
    algorithm = DDQN(make_task("CartPole-v0"), hyper, (shape,), params, torch.full((P,), 57))
    algorithm.rows.target, algorithm.rows.gamma = target, gamma
    ours = algorithm.gradient(batch, weight)
    for i in range(P):
        wanted = reference_gradient(shape, params[i], target[i], batch[i].T, gamma[i], weight[i])
        assert (ours[i] - wanted).norm() / wanted.norm() < 1e-6


def test_adam_equals_torchs():
    generator = torch.Generator().manual_seed(0)
    params, lr, first = torch.randn(3, 20, generator=generator), torch.tensor([1e-3, 1e-2, 1.0]).double(), [0, 5, 2]
    ours, m, v, update = params.clone(), torch.zeros(3, 20), torch.zeros(3, 20), torch.zeros(3, dtype=torch.int64)
    theirs = [row.clone().requires_grad_() for row in params]
    optimisers = [torch.optim.Adam([row], lr=float(rate)) for row, rate in zip(theirs, lr)]
    for step in range(12):  # members begin at different steps: their gradient is 0 before
        grad = torch.randn(3, 20, generator=generator) * torch.tensor([[step >= f] for f in first])
        update += torch.tensor([step >= f for f in first])
        population.adam(ours, grad, m, v, update.clamp(min=1), lr)
        for row, optimiser, g, f in zip(theirs, optimisers, grad, first):
            if step >= f:
                row.grad = g.clone()
                optimiser.step()
    torch.testing.assert_close(ours, torch.stack(theirs).detach(), rtol=1e-5, atol=1e-6)


def test_prelu_learns_its_slope():
    setup = Setup(activation_fn="prelu", values={"hidden_size": [16, 7, 16, 3, 9]})
    result = setup.torch()
    slopes = [result.weights[i, 7 * h + 2] for i, h in enumerate(setup.hyper["hidden_size"])]  # behind 4-h-2
    assert all(abs(s - 0.25) > 1e-3 for s in slopes) and len(set(slopes)) == 5


# ------------------------------------------------------------------------------------- one member, other company


@pytest.mark.parametrize("case", some_slow(["real, mixed", "se, mixed", "rn 2, tested, frame skip"], ["se, mixed"]))
def test_alone_and_in_a_batch(case):
    """To rounding: which kernel a matrix product runs on depends on the batch. The compiled twin is exact."""
    setup = Setup(**CASES[case])
    together = setup.torch()
    same_alone(setup, together)


@pytest.mark.parametrize("case", some_slow(["real, no budget", "se, mixed"], ["se, mixed"]))
def test_compaction_changes_nothing_but_rounding(case, monkeypatch):
    setup = Setup(**CASES[case])
    late = setup.torch()
    monkeypatch.setattr(off_policy, "BLOCK", 1)
    same_run(setup.torch(), late)


def test_padding_units_stay_exactly_zero():
    setup = Setup(kind="real", values={"hidden_size": [3, 8, 16, 31, 5]}, hidden_layer=2, train_steps=75)
    check_padding(setup)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_stacking_keeps_the_function(activation):
    shapes = [MLPShape(4, 3, h, 2, activation) for h in (5, 9, 2)]
    flats = torch.zeros(3, max(s.size for s in shapes))
    for i, s in enumerate(shapes):
        flats[i, : s.size] = init_flat(s, torch.tensor([i]))[0]
    agents = [(s,) for s in shapes]
    stacked = population.stack(flats, agents, agents[1])
    assert population.widest(agents) == agents[1]
    assert torch.equal(population.unstack(stacked, agents, agents[1], flats.shape[1]), flats)
    x = torch.randn(3, 4, 6, generator=torch.Generator().manual_seed(0))
    together = forward(shapes[1], stacked, x)
    for i, s in enumerate(shapes):
        torch.testing.assert_close(together[i], forward(s, flats[i : i + 1, : s.size], x[i : i + 1])[0])
    with pytest.raises(ValueError, match="does not fit"):
        population.embedding(agents[1], agents[0])
    with pytest.raises(ValueError, match="more than their hidden units"):
        population.embedding((replace(shapes[0], layers=1),), agents[1])


def test_a_diverging_world_harms_no_other_member():
    setup = Setup(train_steps=75)
    sound = setup.torch()
    setup.worlds[2, 5] = np.nan
    result, twin = setup.torch(), setup.compiled()
    check_third_diverged(result, sound, WORLD_DIVERGED)
    same_run(result, twin)
    assert result.train_steps[2] == 1 and result.updates[2] == 0


def test_a_diverging_agent_harms_no_other_member():
    setup = Setup(kind="real", values={"lr": [1e-3, 1e-3, 1e38, 1e-3, 1e-3]}, train_steps=75)
    result = setup.torch()
    setup.hyper.values["lr"][2] = 1e-3
    check_third_diverged(result, setup.torch(), AGENT_DIVERGED)
    assert np.isnan(result.episode_return[2]).any()


# --------------------------------------------------------------------------------------------- replay and early out


def test_replay_is_a_ring_that_grows(monkeypatch):
    monkeypatch.setattr(replay, "FIRST_ROWS", 2)
    capacity, key = torch.tensor([3, 7, 20]), torch.arange(3)
    memory, rings = replay.Replay(capacity, 1), [[], [], []]
    for d in range(30):
        memory.make_room()
        memory.write(torch.tensor([[100.0 * p + d] for p in range(3)]))
        for p, ring in enumerate(rings):
            ring[d % int(capacity[p]) : d % int(capacity[p]) + 1] = [100.0 * p + d]
        batch = memory.sample(memory.draws(key, torch.full((3,), d - 1), 2, 16)[1])
        for p, ring in enumerate(rings):
            index = rng.integer(key[p], torch.arange(16) + d * 65536, torch.tensor(len(ring)))
            assert batch[p, 0].tolist() == [ring[j] for j in index.tolist()]
        assert memory.rows.shape[1] <= max(2, 2 * (d + 1))
        if d == 24:
            memory.keep(torch.tensor([0, 2]))
            break
    memory.make_room()
    memory.write(torch.tensor([[-1.0], [-2.0]]))
    assert memory.rows[0, 25 % 3, 0] == -1 and memory.rows[1, 25 % 20, 0] == -2


@settings(max_examples=examples(200), deadline=None)
@given(
    rewards=st.lists(st.floats(-100, 100, width=32), min_size=1, max_size=12),
    window=st.integers(1, 5),
    init=st.integers(0, 4),
    least=st.integers(0, 50),
    diff=st.floats(0, 2),
    settles=st.booleans(),
)
def test_early_out_as_in_the_specification(rewards, window, init, least, diff, settles):
    e, steps, solved = len(rewards) - 1, 10 * len(rewards), 20.0
    last, before = rewards[-window:], rewards[max(0, len(rewards) - 2 * window) : max(0, len(rewards) - window)]
    avg, prev = sum(last) / (len(last) + 1e-9), sum(before) / (len(before) + 1e-9)
    if settles:
        change = abs(avg - prev) / (abs(prev) + 1e-9)
        wanted = change < diff and steps >= least and e >= init + window
    else:
        wanted = avg >= solved and e >= init
    logged = torch.tensor([rewards + [float("nan")] * 3])
    section = DDQNSection(
        early_out_num=window, init_episodes=init, early_out_min_steps=least, early_out_virtual_diff=diff
    )
    mean = window_mean(logged, torch.tensor([e + 1]), window)
    assert mean.item() == pytest.approx(avg, rel=1e-9, abs=1e-9)
    close = settles and abs(change - diff) < 1e-6 * (1 + change) or not settles and abs(avg - solved) < 1e-6
    if not close:
        assert early_out(logged, torch.tensor([e]), torch.tensor([steps]), section, settles, solved).item() == wanted


@pytest.mark.slow
def test_both_back_ends_learn_cartpole_alike():
    """20 agents with the paper's hyperparameters: equal in distribution where they no longer are equal bit by bit."""
    setup = Setup(
        kind="real",
        P=20,
        train_steps=0,
        train_episodes=1000,
        init_episodes=10,
        batch_size=128,
        lr=5e-4,
        hidden_size=64,
        hidden_layer=1,
        activation_fn="tanh",
        eps_init=0.9,
        eps_min=0.01,
        eps_decay=0.9,
        tau=0.01,
        gamma=0.98,
        early_out_num=10,
        test_episodes=10,
    )
    ours, twin = setup.torch(), setup.compiled()
    assert 0.6 < np.median(ours.train_steps) / np.median(twin.train_steps) < 1.67
    assert (ours.episodes < 1000).mean() >= 0.9 and (twin.episodes < 1000).mean() >= 0.9
