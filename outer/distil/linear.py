"""The linear policy that is nearest to an expert's, by dataset aggregation (Ross et al. 2011,
https://arxiv.org/abs/1011.0686): fit to what the expert does in the states so far, play the fit, add the states that it
visits, and so on. The fit of the round with the highest return is kept.

The policy is that of ``ars.py``, clip(W (s - mean) / std) in units of the largest action, which has no bias. The fit's
bias b goes into the mean: W (x - m) = W x + b for W m = -b, of which m is the shortest solution; where there is none,
the nearest. Python 3.8.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Callable, Tuple

import numpy as np
import torch
from torch import Tensor

from envolve.core import rng
from envolve.envs.task import Task
from envolve.outer.distil.bandit import minimise
from envolve.outer.distil.energy import units_of
from envolve.outer.distil.policy import of_observation, play

ROUNDS, EPISODES = 10, 4  # of play
STEPS, BATCH = 1500, 512  # of the fit of a round
LEAK = 0.05  # slope of the clipping where it clips, in the fit: a policy that is clipped everywhere still learns


@dataclass
class Linear:
    weights: Tensor  # W, float32 [A, F]
    mean: Tensor  # float32 [F]
    std: Tensor  # float32 [F]
    steps: int  # on the task


def nearest_linear(task: Task, act: Callable[[Tensor], Tensor], states: Tensor, key: int) -> Linear:
    """act: observations [n, F] -> the expert's actions, float32 [n, A]; states: float32 [n, F], that it has visited."""
    generator = rng.generator(key)
    episodes = int(rng.fold(torch.tensor([key]), rng.PLAYED))
    mean, std = states.mean(0), units_of(states)
    weights, bias = torch.zeros(task.action_size, states.shape[1]), torch.zeros(task.action_size)
    best, kept, steps = -np.inf, (weights, bias), 0
    for number in range(ROUNDS):
        wanted = act(states) / task.max_action
        weights, bias = _fit(weights, bias, (states - mean) / std, wanted, generator)
        played = play(task, of_observation(task, _policy(task, weights, bias, mean, std)),
                      np.array([episodes + number]), EPISODES, keep=True)  # fmt: skip
        steps += int(played.steps.sum())
        score = float(played.returns.mean())
        if score > best:
            best, kept = score, (weights, bias)
        states = torch.cat((states, played.observations))
    weights, bias = kept
    shift = torch.linalg.lstsq(weights, -bias[:, None], driver="gelsd").solution[:, 0]
    return Linear(weights, mean + shift * std, std, steps)


def _fit(weights: Tensor, bias: Tensor, x: Tensor, wanted: Tensor, generator: torch.Generator) -> Tuple[Tensor, Tensor]:
    """Minimises the mean distance of the clipped policy to ``wanted`` [n, A] over x [n, F]."""
    A, F = weights.shape

    def loss(flat: Tensor) -> Tensor:
        i = torch.randint(len(x), (BATCH,), generator=generator)
        out = x[i] @ flat[0, : A * F].view(A, F).T + flat[0, A * F :]
        # |a - w| with a = clip(out) + LEAK out, and w = wanted + LEAK wanted: 0 where out is ``wanted``
        return (out.clamp(-1, 1) + LEAK * out - (1 + LEAK) * wanted[i]).abs().mean()

    flat = minimise(torch.cat((weights.flatten(), bias))[None], loss, STEPS)[0]
    return flat[: A * F].view(A, F), flat[A * F :]


def _policy(task: Task, weights: Tensor, bias: Tensor, mean: Tensor, std: Tensor) -> Callable[[Tensor], Tensor]:
    return lambda x: ((x - mean) / std @ weights.T + bias).clamp(-1, 1) * task.max_action
