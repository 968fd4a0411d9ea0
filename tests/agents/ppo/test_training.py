"""The PyTorch PPO against float64 autograd, against written-out loops, and against itself in other company."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from envolve.agents.common import population
from envolve.agents.common.result import AGENT_DIVERGED, OK, WORLD_DIVERGED
from envolve.agents.common.sections import PPOSection
from envolve.agents.kernels.ppo import population as compiled
from envolve.agents.kernels.ppo import stepwise
from envolve.agents.ppo import policy as ppo_policy
from envolve.agents.ppo import training as ppo
from envolve.agents.ppo.policy import Coefficients, Nets
from envolve.agents.ppo.returns import lambda_returns, normalise
from envolve.core import rng
from envolve.envs.nets.networks import ACTIVATIONS, MLPShape, init_flat
from envolve.envs.task import make_task
from tests.agents import small
from tests.agents.same import assert_same_bytes, same_alone, same_run
from tests.examples import examples, some_slow

SMALL = dict(
    train_steps=300,
    train_episodes=60,
    hidden_size=16,
    hidden_layer=1,
    activation_fn="tanh",
    num_envs=3,
    rollout_steps=20,
    ppo_epochs=3,
    minibatches=4,
    test_episodes=3,
    lr=1e-3,
    advantage="gae",
    norm_advantage=True,
)
MONTE_CARLO = dict(advantage="monte_carlo", norm_advantage=False, minibatches=1)


class Setup(small.Setup):
    section_class, small, loops = PPOSection, SMALL, (ppo, compiled)
    algorithm = None

    def own(self):
        return ()

    def stepped(self, rows=slice(None)):
        """As if the task had no compiled twin."""
        return stepwise.train_population(self.job(rows))


MIXED = dict(
    hidden_size=[3, 8, 16, 31, 5],
    hidden_layer=[0, 1, 2, 1, 2],
    train_steps=[100, 200, 50, 150, 250],
    gamma=[0.9, 0.99, 0.8, 0.98, 1.0],
    gae_lambda=[0.9, 0.5, 0.0, 1.0, 0.95],
    lr=[1e-3, 1e-4, 3e-3, 1e-3, 1e-2],
    eps_clip=[0.1, 0.2, 0.3, 0.01, 0.2],
    vf_coef=[0.5, 1.0, 0.0, 0.2, 0.5],
    ent_coef=[0.0, 0.01, 0.1, 0.02, 0.0],
    max_grad_norm=[0.5, 0.1, 1.0, 1e9, 0.5],
)
CASES = {
    "real": dict(),
    "one environment, monte carlo": dict(num_envs=1, rollout_steps=60, **MONTE_CARLO),
    "published": dict(train_steps=0, train_episodes=20, num_envs=1, rollout_steps=0, update_episodes=1.5, ppo_epochs=9,
                      max_steps=30, activation_fn="relu", bootstrap_time_limit=False, **MONTE_CARLO),
    "monte carlo, bootstrapped": dict(max_steps=12, **MONTE_CARLO),
    "cleanrl": dict(clip_value_loss=True, max_grad_norm=0.5, anneal_lr=True, adam_eps=1e-5, orthogonal_init=True,
                    hidden_layer=2),
    "time limit": dict(max_steps=9),
    "time limit is terminal": dict(max_steps=9, bootstrap_time_limit=False),
    "frame skip": dict(same_action_num=3, max_steps=31),
    "solved": dict(train_steps=0, early_out_num=3, solved_reward=22.0),
    "episodes": dict(train_steps=0, train_episodes=11),
    "episodes that fill a rollout": dict(train_steps=0, train_episodes=119, max_steps=1),  # 120 in two rollouts
    "left over": dict(rollout_steps=7, minibatches=4),
    "prelu": dict(activation_fn="prelu", hidden_layer=2, values={"hidden_size": [16, 7, 16, 3, 9]}),
    "acrobot": dict(name="Acrobot-v1", max_steps=40, activation_fn="leakyrelu"),
    "pendulum": dict(name="Pendulum-v0", max_steps=25, solved_reward=1.0, ent_coef=0.02),
    "pendulum, monte carlo": dict(name="Pendulum-v0", max_steps=25, solved_reward=1.0, same_action_num=2,
                                  test_noise=True, **MONTE_CARLO),
    "pendulum, unbounded mean": dict(name="Pendulum-v0", max_steps=25, solved_reward=1.0, squash=False, action_std=1.0),
    "bandit, unbounded mean": dict(kind="se", env={"contextual_bandit": True}, name="Pendulum-v0", squash=False,
                                   train_episodes=400, early_out_min_steps=400),
    "se, continuous car": dict(kind="se", name="MountainCarContinuous-v0", max_steps=25),
    "sampled tests": dict(test_noise=True),
    "se": dict(kind="se", max_steps=31),
    "se, settles": dict(kind="se", max_steps=7, early_out_num=2, early_out_virtual_diff=0.2, train_steps=0),
    "se, tested": dict(kind="se", test_each=True, max_steps=20, solved_reward=12.0, early_out_num=2),
    "se, prelu world": dict(kind="se", max_steps=31, env={"activation_fn": "prelu", "hidden_layer": 2}),
    **{f"rn {t}": dict(kind="rn", env={"reward_env_type": t}) for t in (0, 1, 2, 5, 6)},
    "rn 2, tested": dict(kind="rn", env={"reward_env_type": 2}, test_each=True, same_action_num=2, max_steps=20,
                         early_out_num=2, solved_reward=15.0),
    "mixed": dict(values=MIXED, activation_fn="relu", max_grad_norm=1.0),
    "se, mixed": dict(kind="se", values=MIXED, max_steps=40, max_grad_norm=1.0),
}  # fmt: skip


FAST = ("published", "cleanrl", "time limit", "solved", "left over", "prelu", "acrobot", "pendulum, monte carlo",
        "rn 5", "se, continuous car", "bandit, unbounded mean", "se, tested", "rn 2, tested", "mixed")  # fmt: skip


@pytest.mark.parametrize("case", some_slow(CASES, FAST))
def test_equals_the_compiled_twin(case):
    setup = Setup(**CASES[case])
    ours, twin = setup.torch(), setup.compiled()
    same_run(ours, twin, tolerance=1e-4)
    assert (ours.updates > 0).any() and (ours.status == OK).all()


STEPPED = ("cleanrl", "time limit is terminal", "left over", "pendulum, monte carlo", "se, tested", "mixed")


@pytest.mark.parametrize("case", some_slow(CASES, STEPPED))
def test_equals_the_kernels_whose_worlds_python_steps(case):
    setup = Setup(**CASES[case])
    ours, twin = setup.torch(), setup.stepped()
    same_run(ours, twin, tolerance=1e-4)


@pytest.mark.parametrize("case", ["mixed", "rn 2, tested"])
def test_members_that_python_steps_do_not_notice_each_other(case):
    setup = Setup(**CASES[case])
    together = setup.stepped()
    for i in range(5):
        assert_same_bytes(together, setup.stepped([i]), [i], [0])


@pytest.mark.parametrize("case", ["mixed", "rn 2, tested", "pendulum"])
def test_compiled_alone_and_in_a_batch_on_threads(case):
    setup = Setup(**CASES[case])
    together = setup.compiled(threads=2)
    for i in range(5):
        assert_same_bytes(together, setup.compiled([i]), [i], [0])


def test_which_kernels_a_task_needs(monkeypatch):
    hyper = Setup().hyper
    for task, apart, kernels in (("Cliff", False, "ppo_steps"), ("Cliff", True, "ppo"), ("Pendulum-v0", False, "ppo")):
        with monkeypatch.context() as patch:  # apart: in a bandit, only tests need the task
            patch.setattr(compiled.ahead, "why_not", lambda name: f"no {name}")
            assert compiled.why_not(make_task(task), hyper, apart) == f"no {kernels}"


@pytest.mark.parametrize("case", ["solved", "se, settles", "se, tested", "rn 2, tested", "episodes"])
def test_the_cases_above_do_stop_early(case):
    setup = Setup(**CASES[case])
    result, budget = setup.torch(), setup.hyper["train_steps"]
    assert (result.status == OK).all() and (result.updates > 0).any()
    assert (result.train_steps < np.where(budget > 0, budget, 10**9)).any()
    assert (result.episodes <= setup.hyper.section.train_episodes).all()


# ----------------------------------------------------------------------------------------------------- the gradient


def reference_gradient(nets, params, obs, action, logp, returns, value, eps, vf, ent, section, scale):
    """One member, float64, through torch.distributions and torch's own tanh."""
    p = params.double().requires_grad_()
    std, actor, critic = p.split([nets.std, nets.actor.size, nets.critic.size])

    def net(shape, flat, x):
        layers = shape.layer_offsets()
        for i, (o, k, m) in enumerate(layers):
            x = x @ flat[o : o + k * m].view(k, m) + flat[o + k * m : o + k * m + m]
            if i < len(layers) - 1:
                x = {
                    "tanh": torch.tanh,
                    "relu": torch.relu,
                    "identity": lambda z: z,
                    "leakyrelu": torch.nn.LeakyReLU(),
                    "prelu": lambda z: torch.where(z > 0, z, flat[-1] * z),
                }[shape.activation](x)
        return x

    obs, action, logp, returns, value = (x.double() for x in (obs.T, action.T, logp, returns, value))
    out, v = net(nets.actor, actor, obs), net(nets.critic, critic, obs)[:, 0]
    if nets.std:
        mean = torch.tanh(out) * scale if nets.squash else out
        normal = torch.distributions.Normal(mean, std.clamp(min=1e-3).expand_as(out))
        now, entropy = normal.log_prob(action).sum(1), normal.entropy().sum(1)
    else:
        categorical = torch.distributions.Categorical(logits=out)
        now, entropy = categorical.log_prob(action[:, 0]), categorical.entropy()
    advantage = returns - (v.detach() if section.advantage == "monte_carlo" else value)
    if section.norm_advantage:
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    ratio = (now - logp).exp()
    policy = -torch.min(ratio * advantage, ratio.clamp(1 - eps, 1 + eps) * advantage).mean()
    loss = (v - returns) ** 2
    if section.clip_value_loss:
        loss = torch.max(loss, (value + (v - value).clamp(-eps, eps) - returns) ** 2)
    return torch.autograd.grad(policy + vf * loss.mean() - ent * entropy.mean(), p)[0]


