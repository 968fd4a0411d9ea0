"""PPO (Schulman et al. 2017, https://arxiv.org/abs/1707.06347) for goals: the baseline that learns on its policy.

The learner is that of shaped tasks (``agents/shaped/ppo_torch.py``), whose observation is a state and its goal side by
side and whose reward is the goal task's: 1 after a decision that led near the goal and else 0, or minus the distance
it left, both divided by the running deviation of the discounted return. There is no hindsight: what another goal would
have paid says nothing of the policy that had this one. Time limits do not end what is learned.

The memory holds the decisions of one phase; a phase has num_updates_per_batch num_minibatches updates. With normalised
observations the first phase is for their mean and deviation only.

Random numbers are those of ``agents/shaped/ppo.py``.

Axes: P members, T decisions of a phase, N environments, S features of a state, G of a goal, A actions.
"""

from __future__ import annotations

import math
from typing import Dict, Mapping, Optional, Sequence

import torch
from torch import Tensor

from envolve.agents.common.hyper import draw
from envolve.agents.common.normaliser import Moments
from envolve.agents.goal.crl_replay import TrajectoryReplay
from envolve.agents.goal.crl_section import check_own
from envolve.agents.goal.ppo_section import GoalPPOSection
from envolve.agents.ppo import training as ppo
from envolve.agents.ppo.policy import forward_few
from envolve.agents.shaped.ppo_torch import Group
from envolve.envs.goal.task import GoalTask

NAMES = {  # here -> in ``agents/ppo/rollout.py``: PPOMembers
    "discounting": "gamma",
    "gae_lambda": "lam",
    "clipping_epsilon": "eps_clip",
    "entropy_cost": "ent_coef",
}


class GoalPPO:
    """P learners of one shape, with the interface described in ``agents/goal/crl.py``."""

    metrics = ("reward", "value", "deviation", "learning_rate")
    policy_delay = 1
    capturable = False  # how far a phase has come is a Python number; updates are captured in ``Epochs``

    def __init__(
        self, section: GoalPPOSection, task: GoalTask, keys: Tensor, own: Optional[Mapping[str, Sequence[float]]] = None
    ) -> None:
        """keys: int64 [P], on the device to use; own: values [P] for names in section.per_member. Raises ValueError."""
        self.section, self.task, self.P, self.device = section, task, len(keys), keys.device
        self.S, self.G, self.A = task.state_size, task.goal_size, task.action_size
        own = own or {}
        check_own(own, section.per_member, self.P)
        settings = section.learner()
        ppo.check(settings, draw(settings, keys.cpu().numpy()), 0)
        rows = torch.arange(self.P, device=self.device)
        self.group = Group(settings, rows, self.S + self.G, self.A, keys.cpu(), self.device)
        members = self.group.m
        for name, values in own.items():
            column = torch.tensor(list(values), dtype=torch.float64, device=self.device)
            if name == "learning_rate":
                members.lr.copy_(column)
                members.rate.copy_(column)
            else:
                getattr(members, NAMES[name]).copy_(column[:, None])
            if name == "discounting":
                self.group.discount.copy_(column[:, None])
        nets = self.group.nets
        self.sizes = [nets.std, nets.actor.size, nets.critic.size]
        self.decisions = 0  # of each environment
        self.fields: Dict[str, int] = {"goal": self.G, "next": self.S, "terminated": 1}

    @property
    def params(self) -> Tensor:
        """Parameters, [P, D]: standard deviations, actor, critic."""
        return self.group.m.params

    @property
    def updates(self) -> Tensor:
        """Number of Adam steps so far, int64 [P]."""
        return self.group.m.updates

    @property
    def moments(self) -> Optional[Moments]:
        return self.group.seen if self.section.normalize_observations else None

    # ------------------------------------------------------------------------------------------------------ acting

    @torch.no_grad()
    def act(self, features: Tensor, goal: Tensor) -> Tensor:
        t = self.decisions % self.section.unroll_length
        action = self.group.act(torch.cat((features, goal), 2), self.decisions, t)
        self.decisions += 1
        return action

    @torch.no_grad()
    def greedy(self, features: Tensor, goal: Tensor) -> Tensor:
        nets = self.group.nets
        _, actor, _ = nets.split(self.params)
        return torch.tanh(forward_few(nets.actor, actor, self.group.normalised(torch.cat((features, goal), 2))))

    def merge_moments(self) -> None:
        """Does nothing: ``learn`` needs the normalisers as they were when the policy acted, and merges them
        afterwards."""

    # ----------------------------------------------------------------------------------------------------- learning

    def learn(self, replay: TrajectoryReplay, measure: bool = False, actor: bool = True) -> Optional[Tensor]:
        """All updates of a phase, from its decisions. Returns the metrics named in ``metrics``, [P, M], if asked to."""
        goal, led = replay.fields["goal"], replay.fields["next"]  # [P, T, N, _]: the ring is as long as a phase
        goal = self.task.goal_now(led) if self.task.goal_moves else goal  # after the decision
        terminated = replay.fields["terminated"][..., 0] > 0
        over = torch.cat((replay.number[:, 1:], replay.current[:, None]), 1) != replay.number
        reward = self.task.reward(led, goal, self.section.use_dense_reward)
        for t in range(self.section.unroll_length):
            to = torch.cat((led[:, t], goal[:, t]), 2)
            self.group.remember(reward[:, t], terminated[:, t], over[:, t], to, t)
        self.group.learn((self.decisions - self.section.unroll_length) * self.section.num_envs)
        if not measure:
            return None
        learned = self.group.epochs.epoch > 0
        value = self.group.epochs.samples[..., -1].mean(1) if learned else torch.full_like(reward[:, 0, 0], math.nan)
        deviation = self.params[:, : self.A].mean(1)
        return torch.stack((reward.mean((1, 2)), value, deviation, self.group.m.rate.float()), 1)

    def diverged(self) -> Tensor:
        return ~torch.isfinite(self.params).all(1)

    # ------------------------------------------------------------------------------------------------ keeping a run

    KEPT = ("params", "m", "v", "rate", "updates")

    def state_dict(self) -> Dict[str, Tensor]:
        g = self.group
        state = {name: getattr(g.m, name).clone() for name in self.KEPT}
        for name, moments in (("seen", g.seen), ("paid", g.paid)):
            state.update({f"{name}.{key}": value for key, value in moments.state_dict().items()})
        counts = torch.tensor([self.decisions, g.epochs.epoch])
        return {**state, "discounted": g.discounted.clone(), "counts": counts}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        g = self.group
        for name in self.KEPT:
            getattr(g.m, name).copy_(state[name])
        for name, moments in (("seen", g.seen), ("paid", g.paid)):
            moments.load_state_dict({key: state[f"{name}.{key}"] for key in ("moments", "samples")})
        g.discounted.copy_(state["discounted"])
        self.decisions, g.epochs.epoch = state["counts"].tolist()
