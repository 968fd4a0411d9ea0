"""TD3 against a float64 agent made of torch's modules and optimisers, and against itself in other company."""

from __future__ import annotations

import copy
import functools

import numpy as np
import pytest
import torch
from torch import nn

from envolve.agents.common.result import AGENT_DIVERGED, OK, WORLD_DIVERGED
from envolve.agents.common.sections import TD3Section
from envolve.agents.off_policy.td3 import TD3
from envolve.core import rng
from envolve.envs.nets.networks import ACTIVATIONS, init_flat
from tests.agents import small
from tests.agents.same import same_alone, same_run
from tests.agents.small import check_padding, check_third_diverged
from tests.examples import some_slow

SMALL = dict(train_steps=150, init_episodes=1, hidden_size=16, batch_size=37, test_episodes=2, policy_delay=2)
ACTIVATION = {"tanh": nn.Tanh, "relu": nn.ReLU, "leakyrelu": nn.LeakyReLU, "prelu": nn.PReLU, "identity": nn.Identity}


class Setup(small.Setup):
    algorithm, section_class, default_task, small = TD3, TD3Section, "Pendulum-v0", SMALL
    max_steps, solved_reward = 40, 1e9

    def random_batch(self, B, generator):
        """Rows s, s', action, reward, done of every member."""
        P, F, A = len(self.keys), self.task.observation_size, self.task.num_actions or self.task.action_size
        batch = torch.randn(P, 2 * F + A + 2, B, generator=generator)
        batch[:, -1] = torch.randint(2, (P, B), generator=generator).float()
        return batch


def module(shape, flat):
    """The net as a torch module, float64."""
    act = ACTIVATION[shape.activation]()
    layers, norm = [], nn.LayerNorm(shape.hidden)
    if shape.norm_slots:
        first = sum(k * m + m for _, k, m in shape.layer_offsets())
        norm.weight.data, norm.bias.data = flat[first : first + 2 * shape.hidden].clone().chunk(2)
    for i, (offset, k, m) in enumerate(shape.layer_offsets()):
        linear = nn.Linear(k, m)
        linear.weight.data = flat[offset : offset + k * m].view(k, m).T.clone()
        linear.bias.data = flat[offset + k * m : offset + k * m + m].clone()
        layers += [linear, norm, act] if shape.norm_slots and 0 < i < shape.layers else [linear, act]
    return nn.Sequential(*layers[:-1]).double()


def flat_of(net):
    """The inverse of ``module``: parameters, or with ``grad`` their gradients, in the flat order."""
    values = [p.data for kind in (nn.Linear, nn.LayerNorm, nn.PReLU) for p in parameters_of(net, kind)]
    return torch.cat([v.T.flatten() if v.dim() == 2 else v for v in values])


def parameters_of(net, kind):
    shared = dict.fromkeys(layer for layer in net if isinstance(layer, kind))  # a shared one counts once
    return [p for layer in shared for p in layer.parameters()]


def grad_of(net):
    """Gradients of the parameters in the flat order."""
    shadow = copy.deepcopy(net)
    for p, q in zip(shadow.parameters(), net.parameters()):
        p.data = q.grad
    return flat_of(shadow)


class Reference:
    """One TD3 agent, float64, as it is usually written."""

    def __init__(self, nets, flat, target, lr, gamma, tau, max_action):
        sizes = [net.size for net in nets]
        self.nets = [module(s, part) for s, part in zip(nets, flat.split(sizes))]
        self.targets = [module(s, part) for s, part in zip(nets, target.split(sizes))]
        self.actor_adam = torch.optim.Adam(self.nets[0].parameters(), lr)
        self.critic_adam = torch.optim.Adam([p for net in self.nets[1:] for p in net.parameters()], lr)
        self.gamma, self.tau, self.max_action = gamma, tau, max_action

    def action(self, net, s, noise):
        return torch.tanh(net(s)) * self.max_action

    def target_action(self, s_next, noise):
        return (self.action(self.targets[0], s_next, None) + noise).clamp(-self.max_action, self.max_action)

    def update(self, batch, noise, actor_noise, actor_turn):
        """batch: [columns, B], rows s, s', action, reward, done; noise: whatever ``target_action`` takes."""
        F = self.nets[0][0].in_features
        s, s_next, a, r, d = batch.double().T.tensor_split([F, 2 * F, len(batch) - 2, len(batch) - 1], dim=1)
        with torch.no_grad():
            x = torch.cat((s_next, self.target_action(s_next, noise)), 1)
            y = r + self.gamma * (1 - d) * torch.stack([critic(x) for critic in self.targets[1:]]).amin(0)
        x = torch.cat((s, a), 1)
        self.critic_adam.zero_grad()
        sum(nn.functional.mse_loss(critic(x), y) for critic in self.nets[1:]).backward()
        self.critic_grad = torch.cat([grad_of(critic) for critic in self.nets[1:]])
        self.critic_adam.step()
        if actor_turn:
            self.actor_adam.zero_grad()
            (-self.nets[1](torch.cat((s, self.action(self.nets[0], s, actor_noise)), 1)).mean()).backward()
            self.actor_grad = grad_of(self.nets[0])
            self.actor_adam.step()
            for net, target in zip(self.nets, self.targets):
                for p, q in zip(net.parameters(), target.parameters()):
                    q.data += self.tau * (p.data - q.data)

    def flat(self):
        return torch.cat([flat_of(net) for net in self.nets]), torch.cat([flat_of(net) for net in self.targets])


