"""Curiosity: its gradient against modules in float64, its reward, and what it does to a learner."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from envolve.agents.common.icm import BLOCKS, ICM
from envolve.agents.common.sections import DDQNSection, DuelingDDQNSection, ICMSection, PPOSection, TD3DiscreteSection
from envolve.agents.train import train
from envolve.envs.section import EnvSection
from envolve.envs.task import make_task
from tests.agents.same import assert_same_bytes
from tests.examples import some_slow

SMALL = ICMSection(feature_dim=5, hidden_size=12, lr=1e-2)
TASKS = ("CartPole-v0", "Acrobot-v1", "Pendulum-v0")  # two actions, three, a continuous one


class Reference(nn.Module):
    """One member's module, written layer by layer with torch's own."""

    def __init__(self, F, A, feature, hidden, guesses):
        super().__init__()
        leaky = nn.LeakyReLU()
        self.phi = nn.Sequential(
            nn.Linear(F, hidden), leaky, nn.Linear(hidden, hidden), leaky, nn.Linear(hidden, feature)
        )
        self.inverse = nn.Sequential(
            nn.Linear(2 * feature, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, guesses)
        )
        self.first = nn.Sequential(nn.Linear(feature + A, hidden), leaky, nn.Linear(hidden, hidden))
        self.last = nn.Sequential(nn.Linear(hidden, hidden), leaky, nn.Linear(hidden, feature))
        self.inner = nn.ModuleList(nn.Linear(hidden + A, hidden) for _ in range(2 * BLOCKS))

    def parts(self, s, s_next, code):
        phi, phi_next = self.phi(s), self.phi(s_next)
        x = self.first(torch.cat([phi, code], 1))
        for w1, w2 in zip(self.inner[::2], self.inner[1::2]):
            x = x + w2(torch.cat([nn.functional.leaky_relu(w1(torch.cat([x, code], 1))), code], 1))
        return self.inverse(torch.cat([phi, phi_next], 1)), phi_next, self.last(x)

    def load(self, flat):
        """From the flat vector: each layer's weights input-major, then its bias."""
        for layer in (m for m in self.modules() if isinstance(m, nn.Linear)):
            k, m = layer.in_features, layer.out_features
            layer.weight.data = flat[: k * m].view(k, m).T.clone()
            layer.bias.data, flat = flat[k * m : k * m + m].clone(), flat[k * m + m :]
        assert flat.numel() == 0


@pytest.mark.parametrize("name", TASKS)
def test_gradient_and_reward_against_float64(name):
    task, generator, P, B = make_task(name), torch.Generator().manual_seed(0), 3, 40
    icm = ICM(task, SMALL, torch.arange(P) + 4)
    F, A = task.observation_size, task.action_inputs
    s, s_next = torch.randn(2, P, F, B, generator=generator)
    if task.num_actions:
        action = torch.randint(task.num_actions, (P, 1, B), generator=generator).float()
    else:
        action = torch.randn(P, A, B, generator=generator)
    weight = torch.rand(P, B, generator=generator)
    ours, reward = icm.gradient(s, s_next, action, weight), icm.reward(s, s_next, action)
    for p in range(P):
        guesses = 1 if task.num_actions == 2 else A
        ref = Reference(F, A, SMALL.feature_dim, SMALL.hidden_size, guesses).double()
        ref.load(icm.rows.params[p].double())
        a = action[p].T
        code = nn.functional.one_hot(a[:, 0].long(), A) if task.num_actions else a
        guess, phi_next, prediction = ref.parts(s[p].T.double(), s_next[p].T.double(), code.double())
        if task.num_actions == 2:
            inverse = nn.functional.binary_cross_entropy_with_logits(guess, a.double(), reduction="none")[:, 0]
        elif task.num_actions:
            inverse = nn.functional.cross_entropy(guess, a[:, 0].long(), reduction="none")
        else:
            inverse = ((guess - a) ** 2).mean(1)
        error = ((phi_next - prediction) ** 2).mean(1)
        torch.testing.assert_close(reward[p].double(), SMALL.eta * error, rtol=1e-5, atol=1e-6)
        (weight[p] * ((1 - SMALL.beta) * inverse + SMALL.beta * error)).sum().backward()
        layers = [m for m in ref.modules() if isinstance(m, nn.Linear)]
        wanted = torch.cat([t for m in layers for t in (m.weight.grad.T.flatten(), m.bias.grad)])
        assert (ours[p] - wanted).norm() / wanted.norm() < 1e-5