@pytest.mark.parametrize("settings", [dict(), MONTE_CARLO, dict(norm_advantage=False, clip_value_loss=True)])
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("A, std, squash", [(2, 0, True), (3, 0, True), (1, 1, True), (2, 2, True), (2, 2, False)])
def test_gradient_against_float64(A, std, squash, activation, settings):
    L, B, F, generator = 3, 200, 4, torch.Generator().manual_seed(A)
    nets = Nets(std, MLPShape(F, A, 30, 2, activation), MLPShape(F, 1, 20, 1, activation), squash)
    keys = torch.arange(L) + 5
    params = torch.cat(
        (torch.rand(L, std, generator=generator) + 0.2, init_flat(nets.actor, keys), init_flat(nets.critic, keys + 50)),
        1,
    )
    if std:
        params[0, 0] = 1e-4  # below the least standard deviation: no gradient
    obs = torch.randn(L, F, B, generator=generator)
    action = torch.randint(A, (L, 1, B), generator=generator).float()
    if std:
        action = torch.randn(L, std, B, generator=generator)
    out = ppo_policy.forward(nets.actor, params[:, std : std + nets.actor.size], obs)
    if std:
        action[0] = nets.mean(out[0], 1.9) + 1e-3 * action[0]
    # ratios on both sides of the clip, none so close to it that rounding decides
    change = torch.tensor([-0.5, 0.02, 0.5])[torch.randint(3, (L, B), generator=generator)]
    logp = ppo_policy.log_prob(nets, params, out, action, 1.9) + change
    returns, value = torch.randn(L, B, generator=generator), 0.3 * torch.randn(L, B, generator=generator)
    c = Coefficients(*torch.tensor([[[0.1], [0.2], [0.3]], [[0.5], [1.0], [0.0]], [[0.0], [0.01], [0.5]]]))
    section = PPOSection(**{**SMALL, **settings})
    ours = ppo_policy.gradient(nets, params, obs, action, logp, returns, value, c, section, 1.9)
    for i in range(L):
        wanted = reference_gradient(
            nets,
            params[i],
            obs[i],
            action[i],
            logp[i],
            returns[i],
            value[i],
            c.eps_clip[i],
            c.vf_coef[i],
            c.ent_coef[i],
            section,
            1.9,
        )
        # with a standard deviation of 1e-3, float32 leaves four digits of (action - mean) / std
        assert (ours[i] - wanted).norm() / wanted.norm() < (2e-3 if std and i == 0 else 3e-6)


