"""The section of PPO for goals: every hyperparameter, its default and its limits. Names are those of JaxGCRL
(https://arxiv.org/abs/2408.11052) where it has one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Tuple

from envolve.agents.common.sections import PPOSection
from envolve.agents.shaped.ppo import defaults
from envolve.core.option import option
from envolve.envs.nets.networks import ACTIVATIONS


@dataclass(frozen=True)
class GoalPPOSection:
    """Proximal policy optimisation (Schulman et al. 2017, https://arxiv.org/abs/1707.06347)."""

    per_member: ClassVar[Tuple[str, ...]] = (
        "learning_rate",
        "discounting",
        "gae_lambda",
        "clipping_epsilon",
        "entropy_cost",
    )
    min_replay_size: ClassVar[int] = 0  # it learns from the first phase on

    learning_rate: float = option(3e-4, "initial Adam learning rate of actor and critic", gt=0)
    discounting: float = option(0.99, "discount of rewards", gt=0, lt=1)
    use_dense_reward: bool = option(False, "reward: minus the distance, m; without: 1 near the goal, else 0")
    h_dim: int = option(256, "hidden units of actor and critic", ge=1, le=16384)
    n_hidden: int = option(2, "hidden layers of actor and critic", ge=1, le=8)
    normalize_observations: bool = option(
        False, "both nets see states and goals by their running mean and deviation, which the first phase is for"
    )
    num_envs: int = option(256, "environments of each member", ge=1, le=10**5)
    unroll_length: int = option(32, "decisions per environment between two phases of updates", ge=1, le=10**6)
    num_updates_per_batch: int = option(5, "epochs over the data of a phase", ge=1, le=10**5)
    num_minibatches: int = option(8, "minibatches per epoch, one update each", ge=1, le=10**6)
    clipping_epsilon: float = option(0.2, "clip e of the policy's ratio, to [1 - e, 1 + e]", gt=0)
    gae_lambda: float = option(0.95, "lambda of the generalised advantage estimates", ge=0, le=1)
    entropy_cost: float = option(1e-4, "weight of the policy's entropy in the loss", ge=0)
    # here
    desired_kl: float = option(
        0.02, "KL divergence per phase to which learning_rate is adapted; 0: fixed learning_rate", ge=0
    )
    action_std: float = option(0.6, "initial standard deviation of actions", gt=0)
    activation: str = option("tanh", "activation of actor and critic", choices=ACTIVATIONS)

    @property
    def max_replay_size(self) -> int:
        """Buffer size in decisions: one phase."""
        return self.unroll_length

    def learner(self) -> PPOSection:
        """Equivalent section for ``agents/shaped/ppo.py``."""
        return defaults(
            rollout_steps=self.unroll_length,
            num_envs=self.num_envs,
            ppo_epochs=self.num_updates_per_batch,
            minibatches=self.num_minibatches,
            gamma=self.discounting,
            gae_lambda=self.gae_lambda,
            eps_clip=self.clipping_epsilon,
            lr=self.learning_rate,
            desired_kl=self.desired_kl,
            ent_coef=self.entropy_cost,
            hidden_size=self.h_dim,
            hidden_layer=self.n_hidden,
            activation_fn=self.activation,
            action_std=self.action_std,
            normalise_obs=self.normalize_observations,
        )
