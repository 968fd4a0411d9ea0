"""PPO (arXiv:1707.06347) with generalised advantages (arXiv:1506.02438), and at most one bug: a wrong line, marked by
the bug's name. Axes: T steps of a rollout, N environments, B minibatch, F features."""

from __future__ import annotations

import math
from dataclasses import dataclass

import gymnasium
import torch
from gymnasium.spaces.utils import flatdim
from torch import Tensor, nn
from torch.distributions import Categorical

import envolve.worlds

BUGS = {
    "next observation stored": "experience", "another action stored": "experience",
    "end of episode ignored": "advantage", "value added": "advantage", "value never learned": "advantage",
    "sign of the loss": "policy loss", "ratio upside down": "policy loss", "larger of the two": "policy loss",
    "advantages of other rows": "policy loss", "sign of the entropy": "policy loss",
    "broadcast": "value loss", "gradients pile up": "optimiser", "learning rate times 100": "optimiser",
}  # fmt: skip


@dataclass(frozen=True)
class Settings:
    """The defaults are Stable-Baselines3's."""

    num_envs: int = 1
    rollout: int = 2048
    epochs: int = 10
    minibatches: int = 32
    lr: float = 3e-4
    entropy: float = 0.0
    wrong_entropy: float = -0.1  # of the bug
    value: float = 0.5  # factor of the mean squared error
    clip: float = 0.2
    max_grad: float = 0.5
    adam_eps: float = 1e-5
    orthogonal: bool = True
    normalise: bool = True  # advantages of a minibatch
    anneal: bool = False  # the learning rate, to 0
    activation: type[nn.Module] = nn.Tanh
    gamma: float = 0.99
    lam: float = 0.95


def mlp(inputs: int, outputs: int, s: Settings, last: float) -> nn.Sequential:
    """Two layers of 64. last: the gain of the last one, where weights begin orthogonal."""
    layers = [nn.Linear(inputs, 64), nn.Linear(64, 64), nn.Linear(64, outputs)]
    for layer, gain in zip(layers, (math.sqrt(2), math.sqrt(2), last)):
        if s.orthogonal:
            nn.init.orthogonal_(layer.weight, gain)
            nn.init.zeros_(layer.bias)
    return nn.Sequential(layers[0], s.activation(), layers[1], s.activation(), layers[2])


def train(env_id: str, steps: int, seed: int, bug: str, s: Settings) -> nn.Sequential:
    """Trains an agent -> its actor: observation [F] -> logits of the actions."""
    torch.manual_seed(seed)
    same = gymnasium.vector.AutoresetMode.SAME_STEP
    if env_id.startswith(f"{envolve.worlds.NAMESPACE}/"):
        envs = gymnasium.make_vec(env_id, num_envs=s.num_envs, autoreset_mode=same)
    else:
        envs = gymnasium.make_vec(env_id, s.num_envs, "sync", vector_kwargs={"autoreset_mode": same})
    features = flatdim(envs.single_observation_space)
    actor, critic = mlp(features, flatdim(envs.single_action_space), s, 0.01), mlp(features, 1, s, 1.0)
    learned = list(actor.parameters()) if bug == "value never learned" else [*actor.parameters(), *critic.parameters()]
    lr = s.lr * 100 if bug == "learning rate times 100" else s.lr
    optimizer = torch.optim.Adam(learned, lr, eps=s.adam_eps)
    x = torch.as_tensor(envs.reset(seed=seed)[0], dtype=torch.float32)
    rollouts = steps // (s.num_envs * s.rollout)
    for i in range(rollouts):
        if s.anneal:
            optimizer.param_groups[0]["lr"] = lr * (1 - i / rollouts)
        rows = []
        for _ in range(s.rollout):
            with torch.no_grad():
                policy = Categorical(logits=actor(x))
                action = policy.sample()
                observation, reward, terminated, truncated, _ = envs.step(action.numpy())
                following = torch.as_tensor(observation, dtype=torch.float32)
                if bug == "another action stored":
                    action = policy.sample()
                seen = following if bug == "next observation stored" else x
                over = torch.as_tensor(terminated | truncated, dtype=torch.float32)
                rows.append((seen, action, policy.log_prob(action), critic(x)[:, 0],
                             torch.as_tensor(reward, dtype=torch.float32), over))  # fmt: skip
                x = following
        columns = [torch.stack(column) for column in zip(*rows)]  # [T, N, ...]
        observations, actions, old, values, rewards, ends = columns
        with torch.no_grad():
            advantages = advantages_of(rewards, values, critic(x)[:, 0], ends, bug, s)
        flat = [t.flatten(0, 1) for t in (observations, actions, old, advantages, advantages + values)]
        for _ in range(s.epochs):
            for batch in torch.randperm(s.num_envs * s.rollout).chunk(s.minibatches):
                loss = loss_of(actor, critic, bug, s, [t[batch] for t in flat])
                if bug != "gradients pile up":
                    optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(learned, s.max_grad)
                optimizer.step()
    envs.close()
    return actor


def advantages_of(rewards: Tensor, values: Tensor, last: Tensor, ends: Tensor, bug: str, s: Settings) -> Tensor:
    """Generalised advantages [T, N]; last: values after the last step [N]."""
    out, carried = torch.zeros_like(rewards), torch.zeros_like(last)
    for t in reversed(range(len(rewards))):
        following = last if t == len(rewards) - 1 else values[t + 1]
        goes_on = torch.ones_like(last) if bug == "end of episode ignored" else 1.0 - ends[t]
        own = -values[t] if bug == "value added" else values[t]
        delta = rewards[t] + s.gamma * following * goes_on - own
        carried = delta + s.gamma * s.lam * goes_on * carried
        out[t] = carried
    return out


def loss_of(actor: nn.Sequential, critic: nn.Sequential, bug: str, s: Settings, rows: list[Tensor]) -> Tensor:
    """The clipped loss of a minibatch. rows: observations [B, F], actions, their log probabilities, advantages and
    returns [B]."""
    x, action, old, a, target = rows
    policy = Categorical(logits=actor(x))
    if bug == "advantages of other rows":
        a = a[torch.randperm(len(a))]
    if s.normalise:
        a = (a - a.mean()) / (a.std() + 1e-8)
    difference = policy.log_prob(action) - old
    ratio = (-difference if bug == "ratio upside down" else difference).exp()
    smaller = torch.max if bug == "larger of the two" else torch.min
    gain = smaller(ratio * a, ratio.clamp(1 - s.clip, 1 + s.clip) * a).mean()
    found = critic(x) if bug == "broadcast" else critic(x)[:, 0]  # [B, 1] - [B] is [B, B]
    value_loss = (found - target).square().mean()
    bonus = s.wrong_entropy if bug == "sign of the entropy" else s.entropy
    return (gain if bug == "sign of the loss" else -gain) + s.value * value_loss - bonus * policy.entropy().mean()
