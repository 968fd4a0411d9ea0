"""DQN (Mnih et al. 2015, https://doi.org/10.1038/nature14236) with Stable-Baselines3's default hyperparameters, and at
most one bug: a wrong line, marked by the bug's name. Axes: B minibatch, F features, A actions."""

from __future__ import annotations

import copy

import gymnasium
import numpy as np
import torch
from gymnasium.spaces.utils import flatdim
from torch import Tensor, nn

BUGS = {
    "next observation stored": "experience", "another action stored": "experience", "old rewards stored": "experience",
    "no exploration": "exploration", "exploration never ends": "exploration",
    "end of episode ignored": "target", "reward subtracted": "target", "value of all actions": "loss",
    "value of another action": "loss", "broadcast": "loss", "rewards of other rows": "loss",
    "target network learns": "optimiser", "gradients pile up": "optimiser", "learning rate times 100": "optimiser",
}  # fmt: skip
LR, BATCH, BEGIN, EVERY, GAMMA, MAX_GRAD, RENEWED = 1e-4, 32, 100, 4, 0.99, 10.0, 10_000
EXPLORED, LAST = 0.1, 0.05  # share of the training until exploration is as small as it becomes


def mlp(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, outputs))


def train(env_id: str, steps: int, seed: int, bug: str) -> nn.Sequential:
    """Trains an agent -> its network: observation [F] -> values of the actions [A]."""
    torch.manual_seed(seed)
    random = np.random.default_rng(seed)
    env = gymnasium.make(env_id)
    features, actions = flatdim(env.observation_space), flatdim(env.action_space)
    net = mlp(features, actions)
    target = copy.deepcopy(net)
    optimizer = torch.optim.Adam(target.parameters() if bug == "target network learns" else net.parameters(),
                                 LR * 100 if bug == "learning rate times 100" else LR)  # fmt: skip
    seen, following = torch.zeros(steps, features), torch.zeros(steps, features)
    taken = torch.zeros(steps, dtype=torch.int64)
    rewards, ends = torch.zeros(steps), torch.zeros(steps)
    observation, _ = env.reset(seed=seed)
    for t in range(steps):
        epsilon = max(LAST, 1 - (1 - LAST) * t / (EXPLORED * steps))
        if bug == "no exploration":
            epsilon = 0.0
        if bug == "exploration never ends":
            epsilon = 1.0
        x = torch.as_tensor(observation, dtype=torch.float32).flatten()
        if t < BEGIN or random.random() < epsilon:
            action = int(random.integers(actions))
        else:
            with torch.no_grad():
                action = int(net(x).argmax())
        observation, reward, terminated, truncated, _ = env.step(action)
        after = torch.as_tensor(observation, dtype=torch.float32).flatten()
        seen[t], following[t] = (after if bug == "next observation stored" else x), after
        taken[t] = int(random.integers(actions)) if bug == "another action stored" else action
        rewards[t] = rewards[t - 1] if bug == "old rewards stored" and t % 2 else float(reward)
        ends[t] = float(terminated)
        if terminated or truncated:
            observation, _ = env.reset()
        if t >= BEGIN and (t + 1) % EVERY == 0:
            rows = torch.as_tensor(random.integers(t + 1, size=BATCH))
            batch = [column[rows] for column in (seen, taken, rewards, following, ends)]
            loss = loss_of(net, target, bug, batch)
            if bug != "gradients pile up":
                optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), MAX_GRAD)
            optimizer.step()
        if (t + 1) % RENEWED == 0:
            target.load_state_dict(net.state_dict())
    env.close()
    return net


def loss_of(net: nn.Sequential, target: nn.Sequential, bug: str, rows: list[Tensor]) -> Tensor:
    """Huber's loss of a minibatch. rows: observations [B, F], actions, rewards [B], next observations [B, F], ends
    [B]."""
    x, action, reward, following, over = rows
    if bug == "rewards of other rows":
        reward = reward[torch.randperm(len(reward))]
    with torch.no_grad():
        later = target(following).max(-1).values
        goes_on = torch.ones_like(over) if bug == "end of episode ignored" else 1.0 - over
        wanted = (-reward if bug == "reward subtracted" else reward) + GAMMA * goes_on * later
    values = net(x)
    if bug == "value of all actions":
        return nn.functional.smooth_l1_loss(values, wanted[:, None].expand_as(values))
    if bug == "value of another action":
        action = (action + 1) % values.shape[-1]
    found = values.gather(1, action[:, None])
    wanted = wanted if bug == "broadcast" else wanted[:, None]  # [B, 1] - [B] is [B, B]
    return nn.functional.smooth_l1_loss(found, wanted)
