"""Entry point of all learners: trains a population in its worlds on the fastest available back end ->
``TrainResult``."""

from __future__ import annotations

import dataclasses
import logging
import math
from typing import Any, Dict, NamedTuple, Optional, Set

import numpy as np
import torch

from envolve.agents.common import torch_compile
from envolve.agents.common.hyper import Hyper, draw
from envolve.agents.common.job import Job
from envolve.agents.common.learners import LEARNERS, check_learner, curious_learners, is_off_policy
from envolve.agents.common.result import TrainResult
from envolve.agents.common.rollout import make_world
from envolve.agents.common.sections import ICMSection, LearnerSection, TabularSection, VarySection
from envolve.agents.off_policy import depths as off_policy
from envolve.agents.ppo import training as ppo
from envolve.agents.tabular.training import RewardNoise, train_tabular
from envolve.envs.section import EnvSection
from envolve.envs.task import Task
from envolve.envs.worlds.world import tables

log = logging.getLogger("envolve")
BACKENDS = ("auto", "compiled", "torch", "torch_compile")


class Hardware(NamedTuple):
    """Where a population trains."""

    device: str = "cpu"  # torch's name of it
    threads: int = 1  # CPU threads of compiled kernels; results do not depend on them


ONE_THREAD = Hardware()
_said: Set[str] = set()  # what was logged already: once per process is enough


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
    hardware: Hardware = ONE_THREAD,
    icm: Optional[ICMSection] = None,
) -> TrainResult:
    """Train one agent per member in its world, then test it on the real task.

    name: a key of ``envolve.agents.common.learners.LEARNERS``; kind: "se", "rn" or "real"; worlds: float32 [P, D] (for
    "real" only P is read); keys: int64 [P] member seeds. test_each: test on the real task after every training episode
    and stop when solved. backend: "compiled" raises where there is no kernel, "auto" says in the log that it takes the
    PyTorch path; "torch_compile" is that path with the updates of off-policy learners compiled, and raises for other
    learners. icm: with curiosity, for a learner that is ``curious``.
    """
    if backend not in BACKENDS:
        raise ValueError(f"backend {backend!r}: expected one of {', '.join(BACKENDS)}")
    check_learner(task, name)
    if icm is not None and not LEARNERS[name].curious:
        raise ValueError(f"{name} has no curiosity; those that have: {', '.join(curious_learners())}")
    if backend == "torch_compile" and (reason := torch_compile.why_not(name, is_off_policy(name), hardware.device)):
        raise ValueError(f"backend 'torch_compile': {reason}")
    if kind == "se" and section.contextual_bandit:
        learner = of_one_step_episodes(learner, vary)
    job = Job(task, kind, section, worlds, draw(learner, keys, vary), keys, test_each)
    if kind == "se" and section.normalised:
        if test_each:
            raise ValueError(
                "test_each: found true, expected false: agents in a normalised bandit are tested at the end"
            )
        from envolve.agents.normalised import train_normalised  # which imports this module

        return train_normalised(name, job, lambda own: _train(name, own, backend, hardware, icm))
    return _train(name, job, backend, hardware, icm)


def _train(name: str, job: Job, backend: str, hardware: Hardware, icm: Optional[ICMSection]) -> TrainResult:
    """Trains the agents of a job on the fastest back end that is allowed, and tests them."""
    device, threads = hardware
    if isinstance(job.hyper.section, TabularSection):
        backend = _tabular_backend(name, backend)
        if device != "cpu":
            _say(f"{name} is tabular and trains on the CPU although the device is {device}")
        return _train_tabular(name, job, backend, threads)
    own_torch = backend in ("torch", "torch_compile")
    apart = job.kind == "se" and job.section.contextual_bandit and not job.test_each
    reason = None if own_torch else _no_kernel(name, job.task, job.hyper, device, icm, apart)
    if backend == "compiled" and reason is not None:
        raise ValueError(f"backend 'compiled': {reason}")
    if own_torch or reason is not None:
        if reason is not None:
            _say(f"{name} trains on the PyTorch path, which is slower: {reason}")
        if name == "ppo":
            return ppo.train_population(job, device, icm)
        return off_policy.train_population(algorithm(name), job, device, icm, torch_compiled=backend == "torch_compile")
    if name == "ppo":
        from envolve.agents.kernels.ppo import population as ppo_population

        return ppo_population.train_population(job, threads, apart)
    from envolve.agents.kernels.off_policy import population as off_policy_population

    return off_policy_population.train_population(algorithm(name), job, threads, apart)


def of_one_step_episodes(learner: LearnerSection, vary: Optional[VarySection]) -> LearnerSection:
    """Learner in a bandit. Only the budget of steps ends training, since returns of single steps settle before anything
    is learned. So there is no early out, and there are as many episodes as steps. Without a budget, training ends after
    train_episodes. TD3's second critic serves targets alone, of which a bandit has none: it is left out."""
    most = math.ceil(learner.train_steps * (vary.train_steps_factor if vary else 1.0))
    episodes = max(learner.train_episodes, most)
    own: Dict[str, Any] = {"twin": False} if hasattr(learner, "twin") else {}
    return dataclasses.replace(learner, train_episodes=episodes, early_out_min_steps=episodes + 1, **own)


def algorithm(name: str) -> Any:
    """Class of an off-policy learner."""
    place = LEARNERS[name].place
    assert place is not None, name
    return place.load()


def _say(text: str) -> None:
    if text not in _said:
        _said.add(text)
        log.warning("%s", text)


def _no_kernel(
    name: str, task: Task, hyper: Hyper, device: str, icm: Optional[ICMSection], apart: bool
) -> Optional[str]:
    if device != "cpu":
        return f"kernels run on the CPU, and the device is {device}"
    if icm is not None:
        return "curiosity has no compiled twin"
    if name == "ppo":
        from envolve.agents.kernels.ppo import population as ppo_population

        return ppo_population.why_not(task, hyper, apart)
    from envolve.agents.kernels.off_policy import population as off_policy_population

    return off_policy_population.why_not(algorithm(name), task, hyper, apart)


def _tabular_backend(name: str, backend: str) -> str:
    """Back end: "compiled" or "torch"; both return the same bits."""
    if backend == "torch":
        return backend
    from envolve.agents.kernels.building import ahead

    reason = ahead.why_not(name)
    if reason is None:
        return "compiled"
    if backend == "compiled":
        raise ValueError(f"backend 'compiled': {reason}")
    _say(f"{name} trains on the PyTorch path, which is slower: {reason}")
    return "torch"


def _train_tabular(name: str, job: Job, backend: str, threads: int) -> TrainResult:
    """Tabulates a finite world once per member (the task once for all); the learner never calls a network."""
    task, kind, hyper = job.task, job.kind, job.hyper
    worlds = job.worlds[:1] if kind == "real" else job.worlds
    world = make_world(kind, task, job.section, worlds, torch.as_tensor(hyper["gamma"]))
    return train_tabular(
        name,
        hyper,
        tables(world),
        (task.next_state, task.reward, task.done, task.start_state),  # type: ignore[attr-defined]
        kind,
        task.max_steps,
        task.solved_reward,
        job.test_each,
        job.keys,
        backend=backend,
        threads=threads,
        noise=RewardNoise(world.reward_noise, task.reward_noise),
    )
