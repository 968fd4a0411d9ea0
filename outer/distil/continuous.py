"""A contextual bandit fitted to a policy of continuous actions: a reward that is highest at the policy's action.

Its contexts are fitted as those of discrete actions are, by energy distance, or stored. The reward is fitted
where it is read: at contexts that the bandit draws itself as well as at given ones, or at those that it stores; at
actions anywhere and near the policy's. It is minus the distance, which off-policy learners follow better than its
square: the square is flat where it matters.

All draws come from one generator of torch, seeded by the key.
"""

from __future__ import annotations

from typing import Callable, Sequence, Tuple

import torch
from torch import Tensor

from envolve.envs.nets.networks import MLPShape, forward
from envolve.envs.section import EnvSection
from envolve.envs.task import Task
from envolve.envs.worlds.contextual_bandit import LATENT_SCALE, encoded
from envolve.envs.worlds.world import init_world, world_nets
from envolve.outer.distil.descend import descend
from envolve.outer.distil.energy import energy_loss, softened, units_of
from envolve.outer.distil.stored import chosen

CONTEXT_STEPS, CONTEXT_BATCH = 1000, 256
STEPS, BATCH = 3000, 512
LR = 1e-2  # of Adam, falls to a twentieth
# Contexts, drawn by the bandit itself and given ones, at which the reward is fitted: for every STEPS steps that are
# whole, once at least. More steps at the same contexts would learn these by heart.
OWN, GIVEN = 8192, 4096
NEAR = 0.3  # standard deviation, in largest actions, of those drawn near the policy's


def fit_bump(
    task: Task, section: EnvSection, contexts: Tensor, act: Callable[[Tensor], Tensor], key: int, steps: int = STEPS
) -> Tensor:
    """The parameters of a contextual bandit that teaches a policy, float32 [D].

    contexts: float32 [n, F], observations that its own shall be like; act: observations [n, F] -> the policy's actions,
    float32 [n, A]. It pays minus the mean over A of |a - act(s)| in units of the largest action. steps: of the
    reward's fit.
    """
    init, reward = (shape for _, shape in world_nets("se", task, section))
    flat = init_world("se", task, section, torch.tensor([key]))
    generator = torch.Generator().manual_seed(key & (2**63 - 1))
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
        code = act(state) / task.max_action

    def loss(flat: Tensor) -> Tensor:
        i = torch.randint(len(state), (BATCH,), generator=generator)
        best = code[i]
        near = best + NEAR * torch.randn(best.shape, generator=generator)
        anywhere = 2 * torch.rand(best.shape, generator=generator) - 1
        action = torch.where(torch.arange(BATCH)[:, None] % 2 == 0, anywhere, near.clamp(-1, 1))
        x = torch.cat((action * task.max_action, state[i]), 1)
        return (forward(reward, flat, x.T.unsqueeze(0))[0, 0] + (action - best).abs().mean(1)).square().mean()

    return torch.cat((drawing, minimise(flat[:, init.size :], loss, steps)), 1)[0]


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
