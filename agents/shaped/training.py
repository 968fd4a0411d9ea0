"""Trains one agent per candidate, all in one simulator, then judges each final policy by the task's true score.

The score of a candidate is the mean over its N evaluation episodes, which begin where the task itself has them begin
and end where the task itself ends them: only the observation and the meaning of actions are the candidate's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Protocol, Sequence, Union

import numpy as np
import torch
from torch import Tensor

import envolve.envs.physics  # noqa: F401  registers the tasks
from envolve.agents.common.population import keep_pages
from envolve.agents.common.sections import LearnerSection
from envolve.core.registry import Place, Registry
from envolve.envs.managers.envs import make_managed_envs
from envolve.envs.managers.library import NAMES, is_managed
from envolve.envs.physics.task import physics_task
from envolve.envs.shaping.candidate import Candidate, Failure
from envolve.envs.shaping.envs import ShapedEnvs
from envolve.envs.shaping.schedule import Schedule
from envolve.envs.sim.simulator import make_simulator

_OFF_POLICY = "envolve.agents.shaped.off_policy"
LEARNERS = Registry(  # class, and the function that gives its settings
    "learner of shaped tasks",
    {
        "ppo": (Place("envolve.agents.shaped.ppo", "ShapedPPO"), Place("envolve.agents.shaped.ppo", "defaults")),
        "sac": (Place(_OFF_POLICY, "ShapedSAC"), Place(_OFF_POLICY, "sac_defaults")),
        "td3": (Place(_OFF_POLICY, "ShapedTD3"), Place(_OFF_POLICY, "td3_defaults")),
    },
)


class ShapedLearner(Protocol):
    """Interface of a learner that trains the agents of P candidates. Axes: N environments per candidate, F features, A
    actions."""

    steps: int  # environment steps per candidate so far
    diverged: Tensor  # bool [P]: its weights are no longer finite

    def iteration(self) -> None:
        """One iteration: collects and learns."""

    def act(self, obs: Tensor) -> Tensor:
        """Deterministic actions [P, N, A_max] for obs [P, N, F_max]."""

    def policy(self, i: int) -> Dict[str, Tensor]:
        """Weights and normaliser of candidate i."""


class Metrics(NamedTuple):
    """Metrics of one iteration, float64 [P] unless noted; NaN, and no component, for removed candidates."""

    iteration: int  # from 1
    steps: int  # environment steps per candidate so far
    score: np.ndarray  # true score per training step
    reward: np.ndarray  # reward per training step
    episodes: np.ndarray  # int64 [P], that ended
    components: List[Dict[str, float]]  # of each candidate's reward


@dataclass
class ShapedResult:
    """Result of a training. Axes: P candidates, N evaluation episodes, I iterations."""

    score: np.ndarray  # float64 [P]; NaN where the candidate is out
    episode_score: np.ndarray  # float64 [P, N]
    failures: List[Optional[Failure]]
    curve: List[Metrics]
    policies: List[Dict[str, Tensor]]
    observation_sizes: List[int]
    action_sizes: List[int]
    steps: int  # environment steps that each candidate was trained for


def make_envs(
    task: str,
    candidates: Sequence[Candidate],
    num_envs: int,
    key: Union[int, Sequence[int]],
    engine: str = "mujoco",
    threads: int = 1,
    device: str = "cpu",
    schedules: Optional[Dict[str, Schedule]] = None,
) -> ShapedEnvs:
    """Environments of a task. num_envs: per candidate; key: see ``ShapedEnvs``. Raises KeyError (task), SimulatorError,
    ValueError."""
    if is_managed(task) or engine in NAMES:
        return make_managed_envs(task, candidates, num_envs, key, device, engine)
    cls = physics_task(task)
    sim = make_simulator(engine, cls.model, num_envs * len(candidates), cls.outputs, threads, device)
    return ShapedEnvs(cls(sim), candidates, key, schedules)


def make_learner(
    name: str, envs: ShapedEnvs, section: LearnerSection, keys: np.ndarray, backend: str, threads: int
) -> Any:
    """Learner called ``name``. keys: int64 [P], random keys of the agents. Raises ValueError."""
    cls, _ = LEARNERS.find(name)
    return cls.load()(envs, section, keys, backend, threads)


def default_section(learner: str) -> Any:
    """Default settings of a learner for an arbitrary shaped task; those of its section are for classic tasks."""
    _, defaults = LEARNERS.find(learner)
    return defaults.load()()


def train_shaped(
    envs: ShapedEnvs,
    learner: ShapedLearner,
    iterations: int,
    report: Optional[Callable[[Metrics], None]] = None,
    test: bool = True,
) -> ShapedResult:
    """Trains for this many iterations, then evaluates (without ``test`` scores are NaN). report: called after every
    iteration."""
    keep_pages()
    curve = []
    for k in range(iterations):
        envs.set_clock(k)
        learner.iteration()
        for i in (learner.diverged & envs.live).nonzero()[:, 0].tolist():
            envs.calls.fail(i, Failure("Diverged", "the agent's weights are not finite", "", envs.steps))
        progress = _progress(k + 1, learner.steps, envs)
        curve.append(progress)
        if report is not None:
            report(progress)
        if not envs.live.any():
            break
    episode_score = np.full((envs.P, envs.N), np.nan)
    if test:
        episode_score = evaluate(envs, learner).cpu().numpy()
    return ShapedResult(
        score=episode_score.mean(1),
        episode_score=episode_score,
        failures=[envs.failures.get(i) for i in range(envs.P)],
        curve=curve,
        policies=[learner.policy(i) for i in range(envs.P)],
        observation_sizes=envs.observation_sizes,
        action_sizes=envs.action_sizes,
        steps=learner.steps,
    )


def _progress(iteration: int, steps: int, envs: ShapedEnvs) -> Metrics:
    score, reward, episodes, components = envs.tally.take()

    def of_live(x: Tensor) -> np.ndarray:
        return torch.where(envs.live, x, torch.nan).cpu().numpy()

    told = [own if live else {} for own, live in zip(components, envs.live.tolist())]
    return Metrics(iteration, steps, of_live(score), of_live(reward), episodes.cpu().numpy(), told)


def evaluate(envs: ShapedEnvs, learner: ShapedLearner, frame: Optional[Callable[[int], Any]] = None) -> Tensor:
    """Tests the final policy for one episode in every environment -> score, the mean over the time limit, float64 [P,
    N]; NaN for removed candidates. frame: called with the number of every step, e.g. to take a picture."""
    obs = envs.begin(evaluation=True)
    limit = envs.task.max_steps
    total = torch.zeros(envs.P, envs.N, dtype=torch.float64, device=envs.device)
    ended = torch.zeros_like(total, dtype=torch.bool)
    for t in range(limit):
        step = envs.step(learner.act(obs))
        obs = step.obs
        total += torch.where(ended, 0.0, step.score)
        now = step.terminated & ~ended
        if now.any():
            rest = envs.task.score_after_end().view_as(total) * (limit - 1 - t)
            total += torch.where(now, rest, 0.0)
            ended |= now
        ended |= step.truncated  # a task of managers may have a time limit of its own before the task's
        if frame is not None:
            frame(t)
        if (ended | ~envs.live[:, None]).all():
            break
    envs.tally.take()
    return torch.where(envs.live[:, None], total / limit, torch.nan)
