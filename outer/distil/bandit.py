"""A contextual bandit fitted to a policy: its contexts are like given states, and it pays most for the policy's action.

It has the networks of an evolved bandit, so the same agents train in it. Contexts are fitted by energy distance, or
stored. The reward is fitted where it is read: at contexts that the bandit draws itself as well as at given ones, or at
those that it stores.

discrete actions    1 for the policy's action, -1 for any other; all actions of a context in the same minibatch
continuous ones     minus the distance to the policy's action, at actions anywhere and near it. Off-policy learners
                    follow the distance better than its square, which is flat where it matters.

All draws come from one generator of torch, seeded by the key. Python 3.8.
"""

from __future__ import annotations

from typing import Callable, Sequence, Tuple

import torch
from torch import Tensor

from envolve.core import rng
from envolve.envs.nets.networks import LATENT_SCALE, MLPShape, forward
from envolve.envs.section import EnvSection
from envolve.envs.task import Task
from envolve.envs.worlds.contextual_bandit import encoded
from envolve.envs.worlds.world import init_world, world_nets
from envolve.outer.distil.descend import descend
from envolve.outer.distil.energy import energy_loss, softened, units_of
from envolve.outer.distil.stored import chosen

CONTEXT_STEPS, CONTEXT_BATCH = 1000, 256
STEPS = 3000
BATCH = 512  # contexts of a minibatch with one continuous action each
ROWS, LEAST_BATCH = 1024, 32  # of a minibatch with all discrete actions of each context: rows about, contexts at least
LR = 1e-2  # of Adam, falls to a twentieth
# Contexts, drawn by the bandit itself and given ones, at which the reward is fitted: for every STEPS steps that are
# whole, once at least. More steps at the same contexts would learn these by heart.
OWN, GIVEN = 8192, 4096
NEAR = 0.3  # standard deviation, in largest actions, of those drawn near the policy's


def fit_bandit(
    task: Task, section: EnvSection, contexts: Tensor, act: Callable[[Tensor], Tensor], key: int, steps: int = 0
) -> Tensor:
    """The parameters of a contextual bandit that teaches a policy, float32 [D].

    contexts: float32 [n, F], observations that its own shall be like, or of which it stores some; act: observations
    [n, F] -> the policy's actions, int64 [n] or float32 [n, A]. steps: of the reward's fit; 0: the default.
    """
    steps = steps or STEPS
    init, reward = (shape for _, shape in world_nets("se", task, section))
    flat = init_world("se", task, section, torch.tensor([key]))
    generator = rng.generator(key)
    times = max(1, steps // STEPS)
    if section.stored_contexts:
        state = chosen(contexts, section.stored_contexts, key)
        drawing = state.view(1, -1)
    else:
        drawing = fit_contexts(init, flat[:, : init.size], contexts, generator, task.codes)
        with torch.no_grad():
            own = encoded(drawn(init, drawing, times * OWN, generator), task.codes)
        state = torch.cat((own, rows(contexts, times * GIVEN, generator)))
    with torch.no_grad():
        best = act(state)
    loss = (distances if task.action_size else choices)(task, reward, state, best, generator)
    return torch.cat((drawing, minimise(flat[:, init.size :], loss, steps)), 1)[0]


def choices(
    task: Task, reward: MLPShape, state: Tensor, best: Tensor, generator: torch.Generator
) -> Callable[[Tensor], Tensor]:
    """Loss of reward_net's parameters [1, D]: the mean of (reward(a, s) - (1 if a = best(s) else -1))^2 over a
    minibatch of contexts and all their actions. state: float32 [n, F]; best: int64 [n]."""
    actions = torch.eye(task.num_actions)
    batch = max(LEAST_BATCH, ROWS // task.num_actions)

    def loss(flat: Tensor) -> Tensor:
        i = torch.randint(len(state), (batch,), generator=generator)
        code = actions.repeat(batch, 1)  # every action of the first context, then of the second
        x = torch.cat((code, state[i].repeat_interleave(task.num_actions, 0)), 1)
        wanted = 2.0 * actions[best[i]].flatten() - 1
        return (forward(reward, flat, x.T.unsqueeze(0))[0, 0] - wanted).square().mean()

    return loss


def distances(
    task: Task, reward: MLPShape, state: Tensor, best: Tensor, generator: torch.Generator
) -> Callable[[Tensor], Tensor]:
    """Loss of reward_net's parameters [1, D]: the mean of (reward(a, s) + |a - best(s)|)^2 over a minibatch, |.| the
    mean over A in units of the largest action. Every second action is anywhere, the others near the best one. state:
    float32 [n, F]; best: float32 [n, A]."""
    code = best / task.max_action

    def loss(flat: Tensor) -> Tensor:
        i = torch.randint(len(state), (BATCH,), generator=generator)
        best = code[i]
        near = best + NEAR * torch.randn(best.shape, generator=generator)
        anywhere = 2 * torch.rand(best.shape, generator=generator) - 1
        action = torch.where(torch.arange(BATCH)[:, None] % 2 == 0, anywhere, near.clamp(-1, 1))
        x = torch.cat((action * task.max_action, state[i]), 1)
        return (forward(reward, flat, x.T.unsqueeze(0))[0, 0] + (action - best).abs().mean(1)).square().mean()

    return loss


def fit_contexts(
    init: MLPShape,
    flat: Tensor,
    contexts: Tensor,
    generator: torch.Generator,
    codes: Sequence[Tuple[int, int]] = (),
) -> Tensor:
    """Parameters [1, D] of init_net, whose states shall be like ``contexts`` [n, F], in which ``codes`` are one-hot."""
    scale = units_of(contexts, codes)

    def loss(flat: Tensor) -> Tensor:
        own = softened(drawn(init, flat, CONTEXT_BATCH, generator), codes)
        return energy_loss(own / scale, rows(contexts, CONTEXT_BATCH, generator) / scale)

    return minimise(flat, loss, CONTEXT_STEPS)


def drawn(init: MLPShape, flat: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """States that init_net draws, float32 [count, F]."""
    u = torch.rand(1, init.inputs, count, generator=generator)
    return forward(init, flat, LATENT_SCALE * (u - 0.5))[0].T


def rows(data: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Random rows of data [n, ...], with replacement -> [count, ...]."""
    return data[torch.randint(len(data), (count,), generator=generator)]


def minimise(flat: Tensor, loss: Callable[[Tensor], Tensor], steps: int) -> Tensor:
    """Minimises loss(flat) from ``flat`` [1, D] -> [1, D]."""
    return descend(flat, lambda now, _: loss(now), steps, LR, 0.05)
