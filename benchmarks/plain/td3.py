"""TD3 for one agent, continuous or with discrete actions through a Gumbel softmax, as such scripts are usually written.

python -m benchmarks.plain.td3 td3_mountain_car_continuous [--json FILE]
"""

from __future__ import annotations

import copy
from functools import partial
from typing import Callable

import torch
from torch import Tensor, nn
from torch.nn.functional import gumbel_softmax, mse_loss, one_hot

from benchmarks.common.harness import main
from benchmarks.common.settings import Setting
from benchmarks.plain.common import Replay, agent_mlp, make_world, measure_plain, soft_update


class Actor(nn.Module):
    def __init__(self, s: Setting) -> None:
        super().__init__()
        self.net, self.bound = agent_mlp(s, *s.sizes), s.max_action

    def forward(self, x: Tensor) -> Tensor:
        return self.bound * torch.tanh(self.net(x))


class DiscreteActor(nn.Module):
    """Soft one-hot actions; the temperature falls linearly to a twentieth over 2000 updates."""

    def __init__(self, s: Setting) -> None:
        super().__init__()
        self.net, self.hard, self.first = agent_mlp(s, *s.sizes), s.learner["gumbel_softmax_hard"], 0.0
        self.first = self.temperature = s.learner["gumbel_softmax_temp"]

    def cool(self) -> None:
        self.temperature = max(self.first / 20, self.temperature - self.first * (1 - 1 / 20) / 2000)

    def forward(self, x: Tensor) -> Tensor:
        return gumbel_softmax(self.net(x), self.temperature, self.hard)


class Critics(nn.Module):
    def __init__(self, s: Setting) -> None:
        super().__init__()
        self.nets = nn.ModuleList(agent_mlp(s, sum(s.sizes), 1) for _ in range(2))

    def forward(self, x: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        both = torch.cat([x, action], 1)
        return self.nets[0](both), self.nets[1](both)

    def first(self, x: Tensor, action: Tensor) -> Tensor:
        return self.nets[0](torch.cat([x, action], 1))


def script(s: Setting) -> Callable[[int], None]:
    (F, A), h, discrete = s.sizes, s.learner, s.agent == "td3_discrete"
    actor: Actor | DiscreteActor = DiscreteActor(s) if discrete else Actor(s)
    critics = Critics(s)
    target_actor, target_critics = copy.deepcopy(actor), copy.deepcopy(critics)
    actor_optimizer = torch.optim.Adam(actor.parameters(), lr=h["lr"])
    critic_optimizer = torch.optim.Adam(critics.parameters(), lr=h["lr"])
    world, replay = make_world(s), Replay(F, A)
    state, update = world.reset(), 0

    def train(steps: int) -> None:
        nonlocal state, update
        for _ in range(steps):
            with torch.no_grad():
                action = actor(state) + torch.randn(A) * h["action_std"] * s.max_action
            if discrete:
                next_state, reward, terminated, truncated = world.step(one_hot(action.argmax(), A).float())
            else:
                action = action.clamp(-s.max_action, s.max_action)
                next_state, reward, terminated, truncated = world.step(action)
            replay.add(state, action, reward, next_state, terminated)
            state = world.reset() if terminated or truncated else next_state

            b_s, b_a, b_r, b_s2, b_d = replay.sample(h["batch_size"])
            with torch.no_grad():
                noise = (torch.randn_like(b_a) * h["policy_std"]).clamp(-h["policy_std_clip"], h["policy_std_clip"])
                next_action = target_actor(b_s2) + noise
                if not discrete:
                    next_action = next_action.clamp(-s.max_action, s.max_action)
                y = b_r + h["gamma"] * (1 - b_d) * torch.min(*target_critics(b_s2, next_action))
            q1, q2 = critics(b_s, b_a)
            critic_loss = mse_loss(q1, y) + mse_loss(q2, y)
            critic_optimizer.zero_grad()
            critic_loss.backward()
            critic_optimizer.step()
            update += 1
            if update % h["policy_delay"] == 0:
                actor_loss = -critics.first(b_s, actor(b_s)).mean()
                actor_optimizer.zero_grad()
                actor_loss.backward()
                actor_optimizer.step()
                soft_update(actor, target_actor, h["tau"])
                soft_update(critics, target_critics, h["tau"])
            for net in (actor, target_actor):
                if isinstance(net, DiscreteActor):
                    net.cool()

    return train


if __name__ == "__main__":
    main(__doc__, {"plain": partial(measure_plain, script)})
