"""SAC against its compiled twin, float64 autograd and torch.distributions, in other company, and within its bounds."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest
import torch
from torch.distributions import AffineTransform, Independent, Normal, TanhTransform, TransformedDistribution

from envolve.agents.common import population
from envolve.agents.common.hyper import draw
from envolve.agents.common.result import AGENT_DIVERGED, OK, WORLD_DIVERGED
from envolve.agents.common.sections import SACSection, VarySection
from envolve.agents.kernels.off_policy import sac as kernel
from envolve.agents.kernels.off_policy.training import Batch
from envolve.agents.off_policy.algorithm import AgentRows
from envolve.agents.off_policy.sac import SAC
from envolve.agents.train import train
from envolve.core import rng
from envolve.envs.nets.networks import ACTIVATIONS
from envolve.envs.section import EnvSection
from envolve.envs.task import Task, make_task
from tests.agents import small
from tests.agents.same import assert_same_bytes, same_alone, same_run
from tests.agents.small import check_padding, check_third_diverged
from tests.examples import some_slow

SMALL = dict(
    train_steps=150,
    init_episodes=1,
    hidden_size=16,
    hidden_layer=1,
    activation_fn="tanh",
    batch_size=37,
    test_episodes=3,
    lr=1e-3,
    rb_size=10_000,
)
SHORT = 60  # training steps, 40 updates: where one update that is wrong is enough to fail


class PointMass(Task):
    """A point is pushed in the plane; its way costs the square of the distance, and leaving to the right ends it."""

    name = "PointMass"
    observation_size = 4
    action_size = 2
    max_action = 1.5
    reset_uniforms = 2
    default_max_steps = 20
    default_solved_reward = -0.1

    def reset(self, u):
        x = 2 * u.double() - 1
        return torch.cat((x, torch.zeros_like(x)), dim=-1)

    def observe(self, state):
        return state.float()

    def step(self, state, action):
        x, v = state.chunk(2, dim=-1)
        v = 0.5 * v + 0.2 * action.clamp(-self.max_action, self.max_action)
        x = x + v
        return torch.cat((x, v), dim=-1), -x.square().sum(-1).float(), x[..., 0] > 1.5


class Setup(small.Setup):
    algorithm, section_class, small = SAC, SACSection, SMALL

    def make_task(self, name, max_steps, solved_reward):
        return make_task(name, max_steps=40) if name else PointMass()


MIXED = dict(
    hidden_size=[3, 8, 16, 31, 5],
    hidden_layer=[0, 1, 2, 1, 2],
    batch_size=[3, 70, 1, 37, 40],
    train_steps=[60, 120, 50, 100, 150],
    gamma=[0.9, 0.99, 0.8, 0.98, 1.0],
    tau=[0.01, 0.1, 1.0, 0.0, 0.02],
    alpha=[0.1, 1.0, 0.5, 0.2, 0.01],
    lr=[1e-3, 1e-4, 3e-3, 1e-3, 5e-3],
)


# -------------------------------------------------------------------------------------------------- the compiled twin

BANDIT = dict(kind="se", env={"contextual_bandit": True}, train_episodes=400, early_out_min_steps=400)
TWINS = {
    "real": dict(),
    "real, mixed, leakyrelu": dict(values=MIXED, activation_fn="leakyrelu"),
    "real, relu, two layers": dict(activation_fn="relu", hidden_layer=2),
    "real, prelu, two layers": dict(activation_fn="prelu", hidden_layer=2),
    "real, replay wraps, frame skip": dict(rb_size=50, same_action_num=2),
    "real, temperature fixed": dict(automatic_entropy_tuning=False, log_std_max=-0.1, log_std_min=-0.2),
    "real, time limit": dict(bootstrap_time_limit=False),
    "real, linear policy": dict(linear_policy=True, hidden_layer=2, activation_fn="prelu"),
    "se": dict(kind="se"),
    "bandit": BANDIT,
    "rn, tested": dict(kind="rn", env={"reward_env_type": 2}, test_each=True),
    "mountain car": dict(name="MountainCarContinuous-v0"),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", TWINS)
def test_equals_the_compiled_twin(case):
    """Some hundred updates; far longer runs part, as every chaotic iteration does."""
    setup = Setup(**{"name": "Pendulum-v0", **TWINS[case]})
    ours, twin = setup.torch(), setup.compiled()
    same_run(ours, twin, tolerance=1e-4)
    assert (ours.updates > 0).all() and (ours.status == OK).all()


@pytest.mark.slow
@pytest.mark.parametrize("values", [{}, dict(alpha=[0.9], tau=[0.3], gamma=[0.8])])
def test_updates_equal_the_compiled_twins(values):
    """Of two actions; parameters, targets, temperature and both their moments."""
    B, F, key = 37, 4, np.array([-5])
    setup = Setup(P=1, values=values, hidden_layer=2, log_std_max=0.05, log_std_min=-0.1)
    agent = setup.learner()[0].algorithm
    rows, n = agent.rows, agent.nets[0].size
    twin = kernel.SAC.create(setup.task, setup.hyper.member(0), rows.params[0].numpy().copy())
    batch, weight = Batch.create(F + 2, B), torch.full((1, B), 1 / B)
    for update in range(1, 31):
        given, _, _ = batch_of(agent, B, seed=update)
        agent.update(given, weight, torch.tensor([True]), torch.tensor([update]), torch.as_tensor(key), True)
        s, s_next, action, reward, done = (x[0].numpy() for x in agent.split(given))
        batch.sa[:F, :B], batch.sa[F:, :B], batch.next_sa[:F, :B], batch.reward[:B] = s, action, s_next, reward
        batch.discount[:B] = np.float32(setup.hyper["gamma"][0]) * (1 - done)
        kernel.train_on(twin, batch, key.view(np.uint64)[0], update)
    close = dict(rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(twin.weights.p, rows.params[0], **close)
    np.testing.assert_allclose(twin.weights.m, rows.m[0], **close)
    np.testing.assert_allclose(twin.weights.v, rows.v[0], **close)
    np.testing.assert_allclose(twin.weights.target[n:], rows.target[0, n:], **close)
    own = twin.temperature
    np.testing.assert_allclose([own.p, own.m, own.v], [rows.log_alpha[0], rows.alpha_m[0], rows.alpha_v[0]], **close)


@pytest.mark.slow
def test_the_twin_contains_what_diverges_and_is_the_same_in_any_company():
    setup = Setup(name="Pendulum-v0", values={"lr": [1e-3, 1e-3, 1e38, 1e-3, 1e-3]})
    result = setup.compiled(threads=2)
    assert result.status.tolist() == [OK, OK, AGENT_DIVERGED, OK, OK] and np.isnan(result.test_return[2]).all()
    for i in (0, 1, 3, 4):
        assert_same_bytes(setup.compiled([i]), result, slice(None), [i])


# ------------------------------------------------------------------------------------------- policy and its density


def test_log_probability_against_torch_distributions():
    setup = Setup(P=3, hidden_layer=2)
    agent = setup.learner()[0].algorithm
    agent.rows.params.mul_(2)  # means and deviations that differ
    generator = torch.Generator().manual_seed(0)
    obs, noise = torch.randn(3, 4, 50, generator=generator), torch.randn(3, 2, 50, generator=generator)
    actor = agent.actor(agent.rows.params)
    action, log_prob = agent.sample(actor, obs, noise)
    mean, log_std = (x.double().transpose(1, 2) for x in agent.gaussian(actor, obs))
    u = mean + log_std.exp() * noise.double().transpose(1, 2)
    squashed = Independent(TransformedDistribution(Normal(mean, log_std.exp()), TanhTransform(cache_size=1)), 1)
    scaled = Independent(
        TransformedDistribution(Normal(mean, log_std.exp()), [TanhTransform(cache_size=1), AffineTransform(0, 1.5)]), 1
    )
    torch.testing.assert_close(log_prob.double(), squashed.log_prob(torch.tanh(u)), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(
        log_prob.double() - 2 * np.log(1.5), scaled.log_prob(1.5 * torch.tanh(u)), rtol=1e-4, atol=1e-4
    )
    torch.testing.assert_close(action.double().transpose(1, 2), 1.5 * torch.tanh(u), rtol=1e-5, atol=1e-6)


def test_log_probability_is_finite_where_tanh_is_one_in_float32():
    agent = Setup(P=1, hidden_layer=1).learner()[0].algorithm
    params = agent.rows.params.zero_()
    params[:, agent.nets[0].size - 4 : agent.nets[0].size] = torch.tensor([30.0, -30.0, 0.0, 0.0])  # mean, log std
    action, log_prob = agent.sample(agent.actor(params), torch.zeros(1, 4, 1), torch.zeros(1, 2, 1))
    assert action[0, :, 0].tolist() == [1.5, -1.5]
    # log N(u; u, 1) = -log(2 pi) / 2 and -log(1 - tanh(30)^2) = -log 4 + 60, twice
    assert log_prob.item() == pytest.approx(2 * (60 - np.log(4) - 0.5 * np.log(2 * np.pi)), rel=1e-6)


def test_log_std_is_clamped():
    agent = Setup(P=1, log_std_min=-1.0, log_std_max=0.5).learner()[0].algorithm
    agent.rows.params.zero_()[:, agent.nets[0].size - 2 : agent.nets[0].size] = torch.tensor([-9.0, 9.0])
    _, log_std = agent.gaussian(agent.actor(agent.rows.params), torch.zeros(1, 4, 3))
    assert (log_std[0, 0] == -1.0).all() and (log_std[0, 1] == 0.5).all()


# ------------------------------------------------------------------------------------------------------ the gradient


def mlp(shape, p, x):
    """float64, x [B, K], layer by layer with torch's own activations."""
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


