"""PPO with discrete actions for one agent in Gymnasium's vector environment: a loop in the style of CleanRL's ppo.py.

Its facts and settings (https://github.com/vwxyzjn/cleanrl, MIT licence), none of its code: truncation counts as the end
of an episode, advantages are normalised per minibatch, the value loss is clipped, the learning rate falls to 0.

    python -m benchmarks.plain.ppo ppo_cartpole [--json FILE]
"""

from __future__ import annotations

from functools import partial
from typing import Any, Callable, Dict

import gymnasium
import numpy as np
import torch
from torch import Tensor, nn
from torch.distributions import Categorical

from benchmarks.common.harness import cpu_time, main, measure
from benchmarks.common.settings import GYM, SETTINGS, Setting


def linear(inputs: int, outputs: int, gain: float = 2**0.5) -> nn.Linear:
    layer = nn.Linear(inputs, outputs)
    nn.init.orthogonal_(layer.weight, gain)
    nn.init.zeros_(layer.bias)
    return layer


def net(inputs: int, hidden: int, outputs: int, gain: float) -> nn.Sequential:
    return nn.Sequential(
        linear(inputs, hidden), nn.Tanh(), linear(hidden, hidden), nn.Tanh(), linear(hidden, outputs, gain)
    )


def script(s: Setting) -> Callable[[int], None]:
    (F, A), p, hidden = s.sizes, s.ppo, s.learner["hidden_size"]
    envs = gymnasium.vector.SyncVectorEnv(
        [lambda: gymnasium.wrappers.RecordEpisodeStatistics(gymnasium.make(GYM[s.task]))] * p["num_envs"],
        autoreset_mode=gymnasium.vector.AutoresetMode.SAME_STEP,
    )
    actor, critic = net(F, hidden, A, 0.01), net(F, hidden, 1, 1.0)
    parameters = [*actor.parameters(), *critic.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=p["learning_rate"], eps=1e-5)
    T, N = p["num_steps"], p["num_envs"]
    obs, actions, log_probs = torch.zeros(T, N, F), torch.zeros(T, N), torch.zeros(T, N)
    rewards, dones, values = torch.zeros(T, N), torch.zeros(T, N), torch.zeros(T, N)
    next_obs, next_done = torch.tensor(envs.reset()[0]), torch.zeros(N)
    batch, minibatch = T * N, T * N // p["num_minibatches"]
    generator = np.random.default_rng(0)
    iterations, iteration = p["total_timesteps"] // batch, 0

    def advantages() -> Tensor:
        """Generalised advantage estimates, https://arxiv.org/abs/1506.02438."""
        out, last = torch.zeros(T, N), torch.zeros(N)
        with torch.no_grad():
            next_value = critic(next_obs).flatten()
        for t in reversed(range(T)):
            alive = 1.0 - (next_done if t == T - 1 else dones[t + 1])
            delta = rewards[t] + p["gamma"] * (next_value if t == T - 1 else values[t + 1]) * alive - values[t]
            out[t] = last = delta + p["gamma"] * p["gae_lambda"] * alive * last
        return out

    def loss_of(rows: np.ndarray, b: Dict[str, Tensor]) -> Tensor:
        distribution, value = Categorical(logits=actor(b["obs"][rows])), critic(b["obs"][rows]).flatten()
        ratio = (distribution.log_prob(b["action"][rows]) - b["log_prob"][rows]).exp()
        advantage = b["advantage"][rows]
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        clipped = ratio.clamp(1 - p["clip_coef"], 1 + p["clip_coef"])
        policy_loss = torch.max(-advantage * ratio, -advantage * clipped).mean()
        near = b["value"][rows] + (value - b["value"][rows]).clamp(-p["clip_coef"], p["clip_coef"])
        value_loss = 0.5 * torch.max((value - b["return"][rows]) ** 2, (near - b["return"][rows]) ** 2).mean()
        return policy_loss - p["ent_coef"] * distribution.entropy().mean() + p["vf_coef"] * value_loss

    def train(steps: int) -> None:
        nonlocal next_obs, next_done, iteration
        for _ in range(steps // batch):
            optimizer.param_groups[0]["lr"] = p["learning_rate"] * (1 - iteration % iterations / iterations)
            iteration += 1
            for t in range(T):
                obs[t], dones[t] = next_obs, next_done
                with torch.no_grad():
                    distribution = Categorical(logits=actor(next_obs))
                    action = distribution.sample()
                    values[t] = critic(next_obs).flatten()
                actions[t], log_probs[t] = action, distribution.log_prob(action)
                o, reward, terminated, truncated, _ = envs.step(action.numpy())
                rewards[t] = torch.as_tensor(reward)
                next_obs, next_done = torch.as_tensor(o), torch.as_tensor(terminated | truncated).float()
            advantage = advantages()
            b: Dict[str, Tensor] = {
                "obs": obs.view(-1, F), "action": actions.view(-1), "log_prob": log_probs.view(-1),
                "advantage": advantage.view(-1), "value": values.view(-1), "return": (advantage + values).view(-1),
            }  # fmt: skip
            for _ in range(p["update_epochs"]):
                for rows in generator.permutation(batch).reshape(-1, minibatch):
                    loss = loss_of(rows, b)
                    optimizer.zero_grad()
                    loss.backward()
                    nn.utils.clip_grad_norm_(parameters, p["max_grad_norm"])
                    optimizer.step()

    return train


def plain(case: str, members: int | None, quick: bool) -> Dict[str, Any]:
    s = SETTINGS[case]
    torch.manual_seed(0)
    rollout = s.ppo["num_envs"] * s.ppo["num_steps"]
    train = script(s)

    def rollouts(n: int) -> None:
        train(n * rollout)

    seconds = cpu_time(rollouts)
    return measure(lambda n: (n * rollout, seconds(n)[1]), 1, quick=quick)


if __name__ == "__main__":
    main(__doc__, {"plain": partial(plain)})
