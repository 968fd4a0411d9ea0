"""Agents that see a bandit in units of its own contexts' spread (``envs.<task>.normalised``), as behind VecNormalize.

They train in the same bandit with other weights (``envs/worlds/units.py``). Then the first layer of their policy takes
the units back,

    (o - mean) / deviation W + b  =  o W' + b',    W' = W / deviation,  b' = b - mean W'

and what acts sees observations as the task has them: tests, films and comparisons need to know of no units. Their
critics stay as they were. VecNormalize also clips at 10 deviations, which these agents do not. Python 3.8.
"""

from __future__ import annotations

import dataclasses
from typing import Callable

import numpy as np
import torch

from envolve.agents.common.hyper import Hyper
from envolve.agents.common.job import Job
from envolve.agents.common.population import nets_of
from envolve.agents.common.result import OK, TrainResult
from envolve.agents.off_policy import depths as off_policy
from envolve.agents.ppo import training as ppo
from envolve.agents.ppo.policy import networks
from envolve.agents.train import algorithm
from envolve.envs.nets.networks import MLPShape
from envolve.envs.worlds.units import Units, in_units, units_of


def train_normalised(name: str, job: Job, train: Callable[[Job], TrainResult]) -> TrainResult:
    """Trains agents in bandits in these units, and tests them on the task. name: of the learner; train: trains and
    tests. Raises ValueError: the bandits have no such units."""
    task, section, hyper = job.task, job.section, job.hyper
    units = [units_of(task, section, flat) for flat in job.worlds]
    worlds = torch.stack([in_units(task, section, flat, own) for flat, own in zip(job.worlds, units)])
    result = train(job._replace(worlds=worlds, hyper=_untested(hyper)))

    if name == "ppo":  # the policy's standard deviations come first
        begin, policies = task.action_size, [actor for actor, _ in networks(task, hyper)]
    else:
        begin, policies = 0, [nets[0] for nets in nets_of(algorithm(name), task, hyper)]
    for weights, shape, own in zip(result.weights, policies, units):
        _of_task(weights[begin:], shape, own)

    result.test_return = np.full((len(job.keys), hyper.section.test_episodes), np.nan)
    fine = np.flatnonzero(result.status == OK)
    if len(fine):
        agents = task, hyper.take(fine), result.weights[fine], job.keys[fine]
        tested = ppo.test_trained(*agents) if name == "ppo" else off_policy.test_trained(algorithm(name), *agents)
        result.test_return[fine], steps = tested
        result.real_steps[fine] += steps
    return result


def _untested(hyper: Hyper) -> Hyper:
    none = np.zeros(len(hyper), np.int64)
    return Hyper(dataclasses.replace(hyper.section, test_episodes=0), {**hyper.values, "test_episodes": none})


def _of_task(weights: np.ndarray, shape: MLPShape, units: Units) -> None:
    """Changes a network's first layer in place: from observations in ``units`` to those of the task. weights: float32,
    the network's and what comes behind it."""
    offset, K, M = shape.layer_offsets()[0]
    layer, bias = weights[offset : offset + K * M].reshape(K, M), weights[offset + K * M : offset + K * M + M]
    scaled = layer / units.deviation.double().numpy()[:, None]
    bias -= units.mean.double().numpy() @ scaled
    layer[:] = scaled
