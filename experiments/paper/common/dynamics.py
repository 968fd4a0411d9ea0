"""Models of a task's dynamics with the networks of an SE: fitted to steps of the task, not evolved.

Learning a model and training in it is the plainest model-based reinforcement learning (Sutton 1991,
https://doi.org/10.1145/122344.122377); here it is the control for SEs, which nothing makes resemble the task.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from envolve.agents.common.population import adam
from envolve.core import rng
from envolve.envs.nets.networks import forward
from envolve.envs.section import EnvSection
from envolve.envs.task import Task
from envolve.envs.worlds.world import init_world, world_nets
from envolve.experiments.paper.common.watched import Steps

NETS = ("state_net", "reward_net", "done_net")
EPOCHS, BATCH, LR = 50, 1024, 1e-4
STREAM = 65  # of the order of steps, beside those of core/rng.py and noise_threshold.py
AT_ONCE = 8192  # steps whose error is measured at once: memory


@dataclass
class Fitted:
    """Axes: P worlds, E epochs, 3 nets (NETS), F numbers of an observation."""

    flat: Tensor  # float32 [P, D]
    fresh: Tensor  # float32 [P, D], before fitting
    train_error: np.ndarray  # [P, E, 3] mean squared error during the epoch, while the nets change
    held_out_error: np.ndarray  # [P, E, 3] mean squared error after it, on steps that nothing was fitted to
    output_error: np.ndarray  # [P, F + 2] the last of them, of every output: next observation, reward, done
    output_change: np.ndarray  # [P, F] mean squared change of an observation in a step: the error of "nothing moves"


def rows(task: Task, steps: Steps) -> Tensor:
    """float32 [n, K + F + 2]: the input of an SE's nets (the action, one-hot if discrete, then the observation), and
    what they are to answer: next observation, reward, done."""
    action = torch.from_numpy(np.asarray(steps.action))
    code = action if task.action_size else torch.nn.functional.one_hot(action, task.num_actions)
    numbers = (torch.from_numpy(np.asarray(v)) for v in (steps.reward, steps.done))
    observations = (torch.from_numpy(v) for v in (steps.observation, steps.next_observation))
    return torch.cat([c.to(torch.float32) for c in (code, *observations, *(v[:, None] for v in numbers))], 1)


def fit(
    task: Task,
    section: EnvSection,
    train: Tensor,
    held_out: Tensor,
    keys: np.ndarray,
    epochs: int = EPOCHS,
    batch: int = BATCH,
    lr: float = LR,
) -> Fitted:
    """The three nets of P worlds by mean squared error with Adam, side by side: each world to steps of its own, in an
    order of its own in every epoch.

    train, held_out: float32 [P, n, columns], see :func:`rows`; keys: int64 [P]. Raises ValueError if an error is not
    finite.
    """
    began, seeds = time.monotonic(), torch.as_tensor(keys)
    fresh = init_world("se", task, section, seeds)
    P, n, flat = len(keys), train.shape[1], fresh.clone()
    m, v, update = torch.zeros_like(flat), torch.zeros_like(flat), torch.zeros(P, dtype=torch.int64)
    rate, order_key = torch.full((P,), lr, dtype=torch.float64), rng.fold(seeds, STREAM)[:, None]
    errors: dict[str, list[Tensor]] = {"train": [], "held out": []}
    for epoch in range(epochs):
        order = rng.bits(order_key, epoch * n + torch.arange(n)).argsort(1)
        total = torch.zeros(P, 3, dtype=torch.float64)
        for lo in range(0, n, batch):
            chosen = order[:, lo : lo + batch]
            part = train.gather(1, chosen[:, :, None].expand(-1, -1, train.shape[2]))
            weights = flat.requires_grad_(True)
            loss = torch.stack([e.mean((1, 2)) for e in squared_errors(task, section, weights, part)], 1)  # [P, 3]
            (grad,) = torch.autograd.grad(loss.sum(), weights)  # worlds and nets share no weights
            flat = weights.detach()
            update += 1
            adam(flat, grad, m, v, update, rate)
            total += loss.detach().double() * chosen.shape[1]
        errors["train"].append(total / n)
        by_output = output_errors(task, section, flat, held_out)
        errors["held out"].append(by_net(by_output))
        if not torch.isfinite(by_output).all():
            raise ValueError(f"epoch {epoch + 1}: found errors that are not finite, expected a fit")
        seconds = time.monotonic() - began
        middle = errors["held out"][-1].mean(0).tolist()
        words = ", ".join(f"{name} {e:.3g}" for name, e in zip(NETS, middle))
        print(f"epoch {epoch + 1} of {epochs}: held-out squared errors: {words}, {seconds:.0f} s", file=sys.stderr)
    F = task.observation_size
    K = held_out.shape[2] - F - 2
    change = (held_out[:, :, K : K + F] - held_out[:, :, K - F : K]).double().square().mean(1)
    curves = [torch.stack(errors[what], 1).numpy() for what in ("train", "held out")]
    return Fitted(flat, fresh, curves[0], curves[1], by_output.numpy(), change.numpy())


def squared_errors(task: Task, section: EnvSection, flat: Tensor, part: Tensor) -> Iterator[Tensor]:
    """Outputs of each net, [P, outputs, B]. flat: [P, D]; part: [P, B, columns]."""
    nets = world_nets("se", task, section)
    inputs = task.action_inputs + task.observation_size
    x, target = part[:, :, :inputs].transpose(1, 2), part[:, :, inputs:].transpose(1, 2)
    begin, first = 0, 0
    for _, shape in nets:
        answer = forward(shape, flat[:, begin : begin + shape.size], x)
        yield (answer - target[:, first : first + shape.outputs]).square()
        begin, first = begin + shape.size, first + shape.outputs


def output_errors(task: Task, section: EnvSection, flat: Tensor, steps: Tensor) -> Tensor:
    """Mean squared error of every output, float64 [P, F + 2]."""
    total = torch.zeros(len(flat), task.observation_size + 2, dtype=torch.float64)
    for lo in range(0, steps.shape[1], AT_ONCE):
        parts = squared_errors(task, section, flat, steps[:, lo : lo + AT_ONCE])
        total += torch.cat(list(parts), 1).double().sum(2)
    return total / steps.shape[1]


def by_net(errors: Tensor) -> Tensor:
    """[P, F + 2] -> [P, 3], the mean over a net's outputs."""
    return torch.cat([errors[:, :-2].mean(1, keepdim=True), errors[:, -2:]], 1)


def without_done(task: Task, section: EnvSection, fitted: Fitted) -> Tensor:
    """The fitted worlds with the done_net that they had before, [P, D]."""
    size = world_nets("se", task, section)[-1][1].size
    return torch.cat([fitted.flat[:, :-size], fitted.fresh[:, -size:]], 1)