@settings(max_examples=examples(60), deadline=None)
@given(T=st.integers(1, 12), seed=st.integers(0, 1000), gamma=st.floats(0, 1), lam=st.floats(0, 1))
def test_returns_against_a_written_out_sum(T, seed, gamma, lam):
    """A_t = sum_k (gamma lambda)^k delta_{t+k} up to the end of the episode; lambda 1: the sum of rewards."""
    generator = torch.Generator().manual_seed(seed)
    reward, value, after = torch.randn(3, T, 1, 2, generator=generator).unbind()
    over = torch.rand(T, 1, 2, generator=generator) < 0.3
    terminated = over & (torch.rand(T, 1, 2, generator=generator) < 0.5)
    g, lmb = torch.tensor([[gamma]]), torch.tensor([[lam]])
    after[:-1] = torch.where(over[:-1], after[:-1], value[1:])  # the value of the next state, unless an episode began
    ours = lambda_returns(reward, terminated, over, after, g, lmb) - value
    sums = lambda_returns(reward, terminated, over, after, g, torch.ones(1, 1))
    for n in range(2):
        for t in range(T):
            advantage, total = 0.0, 0.0
            for k in range(t, T):
                alive = not terminated[k, 0, n]
                delta = reward[k, 0, n].item() + gamma * alive * after[k, 0, n].item() - value[k, 0, n].item()
                advantage += (gamma * lam) ** (k - t) * delta
                total += gamma ** (k - t) * reward[k, 0, n].item()
                if over[k, 0, n] or k == T - 1:
                    total += gamma ** (k - t + 1) * alive * after[k, 0, n].item()
                    break
            assert ours[t, 0, n].item() == pytest.approx(advantage, rel=1e-4, abs=1e-4)
            assert sums[t, 0, n].item() == pytest.approx(total, rel=1e-4, abs=1e-4)


