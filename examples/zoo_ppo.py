"""PPO in one file, after CleanRL's, trained in a world of the zoo and tested on its task. Needs torch and Gymnasium:

    python3 examples/zoo_ppo.py envolve/CartPole-v1-bandit --steps 20000
    python3 examples/zoo_ppo.py envolve/Hopper-v5-bandit --normalised
    python3 -m envolve worlds check examples/zoo_ppo.py:learner --like ppo     is it as good as another PPO?

Every episode in the world is one step, so an advantage is the reward minus its prediction.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.spaces import Discrete
from torch import nn
from torch.distributions import Categorical, Normal

import envolve.worlds  # registers the worlds

NUM_ENVS, ROLLOUT = 64, 16  # steps of a rollout: their product
EPOCHS, MINIBATCHES = 10, 4
LR, CLIP, ENTROPY, VALUE, MAX_GRAD = 1e-3, 0.2, 0.001, 0.5, 0.5


def mlp(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, outputs))


class Agent(nn.Module):
    def __init__(self, features: int, actions: int, discrete: bool) -> None:
        super().__init__()
        self.discrete = discrete
        self.actor = mlp(features, actions)
        self.critic = mlp(features, 1)
        self.log_std = nn.Parameter(torch.zeros(actions))

    def policy(self, observation: torch.Tensor) -> Categorical | Normal:
        out = self.actor(observation)
        return Categorical(logits=out) if self.discrete else Normal(out, self.log_std.exp())

    def log_prob(self, policy: Categorical | Normal, action: torch.Tensor) -> torch.Tensor:
        return policy.log_prob(action) if self.discrete else policy.log_prob(action).sum(-1)


def train(world: str, steps: int, seed: int, normalised: bool = False) -> Agent:
    """Trains an agent in the world alone. normalised: it sees observations in units of their spread in the world."""
    torch.manual_seed(seed)
    envs = gymnasium.make_vec(world, num_envs=NUM_ENVS, autoreset_mode="SameStep", normalised=normalised)
    space: Any = envs.single_action_space
    discrete = isinstance(space, Discrete)
    features = int(np.prod(envs.single_observation_space.shape or ()))
    agent = Agent(features, int(space.n) if discrete else space.shape[0], discrete)
    optimizer = torch.optim.Adam(agent.parameters(), lr=LR, eps=1e-5)
    observation, _ = envs.reset(seed=seed)
    for _ in range(steps // (NUM_ENVS * ROLLOUT)):
        rows = []
        for _ in range(ROLLOUT):
            x = torch.as_tensor(observation, dtype=torch.float32)
            with torch.no_grad():
                policy = agent.policy(x)
                action = policy.sample()
                own = action.numpy() if discrete else np.clip(action.numpy(), space.low, space.high)
                observation, reward, _, _, _ = envs.step(own)
                rows.append((x, action, agent.log_prob(policy, action), torch.as_tensor(reward, dtype=torch.float32)))
        x, action, old, reward = (torch.cat(column) for column in zip(*rows))
        with torch.no_grad():
            advantage = reward - agent.critic(x)[:, 0]  # the episode is over: nothing to bootstrap
        for _ in range(EPOCHS):
            for batch in torch.randperm(len(x)).chunk(MINIBATCHES):
                policy, a = agent.policy(x[batch]), advantage[batch]
                a = (a - a.mean()) / (a.std() + 1e-8)
                ratio = (agent.log_prob(policy, action[batch]) - old[batch]).exp()
                policy_loss = -torch.min(ratio * a, ratio.clamp(1 - CLIP, 1 + CLIP) * a).mean()
                value_loss = 0.5 * (agent.critic(x[batch])[:, 0] - reward[batch]).square().mean()
                loss = policy_loss + VALUE * value_loss - ENTROPY * policy.entropy().mean()
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), MAX_GRAD)
                optimizer.step()
    return agent


def test(agent: Agent, world: str, episodes: int, normalised: bool = False) -> float:
    """Mean return of the greedy agent on the task of a world, with observations as in training."""
    env = envolve.worlds.make_task(world, normalised)
    returns = []
    for episode in range(episodes):
        observation, _ = env.reset(seed=episode)
        total, over = 0.0, False
        while not over:
            with torch.no_grad():
                out = agent.actor(torch.as_tensor(observation, dtype=torch.float32))
            space: Any = env.action_space
            action = int(out.argmax()) if agent.discrete else out.numpy().clip(space.low, space.high)
            observation, reward, terminated, truncated, _ = env.step(action)
            total, over = total + float(reward), terminated or truncated
        returns.append(total)
    return float(np.mean(returns))


def learner(world: str, steps: int, seed: int) -> Callable[[np.ndarray], np.ndarray]:
    """Trains an agent -> its best action, for ``envolve worlds check``."""
    agent = train(world, steps, seed)

    @torch.no_grad()
    def act(observation: np.ndarray) -> np.ndarray:
        out = agent.actor(torch.as_tensor(observation, dtype=torch.float32))
        return np.asarray(out.argmax() if agent.discrete else out)

    return act


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("world", nargs="?", default="envolve/CartPole-v1-bandit")
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--normalised", action="store_true", help="observations in units of their spread: for robots")
    args = parser.parse_args()
    torch.set_num_threads(1)
    task = envolve.worlds.card(args.world)["task"]
    agent = train(args.world, args.steps, args.seed, args.normalised)
    mean = test(agent, args.world, 20, args.normalised)
    print(f"{args.steps:,} steps in {args.world}; mean return of 20 episodes on {task}: {mean:.4g}")


if __name__ == "__main__":
    main()
