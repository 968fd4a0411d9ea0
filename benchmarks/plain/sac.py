"""SAC with automatic temperature for one agent, as such scripts are usually written.

python -m benchmarks.plain.sac sac_pendulum [--json FILE]
"""

from __future__ import annotations

import copy
import math
from functools import partial
from typing import Callable

import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss, softplus

from benchmarks.common.harness import main
from benchmarks.common.settings import Setting
from benchmarks.plain.common import Replay, agent_mlp, make_world, measure_plain, soft_update
from benchmarks.plain.td3 import Critics


class Actor(nn.Module):
    """A Gaussian squashed by tanh; returns a sample and its log probability (https://arxiv.org/abs/1812.05905, C)."""

    def __init__(self, s: Setting) -> None:
        super().__init__()
        F, self.A = s.sizes
        self.net, self.bound = agent_mlp(s, F, 2 * self.A), s.max_action

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_std = self.net(x).split(self.A, -1)
        distribution = torch.distributions.Normal(mean, log_std.clamp(-20, 2).exp())
        u = distribution.rsample()
        # log(1 - tanh(u)^2) = 2 (log 2 - u - softplus(-2 u))
        log_prob = distribution.log_prob(u) - 2 * (math.log(2) - u - softplus(-2 * u)) - math.log(self.bound)
        return self.bound * torch.tanh(u), log_prob.sum(-1, keepdim=True)


def script(s: Setting) -> Callable[[int], None]:
    (F, A), h = s.sizes, s.learner
    actor, critics = Actor(s), Critics(s)
    target_critics = copy.deepcopy(critics)
    log_alpha = torch.tensor(math.log(h["alpha"]), requires_grad=True)
    actor_optimizer = torch.optim.Adam(actor.parameters(), lr=h["lr"])
    critic_optimizer = torch.optim.Adam(critics.parameters(), lr=h["lr"])
    alpha_optimizer = torch.optim.Adam([log_alpha], lr=h["lr"])
    world, replay = make_world(s), Replay(F, A)
    state = world.reset()

    def train(steps: int) -> None:
        nonlocal state
        for _ in range(steps):
            with torch.no_grad():
                action, _ = actor(state)
            next_state, reward, terminated, truncated = world.step(action)
            replay.add(state, action, reward, next_state, terminated)
            state = world.reset() if terminated or truncated else next_state

            b_s, b_a, b_r, b_s2, b_d = replay.sample(h["batch_size"])
            alpha = log_alpha.exp().detach()
            with torch.no_grad():
                next_action, log_prob = actor(b_s2)
                q_next = torch.min(*target_critics(b_s2, next_action)) - alpha * log_prob
                y = b_r + h["gamma"] * (1 - b_d) * q_next
            q1, q2 = critics(b_s, b_a)
            critic_loss = mse_loss(q1, y) + mse_loss(q2, y)
            critic_optimizer.zero_grad()
            critic_loss.backward()
            critic_optimizer.step()

            new_action, log_prob = actor(b_s)
            actor_loss = (alpha * log_prob - torch.min(*critics(b_s, new_action))).mean()
            actor_optimizer.zero_grad()
            actor_loss.backward()
            actor_optimizer.step()

            alpha_loss = -(log_alpha * (log_prob.detach() - A)).mean()  # target entropy: -A
            alpha_optimizer.zero_grad()
            alpha_loss.backward()
            alpha_optimizer.step()
            soft_update(critics, target_critics, h["tau"])

    return train


if __name__ == "__main__":
    main(__doc__, {"plain": partial(measure_plain, script)})