class Reference:
    """The three losses of one member, from the paper, in float64; ``weight`` is the share of each sample."""

    def __init__(self, agent, i, batch, weight, noise, gamma, alpha):
        self.agent, self.alpha, self.gamma, self.weight = agent, alpha, gamma, weight[i].double()
        self.nets, F = agent.nets, 4
        sizes = [net.size for net in self.nets]
        self.parts = [x.clone().requires_grad_() for x in agent.rows.params[i].double().split(sizes)]
        self.targets = agent.rows.target[i].double().split(sizes)
        b = batch[i].double().T
        self.s, self.s_next, self.a, self.r, self.d = b[:, :F], b[:, F : 2 * F], b[:, 2 * F : -2], b[:, -2], b[:, -1]
        self.noise_next, self.noise = (n[i].double().T for n in noise)

    def policy(self, s, noise):
        out = mlp(self.nets[0], self.parts[0], s)
        mean, log_std = out[:, :2], out[:, 2:].clamp(-20, 2)
        u = mean + log_std.exp() * noise
        log_prob = Normal(mean, log_std.exp()).log_prob(u) - (1 - torch.tanh(u) ** 2).log()
        return 1.5 * torch.tanh(u), log_prob.sum(1)

    def q(self, critics, s, a):
        return [mlp(net, p, torch.cat((s, a), 1))[:, 0] for net, p in zip(self.nets[1:], critics)]

    def critic_gradient(self):
        with torch.no_grad():
            a, log_prob = self.policy(self.s_next, self.noise_next)
            q = torch.minimum(*self.q(self.targets[1:], self.s_next, a))
            y = self.r + self.gamma * (1 - self.d) * (q - self.alpha * log_prob)
        loss = sum((self.weight * (q - y) ** 2).sum() for q in self.q(self.parts[1:], self.s, self.a))
        return torch.cat(torch.autograd.grad(loss, self.parts[1:]))

    def actor_gradient(self):
        a, log_prob = self.policy(self.s, self.noise)
        loss = (self.weight * (self.alpha * log_prob - torch.minimum(*self.q(self.parts[1:], self.s, a)))).sum()
        return torch.autograd.grad(loss, self.parts[0])[0]

    def temperature_gradient(self):
        log_alpha = torch.tensor(np.log(self.alpha), dtype=torch.float64, requires_grad=True)
        log_prob = self.policy(self.s, self.noise)[1].detach()
        loss = -(self.weight * log_alpha * (log_prob + -2.0)).sum()  # target entropy -2
        return torch.autograd.grad(loss, log_alpha)[0]


