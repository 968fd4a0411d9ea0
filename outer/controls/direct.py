"""Direct evolution of a policy without any world, with the same budget of real steps.

The gradient of OpenAI's evolution strategy (Salimans et al. 2017, https://arxiv.org/abs/1703.03864) over mirrored
perturbations, with centred ranks and Adam, as the search over worlds has it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from envolve.agents.common.population import adam
from envolve.core import rng
from envolve.envs.nets.networks import MLPShape, forward, init_flat
from envolve.envs.task import Task
from envolve.outer.distil.policy import Policy, of_observation, play
from envolve.outer.search.transforms import centred_ranks

PAIRS, SIGMA, RATE, HIDDEN = 32, 0.1, 0.05, 32
EPISODES = 2  # of each perturbation; both of a pair begin them alike


@dataclass
class Evolved:
    policy: Policy
    steps: int  # on the task
    generations: int


def mlp_policy(task: Task, shape: MLPShape, flat: Tensor, scale: Tensor) -> Policy:
    """P policies with one hidden layer; flat: [P, D]; scale: [F], divisors of the observations."""

    def act(observation: Tensor) -> Tensor:
        out = forward(shape, flat, (observation / scale).transpose(1, 2)).transpose(1, 2)
        return out.argmax(-1) if task.num_actions else task.max_action * torch.tanh(out)

    return of_observation(task, act)


def evolve_policy(task: Task, real_steps: int, key: int) -> Evolved:
    """Searches until ``real_steps`` steps on the task are spent (the generation that exceeds the budget is the
    last)."""
    shape = MLPShape(task.observation_size, task.num_actions or task.action_size, HIDDEN, 1, "tanh")
    seed = torch.tensor([key])
    flat = init_flat(shape, seed)
    m, v = torch.zeros_like(flat), torch.zeros_like(flat)
    scale = torch.ones(task.observation_size)
    noise, resets, spent, generation = rng.fold(seed, rng.DIRECT_NOISE), rng.fold(seed, rng.DIRECT_RESETS), 0, 0
    while spent < real_steps:
        counter = generation * PAIRS * shape.size + torch.arange(PAIRS * shape.size)
        eps = rng.normal(noise[:, None], counter[None])[0].float().view(PAIRS, shape.size)
        worlds = torch.cat((flat + SIGMA * eps, flat - SIGMA * eps))
        keys = rng.bits(rng.fold(resets, generation), torch.arange(PAIRS)).repeat(2)
        played = play(task, mlp_policy(task, shape, worlds, scale), keys.numpy(), EPISODES, keep=generation == 0)
        if generation == 0:  # features differ in scale by orders of magnitude; the first generation says by how much
            scale = played.observations.std(0).clamp(min=1e-3)
        spent += int(played.steps.sum())
        utility = torch.from_numpy(centred_ranks(played.returns.mean(1))).float()
        gradient = ((utility[:PAIRS] - utility[PAIRS:]) @ eps / (PAIRS * SIGMA)).unsqueeze(0)
        generation += 1
        adam(flat, -gradient, m, v, torch.tensor([generation]), torch.tensor([RATE], dtype=torch.float64))
    return Evolved(mlp_policy(task, shape, flat, scale), spent, generation)
