"""What the plain scripts share: the worlds they step, a replay buffer, a soft update. One agent, one environment."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Tuple

import torch
from torch import Tensor, nn

from benchmarks.common.harness import cpu_time, measure
from benchmarks.common.settings import GYM, SE_HIDDEN, SETTINGS, Setting

ACTIVATIONS = {"tanh": nn.Tanh, "relu": nn.ReLU, "leakyrelu": nn.LeakyReLU}


def mlp(inputs: int, hidden: int, layers: int, outputs: int, activation: str) -> nn.Sequential:
    modules: List[nn.Module] = []
    for _ in range(layers):
        modules += [nn.Linear(inputs, hidden), ACTIVATIONS[activation]()]
        inputs = hidden
    return nn.Sequential(*modules, nn.Linear(inputs, outputs))


def agent_mlp(s: Setting, inputs: int, outputs: int) -> nn.Sequential:
    return mlp(inputs, s.learner["hidden_size"], s.learner["hidden_layer"], outputs, s.learner["activation_fn"])


class SyntheticWorld:
    """An SE of three nets with random weights. Actions are vectors: of a discrete task one-hot, or soft."""

    def __init__(self, s: Setting) -> None:
        (F, A), self.max_steps = s.sizes, s.max_steps
        self.nets = [mlp(A + F, SE_HIDDEN, 1, outputs, "leakyrelu") for outputs in (F, 1, 1)]

    def reset(self) -> Tensor:
        self.t, self.state = 0, torch.rand(4) * 0.1 - 0.05
        return self.state

    @torch.no_grad()
    def step(self, action: Tensor) -> Tuple[Tensor, float, bool, bool]:
        x = torch.cat([action, self.state])
        self.state, reward, done = (net(x) for net in self.nets)
        self.t += 1
        return self.state, float(reward), bool(done > 0.5), self.t >= self.max_steps


class GymWorld:
    """A continuous task of Gymnasium; an action is repeated as often as the setting says."""

    def __init__(self, s: Setting) -> None:
        import gymnasium

        self.env = gymnasium.make(GYM[s.task], max_episode_steps=s.max_steps)
        self.repeat = s.learner.get("same_action_num", 1)

    def reset(self) -> Tensor:
        return torch.as_tensor(self.env.reset()[0], dtype=torch.float32)

    def step(self, action: Tensor) -> Tuple[Tensor, float, bool, bool]:
        total = 0.0
        for _ in range(self.repeat):
            obs, reward, terminated, truncated, _ = self.env.step(action.numpy())
            total += float(reward)
            if terminated or truncated:
                break
        return torch.as_tensor(obs, dtype=torch.float32), total, terminated, truncated


def make_world(s: Setting) -> Any:
    return SyntheticWorld(s) if s.kind == "se" else GymWorld(s)


class Replay:
    """Rows (s, a, r, s', done) in tensors of fixed size."""

    def __init__(self, observation: int, action: int, size: int = 100_000) -> None:
        self.s, self.s2 = torch.zeros(size, observation), torch.zeros(size, observation)
        self.a, self.r, self.d = torch.zeros(size, action), torch.zeros(size, 1), torch.zeros(size, 1)
        self.size, self.n = size, 0

    def add(self, s: Tensor, a: Tensor, r: float, s2: Tensor, done: bool) -> None:
        i = self.n % self.size
        self.s[i], self.a[i], self.r[i], self.s2[i], self.d[i] = s, a, r, s2, float(done)
        self.n += 1

    def sample(self, batch: int) -> Tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        i = torch.randint(min(self.n, self.size), (batch,))
        return self.s[i], self.a[i], self.r[i], self.s2[i], self.d[i]


@torch.no_grad()
def soft_update(net: nn.Module, target: nn.Module, tau: float) -> None:
    for p, q in zip(net.parameters(), target.parameters()):
        q.lerp_(p, tau)


def measure_plain(
    script: Callable[[Setting], Callable[[int], None]], case: str, members: int | None, quick: bool
) -> Dict[str, Any]:
    """script(setting) -> a function that trains one agent for n steps more."""
    torch.manual_seed(0)
    return measure(cpu_time(script(SETTINGS[case])), 20, quick=quick)