def relative_error(ours, wanted):
    return float((ours - wanted).norm() / wanted.norm())


# ----------------------------------------------------------------------------------------------------------- gradients


@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_gradients_against_float64(activation, layers):
    setup = Setup(P=3, activation_fn=activation, hidden_layer=layers, hidden_size=57, values={"gamma": [0.9, 0.99, 1]})
    generator, B = torch.Generator().manual_seed(0), 99
    run, _, nets = setup.learner()
    ours, keys = run.algorithm, torch.arange(3) + 7
    ours.rows.target = torch.cat([init_flat(net, keys + 50 + i) for i, net in enumerate(nets)], 1)
    batch, weight, updates = setup.random_batch(B, generator), torch.full((3, B), 1 / B), torch.tensor([1, 2, 9])
    s, s_next, action, reward, done = ours.split(batch)
    y = reward + ours.rows.gamma * (1 - done) * ours.target_value(s_next, ours.target_action(s_next, keys, updates))
    critics = ours.critics_gradient(s, action, y, weight)
    for i in range(3):
        number = (65536 * updates[i] + torch.arange(B)) * 1
        noise = (0.2 * rng.normal(keys[i], number)).clamp(-0.5, 0.5).double()[:, None]
        reference = Reference(nets, ours.rows.params[i], ours.rows.target[i], 0.0, ours.rows.gamma[i].double(), 0, 2.0)
        reference.update(batch[i], noise, None, True)
        assert relative_error(critics[i], reference.critic_grad) < 2e-6
        actor = ours.actor_gradient(s, weight, keys, updates)
        assert relative_error(actor[i], reference.actor_grad) < 2e-6


@pytest.mark.parametrize(("delay", "twin"), [(1, True), (2, True), (3, True), (1, False)])
def test_updates_equal_a_plain_agents(delay, twin):
    """Both Adams, their counts, the delay and the targets, over ten updates; the second member begins at the fourth."""
    tau = [0.02, 0.1]
    values = {"lr": [1e-3, 3e-3], "tau": tau, "gamma": [0.9, 0.99], "policy_std_clip": [0.5, 0.1]}
    setup = Setup(P=2, values=values, policy_delay=delay, twin=twin)
    generator, B = torch.Generator().manual_seed(0), 32
    run, _, nets = setup.learner()
    ours, keys = run.algorithm, torch.arange(2) + 7
    plain = [
        Reference(nets, *[ours.rows.params[i]] * 2, values["lr"][i], values["gamma"][i], tau[i], 2.0) for i in range(2)
    ]
    updates = torch.zeros(2, dtype=torch.int64)
    for decision in range(10):
        learns = torch.tensor([True, decision >= 3])
        updates += learns
        batch, weight = setup.random_batch(B, generator), learns[:, None] / torch.full((2, B), B)
        actor = decision % ours.policy_delay == 0
        ours.update(batch, weight, learns, updates.clamp(min=1), keys, actor)
        for i in range(2):
            if learns[i]:
                noise = 0.2 * rng.normal(keys[i], 65536 * updates[i] + torch.arange(B))
                noise = noise.clamp(-values["policy_std_clip"][i], values["policy_std_clip"][i]).double()[:, None]
                plain[i].update(batch[i], noise, None, actor)
    for i in range(2):
        for mine, wanted in zip((ours.rows.params[i], ours.rows.target[i]), plain[i].flat()):
            np.testing.assert_allclose(mine, wanted, rtol=0, atol=2e-5)
    assert ours.rows.actor_updates.tolist() == [
        len(range(0, 10, delay)),
        len([d for d in range(3, 10) if not d % delay]),
    ]


# -------------------------------------------------------------------------------------------------------------- acting


def test_uniform_actions_at_first_then_the_actors_with_noise():
    setup = Setup(P=3, train_steps=100, init_episodes=1, max_steps=60, values={"action_std": [0.1, 0.5, 0.0]}, lr=1e-12)
    run, _, nets = setup.learner()
    params = run.algorithm.rows.params.clone()
    run.train()
    obs, action = run.memory.rows[:, :100, :3], run.memory.rows[:, :100, 6]
    key, decision = rng.fold(torch.as_tensor(setup.keys), rng.EXPLORE)[:, None], torch.arange(100)
    torch.testing.assert_close(action[:, :60], (2 * rng.uniform(key, 2 * decision[:60]) - 1) * 2)
    for i, std in enumerate(setup.hyper["action_std"]):
        actor = module(nets[0], params[i, : nets[0].size])
        wanted = 2 * torch.tanh(actor(obs[i].double()))[:, 0] + 2 * std * rng.normal(key[i], 2 * decision + 1)
        torch.testing.assert_close(action[i, 60:], wanted[60:].clamp(-2, 2).float(), rtol=0, atol=1e-5)


