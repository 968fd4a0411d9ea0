"""Small networks fitted by supervised learning: the controls beside which worlds that were evolved are judged.

``fit_classifier``  a policy fitted to labelled states
``fit_potential``   a reward network whose potential is a given value function

``bandit.py`` has the third one, a bandit that teaches a policy.
"""

from __future__ import annotations

from typing import Callable

import torch
from torch import Tensor

from envolve.core import rng
from envolve.envs.nets.networks import MLPShape, forward, init_flat
from envolve.envs.section import EnvSection
from envolve.envs.task import Task
from envolve.envs.worlds.world import world_nets
from envolve.outer.distil.descend import descend
from envolve.outer.distil.energy import units_of
from envolve.outer.distil.policy import Policy, of_observation

STEPS, BATCH, LR = 2000, 256, 3e-3  # of every fit; the learning rate falls to a tenth
CLASSIFIER_UNITS = 64


def minimise(flat: Tensor, loss: Callable[[Tensor, int], Tensor], steps: int = STEPS) -> Tensor:
    """Minimises loss(flat, step) from ``flat`` [1, D] -> [1, D]."""
    return descend(flat, loss, steps, LR, 0.1)


def draws(key: Tensor, step: int, count: int) -> Tensor:
    """Uniform random numbers of one step of a fit, float64 [count]."""
    return rng.uniform(key[:, None], (step * count + torch.arange(count))[None])[0]


def batch_of(data: Tensor, key: Tensor, step: int) -> Tensor:
    """Random rows of data [n, ...], with replacement -> [BATCH, ...]."""
    return data[(draws(key, step, BATCH) * len(data)).long()]


def fit_classifier(task: Task, states: Tensor, labels: Tensor, key: int) -> Policy:
    """Fits a policy with one hidden layer to labelled observations: cross entropy for discrete actions, squared error
    for continuous ones. states: float32 [n, F]; labels: int64 [n] or float32 [n, A]."""
    outputs = task.num_actions or task.action_size
    shape, seed = MLPShape(task.observation_size, outputs, CLASSIFIER_UNITS, 1, "tanh"), torch.tensor([key])
    stream, mean, scale = rng.fold(seed, rng.LABELS), states.mean(0), units_of(states)
    both = torch.cat((((states - mean) / scale), labels.float().view(len(states), -1)), 1)

    def loss(flat: Tensor, step: int) -> Tensor:
        rows = batch_of(both, stream, step)
        out = forward(shape, flat, rows[:, : states.shape[1]].T.unsqueeze(0))[0].T
        target = rows[:, states.shape[1] :]
        if task.num_actions:
            return torch.nn.functional.cross_entropy(out, target[:, 0].long())
        return (out - target).square().mean()

    flat = minimise(init_flat(shape, seed), loss)

    def act(observation: Tensor) -> Tensor:
        x = ((observation - mean) / scale).transpose(1, 2)
        out = forward(shape, flat.expand(len(x), -1), x).transpose(1, 2)
        return out.argmax(-1) if task.num_actions else out.clamp(-task.max_action, task.max_action)

    return of_observation(task, act)


def fit_potential(task: Task, section: EnvSection, values: Tensor, key: int) -> Tensor:
    """The parameters of a reward network whose potential is ``values`` [num_states], of a finite task: float32 [D]."""
    ((_, shape),) = world_nets("rn", task, section)
    x, seed = torch.eye(len(values)).unsqueeze(0), torch.tensor([key])
    return minimise(init_flat(shape, seed), lambda flat, _: (forward(shape, flat, x)[0, 0] - values).square().mean())[0]
