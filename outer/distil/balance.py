"""Contexts at which the best action is near zero on average, so that no learner runs to a bound before it can tell
contexts apart.

TD3 and DDPG learn first what is best on average. If that is near a bound, their tanh ends there in every context, and
they never again see another action (docs/results/robot_bandits.md, "Where TD3 gets stuck").

Entropy balancing (Hainmueller 2012, https://doi.org/10.1093/pan/mpr025): of all weights p of the contexts under which
the mean action is zero those that are nearest to equal ones. With a ridge they are

    p_i = exp(l . a_i) / sum_j exp(l . a_j),    l minimises  log(mean_i exp(l . a_i)) + RIDGE/2 |l|^2

and leave a mean action of -RIDGE l. More contexts count then, and there is a minimum where no weights reach zero.

Axes: n contexts, A components of an action. Python 3.8.
"""

from __future__ import annotations

import torch
from torch import Tensor

from envolve.core import rng

RIDGE = 0.1
STEPS, ENOUGH = 100, 1e-9  # of Newton's method: the most, and the gradient at which it ends
LEAST = 1e-4  # Armijo's rule: the share of the expected decrease that a step must bring, or it is halved


def balanced(contexts: Tensor, actions: Tensor, key: int) -> Tensor:
    """As many rows of ``contexts`` [n, F], some of them several times and others not at all. actions: the best ones,
    float32 [n, A], in units of the largest action."""
    generator = rng.generator(key)
    share = weights_of(actions).cumsum(0)
    n = len(contexts)
    at = (torch.arange(n) + torch.rand(1, generator=generator, dtype=torch.float64)) / n  # systematic resampling
    return contexts[torch.searchsorted(share, at * share[-1]).clamp(max=n - 1)]


def weights_of(actions: Tensor) -> Tensor:
    """p, float64 [n]. actions: [n, A]."""
    a = actions.double()
    tilt = a.new_zeros(a.shape[1])
    for _ in range(STEPS):
        p = torch.softmax(a @ tilt, 0)
        mean = p @ a
        gradient = mean + RIDGE * tilt
        if float(gradient.abs().max()) < ENOUGH:
            break
        off = a - mean
        curvature = off.T @ (off * p[:, None]) + RIDGE * torch.eye(len(tilt), dtype=a.dtype)
        step = -torch.linalg.solve(curvature, gradient)
        before, promised, size = _objective(a, tilt), float(gradient @ step), 1.0
        while _objective(a, tilt + size * step) > before + LEAST * size * promised and size > ENOUGH:
            size /= 2
        tilt = tilt + size * step
    return torch.softmax(a @ tilt, 0)


def _objective(a: Tensor, tilt: Tensor) -> float:
    return float(torch.logsumexp(a @ tilt, 0) + RIDGE / 2 * tilt.square().sum())
