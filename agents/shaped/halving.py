"""Successive halving (Jamieson & Talwalkar 2016, https://arxiv.org/abs/1502.07943) of candidates within one simulator.

A training has rungs. In each every candidate still in has K agents of N environments each; after it, the best
1 / eta of them go on, and the environments of the others become theirs: the agents keep what they have learned, and
from then on see eta times as much in every iteration. So all rungs cost the same environment steps, about those of a
training without halving. With one rung this is ``train_shaped``.

Axes: C candidates, K agents of each; agent k of candidate c is number c K + k.
"""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass, field
from typing import Any, Callable, Collection, Dict, List, NamedTuple, Optional, Sequence

import numpy as np
from torch import Tensor

from envolve.agents.common.sections import LearnerSection
from envolve.agents.shaped.training import Metrics, make_envs, make_learner, train_shaped
from envolve.envs.shaping.candidate import Candidate, Failure

TAIL = 0.25  # of a rung's iterations, over which its scores are averaged


@dataclass(frozen=True)
class Training:
    """Settings for training the agents of all candidates."""

    task: str
    learner: str
    section: LearnerSection
    num_envs: int  # of each agent, in the first rung
    iterations: int  # for candidates that reach the last rung
    agents: int = 1  # K
    eta: int = 1  # of C candidates C / eta go on; 1: no halving
    blocks: int = 0  # with halving: num_envs x this many environments are shared out in every rung; 0: C
    engine: str = "mujoco"
    device: str = "cpu"
    threads: int = 1
    backend: str = "auto"

    def rungs(self, count: int) -> List[int]:
        """Number of candidates in each rung, e.g. 16, 4, 1 for ``count`` 16."""
        sizes = [count]
        while self.eta > 1 and sizes[-1] > 1 and len(sizes) < self.iterations:
            sizes.append(-(-sizes[-1] // self.eta))
        return sizes


@dataclass
class AgentRun:
    """Result of one agent; lists over its iterations."""

    # of its final policy, or, if it left before the last rung, of its training in the last quarter of its last rung;
    # NaN where it is out
    score: float = math.nan
    episode_scores: List[float] = field(default_factory=list)  # of its final policy; empty: it left before
    failure: Optional[Failure] = None
    rung: int = 0  # the last it was in
    steps: List[int] = field(default_factory=list)  # environment steps so far
    score_curve: List[float] = field(default_factory=list)  # true score per training step
    reward_curve: List[float] = field(default_factory=list)
    components: Dict[str, List[float]] = field(default_factory=dict)  # of the reward
    policy: Dict[str, Tensor] = field(default_factory=dict)
    observation_size: int = 0
    action_size: int = 0

    @property
    def spent(self) -> int:
        """Environment steps of the agent's training."""
        return self.steps[-1] if self.steps else 0

    def add(self, p: Metrics, i: int) -> None:
        """Records agent i of the rung after an iteration."""
        for name in p.components[i]:
            self.components.setdefault(name, [math.nan] * len(self.steps))
        self.steps.append(p.steps)
        self.score_curve.append(float(p.score[i]))
        self.reward_curve.append(float(p.reward[i]))
        for name, values in self.components.items():
            values.append(p.components[i].get(name, math.nan))

    def tail(self, iterations: int) -> float:
        """Mean score over the last quarter of this many iterations; NaN if the agent failed."""
        last = max(1, round(TAIL * iterations))
        return float(np.mean(self.score_curve[-last:])) if self.score_curve and self.failure is None else math.nan


class Halved(NamedTuple):
    """Result of a training."""

    runs: List[AgentRun]  # [C K]
    learner: Any  # of the last rung, and its environments (their simulator is closed)
    envs: Any
    agents: List[int]  # the agents in it, by their number in ``runs``


def train_halving(
    t: Training,
    candidates: Sequence[Candidate],
    agent_keys: np.ndarray,
    env_keys: np.ndarray,
    stays: Collection[int] = (),
    report: Optional[Callable[[Metrics, List[int]], None]] = None,
) -> Halved:
    """Train K agents of each of C candidates. A candidate's rank in a rung is the mean over its agents; if one
    of them is out, so is the candidate.

    agent_keys, env_keys: int64 [K], the same for all candidates: what differs is the candidates' own. stays: numbers of
    candidates that halving never drops, e.g. the reference; their environments, as many as a rival's, come on top.
    report: called after every iteration with the progress of the rung and the candidates in it. Raises ValueError
    (settings), SimulatorError.
    """
    if t.eta > 1 and t.learner != "ppo":
        raise ValueError(f"halving continues agents with more environments, which {t.learner} cannot: use ppo, or 1")
    C, K, sizes = len(candidates), t.agents, t.rungs(len(candidates) - len(stays))
    runs = [AgentRun() for _ in range(C * K)]
    inside, done = list(range(C)), None
    for rung in range(len(sizes)):
        iterations = t.iterations * (rung + 1) // len(sizes) - t.iterations * rung // len(sizes)
        last = rung == len(sizes) - 1
        done = _rung(t, rung, iterations, inside, candidates, agent_keys, env_keys, stays, runs, done, last, report)
        if last:
            break
        scores = {c: float(np.mean([runs[a].tail(iterations) for a in _agents(c, K)])) for c in inside}
        ranked = sorted((c for c in inside if not math.isnan(scores[c])), key=lambda c: (-scores[c], c))
        chosen = set([c for c in ranked if c not in stays][: sizes[rung + 1]]) | (set(stays) & set(ranked))
        for c in inside:
            if c not in chosen:
                for a in _agents(c, K):
                    runs[a].score = runs[a].tail(iterations)
        inside = [c for c in inside if c in chosen]
        if not inside:
            break
    assert done is not None
    return done


def _agents(c: int, K: int) -> range:
    return range(c * K, (c + 1) * K)


def _rung(
    t: Training,
    rung: int,
    iterations: int,
    inside: List[int],
    candidates: Sequence[Candidate],
    agent_keys: np.ndarray,
    env_keys: np.ndarray,
    stays: Collection[int],
    runs: List[AgentRun],
    before: Optional[Halved],
    last: bool,
    report: Optional[Callable[[Metrics, List[int]], None]],
) -> Halved:
    """Trains the candidates still in for this many iterations. before: the previous rung."""
    K = t.agents
    rivals = sum(c not in stays for c in inside)
    blocks = t.blocks or sum(c not in stays for c in range(len(candidates)))
    num_envs = t.num_envs if t.eta == 1 else t.num_envs * max(1, blocks // max(1, rivals))
    members = [candidates[c] for c in inside for _ in range(K)]
    # a rung has random numbers of its own: the same ones would show the agents what they have seen
    keys = [np.tile(x + rung, len(inside)) for x in (agent_keys, env_keys)]
    envs = make_envs(t.task, members, num_envs, keys[1].tolist(), t.engine, t.threads, t.device)
    with contextlib.closing(envs.task.sim):  # some engines allow one simulator per process
        learner = make_learner(t.learner, envs, t.section, keys[0], t.backend, t.threads)
        agents = [a for c in inside for a in _agents(c, K)]
        if before is not None:
            learner.inherit(before.learner, [before.agents.index(a) for a in agents])
        own = [runs[a] for a in agents]
        done = len(own[0].steps)

        def note(p: Metrics) -> None:
            for i, run in enumerate(own):
                run.add(p, i)
            if report is not None:
                report(p._replace(iteration=done + p.iteration), inside)

        result = train_shaped(envs, learner, iterations, note, test=last)
        for i, run in enumerate(own):
            run.rung, run.failure, run.policy = rung, result.failures[i], result.policies[i]
            run.observation_size, run.action_size = result.observation_sizes[i], result.action_sizes[i]
            if last:
                run.score, run.episode_scores = float(result.score[i]), result.episode_score[i].tolist()
    return Halved(runs, learner, envs, agents)
