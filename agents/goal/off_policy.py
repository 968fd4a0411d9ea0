"""SAC and TD3 with hindsight (Andrychowicz et al. 2017, https://arxiv.org/abs/1707.01495), for comparison.

Networks see a state and its goal side by side; the updates are those of ``agents/off_policy/sac.py`` and ``td3.py``.
The reward of a decision is 1 if it led near the goal and else 0, or minus the distance it left. (JaxGCRL's hindsight
pays for the state before the decision.) An episode that ran out of time goes on in what is learned; one that terminated
does not.

With use_her each sample's goal becomes, with probability her_share, one that its own trajectory reached:
    future  the state k steps later, P(k) in proportion to discounting^k, among those before its last decision
    final   where its last decision so far led
and its reward is that goal's. A trajectory's last decision gets in both cases where it led.

Random numbers: decision d is as in those files, with d N + n as the number of the decision of environment n, but a
decision takes 2 A numbers for SAC, too. Update u takes those of ``TrajectoryReplay`` and of the algorithm; sample i is
relabelled by counter 65536 u + i of stream RELABEL.

Axes: P members, N environments, B batch, S features of a state, G of a goal, A actions.
"""

from __future__ import annotations

from typing import Dict, Mapping, Optional, Sequence, Tuple, Union

import numpy as np
import torch
from torch import Tensor

from envolve.agents.common.hyper import draw
from envolve.agents.common.normaliser import Moments
from envolve.agents.goal.crl_replay import TrajectoryReplay
from envolve.agents.goal.crl_section import check_own
from envolve.agents.goal.inputs import Inputs
from envolve.agents.goal.off_policy_section import GoalSACSection, GoalTD3Section
from envolve.agents.off_policy.population import AgentPopulation, Widths
from envolve.agents.off_policy.sac import SAC
from envolve.agents.off_policy.td3 import TD3
from envolve.core import rng
from envolve.envs.goal.task import GoalTask

RELABEL = 1  # of stream REPLAY: which samples get another goal
NAMES = {  # here -> in agents/off_policy/sac.py and td3.py
    "learning_rate": "lr", "discounting": "gamma", "tau": "tau", "initial_alpha": "alpha",
    "exploration_noise": "action_std", "smoothing_noise": "policy_std", "noise_clip": "policy_std_clip",
}  # fmt: skip


