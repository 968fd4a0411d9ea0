"""TD3 (arXiv:1802.09477) with Stable-Baselines3's default hyperparameters, and at most one bug: a wrong line, marked by
the bug's name. Axes: B minibatch, F features, A numbers of an action, in [-1, 1] inside the learner."""

from __future__ import annotations

import copy
import itertools

import gymnasium
import numpy as np
import torch
from gymnasium.spaces import Box
from torch import Tensor, nn

BUGS = {
    "next observation stored": "experience", "another action stored": "experience",
    "action stored in its own units": "experience", "no random steps": "exploration",
    "end of episode ignored": "target", "reward subtracted": "target", "larger of the two": "target",
    "rewards of other rows": "critic's loss", "broadcast": "critic's loss",
    "sign of the loss": "actor's loss", "observations of other rows": "actor's loss",
    "one critic learns": "optimiser", "critic learns with the actor": "optimiser", "gradients pile up": "optimiser",
    "learning rate times 100": "optimiser",
}  # fmt: skip
LR, BATCH, BEGIN, GAMMA, TAU, DELAY, NOISE, NOISE_CLIP = 1e-3, 256, 100, 0.99, 0.005, 2, 0.2, 0.5


def mlp(inputs: int, outputs: int, *last: nn.Module) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(inputs, 400), nn.ReLU(), nn.Linear(400, 300), nn.ReLU(), nn.Linear(300, outputs), *last
    )


def train(env_id: str, steps: int, seed: int, bug: str) -> nn.Sequential:
    """Trains an agent -> its actor: observation [F] -> action [A] in [-1, 1]."""
    torch.manual_seed(seed)
    random = np.random.default_rng(seed)
    env = gymnasium.make(env_id)
    space = env.action_space
    assert isinstance(space, Box) and env.observation_space.shape is not None
    (features,), (actions,) = env.observation_space.shape, space.shape
    actor, critics = mlp(features, actions, nn.Tanh()), [mlp(features + actions, 1) for _ in range(2)]
    actor_target, critic_targets = copy.deepcopy(actor), copy.deepcopy(critics)
    lr = LR * 100 if bug == "learning rate times 100" else LR
    learned = critics[:1] if bug == "one critic learns" else critics
    critic_optimizer = torch.optim.Adam(itertools.chain(*(c.parameters() for c in learned)), lr)
    with_actor = [*actor.parameters(), *critics[0].parameters()]
    actor_optimizer = torch.optim.Adam(
        with_actor if bug == "critic learns with the actor" else list(actor.parameters()), lr
    )
    seen, following = torch.zeros(steps, features), torch.zeros(steps, features)
    taken, rewards, ends = torch.zeros(steps, actions), torch.zeros(steps), torch.zeros(steps)
    observation, _ = env.reset(seed=seed)
    for t in range(steps):
        x = torch.as_tensor(observation, dtype=torch.float32)
        if t < BEGIN and bug != "no random steps":
            action = torch.as_tensor(random.uniform(-1, 1, actions), dtype=torch.float32)
        else:
            with torch.no_grad():
                action = actor(x)
        own = of_space(action.numpy(), space)
        observation, reward, terminated, truncated, _ = env.step(own)
        after = torch.as_tensor(observation, dtype=torch.float32)
        seen[t], following[t] = (after if bug == "next observation stored" else x), after
        if bug == "another action stored":
            action = torch.as_tensor(random.uniform(-1, 1, actions), dtype=torch.float32)
        taken[t] = torch.as_tensor(own) if bug == "action stored in its own units" else action
        rewards[t], ends[t] = float(reward), float(terminated)
        if terminated or truncated:
            observation, _ = env.reset()
        if t < BEGIN:
            continue
        rows = torch.as_tensor(random.integers(t + 1, size=BATCH))
        batch = [column[rows] for column in (seen, taken, rewards, following, ends)]
        loss = critic_loss(critics, critic_targets, actor_target, bug, batch)
        step(critic_optimizer, loss, bug)
        if (t - BEGIN + 1) % DELAY == 0:
            step(actor_optimizer, actor_loss(actor, critics[0], bug, batch[0]), bug)
            with torch.no_grad():
                for net, slow in zip((actor, *critics), (actor_target, *critic_targets)):
                    for p, q in zip(net.parameters(), slow.parameters()):
                        q.lerp_(p, TAU)
    env.close()
    return actor


def of_space(action: np.ndarray, space: Box) -> np.ndarray:
    """Numbers from -1 to 1 -> an action of the space."""
    own: np.ndarray = space.low + (action + 1) / 2 * (space.high - space.low)
    return np.clip(own, space.low, space.high).astype(np.float32)


def step(optimizer: torch.optim.Adam, loss: Tensor, bug: str) -> None:
    if bug != "gradients pile up":
        optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def critic_loss(
    critics: list[nn.Sequential], targets: list[nn.Sequential], actor: nn.Sequential, bug: str, rows: list[Tensor]
) -> Tensor:
    """Sum of both critics' squared errors. rows: observations [B, F], actions [B, A], rewards [B], next observations
    [B, F], ends [B]; actor: its target."""
    x, action, reward, following, over = rows
    if bug == "rewards of other rows":
        reward = reward[torch.randperm(len(reward))]
    with torch.no_grad():
        noise = (torch.randn_like(action) * NOISE).clamp(-NOISE_CLIP, NOISE_CLIP)
        later = torch.cat([following, (actor(following) + noise).clamp(-1, 1)], -1)
        values = torch.stack([net(later)[:, 0] for net in targets])
        value = values.amax(0) if bug == "larger of the two" else values.amin(0)
        goes_on = torch.ones_like(over) if bug == "end of episode ignored" else 1.0 - over
        wanted = (-reward if bug == "reward subtracted" else reward) + GAMMA * goes_on * value
    found = [net(torch.cat([x, action], -1)) for net in critics]
    wanted = wanted if bug == "broadcast" else wanted[:, None]  # [B, 1] - [B] is [B, B]
    return torch.stack([(f - wanted).square().mean() for f in found]).sum()


def actor_loss(actor: nn.Sequential, critic: nn.Sequential, bug: str, x: Tensor) -> Tensor:
    """Minus the first critic's value of the actor's actions [B, A]."""
    action = actor(x[torch.randperm(len(x))] if bug == "observations of other rows" else x)
    value = critic(torch.cat([x, action], -1)).mean()
    return value if bug == "sign of the loss" else -value