def test_tests_are_greedy_unless_asked_otherwise():
    greedy, noisy = Setup(train_steps=75), Setup(train_steps=75, test_noise=True)
    a, b = greedy.torch(), noisy.torch()
    np.testing.assert_array_equal(a.episode_return, b.episode_return)  # training is the same
    assert (a.test_return != b.test_return).all()
    agent, twin = greedy.learner()[0].algorithm, noisy.learner()[0].algorithm
    generator, key = torch.Generator().manual_seed(0), torch.arange(5)
    obs, counter = torch.randn(5, 3, 3, generator=generator), torch.randint(999, (5, 3), generator=generator)
    assert torch.equal(agent.test_action(obs, key, counter), agent.greedy(obs))
    wanted = agent.greedy(obs) + 0.1 * 2 * rng.normal(key[:, None], counter)[..., None]
    torch.testing.assert_close(twin.test_action(obs, key, counter), wanted.clamp(-2, 2))


# -------------------------------------------------------------------------------------------- one member, other company

MIXED = dict(
    hidden_size=[3, 8, 16, 31, 5],
    hidden_layer=[0, 1, 2, 1, 2],
    batch_size=[3, 70, 1, 37, 40],
    train_steps=[70, 110, 50, 90, 80],
    gamma=[0.9, 0.99, 0.8, 0.98, 1.0],
    tau=[0.01, 0.1, 1.0, 0.0, 0.02],
    lr=[1e-3, 1e-4, 3e-3, 1e-3, 3e-3],
    policy_std=[0.1, 0.2, 0.0, 1.0, 0.2],
    action_std=[0.0, 0.1, 1.0, 0.3, 0.1],
)
BANDIT = dict(kind="se", env={"contextual_bandit": True}, train_episodes=400, early_out_min_steps=400)
CASES = {
    "real": dict(),
    "real, mixed": dict(values=MIXED, activation_fn="tanh"),
    "real, tested, noise": dict(test_each=True, max_steps=20, test_noise=True, policy_delay=1),
    "real, car": dict(name="MountainCarContinuous-v0", same_action_num=2, activation_fn="leakyrelu"),
    "se": dict(kind="se", env={"hidden_layer": 2}, values=MIXED),
    "rn 2": dict(kind="rn", env={"reward_env_type": 2}, same_action_num=3, policy_delay=3),
    "real, time limit": dict(max_steps=20, bootstrap_time_limit=False, policy_delay=1),
    "real, replay wraps": dict(rb_size=50),
    "prelu": dict(activation_fn="prelu"),
    "one critic": dict(twin=False, policy_std=0.0, policy_delay=1),
    "bandit": dict(twin=False, **BANDIT),
    "bandit, two critics": BANDIT,
}


@functools.lru_cache(maxsize=None)
def in_a_batch(case):
    """The members of a case on the PyTorch path, trained once for all tests."""
    setup = Setup(**CASES[case])
    return setup, setup.torch()


FAST = ("real, mixed", "rn 2", "real, replay wraps", "one critic", "bandit")


@pytest.mark.parametrize("case", some_slow(CASES, FAST))
def test_equals_the_compiled_twin(case):
    setup, together = in_a_batch(case)
    same_run(together, setup.compiled(), tolerance=5e-5)


@pytest.mark.parametrize("case", some_slow(CASES, fast=("se",)))
def test_alone_and_in_a_batch(case):
    setup, together = in_a_batch(case)
    assert (together.status == OK).all() and (together.updates > 0).all()
    same_alone(setup, together, tolerance=2e-4)


def test_in_a_bandit_the_actor_needs_no_second_critic():
    with_it, without = Setup(**BANDIT), Setup(twin=False, **BANDIT)
    results = with_it.compiled(), without.compiled()
    actor = with_it.learner()[1][0][0].size
    np.testing.assert_array_equal(results[0].weights[:, :actor], results[1].weights[:, :actor])
    assert results[1].weights.shape[1] < results[0].weights.shape[1]
    np.testing.assert_array_equal(results[0].test_return, results[1].test_return)


def test_padding_units_stay_exactly_zero():
    setup = Setup(values={"hidden_size": [3, 8, 16, 31, 5]}, activation_fn="tanh", train_steps=75)
    check_padding(setup)


def test_a_diverging_agent_harms_no_other_member():
    setup = Setup(values={"lr": [1e-3, 1e-3, 1e38, 1e-3, 1e-3]}, train_steps=75)
    sick = setup.torch()
    setup.hyper.values["lr"][2] = 1e-3
    check_third_diverged(sick, setup.torch(), AGENT_DIVERGED)


def test_a_diverging_world_harms_no_other_member():
    setup = Setup(kind="se", train_steps=75)
    sound = setup.torch()
    setup.worlds[2, 5] = np.nan
    check_third_diverged(setup.torch(), sound, WORLD_DIVERGED)
