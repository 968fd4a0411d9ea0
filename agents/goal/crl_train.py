"""Trains a population of goal-conditioned learners: collect, learn, evaluate.

    training = GoalTraining(task, eval_task, section, keys)
    while training.steps < wanted:
        training.iteration()                 # unroll_length decisions in every environment, then its updates
    evaluation = training.evaluate()         # deterministic actions, one episode in each of E fresh environments

Members train side by side: one batched call acts for all, one steps all environments, one updates all. What a member
does depends on its key and its hyperparameters only, up to rounding; one that diverges (weights that are not finite)
goes on as such in its own rows, harms no other, and its evaluations are NaN.

Updates per phase are what JaxGCRL does, multiplier_num_sgd_steps * num_envs (episode_length - 1) / batch_size; there
that must be an integer, here its fractions add up. No update comes before min_replay_size decisions. Its floor division
of the budget is not followed: a phase that is begun is finished, so that at least the steps asked for are done.

On a GPU decisions and updates are replayed as CUDA graphs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Dict, Mapping, Optional, Sequence, Tuple, Union

import torch
from torch import Tensor

from envolve.agents.common.cuda_graph import Graphs
from envolve.agents.common.population import keep_pages
from envolve.agents.goal.crl import CRL
from envolve.agents.goal.crl_replay import TrajectoryReplay
from envolve.agents.goal.crl_section import CRLSection
from envolve.agents.goal.off_policy import GoalOffPolicy
from envolve.agents.goal.off_policy_section import GoalSACSection, GoalTD3Section
from envolve.agents.goal.ppo import GoalPPO
from envolve.agents.goal.ppo_section import GoalPPOSection
from envolve.core import rng
from envolve.envs.goal.engines import make_episodes
from envolve.envs.goal.episodes import DecisionOutcome, Episodes
from envolve.envs.goal.task import Beginnings, GoalTask


@dataclass
class CRLEvaluation:
    """Evaluation of P members in E episodes each; NaN for members that have diverged."""

    steps: int  # environment steps of each member until then
    updates: int
    near: Tensor  # float64 [P, E], decisions of the episode after which the goal was near enough
    success: Tensor  # float64 [P, E], 1 if there was one such decision
    distance: Tensor  # float64 [P, E], m, to the goal at the episode's end
    length: Tensor  # float64 [P, E], decisions of the episode
    learning: Tensor  # float32 [P, M], what the learner's metrics name, of the last update; NaN before the first


class FirstEpisodes:
    """What the first episode of every environment came to, [P, E]. Environments whose episode is over early may be
    stepped on with the others; that counts no more. Made of operations in place, so that a CUDA graph can hold them."""

    def __init__(self, P: int, E: int, device: torch.device) -> None:
        self.near, self.length, self.distance = (torch.zeros(P, E, device=device) for _ in range(3))
        self.alive = torch.ones(P, E, dtype=torch.bool, device=device)

    def begin(self) -> None:
        """Forgets everything, before the first decision."""
        self.near.zero_(), self.length.zero_(), self.distance.zero_(), self.alive.fill_(True)

    def add(self, e: Episodes, outcome: DecisionOutcome) -> None:
        """Adds a decision's outcome."""
        self.near += outcome.success & self.alive
        self.length += self.alive
        self.distance.copy_(torch.where(self.alive, e.task.distance(outcome.features, e.goal), self.distance))
        self.alive &= ~outcome.over


GoalSection = Union[CRLSection, GoalSACSection, GoalTD3Section, GoalPPOSection]
GoalLearner = Union[CRL, GoalOffPolicy, GoalPPO]


def make_learner(
    section: GoalSection, task: GoalTask, keys: Tensor, own: Optional[Mapping[str, Sequence[float]]] = None
) -> GoalLearner:
    """Learner class of a section. Raises ValueError."""
    if isinstance(section, CRLSection):
        return CRL(section, task.state_size, task.action_size, task.goal_indices, keys, own)
    if isinstance(section, GoalPPOSection):
        return GoalPPO(section, task, keys, own)
    return GoalOffPolicy(section, task, keys, own)


def learning_calls(section: GoalSection, episode_length: int) -> float:
    """Calls of ``learn`` per phase: the number of updates; 1 for PPO, which makes them all in one call."""
    if isinstance(section, GoalPPOSection):
        return 1.0
    return section.multiplier_num_sgd_steps * section.num_envs * (episode_length - 1) / section.batch_size


