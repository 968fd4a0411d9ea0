"""Twin delayed DDPG (TD3, Fujimoto et al. 2018, https://arxiv.org/abs/1802.09477) for a population.

DDPG (Lillicrap et al. 2015, https://arxiv.org/abs/1509.02971) is the same with one critic, no noise on the target's
action and no delay: ``twin: false``, ``policy_std: 0``, ``policy_delay: 1``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, List, Tuple

import torch
from torch import Tensor

from envolve.agents.common.hyper import Hyper, column
from envolve.agents.common.population import Nets, adam
from envolve.agents.common.sections import TD3DiscreteSection, TD3Section
from envolve.agents.off_policy.algorithm import AgentRows, Algorithm
from envolve.core import rng
from envolve.envs.nets.networks import MLPShape, fast_tanh_, forward
from envolve.envs.task import Task


@dataclass
class TD3Rows(AgentRows):
    actor_updates: Tensor  # int64 [L], the actor's alone: its Adam counts apart from the critics'
    action_std: Tensor  # float32 [L, 1], as the next two
    policy_std: Tensor
    policy_std_clip: Tensor


class TD3(Algorithm):
    """Three nets, actor | critic 1 | critic 2; a critic reads [observation, action]. Without ``twin`` there is
    no critic 2. The actor follows critic 1 in any case, so results in bandits, which need no targets, are the same.

    The actor's action is max_action tanh(MLP(s)). The actor and all targets are updated at the decisions whose number
    is divisible by policy_delay.

    Noise on the target's action is in the task's own units, as in the original code: N(0, policy_std) clipped at
    policy_std_clip, whatever max_action is. (Fujimoto's own code multiplies both by max_action.) Exploration noise is
    N(0, action_std max_action).

    Random numbers: 2 A per decision, A uniforms and A normals. The target's noise in update u (from 1), sample i, has
    for entry j of the action the counter (65536 u + i) A + j.
    """

    section_class = TD3Section
    actions = "continuous"
    action_columns = 0
    section: TD3Section
    rows: TD3Rows
    noises = 1  # kinds of random numbers in an update, A per sample and kind

    def __init__(self, task: Task, hyper: Hyper, nets: Nets, params: Tensor, width: Tensor) -> None:
        super().__init__(task, hyper, nets, params, width)
        self.A = self.columns
        self.policy_delay = self.section.policy_delay

    @classmethod
    def nets_of(cls, task: Task, section: Any, hidden: int, layers: int) -> Nets:
        F, A = task.observation_size, task.num_actions or task.action_size
        norm = isinstance(section, TD3DiscreteSection) and section.use_layer_norm
        critic = MLPShape(F + A, 1, hidden, layers, section.activation_fn, norm)
        actor = MLPShape(F, A, hidden, layers, section.activation_fn, norm)
        return (actor, critic, critic) if getattr(section, "twin", True) else (actor, critic)

    def initial_rows(self, hyper: Hyper, params: Tensor) -> Any:
        return TD3Rows(*self.td3_fields(hyper, params))

    def td3_fields(self, hyper: Hyper, params: Tensor) -> Tuple[Tensor, ...]:
        """Fields of ``TD3Rows``, in their order."""
        stds = (
            column(hyper, name, params.device, torch.float32)[:, None]
            for name in ("action_std", "policy_std", "policy_std_clip")
        )
        counts = torch.zeros(len(params), dtype=torch.int64, device=params.device)
        return (*self.common(hyper, params), counts, *stds)

    def parts(self, flat: Tensor) -> Tuple[Tensor, ...]:
        """Splits flat [L, D] into views of actor, critic 1 and, with ``twin``, critic 2."""
        return tuple(flat.split([net.size for net in self.nets], dim=1))

    # ------------------------------------------------------------------------------------------------------- acting

    def draws(self, key: Tensor, first: int, count: int) -> Tuple[Tensor, ...]:
        """Draws uniform actions and exploration noise, [count, L, A] each."""
        device, bound = key.device, self.task.max_action
        decision = torch.arange(first, first + count, device=device)[:, None, None]
        counter = decision * (2 * self.A) + torch.arange(self.A, device=device)
        uniform = (2 * rng.uniform(key[:, None], counter) - 1) * bound
        return uniform, rng.normal(key[:, None], counter + self.A)

    def explore(self, obs: Tensor, episode: Tensor, draw: Tuple[Tensor, ...]) -> Tuple[Tensor, Tensor]:
        """Actions: uniform before ``init_episodes``, then the actor's action with noise."""
        uniform, noise = draw
        noisy = self.with_noise(self.greedy(obs).flatten(1), noise)
        action = torch.where((episode < self.section.init_episodes)[:, None], uniform, noisy)
        return action.view(*obs.shape[:2], -1), action

    def greedy(self, obs: Tensor) -> Tensor:
        actor = self.parts(self.rows.params)[0]
        return self.action(actor, obs.transpose(1, 2)).transpose(1, 2)

    def test_action(self, obs: Tensor, key: Tensor, counter: Tensor) -> Tensor:
        """Test actions: greedy; with ``test_noise`` as in training, step c with the counters A c + j."""
        action = self.greedy(obs)
        if not self.section.test_noise:
            return action
        number = counter[..., None] * self.A + torch.arange(self.A, device=key.device)
        shape = action.shape
        return self.with_noise(action.flatten(1), rng.normal(key[:, None, None], number).flatten(1)).view(shape)

    def action(self, actor: Tensor, s: Tensor) -> Tensor:
        """Actor's actions max_action tanh(MLP(s)): s [L, F, B] -> [L, A, B]."""
        return fast_tanh_(forward(self.nets[0], actor, s, self.width)) * self.task.max_action

    def with_noise(self, action: Tensor, normal: Tensor) -> Tensor:
        """Adds exploration noise to an action. action, normal: [L, n]."""
        bound = self.task.max_action
        return torch.addcmul(action, normal, self.rows.action_std, value=bound).clamp_(-bound, bound)

    # ------------------------------------------------------------------------------------------------------- update

    def rates(self, learns: Tensor) -> Tuple[Tensor, Tensor]:
        """Learning rates of the critics and of the actor, [L]; learns: bool [L]."""
        lr = self.rows.lr * learns
        return lr, lr

    def update(
        self, batch: Tensor, weight: Tensor, learns: Tensor, updates: Tensor, noise_key: Tensor, actor: bool
    ) -> None:
        r, D = self.rows, self.nets[0].size
        s, s_next, action, reward, done = self.split(batch)
        next_action = self.target_action(s_next, noise_key, updates)
        y = reward + r.gamma * (1 - done) * self.target_value(s_next, next_action)
        grad = self.critics_gradient(s, action, y, weight)
        lr, actor_lr = self.rates(learns)
        adam(r.params[:, D:], grad, r.m[:, D:], r.v[:, D:], updates, lr)
        if actor:
            r.actor_updates += learns
            grad = self.actor_gradient(s, weight, noise_key, updates)
            adam(r.params[:, :D], grad, r.m[:, :D], r.v[:, :D], r.actor_updates.clamp(min=1), actor_lr)
            r.target.lerp_(r.params, r.tau)

    def update_counters(self, noise_key: Tensor, updates: Tensor, batch: int, kind: int) -> Tuple[Tensor, Tensor]:
        """Keys [L, 1, 1] and counters [A, B] of the random numbers number ``kind`` of this update."""
        per_sample = self.noises * self.A
        i = torch.arange(batch, device=updates.device) * per_sample
        j = torch.arange(self.A, device=updates.device)[:, None] + kind * self.A
        return rng.advance(noise_key, updates * (65536 * per_sample))[:, None, None], i + j

    def target_noise(self, noise_key: Tensor, updates: Tensor, batch: int, kind: int) -> Tensor:
        """Clipped target noise N(0, policy_std), [L, A, B]."""
        std, clip = self.rows.policy_std[:, :, None], self.rows.policy_std_clip[:, :, None]
        noise = rng.normal(*self.update_counters(noise_key, updates, batch, kind)).mul_(std)
        return torch.minimum(torch.maximum(noise, -clip), clip)

    @torch.no_grad()
    def target_action(self, s_next: Tensor, noise_key: Tensor, updates: Tensor) -> Tensor:
        """Target action: the target actor's action at s' with clipped noise, [L, A, B]."""
        bound = self.task.max_action
        noise = self.target_noise(noise_key, updates, s_next.shape[2], 0)
        return self.action(self.parts(self.rows.target)[0], s_next).add_(noise).clamp_(-bound, bound)

    @torch.no_grad()
    def value(self, s: Tensor, action: Tensor) -> Tensor:
        """Smaller value of the critics, [L, B]."""
        return self.smallest(self.rows.params, torch.cat((s, action), dim=1))

    def smallest(self, flat: Tensor, x: Tensor) -> Tensor:
        """Smallest of the critics' values, [L, B]. flat: [L, D]; x: what critics read, [L, F + A, B]."""
        values = [forward(self.nets[1], critic, x, self.width)[:, 0] for critic in self.parts(flat)[1:]]
        return values[0] if len(values) == 1 else torch.minimum(*values)

    @torch.no_grad()
    def target_value(self, s_next: Tensor, next_action: Tensor) -> Tensor:
        """Smaller value of the target critics, [L, B]."""
        return self.smallest(self.rows.target, torch.cat((s_next, next_action), dim=1))

    def critics_gradient(self, s: Tensor, action: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        """Critics' gradient [L, D] of each member's sum over its batch of weight ((Q1 - y)^2 + (Q2 - y)^2)."""
        x = torch.cat((s, action), dim=1)
        grads: List[Tensor] = []
        for shape, critic in zip(self.nets[1:], self.parts(self.rows.params)[1:]):
            leaf = critic.detach().requires_grad_()
            q = forward(shape, leaf, x, self.width)
            dq = (q.detach() - y[:, None]).mul_((2 * weight)[:, None])  # dloss/dq; autograd does the rest
            grads.append(torch.autograd.grad(q, leaf, dq)[0])
        return torch.cat(grads, dim=1)

    def actor_gradient(self, s: Tensor, weight: Tensor, noise_key: Tensor, updates: Tensor) -> Tensor:
        """Actor's gradient [L, D] of each member's sum over its batch of -weight Q1(s, action(s))."""
        actor, critic = self.parts(self.rows.params)[:2]
        leaf = actor.detach().requires_grad_()
        action, taken = self.differentiable_action(leaf, s, noise_key, updates)
        # dQ/da with the critic held fixed, then that through the actor: no gradient by the critic's weights
        x = torch.cat((s, taken), dim=1).requires_grad_()
        q = forward(self.nets[1], critic.detach(), x, self.width)
        dx = torch.autograd.grad(q, x, -weight[:, None])[0]
        return torch.autograd.grad(action, leaf, dx[:, s.shape[1] :])[0]

    def differentiable_action(
        self, leaf: Tensor, s: Tensor, noise_key: Tensor, updates: Tensor
    ) -> Tuple[Tensor, Tensor]:
        """Action that carries the gradient, and the value of it that the critic sees, [L, A, B]."""
        action = self.action(leaf, s)
        return action, action.detach()
