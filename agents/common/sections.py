"""The ``agents.<learner>`` sections: every hyperparameter of every learner, its default and its limits.

Defaults are those of the original's ``default_config.yaml``; keys below a ``# here`` comment are new in this project.
"""

from __future__ import annotations

from dataclasses import dataclass

from envolve.core.option import option
from envolve.envs.nets.networks import ACTIVATIONS

HYPER_FACTOR = 3.0  # within which hyperparameters vary


@dataclass(frozen=True)
class LearnerSection:
    """Options of every learner: length of training, early out, tests."""

    train_episodes: int = option(1000, "most training episodes", ge=1, le=10**8)
    test_episodes: int = option(10, "episodes of one test on the real task", ge=1, le=10**6)
    init_episodes: int = option(10, "episodes of experience before learning begins", ge=0, le=10**8)
    rb_size: int = option(1_000_000, "replay buffer capacity in steps", ge=1, le=10**9)
    same_action_num: int = option(1, "environment steps per chosen action (frame skip)", ge=1, le=10**4)
    early_out_num: int = option(10, "episodes per average in the early-out rules", ge=1, le=10**6)
    early_out_virtual_diff: float = option(
        0.01, "SE: stop when the average return changes by less than this share", ge=0
    )
    # here
    train_steps: int = option(
        0, "training budget in steps, 0: no limit; stored with the evolved world", ge=0, le=10**12
    )
    early_out_min_steps: int = option(0, "no early out on an SE before this many steps", ge=0, le=10**12)
    bootstrap_time_limit: bool = option(True, "bootstrap at a time limit; false, as published: treat it as terminal")


@dataclass(frozen=True)
class TabularSection(LearnerSection):
    """Q-learning and SARSA on a finite task."""

    train_episodes: int = option(100, "most training episodes", ge=1, le=10**8)
    init_episodes: int = option(0, "episodes of experience before learning begins", ge=0, le=10**8)
    batch_size: int = option(1, "updates with the newest transition per step", ge=1, le=65536)
    alpha: float = option(0.5, "learning rate", ge=0, le=1)
    gamma: float = option(0.9, "discount", ge=0, le=1)
    eps_init: float = option(0.5, "exploration rate in episode 0", ge=0, le=1)
    eps_min: float = option(0.01, "lowest exploration rate", ge=0, le=1)
    eps_decay: float = option(0.95, "exploration rate is multiplied by this after each episode", ge=0, le=1)
    beta: float = option(0.005, "count-based variants: bonus beta / (sqrt(visits) + 1e-9)", ge=0)
    # here
    published_sarsa: bool = option(False, "SARSA's target draws an action that is not executed, as in the original")


@dataclass(frozen=True)
class DDQNSection(LearnerSection):
    """Double DQN (van Hasselt et al. 2016, https://arxiv.org/abs/1509.06461) with a soft target update."""

    batch_size: int = option(128, "transitions per update", ge=1, le=65536)
    gamma: float = option(0.98, "discount", ge=0, le=1)
    lr: float = option(3e-4, "Adam learning rate", gt=0)
    tau: float = option(0.01, "soft target update per step", ge=0, le=1)
    eps_init: float = option(0.1, "exploration rate in episode 0", ge=0, le=1)
    eps_min: float = option(0.01, "lowest exploration rate", ge=0, le=1)
    eps_decay: float = option(0.8, "exploration rate is multiplied by this after each episode", ge=0, le=1)
    activation_fn: str = option("relu", "activation of the Q network", choices=ACTIVATIONS)
    hidden_size: int = option(128, "hidden units", ge=1, le=16384)
    hidden_layer: int = option(2, "hidden layers (0 and 1 build the same net)", ge=0, le=8)


@dataclass(frozen=True)
class DuelingDDQNSection(DDQNSection):
    """Double DQN with a dueling network (Wang et al. 2016, https://arxiv.org/abs/1511.06581)."""

    gamma: float = option(0.99, "discount", ge=0, le=1)
    lr: float = option(1e-3, "Adam learning rate", gt=0)
    eps_init: float = option(1.0, "exploration rate in episode 0", ge=0, le=1)
    eps_decay: float = option(0.9, "exploration rate is multiplied by this after each episode", ge=0, le=1)
    rb_size: int = option(100_000, "replay buffer capacity in steps", ge=1, le=10**9)
    feature_dim: int = option(128, "outputs of the feature net, hidden units of the two heads", ge=1, le=16384)
    # here
    published_dueling_mean: bool = option(
        False, "subtract the mean advantage of the whole batch, as the original did; else the mean over the actions"
    )


