"""Expert agents trained on the task itself, and the states that they visit. Python 3.8."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Callable, List, Optional, Tuple, Union

import numpy as np
import torch
from torch import Tensor

from envolve.agents.common.learners import LEARNERS, has_networks
from envolve.agents.common.sections import LearnerSection
from envolve.agents.greedy import policies
from envolve.agents.train import Hardware, train
from envolve.core import rng
from envolve.core.registry import unknown
from envolve.envs.section import EnvSection
from envolve.envs.task import Task
from envolve.outer.config.section import ARSSection
from envolve.outer.distil.ars import ARS
from envolve.outer.distil.linear import Linear, nearest_linear
from envolve.outer.distil.policy import Policy, of_observation, play

EPISODES = 20  # of the expert, whose states become contexts
# Where a bandit stores contexts, rounds of EPISODES are played until there are PER_STORED states for each of them.
PER_STORED, ROUNDS = 8, 10  # ROUNDS is the most
OWN = 5000  # states of episodes without random actions
NOISE = 0.2  # share of random actions among discrete ones, so that the contexts also tell how to recover


@dataclass
class Expert:
    act: Callable[[Tensor], Tensor]  # observations float32 [n, F] -> actions int64 [n] or float32 [n, A]
    states: Tensor  # float32 [n, F], visited
    steps: int  # on the task: training, its tests, and the episodes of ``states``
    mean_return: float
    skip: int = 1  # steps with one action


def train_experts(
    name: str,
    learner: Union[LearnerSection, ARSSection],
    task: Task,
    section: EnvSection,
    keys: np.ndarray,
    test_each: bool,
    backend: str,
    threads: int,
) -> List[Optional[Expert]]:
    """Trains one expert per key, int64 [E], without selection; None: it diverged. name: a learner with networks, or
    "ars". Raises ValueError for another learner."""
    if isinstance(learner, ARSSection):
        return [_linear(task, section, learner, keys[i : i + 1]) for i in range(len(keys))]
    if not has_networks(name):
        raise ValueError(unknown("expert", name, list(filter(has_networks, LEARNERS))))
    result = train(
        name,
        learner,
        None,
        task,
        "real",
        section,
        torch.zeros(len(keys), 1),
        keys,
        test_each,
        backend,
        Hardware(threads=threads),
    )
    returns = result.test_return.mean(1)
    fine = (result.status == 0) & np.isfinite(returns)
    made: List[Optional[Expert]] = [None] * len(keys)
    for i in np.flatnonzero(fine):
        key, steps, score = keys[i : i + 1], int(result.real_steps[i]), float(returns[i])
        (policy,) = policies(name, learner, None, task, result.weights[i : i + 1], key)
        made[i] = _walked(task, section, partial(_alone, policy), key, steps, score, learner.same_action_num)
    return made


def _alone(policy: Callable[[Tensor], Tensor], observation: Tensor) -> Tensor:
    """Actions [n] or [n, A] of a policy of one member, [1, n, F] -> [1, n] or [1, n, A], at observations [n, F]."""
    return policy(observation.unsqueeze(0))[0]


def improved(
    task: Task, section: EnvSection, search: ARSSection, teacher: Optional[Expert], key: np.ndarray
) -> Optional[Expert]:
    """An expert by random search that begins with the linear policy nearest to a teacher's. Its steps count the
    teacher's, too. None: one of them has diverged."""
    if teacher is None:
        return None
    begin = nearest_linear(task, teacher.act, teacher.states, int(key[0]))
    begin.steps += teacher.steps
    return _linear(task, section, search, key, begin)


def _linear(
    task: Task, section: EnvSection, options: ARSSection, key: np.ndarray, begin: Optional[Linear] = None
) -> Optional[Expert]:
    """An expert by random search."""
    search = ARS(task, options, int(key[0]), begin)
    search.train()
    score = search.score()
    return _walked(task, section, search.policy(), key, search.steps, score, 1) if np.isfinite(score) else None


def _walked(
    task: Task,
    section: EnvSection,
    act: Callable[[Tensor], Tensor],
    key: np.ndarray,
    steps: int,
    score: float,
    skip: int,
) -> Expert:
    """The expert with the states of its episodes. steps: so far; skip: steps with one action."""
    random = np.random.default_rng(abs(int(key[0])))
    # A bandit must tell of all states that a learner may see on its way. So the share of random actions, where these
    # are continuous, grows from none in the first episode to all in the last.
    share = np.linspace(0.0, 1.0, EPISODES) if task.action_size else np.full(EPISODES, NOISE)

    def noisy(observation: Tensor) -> Tensor:
        action = act(observation[0])
        other = torch.from_numpy(random.random(len(action)) < share)
        if task.num_actions:
            drawn = torch.from_numpy(random.integers(task.num_actions, size=len(action)))
            return torch.where(other, drawn, action).unsqueeze(0)
        drawn = torch.from_numpy(random.uniform(-task.max_action, task.max_action, action.shape)).float()
        return torch.where(other[:, None], drawn, action).unsqueeze(0)

    states, walked = _visited(task, section, of_observation(task, noisy), key, skip)
    return Expert(act, states, steps + walked, score, skip)


def own_states(task: Task, section: EnvSection, expert: Expert, key: int) -> Tuple[Tensor, int]:
    """At most OWN states, float32 [n, F], of episodes without random actions, and the steps that they took."""
    policy = of_observation(task, lambda observation: expert.act(observation[0]).unsqueeze(0))
    states, steps = _visited(task, section, policy, np.array([key]), expert.skip)
    every = -(-len(states) // OWN)
    return states[:: max(1, every)], steps


def _visited(task: Task, section: EnvSection, policy: Policy, key: np.ndarray, skip: int) -> Tuple[Tensor, int]:
    """States float32 [n, F] of EPISODES, and the steps that they took; of more episodes where a bandit stores contexts
    and episodes are short. key: int64 [1]."""
    states, count, steps, seed = [], 0, 0, torch.as_tensor(key)
    for _ in range(ROUNDS):
        walked = play(task, policy, seed.numpy(), EPISODES, keep=True, skip=skip)
        states.append(walked.observations)
        count, steps = count + len(walked.observations), steps + int(walked.steps.sum())
        if count >= PER_STORED * section.stored_contexts:
            break
        seed = rng.fold(seed, rng.ROUND)
    return torch.cat(states), steps
