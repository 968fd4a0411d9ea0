"""A bandit fitted in units of each feature's standard deviation, then written in the task's own units.

Features of different sizes, as positions and velocities of a robot are, make the fit slow: on HalfCheetah-v5 it hardly
begins. The networks of a world take and give the task's own units, so the units go into their outer layers:

    reward(a, x) = net(a, (x - m) / s):  W_x <- W_x / s,  b <- b - sum_x W_x m
    draw(z) = m + s net(z):              W <- W s,        b <- b s + m
    stored contexts:                     x <- m + s x

Python 3.8.
"""

from __future__ import annotations

from typing import Callable

from torch import Tensor

from envolve.envs.section import EnvSection
from envolve.envs.task import Task
from envolve.envs.worlds.world import world_nets
from envolve.outer.distil.bandit import fit_bandit
from envolve.outer.distil.energy import units_of


def fit_in_units(
    task: Task, section: EnvSection, contexts: Tensor, act: Callable[[Tensor], Tensor], key: int, steps: int = 0
) -> Tensor:
    """``fit_bandit`` in units of each feature -> the parameters in the task's units, float32 [D]. One-hot codes have
    no units."""
    mean, scale = contexts.mean(0), units_of(contexts, task.codes)
    for begin, end in task.codes:
        mean[begin:end] = 0
    flat = fit_bandit(task, section, (contexts - mean) / scale, lambda x: act(x * scale + mean), key, steps)
    return written(task, section, flat, mean, scale)


def written(task: Task, section: EnvSection, flat: Tensor, mean: Tensor, scale: Tensor) -> Tensor:
    """The same bandit for observations mean + scale * x. flat: float32 [D]; mean, scale: float32 [F]."""
    init, reward = (shape for _, shape in world_nets("se", task, section))
    flat = flat.clone()
    drawing, paying = flat[: init.size], flat[init.size :]
    offset, k, m = init.layer_offsets()[-1]
    weights, bias = drawing[offset : offset + k * m].view(k, m), drawing[offset + k * m : offset + k * m + m]
    weights *= scale  # W <- W s
    if section.stored_contexts:
        weights += mean
    else:
        bias.mul_(scale).add_(mean)  # b <- b s + m
    offset, k, m = reward.layer_offsets()[0]
    weights, bias = paying[offset : offset + k * m].view(k, m), paying[offset + k * m : offset + k * m + m]
    of_state = weights[k - len(mean) :]  # behind the action's inputs
    of_state /= scale[:, None]  # W_x <- W_x / s
    bias -= (of_state * mean[:, None]).sum(0)  # b <- b - sum_x W_x m, with the new W_x
    return flat