@dataclass(frozen=True)
class TD3Section(LearnerSection):
    """Twin delayed DDPG (Fujimoto et al. 2018, https://arxiv.org/abs/1802.09477)."""

    train_episodes: int = option(50, "most training episodes", ge=1, le=10**8)
    init_episodes: int = option(20, "episodes of random actions before learning begins", ge=0, le=10**8)
    batch_size: int = option(256, "transitions per update", ge=1, le=65536)
    gamma: float = option(0.99, "discount", ge=0, le=1)
    lr: float = option(1e-3, "Adam learning rate of actor and critics", gt=0)
    tau: float = option(0.02, "soft target update", ge=0, le=1)
    policy_delay: int = option(1, "the actor and the targets are updated at every so many decisions", ge=1, le=10**6)
    activation_fn: str = option("relu", "activation of actor and critics", choices=ACTIVATIONS)
    hidden_size: int = option(256, "hidden units", ge=1, le=16384)
    hidden_layer: int = option(2, "hidden layers (0 and 1 build the same net)", ge=0, le=8)
    action_std: float = option(0.1, "exploration noise as a share of the largest action", ge=0)
    policy_std: float = option(0.2, "noise on the target's action", ge=0)
    policy_std_clip: float = option(0.5, "clip of the noise on the target's action", ge=0)
    # here
    twin: bool = option(True, "two critics, of which the smaller value counts; false: one, as in DDPG")
    test_noise: bool = option(False, "explore in tests too, as the original did")
    updates_per_decision: int = option(1, "shaped tasks: updates after a decision in all environments", ge=1, le=10**4)


@dataclass(frozen=True)
class TD3DiscreteSection(TD3Section):
    """TD3 for discrete actions: the actor's output goes through a Gumbel softmax (https://arxiv.org/abs/1611.01144)."""

    train_episodes: int = option(1000, "most training episodes", ge=1, le=10**8)
    init_episodes: int = option(10, "episodes of random actions before learning begins", ge=0, le=10**8)
    batch_size: int = option(128, "transitions per update", ge=1, le=65536)
    tau: float = option(0.01, "soft target update", ge=0, le=1)
    policy_delay: int = option(2, "the actor and the targets are updated at every so many decisions", ge=1, le=10**6)
    hidden_size: int = option(128, "hidden units", ge=1, le=16384)
    gumbel_softmax_temp: float = option(1.0, "initial temperature; falls linearly to a twentieth", gt=0)
    gumbel_softmax_hard: bool = option(
        False, "straight-through: one-hot actor output with the gradient of the soft one"
    )
    use_layer_norm: bool = option(True, "layer norm in the hidden layers from the second on")
    # here
    anneal_updates: int = option(2000, "updates until the temperature has reached a twentieth", ge=1, le=10**9)


@dataclass(frozen=True)
class SACSection(LearnerSection):
    """Soft actor-critic with automatic temperature (Haarnoja et al. 2018, https://arxiv.org/abs/1812.05905)."""

    init_episodes: int = option(20, "episodes of random actions before learning begins", ge=0, le=10**8)
    batch_size: int = option(256, "transitions per update", ge=1, le=65536)
    gamma: float = option(0.99, "discount", ge=0, le=1)
    alpha: float = option(0.2, "temperature; with automatic_entropy_tuning its initial value", gt=0)
    lr: float = option(1e-3, "Adam learning rate of actor, critics and temperature", gt=0)
    tau: float = option(0.02, "soft target update per step", ge=0, le=1)
    log_std_min: float = option(-20.0, "lower bound of the policy's log standard deviation")
    log_std_max: float = option(2.0, "upper bound of the policy's log standard deviation")
    automatic_entropy_tuning: bool = option(True, "learn the temperature so that the entropy nears -action_size")
    activation_fn: str = option("relu", "activation of actor and critics", choices=ACTIVATIONS)
    hidden_size: int = option(256, "hidden units", ge=1, le=16384)
    hidden_layer: int = option(2, "hidden layers (0 and 1 build the same net)", ge=0, le=8)
    # here
    linear_policy: bool = option(False, "the actor has no activations: its mean and log std are linear in the state")
    updates_per_decision: int = option(1, "shaped tasks: updates after a decision in all environments", ge=1, le=10**4)


