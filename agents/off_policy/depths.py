"""Populations whose networks differ in depth: those of one depth are stacked, the narrower ones padded, and trained
together by the loop of ``training.py``; or tested together, if they were trained elsewhere.

Axes: P members, W parameters of a world, D of an agent, T test episodes.
"""

from __future__ import annotations

from typing import Optional, Tuple, Type

import numpy as np
import torch

from envolve.agents.common.hyper import Hyper, column
from envolve.agents.common.icm import ICM
from envolve.agents.common.job import Job
from envolve.agents.common.population import by_depth, initial_weights, keep_pages, nets_of, stack, unstack
from envolve.agents.common.result import TrainResult
from envolve.agents.common.sections import ICMSection
from envolve.agents.off_policy.algorithm import Algorithm
from envolve.agents.off_policy.training import OffPolicy, tested
from envolve.core import rng
from envolve.envs.task import Task


def train_population(
    algorithm: Type[Algorithm],
    job: Job,
    device: str = "cpu",
    icm: Optional[ICMSection] = None,
    cuda_graph: bool = True,
    torch_compiled: bool = False,
) -> TrainResult:
    """Train P agents and test them on the real task.

    icm: add curiosity to the rewards that are learned from. cuda_graph: replay the step as a graph, where the device is
    a GPU. torch_compiled: whether torch.compile makes code of the updates.
    """
    keep_pages()
    task, s = job.task, job.hyper.section
    agents = nets_of(algorithm, task, job.hyper)
    weights = initial_weights(agents, job.keys)
    result = TrainResult.before_training(weights, s.train_episodes, s.test_episodes)
    for rows, part, nets in by_depth(agents, job.hyper):
        group = job.take(rows)
        params = stack(torch.as_tensor(weights[rows], device=device), part, nets)
        width = column(group.hyper, "hidden_size", params.device, torch.int64)
        curiosity = None if icm is None else ICM(task, icm, torch.as_tensor(group.keys, device=device))
        captured = cuda_graph and params.is_cuda
        run = OffPolicy(group, algorithm(task, group.hyper, nets, params, width), curiosity, captured, torch_compiled)
        run.train()
        result.put(rows, run, unstack(run.final.rows.params, part, nets, weights.shape[1]))
    return result


def test_trained(
    algorithm: Type[Algorithm],
    task: Task,
    hyper: Hyper,
    weights: np.ndarray,
    keys: np.ndarray,
    stream: int = rng.FINAL_TEST,
    first: int = 0,
) -> Tuple[np.ndarray, np.ndarray]:
    """Tests of agents that are trained elsewhere, on the CPU. weights: float32 [P, D], as ``TrainResult`` has them;
    keys: int64 [P]; first: number of the first episode in this stream -> returns float64 [P, T], steps on the task
    int64 [P]."""
    agents, s = nets_of(algorithm, task, hyper), hyper.section
    returns, steps = np.full((len(keys), s.test_episodes), np.nan), np.zeros(len(keys), np.int64)
    for rows, part, nets in by_depth(agents, hyper):
        group = hyper.take(rows)
        params = stack(torch.as_tensor(weights[rows]), part, nets)
        of = algorithm(task, group, nets, params, column(group, "hidden_size", params.device, torch.int64))
        key = rng.fold(torch.as_tensor(keys[rows]), stream)
        returns[rows], steps[rows] = (x.numpy() for x in tested(of, key, torch.full_like(key, first)))
    return returns, steps
