"""Discrete TD3 against a float64 agent made of torch's modules and optimisers, and against itself in other company."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import torch

from envolve.agents.common.result import AGENT_DIVERGED, OK, WORLD_DIVERGED
from envolve.agents.common.sections import TD3DiscreteSection
from envolve.agents.off_policy.td3_discrete import TD3Discrete
from envolve.core import rng
from envolve.envs.nets.networks import init_flat
from tests.agents.off_policy import test_td3
from tests.agents.off_policy.test_td3 import MIXED, SMALL, module, relative_error
from tests.agents.same import same_alone, same_run
from tests.agents.small import check_padding, check_third_diverged
from tests.examples import some_slow


class Setup(test_td3.Setup):
    algorithm, section_class, default_task = TD3Discrete, TD3DiscreteSection, "CartPole-v0"
    small = {**SMALL, "lr": 1e-3, "gumbel_softmax_temp": 1.5, "anneal_updates": 400, "use_layer_norm": False}


class Reference(test_td3.Reference):
    """With straight-through samples written as y_hard - y.detach() + y."""

    def __init__(self, *arguments, hard, temperature):
        super().__init__(*arguments)
        self.hard, self.temperature = hard, temperature

    def action(self, net, s, gumbel):
        y = torch.softmax((net(s) + gumbel) / self.temperature, dim=1)
        one_hot = torch.nn.functional.one_hot(y.argmax(1), y.shape[1])
        return one_hot - y.detach() + y if self.hard else y

    def target_action(self, s_next, noise):
        gumbel, normal = noise
        return self.action(self.targets[0], s_next, gumbel) + normal


def noises(key, update, B, A, std, clip):
    """The documented random numbers of an update, float64 [B, A]: Gumbel and clipped noise of the target, Gumbel."""
    counter = (65536 * update + torch.arange(B)[:, None]) * 3 * A + torch.arange(A)
    normal = (std * rng.normal(key, counter + A)).clamp(-clip, clip)
    return rng.gumbel(key, counter).double(), normal.double(), rng.gumbel(key, counter + 2 * A).double()


def temperature(learned, first=1.5, anneal=400):
    return first + (first / 20 - first) * min(learned / anneal, 1)


@pytest.mark.parametrize("options", [{}, {"use_layer_norm": True, "hidden_layer": 3, "activation_fn": "prelu"}])
@pytest.mark.parametrize("learned", [0, 200, 900])
@pytest.mark.parametrize("hard", [False, True])
@pytest.mark.parametrize("task", ["CartPole-v0", "Acrobot-v1"])
def test_gradients_against_float64(task, hard, learned, options):
    options = {"activation_fn": "tanh", "hidden_size": 57, **options}
    setup = Setup(P=3, name=task, gumbel_softmax_hard=hard, **options)
    generator, B = torch.Generator().manual_seed(0), 99
    run, _, nets = setup.learner()
    ours, keys = run.algorithm, torch.arange(3) + 7
    ours.rows.target = torch.cat([init_flat(net, keys + 50 + i) for i, net in enumerate(nets)], 1)
    ours.rows.learned += learned
    batch, weight, updates = setup.random_batch(B, generator), torch.full((3, B), 1 / B), torch.tensor([1, 2, 9])
    s, s_next, action, reward, done = ours.split(batch)
    y = reward + ours.rows.gamma * (1 - done) * ours.target_value(s_next, ours.target_action(s_next, keys, updates))
    critics, actor = ours.critics_gradient(s, action, y, weight), ours.actor_gradient(s, weight, keys, updates)
    for i in range(3):
        gumbel, normal, own = noises(keys[i], updates[i], B, setup.task.num_actions, 0.2, 0.5)
        reference = Reference(
            nets,
            ours.rows.params[i],
            ours.rows.target[i],
            0.0,
            0.99,
            0,
            1.0,
            hard=hard,
            temperature=temperature(learned),
        )
        reference.update(batch[i], (gumbel, normal), own, True)
        assert relative_error(critics[i], reference.critic_grad) < 2e-6
        assert relative_error(actor[i], reference.actor_grad) < 1e-5


@pytest.mark.parametrize("hard, norm", [(False, False), (True, False), (False, True)])
def test_updates_equal_a_plain_agents(hard, norm):
    setup = Setup(
        P=2,
        gumbel_softmax_hard=hard,
        use_layer_norm=norm,
        values={"policy_std": [0.2, 1.0], "policy_std_clip": [0.5, 0.7]},
    )
    generator, B = torch.Generator().manual_seed(0), 32
    run, _, nets = setup.learner()
    ours, keys, all_learn = run.algorithm, torch.arange(2) + 7, torch.ones(2, dtype=torch.bool)
    plain = [
        Reference(nets, *[ours.rows.params[i]] * 2, 1e-3, 0.99, 0.01, 1.0, hard=hard, temperature=1) for i in range(2)
    ]
    for decision in range(10):
        batch, weight, actor = setup.random_batch(B, generator), torch.full((2, B), 1 / B), decision % 2 == 0
        update = torch.full((2,), decision + 1)
        ours.update(batch, weight, all_learn, update, keys, actor)
        for i, agent in enumerate(plain):
            std, clip = setup.hyper["policy_std"][i], setup.hyper["policy_std_clip"][i]
            gumbel, normal, own = noises(keys[i], update[i], B, 2, std, clip)
            agent.temperature = temperature(decision)
            agent.update(batch[i], (gumbel, normal), own, actor)
    for i in range(2):
        for mine, wanted in zip((ours.rows.params[i], ours.rows.target[i]), plain[i].flat()):
            np.testing.assert_allclose(mine, wanted, rtol=0, atol=2e-5)
    assert ours.rows.learned.tolist() == [10, 10] and ours.rows.actor_updates.tolist() == [5, 5]


# -------------------------------------------------------------------------------------------------------------- acting


@pytest.mark.parametrize("hard", [False, True])
def test_random_one_hot_at_first_then_samples_with_noise(hard):
    setup = Setup(P=3, max_steps=20, lr=1e-12, train_steps=90, gumbel_softmax_hard=hard)
    run, _, nets = setup.learner()
    params = run.algorithm.rows.params.clone()
    run.train()
    assert run.memory.rows.shape[2] == 2 * 4 + 2 + 2
    obs, stored = run.memory.rows[:, :90, :4], run.memory.rows[:, :90, 8:10]
    key, decision = rng.fold(torch.as_tensor(setup.keys), rng.EXPLORE), torch.arange(90)
    for i in range(3):
        first = int(run.length[i, 0])  # the length of the one random episode
        index = rng.integer(key[i], 5 * decision[:first] + 4, torch.tensor(2))
        assert torch.equal(stored[i, :first], torch.nn.functional.one_hot(index, 2).float())
        counter = 5 * decision[first:, None] + torch.arange(2)
        t = torch.tensor([temperature(d) for d in range(90 - first)], dtype=torch.float64)[:, None]
        logits = module(nets[0], params[i, : nets[0].size])(obs[i, first:].double())
        wanted = torch.softmax((logits + rng.gumbel(key[i], counter)) / t, 1)
        if hard:
            wanted = torch.nn.functional.one_hot(wanted.argmax(1), 2)
        wanted = (wanted + 0.1 * rng.normal(key[i], counter + 2)).float()
        torch.testing.assert_close(stored[i, first:], wanted, rtol=0, atol=1e-5)


def test_the_world_gets_the_largest_entry():
    agent = Setup().learner()[0].algorithm
    generator, obs = torch.Generator().manual_seed(0), torch.randn(5, 1, 4)
    draw = (
        torch.randn(5, 2, generator=generator),
        torch.randn(5, 2, generator=generator),
        torch.tensor([0, 1] * 2 + [1]),
    )
    action, stored = agent.explore(obs, torch.tensor([0, 0, 0, 5, 5]), draw)
    assert torch.equal(action[:, 0], stored.argmax(1)) and action[:3, 0].tolist() == [0, 1, 0]


def test_tests_are_greedy_unless_asked_otherwise():
    greedy, noisy = Setup(train_steps=75), Setup(train_steps=75, test_noise=True)
    a, b = greedy.torch(), noisy.torch()
    np.testing.assert_array_equal(a.episode_return, b.episode_return)  # training is the same
    assert (a.test_return != b.test_return).any()
    run, _, nets = noisy.learner()
    agent, generator, key = run.algorithm, torch.Generator().manual_seed(0), torch.arange(5)
    agent.rows.learned += 40
    obs, counter = torch.randn(5, 9, 4, generator=generator), torch.randint(999, (5, 9), generator=generator)
    action, best = agent.test_action(obs, key, counter), greedy.learner()[0].algorithm.test_action(obs, key, counter)
    for i in range(5):
        logits = module(nets[0], agent.rows.params[i, : nets[0].size])(obs[i].double())
        number = 4 * counter[i, :, None] + torch.arange(2)
        soft = torch.softmax((logits + rng.gumbel(key[i], number)) / temperature(40), 1)
        assert torch.equal(action[i], (soft + 0.1 * rng.normal(key[i], number + 2)).argmax(1))
        assert torch.equal(best[i], logits.argmax(1))


def test_the_final_test_knows_the_last_temperature():
    run, *_ = Setup(train_steps=60, init_episodes=0).learner()
    run.train()
    assert run.final.rows.learned.tolist() == run.updates.tolist() == [60] * 5


# -------------------------------------------------------------------------------------------- one member, other company

CASES = {
    "real": dict(max_steps=25),
    "real, mixed": dict(values={**MIXED, "gumbel_softmax_temp": [0.1, 1, 2, 8, 0.5]}, activation_fn="tanh"),
    "hard": dict(gumbel_softmax_hard=True, activation_fn="leakyrelu"),
    "real, acrobot, tested, noise": dict(name="Acrobot-v1", test_each=True, test_noise=True, policy_delay=1),
    "se": dict(kind="se", values=MIXED),
    "rn 2": dict(kind="rn", env={"reward_env_type": 2}, same_action_num=2),
    "layer norm": dict(use_layer_norm=True, values={"hidden_size": [3, 8, 16, 31, 5], "hidden_layer": [1, 2, 2, 3, 2]}),
    "se, hard, test noise": dict(kind="se", gumbel_softmax_hard=True, test_noise=True, policy_delay=3),
}


@functools.lru_cache(maxsize=None)
def in_a_batch(case):
    """The members of a case on the PyTorch path, trained once for all tests."""
    setup = Setup(**CASES[case])
    return setup, setup.torch()


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_equals_the_compiled_twin(case):
    setup, together = in_a_batch(case)
    same_run(together, setup.compiled(), tolerance=1e-4)


@pytest.mark.parametrize("case", some_slow(CASES, fast=("se",)))
def test_alone_and_in_a_batch(case):
    setup, together = in_a_batch(case)
    assert (together.status == OK).all() and (together.updates > 0).all()
    same_alone(setup, together, tolerance=2e-4)


@pytest.mark.parametrize("norm", [False, True])
def test_padding_units_stay_exactly_zero(norm):
    values = {"hidden_size": [3, 8, 16, 31, 5]}
    setup = Setup(values=values, train_steps=75, activation_fn="tanh", use_layer_norm=norm)
    check_padding(setup)


@pytest.mark.parametrize("what", ["world", "agent"])
def test_a_diverging_member_harms_no_other(what):
    values = {"lr": [1e-3, 1e-3, 1e38 if what == "agent" else 1e-3, 1e-3, 1e-3]}
    setup, sound = Setup(kind="se", train_steps=75, values=values), Setup(kind="se", train_steps=75)
    if what == "world":
        setup.worlds[2, 5] = np.nan
    check_third_diverged(setup.torch(), sound.torch(), WORLD_DIVERGED if what == "world" else AGENT_DIVERGED)