def batch_of(agent, B=65, seed=0):
    """A batch, its weights (the last eight samples are not used), noise."""
    P, generator = len(agent.rows.params), torch.Generator().manual_seed(seed)
    batch = torch.randn(P, 12, B, generator=generator)
    batch[:, 8:10] = 1.5 * torch.tanh(batch[:, 8:10])
    batch[:, 11] = torch.randint(2, (P, B), generator=generator).float()
    weight = (torch.arange(B) < B - 8).float().expand(P, B) / (B - 8)
    return batch, weight, [torch.randn(P, 2, B, generator=generator) for _ in range(2)]


@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_gradients_against_float64(activation, layers):
    check_gradients(activation_fn=activation, hidden_layer=layers)


@pytest.mark.parametrize("activation", ["relu", "prelu"])
def test_gradients_of_a_linear_policy_against_float64(activation):
    check_gradients(activation_fn=activation, hidden_layer=2, linear_policy=True)


def test_a_linear_policy_is_linear_and_its_critics_are_not():
    """f(x) + f(y) = f(x + y) + f(0)."""
    agent = Setup(linear_policy=True, hidden_layer=2, activation_fn="relu").learner()[0].algorithm
    x, y, action = torch.randn(3, len(agent.rows.params), 4, 9).unbind()
    actor, critics = agent.actor(agent.rows.params), agent.critics(agent.rows.params)
    mean = agent.gaussian(actor, x)[0] + agent.gaussian(actor, y)[0]
    torch.testing.assert_close(mean, agent.gaussian(actor, x + y)[0] + agent.gaussian(actor, 0 * x)[0])
    q, action = agent.q(critics, x, action[:, :2])[0] + agent.q(critics, y, 0 * action[:, :2])[0], action[:, :2]
    assert (q - agent.q(critics, x + y, action)[0] - agent.q(critics, 0 * x, 0 * action)[0]).abs().max() > 1e-3