@dataclass(frozen=True)
class PPOSection(LearnerSection):
    """Proximal policy optimisation (Schulman et al. 2017, https://arxiv.org/abs/1707.06347).

    The loss of one update is clip + vf_coef MSE(value) - ent_coef entropy. (CleanRL halves the MSE: its vf_coef of 0.5
    is 0.25 here.) Discrete actions have a categorical policy; continuous ones a Gaussian with the mean
    max_action tanh(net), or with ``squash: false`` net itself, and a standard deviation per action that is a parameter
    (at least 1e-3).
    """

    train_episodes: int = option(10_000, "most training episodes", ge=1, le=10**8)
    init_episodes: int = option(0, "no early out before this many episodes", ge=0, le=10**8)
    early_out_num: int = option(50, "episodes per average in the early-out rules", ge=1, le=10**6)
    early_out_virtual_diff: float = option(
        0.1, "SE: stop when the average return changes by less than this share", ge=0
    )
    update_episodes: float = option(20.0, "rollout_steps 0: an update after more than this x max_steps steps", gt=0)
    ppo_epochs: int = option(100, "passes over the data per update", ge=1, le=10**5)
    gamma: float = option(0.99, "discount", ge=0, le=1)
    lr: float = option(5e-4, "Adam learning rate of actor and critic", gt=0)
    vf_coef: float = option(0.5, "weight of the critic's mean squared error in the loss", ge=0)
    ent_coef: float = option(0.01, "weight of the policy's entropy in the loss", ge=0)
    eps_clip: float = option(0.2, "the policy's ratio counts within [1 - eps_clip, 1 + eps_clip]", gt=0)
    activation_fn: str = option("relu", "activation of actor and critic", choices=ACTIVATIONS)
    hidden_size: int = option(128, "hidden units of actor and critic each", ge=1, le=16384)
    hidden_layer: int = option(1, "hidden layers (0 and 1 build the same net)", ge=0, le=8)
    action_std: float = option(0.5, "continuous actions: standard deviation before training, in the task's units", gt=0)
    # here
    num_envs: int = option(1, "environments per agent; an update learns from the steps of all of them", ge=1, le=10**5)
    rollout_steps: int = option(
        0, "decisions per environment between updates; 0: update_episodes decides", ge=0, le=10**6
    )
    minibatches: int = option(1, "parts into which an epoch shuffles the data; one update each", ge=1, le=10**6)
    advantage: str = option(
        "monte_carlo",
        "monte_carlo: normalised returns minus the current value, as published; gae: generalised advantage estimation",
        choices=("monte_carlo", "gae"),
    )
    gae_lambda: float = option(0.95, "gae: lambda", ge=0, le=1)
    norm_advantage: bool = option(False, "normalise the advantages of each minibatch")
    clip_value_loss: bool = option(False, "also clip the change of the value by eps_clip")
    max_grad_norm: float = option(0.0, "largest norm of a member's gradient; 0: no limit", ge=0)
    anneal_lr: bool = option(False, "lower lr linearly to 0 over train_steps, which must be set")
    adam_eps: float = option(1e-8, "Adam's epsilon", gt=0)
    orthogonal_init: bool = option(False, "orthogonal weights: gains sqrt 2, actor's output 0.01, critic's 1; biases 0")
    test_noise: bool = option(False, "tests sample actions, as published; else they take the most likely one")
    squash: bool = option(True, "continuous actions: a tanh bounds the mean; false: only the world clips actions")
    # here, read by the learner of shaped tasks only (agents/shaped/ppo.py)
    normalise_obs: bool = option(False, "shaped tasks: normalise observations by running mean and deviation")
    normalise_reward: bool = option(
        False, "shaped tasks: divide rewards by the running deviation of the discounted return"
    )
    desired_kl: float = option(0.0, "shaped tasks: KL divergence to which lr is adapted; 0: fixed lr", ge=0)
    kl_after: str = option(
        "iteration",
        "shaped tasks: when lr is adapted: once, after all epochs of an iteration; or at each update, as rsl_rl does",
        choices=("iteration", "update"),
    )


@dataclass(frozen=True)
class ICMSection:
    """``agents.icm``: curiosity (Pathak et al. 2017, https://arxiv.org/abs/1705.05363) for <learner>_icm."""

    lr: float = option(1e-4, "Adam learning rate", gt=0)
    beta: float = option(0.2, "weight b of the forward model's loss; the inverse model's has 1 - b", ge=0, le=1)
    eta: float = option(0.5, "scale of the intrinsic reward", ge=0)
    feature_dim: int = option(32, "features of an observation", ge=1, le=16384)
    hidden_size: int = option(128, "hidden units", ge=1, le=16384)


@dataclass(frozen=True)
class VarySection:
    """``agents.<learner>_vary``: hyperparameters drawn anew for every agent (agent_name: <learner>_vary)."""

    vary_hp: bool = option(
        True, "draw lr, batch_size, hidden_size log-uniformly in [x/3, 3x], hidden_layer in L-1..L+1"
    )
    # here
    lr_factor: float = option(HYPER_FACTOR, "draw lr in [lr/f, lr*f] instead", ge=1)
    vary_layers: bool = option(True, "include hidden_layer in the draw")
    train_steps_factor: float = option(1.0, "draw the training budget log-uniformly in [b/f, b*f]", ge=1)