def test_normalise():
    x = torch.randn(2, 50) * 3 + 1
    torch.testing.assert_close(normalise(x, 0.5)[1], (x[1] - x[1].mean()) / (x[1].std() + 0.5))


# -------------------------------------------------------------------------------------- the policy and its weights


def test_actions_follow_the_policy():
    key, number = torch.arange(2)[:, None, None], torch.arange(40_000)
    nets = Nets(0, MLPShape(1, 3, 1, 1, "tanh"), MLPShape(1, 1, 1, 1, "tanh"))
    params = torch.zeros(2, nets.actor.size + nets.critic.size)
    logits = torch.tensor([[0.0, 1.0, -1.0], [2.0, 0.0, 0.0]])
    params[:, nets.actor.size - 3 : nets.actor.size] = logits
    obs = torch.zeros(2, 40_000, 1)
    action, kept, out = ppo_policy.act(nets, params, obs, ppo_policy.noise(nets, key, number[None]), 1.0)
    share = torch.nn.functional.one_hot(action).float().mean(1)
    torch.testing.assert_close(share, torch.softmax(logits, 1), atol=0.01, rtol=0)
    assert torch.equal(kept[..., 0], action.float()) and torch.equal(out[:, 0], logits)

    nets = Nets(2, MLPShape(1, 2, 1, 1, "tanh"), nets.critic)
    params = torch.zeros(2, 2 + nets.actor.size + nets.critic.size)
    params[:, :2] = torch.tensor([[0.3, 1e-9], [2.0, 0.5]])
    params[:, nets.actor.size : nets.actor.size + 2] = torch.tensor([[0.5, -0.5], [0.0, 1.0]])
    noise = ppo_policy.noise(nets, key, number[None])
    action, kept, out = ppo_policy.act(nets, params, obs, noise, 2.0)
    mean, std = 2 * torch.tanh(torch.tensor([[0.5, -0.5], [0.0, 1.0]])), torch.tensor([[0.3, 1e-3], [2.0, 0.5]])
    torch.testing.assert_close(kept.mean(1), mean, atol=0.03, rtol=0)
    torch.testing.assert_close(kept.std(1), std, atol=1e-4, rtol=0.03)
    assert torch.equal(action, kept.clamp(-2, 2)) and (action != kept).any()
    assert torch.equal(ppo_policy.act(nets, params, obs, 0 * noise, 2.0)[1][:, 0], mean)