def check_gradients(**options):
    alphas = [0.2, 1.0, 0.01]
    setup = Setup(
        P=3,
        hidden_size=33,
        **options,
        values={"alpha": alphas, "gamma": [0.9, 0.99, 1.0]},
    )
    agent = setup.learner()[0].algorithm
    agent.rows.target.copy_(agent.rows.params.flip(0))  # a target that differs
    batch, weight, noise = batch_of(agent)
    critics = agent.critic_gradient(batch, weight, noise[0])
    actor, log_prob = agent.actor_gradient(batch[:, :4], weight, noise[1])
    temperature = agent.temperature_gradient(weight, log_prob)
    for i, alpha in enumerate(alphas):
        wanted = Reference(agent, i, batch, weight, noise, setup.hyper["gamma"][i], alpha)
        for ours, theirs in (
            (critics[i], wanted.critic_gradient()),
            (actor[i], wanted.actor_gradient()),
            (temperature[i], wanted.temperature_gradient()),
        ):
            assert (ours - theirs).norm() / theirs.norm() < 3e-6


def test_an_update_is_made_of_these_gradients():
    """Critics, actor by the new critics, temperature, targets: each by torch's own Adam."""
    setup = Setup(P=1, values={"tau": [0.1]}, lr=1e-2)
    agent = setup.learner()[0].algorithm
    noise_key, own, n = torch.tensor([4]), agent.rows.params[0].double(), agent.nets[0].size
    critics, actor, log_alpha = (x.clone().requires_grad_() for x in (own[n:], own[:n], torch.tensor([np.log(0.2)])))
    optimisers = [torch.optim.Adam([x], lr=1e-2) for x in (critics, actor, log_alpha)]
    target = own[n:].clone()
    twin = setup.learner()[0].algorithm  # holds the reference's values

    def reference(*given):
        twin.rows.params[0, :n], twin.rows.params[0, n:] = actor.detach().float(), critics.detach().float()
        twin.rows.target[0, n:] = target.float()
        return Reference(twin, 0, *given, 0.99, log_alpha.exp().item())

    for update in range(1, 6):
        batch, weight, _ = batch_of(agent, seed=update)
        noise = agent.noise(noise_key, torch.tensor([update]), batch.shape[2])
        critics.grad = reference(batch, weight, noise).critic_gradient()
        optimisers[0].step()
        now = reference(batch, weight, noise)
        actor.grad, log_alpha.grad = now.actor_gradient(), now.temperature_gradient().view(1)
        optimisers[1].step()
        optimisers[2].step()
        target.lerp_(critics.detach(), 0.1)
        agent.update(batch, weight, torch.tensor([True]), torch.tensor([update]), noise_key, True)
    r = agent.rows
    torch.testing.assert_close(r.params[0].double(), torch.cat((actor, critics)).detach(), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(r.target[0, n:].double(), target, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(r.log_alpha[0].double(), log_alpha.detach(), rtol=1e-5, atol=1e-6)


def test_members_that_do_not_learn_keep_everything():
    agent = Setup(P=2).learner()[0].algorithm
    before = [getattr(agent.rows, field.name).clone() for field in fields(agent.rows)]
    batch, weight, _ = batch_of(agent)
    learns = torch.tensor([True, False])
    agent.update(batch, weight * learns[:, None], learns, torch.tensor([1, 1]), torch.tensor([5, 6]), True)
    for field, old in zip(fields(agent.rows), before):
        assert torch.equal(getattr(agent.rows, field.name)[1], old[1]), field.name
    assert (agent.rows.params[0] != before[0][0]).all() and agent.rows.log_alpha[0] < np.log(0.2)


@pytest.mark.parametrize("automatic", [True, False])
def test_the_temperature_falls_while_entropy_is_above_its_target(automatic):
    """A fresh policy is nearly uniform: entropy 2 log 2 or less, target -2."""
    run, _, _ = Setup(automatic_entropy_tuning=automatic, train_steps=SHORT).learner()
    alpha = run.algorithm.rows.log_alpha  # of all members: none is dropped before the end
    run.train()
    assert (alpha < np.log(0.2) - 0.01).all() if automatic else (alpha == np.float32(np.log(0.2))).all()


# ------------------------------------------------------------------------------------------------------------- acting


def test_noise_of_an_update_is_counted():
    agent = Setup(P=2).learner()[0].algorithm
    keys, update = torch.tensor([7, -8]), torch.tensor([1, 300])
    at_next, at_s = agent.noise(keys, update, 5)
    for p, i, j in ((0, 0, 0), (0, 4, 1), (1, 3, 0), (1, 2, 1)):
        counter = (update[p] * 65536 + i) * 4 + j
        assert at_next[p, j, i] == rng.normal(keys[p], counter) and at_s[p, j, i] == rng.normal(keys[p], counter + 2)


def test_explores_uniformly_then_by_the_policy_and_within_bounds():
    agent = Setup(P=1, init_episodes=2).learner()[0].algorithm
    agent.rows.params.mul_(2)
    obs, seen = torch.full((1, 1, 4), 0.3), {}
    draws = agent.draws(torch.tensor([11]), 0, 1000)
    for episode in (0, 1, 2):
        pairs = [agent.explore(obs, torch.tensor([episode]), tuple(d[i] for d in draws)) for i in range(1000)]
        action, stored = torch.cat([a for a, _ in pairs])[:, 0], torch.cat([s for _, s in pairs])
        assert torch.equal(action, stored) and (action.abs() <= 1.5).all()
        seen[episode] = action.double()
    assert torch.equal(seen[0], seen[1])
    assert seen[0].mean(0).abs().max() < 0.1 and (seen[0].std(0) - 1.5 / 3**0.5).abs().max() < 0.05
    assert abs(np.corrcoef(seen[0].T)[0, 1]) < 0.1, "actions are drawn apart"
    mean, log_std = agent.gaussian(agent.actor(agent.rows.params), obs.transpose(1, 2))
    standard = (torch.atanh((seen[2] / 1.5).clamp(-0.9999999, 0.9999999)) - mean[0, :, 0]) / log_std[0, :, 0].exp()
    inside = (seen[2].abs() < 1.4999).all(1)
    wanted = draws[1][:, 0].double()
    torch.testing.assert_close(standard[inside], wanted[inside], rtol=1e-2, atol=1e-2)
    assert inside.float().mean() > 0.8


def test_tests_are_greedy_and_deterministic():
    agent = Setup(P=2).learner()[0].algorithm
    obs = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(0))
    first = agent.test_action(obs, torch.tensor([1, 2]), torch.zeros(2, 3, dtype=torch.int64))
    other = agent.test_action(obs, torch.tensor([3, 4]), torch.ones(2, 3, dtype=torch.int64))
    mean, _ = agent.gaussian(agent.actor(agent.rows.params), obs.transpose(1, 2))
    assert torch.equal(first, other) and first.shape == (2, 3, 2)
    torch.testing.assert_close(first, 1.5 * torch.tanh(mean).transpose(1, 2))


# -------------------------------------------------------------------------------------- one member, other company

CASES = {
    "real, mixed": dict(values=MIXED, activation_fn="relu"),
    "se": dict(kind="se"),
    "rn, tested": dict(kind="rn", env={"reward_env_type": 2}, test_each=True, same_action_num=2, train_steps=SHORT),
}


@pytest.mark.parametrize("case", some_slow(CASES, fast=("rn, tested",)))
def test_alone_and_in_a_batch(case):
    """To rounding: which kernel a matrix product runs on depends on the batch."""
    setup = Setup(**CASES[case])
    together = setup.torch()
    assert (together.updates > 0).all() and (together.status == OK).all()
    same_alone(setup, together, tolerance=1e-4)


def test_padding_units_stay_exactly_zero():
    setup = Setup(values={"hidden_size": [3, 8, 16, 31, 5]}, hidden_layer=2, train_steps=SHORT)
    check_padding(setup)


def test_a_diverging_world_harms_no_other_member():
    setup = Setup(kind="rn", env={"reward_env_type": 2}, train_steps=SHORT)
    sound = setup.torch()
    setup.worlds[2, 5] = np.nan
    check_third_diverged(setup.torch(), sound, WORLD_DIVERGED, rounding=1e-4)


def test_a_diverging_agent_harms_no_other_member():
    setup = Setup(values={"lr": [1e-3, 1e-3, 1e38, 1e-3, 1e-3]}, train_steps=SHORT)
    result = setup.torch()
    setup.hyper.values["lr"][2] = 1e-3
    check_third_diverged(result, setup.torch(), AGENT_DIVERGED, rounding=1e-4)


def test_sac_vary_draws_nets_and_batches_by_member():
    keys, section = np.arange(6), SACSection(**{**SMALL, "train_steps": 40, "hidden_layer": 2})
    task, worlds = PointMass(), torch.zeros(6, 1)
    result = train("sac", section, VarySection(), task, "real", EnvSection(), worlds, keys, backend="torch")
    drawn = draw(section, keys, VarySection())
    sizes = [population.size(nets) for nets in population.nets_of(SAC, task, drawn)]
    assert len(set(sizes)) == 6 and len(set(drawn["hidden_layer"])) > 1 and len(set(drawn["batch_size"])) > 1
    assert (result.status == OK).all() and (result.updates >= 20).all()
    for weights, size in zip(result.weights, sizes):
        assert weights[:size].all() and not weights[size:].any()


def test_rows_hold_the_temperature_behind_what_all_algorithms_have():
    rows = Setup(P=2, values={"alpha": [0.2, 0.5]}).learner()[0].algorithm.rows
    assert [f.name for f in fields(rows)][: len(fields(AgentRows))] == [f.name for f in fields(AgentRows)]
    torch.testing.assert_close(rows.log_alpha.exp()[:, 0], torch.tensor([0.2, 0.5]))