class GoalTraining:
    """Training loop. ``state_dict`` holds everything needed to resume."""

    def __init__(
        self,
        task: GoalTask,
        eval_task: GoalTask,
        section: GoalSection,
        keys: Tensor,
        own: Optional[Mapping[str, Sequence[float]]] = None,
        resample: str = "reset",
        episode_length: int = 0,
        action_repeat: int = 1,
        num_eval_envs: int = 128,
        beginnings: Optional[Beginnings] = None,
        cuda_graph: bool = True,
        **engine: Any,
    ) -> None:
        """section: its class selects the learner; keys: int64 [P], on the device to use; own: per-member values of some
        hyperparameters; beginnings: starts and goals of training episodes, None: the task's own; engine: see
        ``make_episodes``. Raises ValueError."""
        keep_pages()
        _check(task, eval_task, section)
        P, N = len(keys), section.num_envs
        self.section, self.keys, self.action_repeat = section, keys, action_repeat
        self.learner = make_learner(section, task, keys, own)
        self.episodes = make_episodes(
            task,
            keys,
            N,
            resample=resample,
            episode_length=episode_length,
            action_repeat=action_repeat,
            beginnings=beginnings,
            **engine,
        )
        self.eval_episodes = make_episodes(
            eval_task,
            rng.fold(keys, rng.TEST),
            num_eval_envs,
            episode_length=episode_length,
            action_repeat=action_repeat,
            **engine,
        )
        self.replay = TrajectoryReplay(P, N, section.max_replay_size, self.learner.fields, keys.device)
        self.calls_per_phase = learning_calls(section, self.episodes.length)
        self.phases = self.learning_phases = self.calls = self.evaluations = 0
        self.learning = torch.full((P, len(self.learner.metrics)), math.nan, device=keys.device)
        graphs = cuda_graph and keys.is_cuda
        learns = graphs and self.learner.capturable
        self._collect = Graphs(self._decide, learns and not task.on_host and not section.normalize_observations)
        self._learn = Graphs(self._update, learns)
        self._test = Graphs(self._test_step, graphs and not eval_task.on_host)
        self.first = FirstEpisodes(P, num_eval_envs, keys.device)

    @property
    def steps(self) -> int:
        """Environment steps per member."""
        return self.phases * self.steps_per_phase

    @property
    def updates(self) -> int:
        """Updates per member."""
        return int(self.learner.updates[0])

    @property
    def steps_per_phase(self) -> int:
        return self.section.unroll_length * self.section.num_envs * self.action_repeat

    def iteration(self) -> None:
        """One phase: collect, then learn."""
        for _ in range(self.section.unroll_length):
            (over,) = self._collect(None)
            self.episodes.finish(over)
        self.learner.merge_moments()
        self.phases += 1
        if self.phases * self.section.unroll_length < self.section.min_replay_size:
            return
        before, self.learning_phases = self.learning_phases, self.learning_phases + 1
        done, due = (math.floor(n * self.calls_per_phase) for n in (before, self.learning_phases))
        for call in range(done, due):
            self._learn((call == due - 1, call % self.learner.policy_delay == 0))
        self.calls = due

    def _decide(self, _: None) -> Tuple[Tensor]:
        """Makes and stores one decision in every environment -> which episodes are over."""
        e = self.episodes
        state = e.features.clone()  # the next step overwrites it, and a goal that moves
        goal = e.goal.clone() if e.task.goal_moves else e.goal
        action = self.learner.act(state, goal)
        outcome = e.advance(action)
        row = {
            "state": state,
            "action": action,
            "goal": goal,
            "next": outcome.features,
            "terminated": outcome.terminated.float()[..., None],
        }
        self.replay.write({name: row[name] for name in self.learner.fields})
        self.replay.end(outcome.over)
        return (outcome.over,)

    def _update(self, variant: Tuple[bool, bool]) -> Tuple[Tensor, ...]:
        measured = self.learner.learn(self.replay, *variant)
        if measured is not None:
            self.learning.copy_(measured)
        return ()

    # --------------------------------------------------------------------------------------------------- evaluation

    def evaluate(self) -> CRLEvaluation:
        """Tests every member's deterministic policy in fresh episodes, different ones at each call."""
        e = self.eval_episodes
        e.episode.fill_(self.evaluations)
        e.begin_all()
        self.evaluations += 1
        first = self.first
        first.begin()
        for _ in range(e.length):
            self._test(None)
        out = self.learner.diverged()[:, None]

        def of_healthy(x: Tensor) -> Tensor:
            return x.double().masked_fill(out, math.nan).cpu()

        return CRLEvaluation(
            self.steps,
            self.updates,
            of_healthy(first.near),
            of_healthy((first.near > 0).double()),
            of_healthy(first.distance),
            of_healthy(first.length),
            self.learning.cpu().clone(),
        )

    def _test_step(self, _: None) -> Tuple[Tensor, ...]:
        e = self.eval_episodes
        self.first.add(e, e.advance(self.learner.greedy(e.features, e.goal)))
        return ()

    # ------------------------------------------------------------------------------------------------ keeping a run

    COUNTED = ("phases", "learning_phases", "calls", "evaluations")

    def state_dict(self) -> Dict[str, Any]:
        parts = {name: getattr(self, name).state_dict() for name in ("learner", "replay", "episodes")}
        counts = torch.tensor([getattr(self, name) for name in self.COUNTED])
        return {**parts, "counts": counts, "learning": self.learning.clone()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for name in ("learner", "replay", "episodes"):
            getattr(self, name).load_state_dict(state[name])
        for name, value in zip(self.COUNTED, state["counts"].tolist()):
            setattr(self, name, value)
        self.learning.copy_(state["learning"])


def _check(task: GoalTask, eval_task: GoalTask, section: GoalSection) -> None:
    """Checks that task and evaluation task fit together. Raises ValueError."""
    for name in ("state_size", "action_size", "goal_indices"):
        mine, other = getattr(task, name), getattr(eval_task, name)
        if mine != other:
            raise ValueError(f"eval_env: {eval_task.name} has {name} {other}, but {task.name} has {mine}")
    if section.max_replay_size < section.unroll_length:
        raise ValueError(
            f"max_replay_size: found {section.max_replay_size}, expected at least unroll_length "
            f"({section.unroll_length})"
        )
