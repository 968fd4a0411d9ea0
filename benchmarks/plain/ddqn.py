"""DDQN and Dueling DDQN for one agent, as such scripts are usually written: modules, a tensor buffer, torch.optim.Adam.

python -m benchmarks.plain.ddqn ddqn_in_se [--json FILE]
"""

from __future__ import annotations

import copy
from functools import partial
from typing import Callable

import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss, one_hot

from benchmarks.common.harness import main
from benchmarks.common.settings import Setting
from benchmarks.plain.common import Replay, agent_mlp, make_world, measure_plain, mlp, soft_update


class Dueling(nn.Module):
    """Q = V + A - mean(A) on shared features (https://arxiv.org/abs/1511.06581)."""

    def __init__(self, s: Setting) -> None:
        super().__init__()
        (F, A), wide, activation = s.sizes, s.learner["feature_dim"], s.learner["activation_fn"]
        self.features = agent_mlp(s, F, wide)
        self.value, self.advantage = mlp(wide, wide, 1, 1, activation), mlp(wide, wide, 1, A, activation)

    def forward(self, x: Tensor) -> Tensor:
        features = self.features(x)
        advantage = self.advantage(features)
        return self.value(features) + advantage - advantage.mean(-1, keepdim=True)


def script(s: Setting) -> Callable[[int], None]:
    (F, A), h = s.sizes, s.learner
    q = Dueling(s) if s.agent == "duelingddqn" else agent_mlp(s, F, A)
    target = copy.deepcopy(q)
    optimizer = torch.optim.Adam(q.parameters(), lr=h["lr"])
    world, replay = make_world(s), Replay(F, 1)
    state = world.reset()

    def train(steps: int) -> None:
        nonlocal state
        for _ in range(steps):
            with torch.no_grad():
                action = torch.randint(A, ()) if torch.rand(()) < h["eps_init"] else q(state).argmax()
            next_state, reward, terminated, truncated = world.step(one_hot(action, A).float())
            replay.add(state, action, reward, next_state, terminated)
            state = world.reset() if terminated or truncated else next_state

            b_s, b_a, b_r, b_s2, b_d = replay.sample(h["batch_size"])
            with torch.no_grad():
                best = q(b_s2).argmax(1, keepdim=True)
                y = b_r + h["gamma"] * (1 - b_d) * target(b_s2).gather(1, best)
            loss = mse_loss(q(b_s).gather(1, b_a.long()), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            soft_update(q, target, h["tau"])

    return train


if __name__ == "__main__":
    main(__doc__, {"plain": partial(measure_plain, script)})