def test_orthogonal_initialisation():
    net, keys = MLPShape(4, 3, 20, 2, "tanh"), torch.tensor([1, 2])
    flat = ppo_policy.orthogonal_flat(net, keys, 7, 0.01)
    for (o, k, m), gain in zip(net.layer_offsets(), (2**0.5, 2**0.5, 0.01)):
        w = flat[:, o : o + k * m].view(2, k, m)
        gram = w @ w.transpose(1, 2) if k <= m else w.transpose(1, 2) @ w
        torch.testing.assert_close(gram, gain**2 * torch.eye(min(k, m)).expand_as(gram), atol=1e-6, rtol=0)
        assert not flat[:, o + k * m : o + k * m + m].any() and (w[0] != w[1]).all()
    assert torch.equal(ppo_policy.orthogonal_flat(net, keys[1:], 7, 0.01)[0], flat[1])


def test_initial_weights():
    setup = Setup(values={"action_std": [0.1, 0.2, 0.3, 0.4, 0.5], "hidden_size": [3, 4, 3, 5, 6]})
    setup.task.action_size, setup.task.num_actions = 2, 0
    agents = ppo_policy.networks(setup.task, setup.hyper)
    weights = ppo_policy.initial_weights(setup.task, agents, setup.hyper, setup.keys)
    for i, (actor, critic) in enumerate(agents):
        assert actor.outputs == 2 and critic.outputs == 1 and actor.hidden == setup.hyper["hidden_size"][i]
        assert weights[i, :2] == pytest.approx(setup.hyper["action_std"][i])
        assert np.count_nonzero(weights[i]) == 2 + actor.size + critic.size


# ------------------------------------------------------------------------------------------------- the bookkeeping


def played(setup, i, decisions):
    """Every environment of member i, by a plain loop, with the policy of its initial weights (its learning rate is 0):
    (decision, environment, return, length) of each episode."""
    s, task, key = setup.hyper.section, setup.task, torch.tensor([setup.keys[i]])
    agents = ppo_policy.networks(task, setup.hyper)
    weights = torch.as_tensor(ppo_policy.initial_weights(task, agents, setup.hyper, setup.keys))[i : i + 1]
    nets, reset, explore = Nets(0, *agents[i]), rng.fold(key, rng.RESET), rng.fold(key, rng.EXPLORE)
    N, R, out = s.num_envs, task.reset_uniforms, []
    for n in range(N):
        state, t, total = task.reset(rng.uniform(reset, n * R + torch.arange(R))[None, None]), 0, 0.0
        for d in range(decisions):
            gumbel = rng.gumbel(explore, (d * N + n) * 2 + torch.arange(2))
            action = ppo_policy.act(nets, weights, task.observe(state), gumbel[None, None], 1.0)[0]
            for _ in range(s.same_action_num):
                state, reward, terminated = task.step(state, action)
                t, total = t + 1, total + reward.item()
                if terminated.item() or t == task.max_steps:
                    out.append((d, n, total, t))
                    u = rng.uniform(reset, ((d + 1) * N + n) * R + torch.arange(R))
                    state, t, total = task.reset(u[None, None]), 0, 0.0
                    break
    return sorted(out)


