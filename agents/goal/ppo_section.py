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
    discounting: float = option(0.99, "discount factor of the rewards", gt=0, lt=1)
    use_dense_reward: bool = option(
        False, "use minus the distance to the goal (m) as the reward, instead of 1 near the goal and 0 elsewhere"
    )
    h_dim: int = option(256, "units per hidden layer of every network", ge=1, le=16384)
    n_hidden: int = option(2, "hidden layers of every network", ge=1, le=8)
    normalize_observations: bool = option(
        False,
        "normalise states and goals for all networks, by their running mean and standard deviation "
        "(the first phase only collects these statistics)",
    )
    num_envs: int = option(256, "parallel environments per member", ge=1, le=10**5)
    unroll_length: int = option(32, "decisions per environment and phase; updates follow each phase", ge=1, le=10**6)
    num_updates_per_batch: int = option(5, "epochs over the data of each phase", ge=1, le=10**5)
    num_minibatches: int = option(8, "minibatches per epoch, one update each", ge=1, le=10**6)
    clipping_epsilon: float = option(
        0.2, "clipping range e: the policy's probability ratio is clipped to [1 - e, 1 + e]", gt=0
    )
    gae_lambda: float = option(0.95, "lambda of generalised advantage estimation (GAE)", ge=0, le=1)
    entropy_cost: float = option(1e-4, "weight of the policy's entropy in the loss", ge=0)
    # here
    desired_kl: float = option(
        0.02, "target KL divergence per phase; the learning rate adapts to it; 0: constant learning rate", ge=0
    )
    action_std: float = option(0.6, "initial standard deviation of the actions", gt=0)
    activation: str = option("tanh", "activation function of every network", choices=ACTIVATIONS)

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
