"""The section of the goal-conditioned learner: every hyperparameter of contrastive RL, its default and its limits.

Names are those of JaxGCRL (https://arxiv.org/abs/2408.11052). Defaults are those of its recommended run, where it has
one; keys below ``# here`` are new in this project.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Mapping, Sequence, Tuple

from envolve.agents.goal.crl_energy import ENERGY_NAMES
from envolve.agents.goal.crl_losses import LOSS_NAMES
from envolve.core.option import option

# what each member of a population may have a value of its own for
PER_MEMBER: Tuple[str, ...] = (
    "policy_lr", "critic_lr", "alpha_lr", "discounting", "logsumexp_penalty", "l2_penalty", "exploration_coef",
    "random_goals", "target_entropy", "initial_alpha",
)  # fmt: skip


def check_own(own: Mapping[str, Sequence[float]], names: Sequence[str], P: int) -> None:
    """Checks per-member values. own: name -> values of P members; names: those that may differ between members. Raises
    ValueError."""
    for name, values in own.items():
        if name not in names:
            raise ValueError(f"{name}: all members share it; their own can be {', '.join(names)}")
        if len(values) != P:
            raise ValueError(f"{name}: found {len(values)} values for {P} members")


@dataclass(frozen=True)
class CRLSection:
    """Contrastive RL (Eysenbach et al. 2022, https://arxiv.org/abs/2206.07568), online, as in JaxGCRL."""

    policy_lr: float = option(3e-4, "Adam learning rate of the actor", ge=0)
    critic_lr: float = option(3e-4, "Adam learning rate of both encoders", ge=0)
    alpha_lr: float = option(3e-4, "Adam learning rate of the temperature", ge=0)
    discounting: float = option(
        0.99,
        "discount factor: the goal is the state k steps later, with probability proportional to discounting^k",
        gt=0,
        lt=1,
    )
    batch_size: int = option(256, "samples per update; each sample is a negative for all others", ge=2, le=65536)
    energy_fn: str = option(
        "l2",
        "energy: similarity of a state-action pair and a goal; l2 is the Euclidean distance, l2_no_sqrt its square",
        choices=ENERGY_NAMES,
    )
    contrastive_loss_fn: str = option("symmetric_infonce", "contrastive loss of the encoders", choices=LOSS_NAMES)
    logsumexp_penalty: float = option(
        0.0, "weight in the critic's loss of the squared log-sum-exp, averaged over the rows of logits", ge=0
    )
    l2_penalty: float = option(0.0, "weight in the critic's loss of the mean squared representations", ge=0)
    no_resubs: bool = option(False, "leave the positive pair out of the log-sum-exp, by subtracting 100 from its logit")
    use_c_target: bool = option(False, "multiply the logits by a learned factor")
    exploration_coef: float = option(
        0.0,
        "exploration bonus: subtract this times |phi(s, a)| from the actor's loss (energies l2, norm and dot)",
        ge=0,
    )
    random_goals: float = option(
        0.0, "probability that the actor trains with the goal of another sample instead of its own", ge=0, le=1
    )
    disable_entropy_actor: bool = option(False, "leave the entropy term out of the actor's loss")
    use_ln: bool = option(False, "layer normalisation in the encoders")
    h_dim: int = option(256, "units per hidden layer of every network", ge=1, le=16384)
    n_hidden: int = option(2, "hidden layers of every network", ge=1, le=1024)
    repr_dim: int = option(64, "outputs of the encoders, i.e. the size of the representations", ge=1, le=16384)
    normalize_observations: bool = option(
        False, "normalise states and goals for the actor, by their running mean and standard deviation"
    )
    num_envs: int = option(256, "parallel environments per member", ge=1, le=10**5)
    unroll_length: int = option(62, "decisions per environment and phase; updates follow each phase", ge=1, le=10**6)
    multiplier_num_sgd_steps: float = option(
        1.0,
        "updates per phase, as a multiple of num_envs * (episode_length - 1) / batch_size (fractions carry over)",
        gt=0,
    )
    min_replay_size: int = option(1000, "decisions per environment before the first update", ge=1, le=10**9)
    max_replay_size: int = option(10_000, "replay buffer capacity in decisions per environment", ge=2, le=10**9)
    # here
    skip_connections: int = option(
        0, "residual connections that each span this many hidden layers; 0: none", ge=0, le=1024
    )
    activation: str = option("relu", "activation function of every network", choices=("relu", "swish"))
    policy_std: str = option(
        "softplus",
        "standard deviation of the policy. softplus: softplus(x) + 0.001, as in the original; bounded: its "
        "logarithm lies in [-5, 2]",
        choices=("softplus", "bounded"),
    )
    target_entropy: float = option(
        0.5, "target entropy of the policy, negated: the target is minus this times the number of actions"
    )
    initial_alpha: float = option(1.0, "initial temperature", gt=0)