@pytest.mark.parametrize("skip", [1, 3])
def test_episodes_are_numbered_by_time_and_then_by_environment(skip):
    setup = Setup(P=2, train_steps=250, same_action_num=skip, max_steps=12, lr=1e-30)
    result, T = setup.torch(), 20
    for i in range(2):
        decisions = result.updates[i] // (3 * 4) * T  # epochs x minibatches
        wanted = played(setup, i, decisions)
        count = result.episodes[i]
        assert count == len(wanted) > 10 and any(a[0] == b[0] for a, b in zip(wanted, wanted[1:]))
        assert result.episode_return[i, :count].tolist() == [w[2] for w in wanted]
        assert result.episode_length[i, :count].tolist() == [w[3] for w in wanted]
        assert np.isnan(result.episode_return[i, count:]).all() and not result.episode_length[i, count:].any()
        assert 250 <= result.train_steps[i] < 250 + T * 3 * skip
        assert skip > 1 or result.train_steps[i] == decisions * 3


@pytest.mark.parametrize("rule", ["episodes", "solved"])
def test_training_stops_at_an_episode(rule):
    options = {"episodes": dict(train_episodes=11), "solved": dict(early_out_num=4, solved_reward=24.0)}[rule]
    setup = Setup(P=2, train_steps=0, lr=1e-30, **options)
    result = setup.torch()
    for i in range(2):
        wanted = played(setup, i, 300)
        returns = [w[2] for w in wanted]
        stop = 10
        if rule == "solved":
            stop = next(e for e in range(300) if np.mean(returns[max(0, e - 3) : e + 1]) >= 24)
        assert result.episodes[i] == stop + 1
        assert result.episode_return[i, : stop + 1].tolist() == returns[: stop + 1]
        assert result.train_steps[i] == (wanted[stop][0] + 1) * 3
        assert result.updates[i] == wanted[stop][0] // 20 * 12  # the unfinished rollout is not learned from


