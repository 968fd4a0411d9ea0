"""One entry to every learner: a population of worlds in, a ``TrainResult`` out, on the fastest path there is for it."""

from __future__ import annotations

import dataclasses
import logging
from typing import Optional, Set

import numpy as np
import torch

from agents.hyper import Hyper, draw
from agents.result import TrainResult
from agents.sections import LearnerSection, VarySection
from agents.tabular_loop import PER_MEMBER, TabularHyper
from envs.reward_network import RewardNetwork
from envs.section import EnvSection
from envs.synthetic import SyntheticEnv
from envs.task import Task
from envs.world import RealTask, World, tables

log = logging.getLogger("envolve")
BACKENDS = ("auto", "compiled", "torch")
_said: Set[str] = set()  # each reason for the slow path is logged once per process


def make_world(kind: str, task: Task, section: EnvSection, worlds: torch.Tensor, gamma: np.ndarray) -> World:
    """worlds: float32 [P, D]; gamma: [P], the discount that potentials are built with."""
    if kind == "se":
        return SyntheticEnv(task, section, worlds)
    if kind == "rn":
        return RewardNetwork(task, section, worlds, torch.as_tensor(gamma))
    return RealTask(task, len(worlds))


def train(
    name: str,
    learner: LearnerSection,
    vary: Optional[VarySection],
    task: Task,
    kind: str,
    section: EnvSection,
    worlds: torch.Tensor,
    keys: np.ndarray,
    test_each: bool = False,
    backend: str = "auto",
    device: str = "cpu",
    threads: int = 1,
) -> TrainResult:
    """Train one agent per member in its world, then test it on the real task.

    name: a key of ``agents.sections.LEARNERS``; kind: "se", "rn" or "real"; worlds: float32 [P, D] (for "real" only P
    is read); keys: int64 [P] member seeds. test_each: test on the real task after every training episode and stop when
    solved. backend: "compiled" raises where there is no kernel, "auto" says in the log that it takes the PyTorch path.
    """
    hyper = draw(learner, keys, vary)
    if task.num_states is not None and name != "ddqn":
        return _train_tabular(name, hyper, task, kind, section, worlds, keys, test_each, backend, threads)
    reason = _no_kernel(task, hyper, device)
    if backend != "torch" and reason is None:
        from agents.kernels.ddqn_population import train_population as compiled

        return compiled(task, kind, section, worlds.numpy(), hyper, keys, test_each, threads)
    if backend == "compiled":
        raise ValueError(f"backend 'compiled': {reason}")
    if reason is not None and reason not in _said:
        _said.add(reason)
        log.warning("%s trains on the PyTorch path, which is slower: %s", name, reason)
    from agents.ddqn import train_population

    return train_population(task, kind, section, worlds, hyper, keys, test_each, device=device)


def _no_kernel(task: Task, hyper: Hyper, device: str) -> Optional[str]:
    if device != "cpu":
        return f"kernels run on the CPU, and the device is {device}"
    from agents.kernels.ddqn_population import why_not

    return why_not(task, hyper)


def _train_tabular(
    name: str,
    hyper: Hyper,
    task: Task,
    kind: str,
    section: EnvSection,
    worlds: torch.Tensor,
    keys: np.ndarray,
    test_each: bool,
    backend: str,
    threads: int,
) -> TrainResult:
    """A finite world is tabulated once per member (the task once for all); the learner never calls a network."""
    from agents.tabular import train_tabular

    world = RealTask(task, 1) if kind == "real" else make_world(kind, task, section, worlds, hyper["gamma"])
    return train_tabular(
        name,
        _tabular_hyper(hyper),
        tables(world),
        (task.next_state, task.reward, task.done, task.start_state),  # type: ignore[attr-defined]
        kind,
        task.max_steps,
        task.solved_reward,
        test_each,
        keys,
        backend="torch" if backend == "torch" else "compiled",
        threads=threads,
    )


def _tabular_hyper(hyper: Hyper) -> TabularHyper:
    """Arrays where members may differ, the section's own values elsewhere."""
    values = {f.name: getattr(hyper.section, f.name) for f in dataclasses.fields(TabularHyper)}
    for name in PER_MEMBER:
        values[name] = hyper[name]
    return TabularHyper(**values)