class GoalOffPolicy(Inputs):
    """P learners of one shape, with the interface described in ``agents/goal/crl.py``."""

    capturable = True

    def __init__(
        self,
        section: Union[GoalSACSection, GoalTD3Section],
        task: GoalTask,
        keys: Tensor,
        own: Optional[Mapping[str, Sequence[float]]] = None,
    ) -> None:
        """keys: int64 [P], on the device to use; own: values [P] for names in section.per_member. Raises ValueError."""
        self.section, self.task, self.P, self.device = section, task, len(keys), keys.device
        self.S, self.G, self.A = task.state_size, task.goal_size, task.action_size
        algorithm = SAC if isinstance(section, GoalSACSection) else TD3
        hyper = draw(section.learner(), keys.cpu().numpy())
        self.her_share = torch.full((self.P,), section.her_share, device=self.device)
        own = own or {}
        check_own(own, section.per_member, self.P)
        for name, values in own.items():
            if name == "her_share":
                self.her_share = torch.tensor(list(values), dtype=torch.float32, device=self.device)
            else:
                hyper.values[NAMES[name]] = np.asarray(values, np.float64)
        self.agents = AgentPopulation(algorithm, Widths(self.S + self.G, self.A), hyper, keys)
        self.agents.compile()
        self.sizes = [net.size for net in self.agents.algorithm.nets]
        self.policy_delay: int = getattr(section, "policy_delay", 1)
        self.metrics: Tuple[str, ...] = ("reward", "value", "alpha") if algorithm is SAC else ("reward", "value")
        self.decisions = torch.zeros((), dtype=torch.int64, device=self.device)
        self.explore_key, self.replay_key = rng.fold(keys, rng.EXPLORE), rng.fold(keys, rng.REPLAY)
        self.relabel_key = rng.fold(self.replay_key, RELABEL)
        self.moments = Moments(self.P, self.S + self.G, self.device) if section.normalize_observations else None
        self.fields: Dict[str, int] = {
            "state": self.S,
            "action": self.A,
            "goal": self.G,
            "next": self.S,
            "terminated": 1,
        }

    @property
    def params(self) -> Tensor:
        """Parameters of actor and critics, [P, D]."""
        return self.agents.params

    @property
    def updates(self) -> Tensor:
        """Updates so far, int64 [P]."""
        return self.agents.updates

    # ------------------------------------------------------------------------------------------------------ acting

    @torch.no_grad()
    def act(self, features: Tensor, goal: Tensor) -> Tensor:
        """Actions: uniform in the first min_replay_size decisions, then by the algorithm's exploration."""
        P, N, _ = features.shape
        self._observe(features, goal)
        first = rng.advance(self.explore_key, self.decisions * (2 * N * self.A))
        draw = self.agents.side_by_side(first, 0, N)
        learned = (self.decisions >= self.section.min_replay_size).long().expand(P)
        self.decisions += 1
        return self.agents.explore(self._input(features, goal), learned, draw)

    @torch.no_grad()
    def greedy(self, features: Tensor, goal: Tensor) -> Tensor:
        return self.agents.greedy(self._input(features, goal))

    # ----------------------------------------------------------------------------------------------------- learning

    def goals(self, replay: TrajectoryReplay, now: Tensor) -> Tuple[Tensor, Tensor]:
        """Goal of each sample before its decision and after it, [P, B, G]. now: its row, int64 [P, B]. A commanded goal
        may move; one that was reached stays."""
        commanded = replay.gather("goal", now)
        after = self.task.goal_now(replay.gather("next", now)) if self.task.goal_moves else commanded
        if not self.section.use_her:
            return commanded, after
        if self.section.her_goals == "final":
            reached = self.task.achieved(replay.gather("next", replay.final(now)))
        else:
            later = replay.future(now, self.agents.algorithm.rows.gamma[:, 0], self.replay_key, self.updates)
            led = self.task.achieved(replay.gather("next", now))
            reached = self.task.achieved(replay.gather("state", later))
            reached = torch.where((later == now)[..., None], led, reached)
        first = rng.advance(self.relabel_key, self.updates * 65536)[:, None]
        u = rng.uniform(first, torch.arange(now.shape[1], device=self.device))
        relabelled = (u < self.her_share[:, None])[..., None]
        before = torch.where(relabelled, reached, commanded)
        return before, torch.where(relabelled, reached, after) if self.task.goal_moves else before

    def sample(self, replay: TrajectoryReplay) -> Tensor:
        """Samples a batch for every member: [P, 2 (S + G) + A + 2, B], rows s, s', action, reward, terminated."""
        now = replay.uniform_rows(self.replay_key, self.updates, self.section.batch_size)
        (goal, later), after = self.goals(replay, now), replay.gather("next", now)
        parts = (
            self._input(replay.gather("state", now), goal),
            self._input(after, later),
            replay.gather("action", now),
            self.task.reward(after, later, self.section.use_dense_reward)[..., None],
            replay.gather("terminated", now),
        )
        return torch.cat(parts, 2).transpose(1, 2).contiguous()

    def learn(self, replay: TrajectoryReplay, measure: bool = False, actor: bool = True) -> Optional[Tensor]:
        """One update of every member; actor: whether to update the actor, too (policy_delay). Returns the metrics named
        in ``metrics``, [P, M], if asked to."""
        batch = self.sample(replay)
        self.agents.learn(batch, actor)
        if not measure:
            return None
        a = self.agents.algorithm
        with torch.no_grad():
            s, _, action, reward, _ = a.split(batch)
            values = [reward.mean(1)]
            if isinstance(a, SAC):
                value = torch.minimum(*a.q(a.critics(a.rows.params), s, action))
                return torch.stack([*values, value.mean(1), a.rows.log_alpha[:, 0].exp()], 1)
            assert isinstance(a, TD3)
            return torch.stack([*values, a.value(s, action).mean(1)], 1)

    def diverged(self) -> Tensor:
        a, out = self.agents.algorithm, ~self.agents.finite()
        return out | ~torch.isfinite(a.rows.log_alpha[:, 0]) if isinstance(a, SAC) else out

    # ------------------------------------------------------------------------------------------------ keeping a run

    def state_dict(self) -> Dict[str, Tensor]:
        return {**self.agents.state_dict(), "decisions": self.decisions.clone(), **self._moments_state()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        self.agents.load_state_dict(state)
        self.decisions.copy_(state["decisions"])
        self._load_moments(state)