@pytest.mark.parametrize("loop", ["torch", "compiled", "stepped"])
@pytest.mark.parametrize("episodes, rollouts", [(117, 1), (118, 2), (120, 2), (121, 2)])
def test_a_rollout_that_is_full_when_episodes_run_out_is_learned_from(loop, episodes, rollouts):
    """In each decision three episodes end, so rollouts of twenty decisions are full after 60 and 120."""
    setup = Setup(P=2, train_steps=0, train_episodes=episodes, max_steps=1)
    result = getattr(setup, loop)()
    assert (result.episodes == episodes).all() and not np.isnan(result.episode_return).any()
    assert (result.updates == rollouts * 12).all() and (result.train_steps == -(-episodes // 3) * 3).all()


def test_published_rollout_ends_when_more_than_update_episodes_are_played():
    section = PPOSection(rollout_steps=0, update_episodes=2.5, same_action_num=2)
    length = ppo.rollout_length(section, 100)
    assert length * 2 / 100 > 2.5 >= (length - 1) * 2 / 100


def test_minibatches_are_a_permutation():
    setup = Setup(minibatches=4, rollout_steps=7)  # 21 samples: five each, one is left out
    seen = []

    class Watched(ppo.Epochs):
        def minibatches(self, epoch):
            seen.append(super().minibatches(epoch))
            return seen[-1]

    original, ppo.Epochs = ppo.Epochs, Watched
    try:
        setup.torch()
    finally:
        ppo.Epochs = original
    assert len(seen) == 3 * math.ceil(300 / 21)
    for parts in seen:
        index = torch.stack([part.view(5, 5) for part in parts], 1).view(5, 20) - torch.arange(5)[:, None] * 21
        assert all(len(set(row)) == 20 and 0 <= min(row) and max(row) < 21 for row in index.tolist())
    assert len({str(parts[0].tolist()) for parts in seen}) == len(seen)


@pytest.mark.parametrize("noise", [False, True])
def test_tests_are_greedy_unless_asked(noise):
    """A policy near chance that slightly prefers the better action: greedy it balances longer."""
    setup = Setup(P=3, lr=1e-30, train_steps=1, test_noise=noise, orthogonal_init=True, test_episodes=5)
    result = setup.torch()
    agents = ppo_policy.networks(setup.task, setup.hyper)
    weights = torch.as_tensor(ppo_policy.initial_weights(setup.task, agents, setup.hyper, setup.keys))
    nets, task = Nets(0, *agents[0]), setup.task
    key = rng.fold(torch.as_tensor(setup.keys), rng.FINAL_TEST)
    for i in range(3):
        for j in range(5):
            state, t, over = task.reset(rng.uniform(key[i], 4 * j + torch.arange(4))[None, None]), 0, False
            while not over and t < 200:
                gumbel = rng.gumbel(rng.fold(key[i], rng.EXPLORE), (j * 200 + t) * 2 + torch.arange(2)) * noise
                action = ppo_policy.act(nets, weights[i : i + 1], task.observe(state), gumbel[None, None], 1.0)[0]
                state, _, terminated = task.step(state, action)
                t, over = t + 1, bool(terminated)
            assert result.test_return[i, j] == t


@pytest.mark.parametrize(
    "settings, message",
    [
        (dict(rollout_steps=1, num_envs=2, minibatches=2), "at least 2"),
        (dict(anneal_lr=True, train_steps=0), "must be set"),
    ],
)
def test_settings_that_contradict_each_other(settings, message):
    with pytest.raises(ValueError, match=message):
        Setup(**settings).torch()


# ------------------------------------------------------------------------------------- one member, other company


ALONE = ("mixed", "se, mixed", "rn 2, tested", "cleanrl", "pendulum", "se, continuous car")


@pytest.mark.parametrize("case", some_slow(ALONE, fast=("se, mixed", "rn 2, tested", "se, continuous car")))
def test_alone_and_in_a_batch(case):
    """To rounding: which kernel a matrix product runs on depends on the batch. Learning rates and sizes are its own."""
    setup = Setup(**CASES[case])
    together = setup.torch()
    assert (together.status == OK).all() and (together.updates > 0).sum() >= 4
    same_alone(setup, together, tolerance=1e-4)


def test_padding_units_stay_exactly_zero():
    setup = Setup(values={"hidden_size": [3, 8, 16, 31, 5]}, hidden_layer=2)
    agents = ppo_policy.networks(setup.task, setup.hyper)
    widest = population.widest(agents)
    params = population.stack(
        torch.as_tensor(ppo_policy.initial_weights(setup.task, agents, setup.hyper, setup.keys)), agents, widest
    )
    run = ppo.PPO(setup.job(), Nets(0, *widest), params)
    before = run.params.clone()
    run.train()
    for i, nets in enumerate(agents):
        used = torch.zeros(population.size(widest), dtype=torch.bool)
        used[population.embedding(nets, widest)] = True
        assert (run.params[i, ~used] == 0).all() and (run.params[i, used] != before[i, used]).float().mean() > 0.9


def test_a_diverging_world_harms_no_other_member():
    setup = Setup(**CASES["se"])
    sound = setup.torch()
    setup.worlds[2, 5] = np.nan
    result = setup.torch()
    others = [0, 1, 3, 4]
    assert_same_bytes(result, sound, others, others)
    same_run(result, setup.compiled(), tolerance=1e-4)
    same_run(result, setup.stepped(), tolerance=1e-4)
    assert result.status.tolist() == [OK, OK, WORLD_DIVERGED, OK, OK]
    assert np.isnan(result.test_return[2]).all() and result.train_steps[2] == 3 and result.updates[2] == 0


def test_a_diverging_agent_harms_no_other_member():
    setup = Setup(values={"lr": [1e-3, 1e-3, 1e38, 1e-3, 1e-3]})
    result, stepped = setup.torch(), setup.stepped()
    setup.hyper.values["lr"][2] = 1e-3
    others = [0, 1, 3, 4]
    assert_same_bytes(result, setup.torch(), others, others)
    assert_same_bytes(stepped, setup.stepped(), others, others)
    assert result.status.tolist() == stepped.status.tolist() == [OK, OK, AGENT_DIVERGED, OK, OK]
    assert np.isnan(result.test_return[2]).all()
    setup.hyper.values["lr"][2] = 1e38
    assert setup.compiled().status.tolist() == result.status.tolist()
