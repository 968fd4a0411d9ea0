"""Trained agents as functions from observations to actions, e.g. for films."""

from __future__ import annotations

from typing import Callable, List, Optional

import numpy as np
import torch
from torch import Tensor

from envolve.agents.common.hyper import Hyper, column, draw
from envolve.agents.common.learners import is_off_policy
from envolve.agents.common.population import nets_of, stack, widest
from envolve.agents.common.sections import LearnerSection, TabularSection, VarySection
from envolve.agents.off_policy.algorithm import Algorithm
from envolve.agents.ppo import policy as ppo_policy
from envolve.agents.ppo.policy import Nets
from envolve.agents.train import algorithm
from envolve.envs.task import Task

Policy = Callable[[Tensor], Tensor]  # observations [1, N, F] -> actions int64 [1, N] or float32 [1, N, A]


def policies(
    name: str, learner: LearnerSection, vary: Optional[VarySection], task: Task, weights: np.ndarray, keys: np.ndarray
) -> List[Policy]:
    """Greedy policy of every member. weights: float32 [P, D] of a ``TrainResult``; keys: int64 [P], the members' random
    seeds; the rest as ``envolve.agents.train.train`` had it."""
    hyper = draw(learner, keys, vary)
    if isinstance(learner, TabularSection):
        return [_of_table(torch.from_numpy(w), task) for w in weights]
    out: List[Policy] = []
    for i in range(len(keys)):
        rows, own = np.array([i]), torch.from_numpy(weights[i : i + 1])
        one = hyper.take(rows)
        if is_off_policy(name):
            out.append(off_policy_agent(name, task, one, own).greedy)
        else:
            out.append(_of_ppo(task, one, own))
    return out


def off_policy_agent(name: str, task: Task, hyper: Hyper, weights: Tensor) -> Algorithm:
    """An agent as it was when its training ended. hyper: of one member; weights: float32 [1, D]."""
    agents = nets_of(algorithm(name), task, hyper)
    nets = widest(agents)
    width = column(hyper, "hidden_size", weights.device, torch.int64)
    agent: Algorithm = algorithm(name)(task, hyper, nets, stack(weights, agents, nets), width)
    return agent


def _of_table(flat: Tensor, task: Task) -> Policy:
    q = flat[: (task.num_states or 0) * task.num_actions].reshape(-1, task.num_actions)
    return lambda obs: q[obs.argmax(-1)].argmax(-1)


def _of_ppo(task: Task, hyper: Hyper, own: Tensor) -> Policy:
    agents = ppo_policy.networks(task, hyper)
    actor, critic = widest(agents)
    nets = Nets(task.action_size, actor, critic, hyper.section.squash)  # type: ignore[attr-defined]
    params = ppo_policy.padded(own, agents, nets)
    return lambda obs: ppo_policy.greedy(nets, params, obs, task.max_action)
