"""Sections of SAC and TD3 with hindsight: every hyperparameter, its default and its limits.

Names are those of ``CRLSection`` and JaxGCRL (https://arxiv.org/abs/2408.11052) where those have one. Its own defaults
for these two are a learning rate of 1e-4, no minimum of memory and, for TD3, a delay of 2 and exploration of 0.4.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Tuple

from envolve.agents.common.sections import SACSection, TD3Section
from envolve.core.option import option
from envolve.envs.nets.networks import ACTIVATIONS

RELABEL = ("future", "final")


@dataclass(frozen=True)
class GoalOffPolicySection:
    """Options shared by SAC and TD3."""

    per_member: ClassVar[Tuple[str, ...]] = ("learning_rate", "discounting", "tau", "her_share")

    learning_rate: float = option(3e-4, "Adam learning rate of actor, critics and (SAC) temperature", ge=0)
    discounting: float = option(
        0.9, "discount factor of the rewards, also used to draw hindsight goals (--her-goals future)", gt=0, lt=1
    )
    batch_size: int = option(256, "samples per update", ge=2, le=65536)
    tau: float = option(0.005, "coefficient of the soft target update", ge=0, le=1)
    use_her: bool = option(
        False, "hindsight experience replay: relabel samples with goals that their trajectory reached later"
    )
    use_dense_reward: bool = option(
        False, "use minus the distance to the goal (m) as the reward, instead of 1 near the goal and 0 elsewhere"
    )
    h_dim: int = option(256, "units per hidden layer of every network", ge=1, le=16384)
    n_hidden: int = option(2, "hidden layers of every network", ge=1, le=8)
    normalize_observations: bool = option(
        False, "normalise states and goals for all networks, by their running mean and standard deviation"
    )
    num_envs: int = option(256, "parallel environments per member", ge=1, le=10**5)
    unroll_length: int = option(50, "decisions per environment and phase; updates follow each phase", ge=1, le=10**6)
    multiplier_num_sgd_steps: float = option(
        1.0,
        "updates per phase, as a multiple of num_envs * (episode_length - 1) / batch_size (fractions carry over)",
        gt=0,
    )
    min_replay_size: int = option(1000, "random decisions per environment before the first update", ge=1, le=10**9)
    max_replay_size: int = option(10_000, "replay buffer capacity in decisions per environment", ge=2, le=10**9)
    # here
    her_goals: str = option(
        "future",
        "hindsight goals. future: the state k steps later, with probability proportional to discounting^k; final: the "
        "last state of the trajectory",
        choices=RELABEL,
    )
    her_share: float = option(0.8, "share of samples that hindsight relabels; 1 in the publication", ge=0, le=1)
    activation: str = option("relu", "activation function of every network", choices=ACTIVATIONS)


@dataclass(frozen=True)
class GoalSACSection(GoalOffPolicySection):
    """Soft actor-critic (Haarnoja et al. 2018, https://arxiv.org/abs/1812.05905)."""

    per_member = (*GoalOffPolicySection.per_member, "initial_alpha")

    initial_alpha: float = option(0.1, "initial temperature, low because rewards are at most 1", gt=0)

    def learner(self) -> SACSection:
        """Equivalent section for ``agents/off_policy/sac.py``."""
        return SACSection(
            init_episodes=1,
            batch_size=self.batch_size,
            gamma=self.discounting,
            alpha=self.initial_alpha,
            lr=self.learning_rate,
            tau=self.tau,
            log_std_min=-5.0,
            activation_fn=self.activation,
            hidden_size=self.h_dim,
            hidden_layer=self.n_hidden,
        )


@dataclass(frozen=True)
class GoalTD3Section(GoalOffPolicySection):
    """Twin delayed DDPG (Fujimoto et al. 2018, https://arxiv.org/abs/1802.09477)."""

    per_member = (*GoalOffPolicySection.per_member, "exploration_noise", "smoothing_noise", "noise_clip")

    policy_delay: int = option(2, "critic updates per update of actor and target networks", ge=1, le=10**6)
    exploration_noise: float = option(0.4, "standard deviation of the exploration noise on actions", ge=0)
    smoothing_noise: float = option(0.2, "standard deviation of the noise on the target policy's action", ge=0)
    noise_clip: float = option(0.5, "limit to which the noise on the target policy's action is clipped", ge=0)

    def learner(self) -> TD3Section:
        """Equivalent section for ``agents/off_policy/td3.py``."""
        return TD3Section(
            init_episodes=1,
            batch_size=self.batch_size,
            gamma=self.discounting,
            lr=self.learning_rate,
            tau=self.tau,
            policy_delay=self.policy_delay,
            activation_fn=self.activation,
            hidden_size=self.h_dim,
            hidden_layer=self.n_hidden,
            action_std=self.exploration_noise,
            policy_std=self.smoothing_noise,
            policy_std_clip=self.noise_clip,
        )
