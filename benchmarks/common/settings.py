"""Settings of the benchmarks of learners: the same numbers for this project, the plain scripts and the peers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Dict, Tuple

SE_HIDDEN = 83  # units of each of an SE's three nets, leaky ReLU, as in default_config_cartpole_syn_env.yaml
GYM = {  # this project's name of a task -> Gymnasium's
    "CartPole-v0": "CartPole-v1",  # the same dynamics; the time limit is the setting's
    "MountainCarContinuous-v0": "MountainCarContinuous-v0",
    "Pendulum-v0": "Pendulum-v1",
}


@dataclass(frozen=True)
class Setting:
    """One training, of which a few thousand steps are timed."""

    what: str
    agent: str  # a key of agents.common.learners.LEARNERS
    learner: Dict[str, Any]  # of its section
    task: str = "CartPole-v0"
    kind: str = "se"  # the world: "se" or "real"
    sizes: Tuple[int, int] = (4, 2)  # observation features, actions
    max_steps: int = 200
    members: int = 32  # of a population; plain scripts train one agent
    max_action: float = 1.0
    ppo: Dict[str, Any] = field(default_factory=dict)  # CleanRL's names


def _ddqn(hidden: int, layers: int, activation: str, batch: int) -> Setting:
    net = "-".join(["4", *[str(hidden)] * layers, "2"])
    learner = {
        "hidden_size": hidden, "hidden_layer": layers, "activation_fn": activation, "batch_size": batch,
        "lr": 1e-3, "gamma": 0.98, "tau": 0.01, "eps_init": 0.2, "eps_min": 0.2, "eps_decay": 1.0,
    }  # fmt: skip
    return Setting(f"DDQN in a CartPole SE, {net} {activation}, batch {batch}", "ddqn", learner)


SETTINGS = {
    "ddqn_in_se": _ddqn(57, 1, "tanh", 199),
    "ddqn_two_layer": _ddqn(128, 2, "relu", 128),
    "ddqn_two_layer_tanh64": _ddqn(64, 2, "tanh", 64),
    "dueling_in_se": Setting(
        "Dueling DDQN in a CartPole SE, 4-128-128-128 relu, heads 128-128-k, batch 128",
        "duelingddqn",
        {
            "hidden_size": 128, "hidden_layer": 2, "feature_dim": 128, "activation_fn": "relu", "batch_size": 128,
            "lr": 1e-3, "gamma": 0.99, "tau": 0.01, "eps_init": 0.2, "eps_min": 0.2, "eps_decay": 1.0,
        },
    ),
    "td3_discrete_in_se": Setting(
        "discrete TD3 in a CartPole SE, 128-128 relu, batch 128, policy delay 2",
        "td3_discrete",
        {
            "hidden_size": 128, "hidden_layer": 2, "activation_fn": "relu", "batch_size": 128, "lr": 5e-4,
            "gamma": 0.99, "tau": 0.01, "policy_delay": 2, "action_std": 0.1, "policy_std": 0.2, "policy_std_clip": 0.5,
            "gumbel_softmax_temp": 1.0, "gumbel_softmax_hard": False, "use_layer_norm": False,
        },
    ),
    "td3_mountain_car_continuous": Setting(
        "TD3 on MountainCarContinuous, 128-128 relu, batch 256, policy delay 2, two steps per action",
        "td3",
        {
            "hidden_size": 128, "hidden_layer": 2, "activation_fn": "relu", "batch_size": 256, "lr": 3e-4,
            "gamma": 0.99, "tau": 0.005, "policy_delay": 2, "action_std": 0.1, "policy_std": 0.2,
            "policy_std_clip": 0.5, "same_action_num": 2,
        },
        task="MountainCarContinuous-v0", kind="real", sizes=(2, 1), max_steps=999, members=16,
    ),
    "sac_pendulum": Setting(
        "SAC on Pendulum, 256-256 relu, batch 256, automatic temperature",
        "sac",
        {
            "hidden_size": 256, "hidden_layer": 2, "activation_fn": "relu", "batch_size": 256, "lr": 1e-3,
            "gamma": 0.99, "tau": 0.02, "alpha": 0.2, "automatic_entropy_tuning": True,
        },
        task="Pendulum-v0", kind="real", sizes=(3, 1), members=16, max_action=2.0,
    ),
    "ppo_cartpole": Setting(
        "PPO on CartPole at CleanRL's settings: 4 environments, 128 steps, 4 epochs of 4 minibatches, 64-64 tanh",
        "ppo",
        {"hidden_size": 64, "hidden_layer": 2, "activation_fn": "tanh"},
        kind="real", max_steps=500, members=16,
        ppo={
            "num_envs": 4, "num_steps": 128, "num_minibatches": 4, "update_epochs": 4, "learning_rate": 2.5e-4,
            "gamma": 0.99, "gae_lambda": 0.95, "clip_coef": 0.2, "vf_coef": 0.5, "ent_coef": 0.01,
            "max_grad_norm": 0.5, "total_timesteps": 500_000,
        },
    ),
}  # fmt: skip