def test_the_seen_pays_less_than_the_new():
    task = make_task("CartPole-v0")
    icm, generator = ICM(task, SMALL, torch.arange(2)), torch.Generator().manual_seed(1)
    s = torch.rand(2, 4, 64, generator=generator)
    action = torch.randint(2, (2, 1, 64), generator=generator).float()
    s_next, weight = s + 0.1 * (2 * action - 1), torch.full((2, 64), 1 / 64)
    first = icm.reward(s, s_next, action)
    for _ in range(150):
        icm.update(s, s_next, action, weight)
    seen, new = icm.reward(s, s_next, action), icm.reward(s + 5, s_next + 5, 1 - action)
    assert (seen.mean(1) < 0.5 * first.mean(1)).all() and (new.mean(1) > 3 * seen.mean(1)).all()


def test_members_without_weight_do_not_learn():
    task = make_task("CartPole-v0")
    icm = ICM(task, SMALL, torch.arange(2))
    before, weight = icm.rows.params.clone(), torch.tensor([[0.0] * 8, [0.125] * 8])
    icm.update(torch.randn(2, 4, 8), torch.randn(2, 4, 8), torch.zeros(2, 1, 8), weight)
    assert torch.equal(icm.rows.params[0], before[0]) and not torch.equal(icm.rows.params[1], before[1])
    assert icm.rows.updates.tolist() == [0, 1]


TINY = dict(
    train_steps=75, init_episodes=1, hidden_size=8, hidden_layer=1, batch_size=16, test_episodes=2, eps_init=0.5
)
LEARNERS = {
    "ddqn": DDQNSection(**TINY),
    "duelingddqn": DuelingDDQNSection(feature_dim=8, **TINY),
    "td3_discrete": TD3DiscreteSection(hidden_size=8),
    "ppo": PPOSection(train_steps=192, num_envs=2, rollout_steps=32, ppo_epochs=3, minibatches=2, hidden_size=8),
}


def run(icm, P=3, name="ddqn", **kw):
    task, worlds, learner = make_task("CartPole-v0"), torch.zeros(P, 1), LEARNERS[name]
    keys = np.arange(P) + 7
    return train(name, learner, None, task, "real", EnvSection(), worlds, keys, icm=icm, **{"backend": "torch", **kw})


@pytest.mark.parametrize("name", some_slow(["ddqn", "duelingddqn", "ppo"], ["ddqn"]))
def test_curiosity_changes_what_is_learned_and_not_what_is_logged(name):
    nothing = ICMSection(feature_dim=5, hidden_size=12, eta=0.0)
    plain, curious, without = run(None, name=name), run(SMALL, name=name), run(nothing, name=name)
    assert_same_bytes(plain, without)  # a reward of 0 is no reward
    assert not np.array_equal(plain.weights, curious.weights)
    # the return of an episode is the task's: on CartPole its length
    played = curious.episode_length > 0
    assert (curious.episode_return[played][:5] == curious.episode_length[played][:5]).all()


@pytest.mark.parametrize("name", ["ddqn", "ppo"])
def test_alone_and_in_a_batch(name):
    together, alone = run(SMALL, 3, name), run(SMALL, 1, name)
    np.testing.assert_allclose(together.weights[0], alone.weights[0], rtol=1e-4, atol=1e-5)
    assert together.updates[0] == alone.updates[0]


def test_who_cannot_be_curious_is_told():
    with pytest.raises(ValueError, match="td3_discrete has no curiosity; those that have: ddqn, "):
        run(SMALL, name="td3_discrete")
    with pytest.raises(ValueError, match="'compiled': curiosity has no compiled twin"):
        run(SMALL, backend="compiled")
