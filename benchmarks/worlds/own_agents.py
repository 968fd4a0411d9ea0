"""This project's learners with Stable-Baselines3's default hyperparameters, and one agent in a world of the zoo.

DDPG is TD3 with one critic, without delay and target noise. The nets of TD3 and DDPG have two layers of 256, those of
Stable-Baselines3 400 and 300; SAC's and PPO's sizes are the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from envolve.agents.common.learners import LEARNERS
from envolve.agents.common.sections import LearnerSection, PPOSection
from envolve.agents.greedy import policies
from envolve.agents.train import of_one_step_episodes, train
from envolve.envs.section import EnvSection
from envolve.envs.task import NEVER_SOLVED, Task, make_task
from envolve.envs.worlds.format import flat_from_state_dict
from envolve.envs.worlds.units import observed
from envolve.worlds.shelf import open_world, path_of
from envolve.worlds.tensors import read_tensors

PPO: dict[str, Any] = dict(
    rollout_steps=2048,
    minibatches=32,
    ppo_epochs=10,
    lr=3e-4,
    vf_coef=0.5,
    ent_coef=0.0,
    advantage="gae",
    norm_advantage=True,
    max_grad_norm=0.5,
    adam_eps=1e-5,
    orthogonal_init=True,
    squash=False,
    action_std=1.0,
    activation_fn="tanh",
    hidden_size=64,
    hidden_layer=2,
)
OFF: dict[str, Any] = dict(batch_size=256, tau=0.005, hidden_size=256, hidden_layer=2)
TD3: dict[str, Any] = dict(**OFF, lr=1e-3, policy_delay=2, action_std=0.0)
SETTINGS: dict[str, tuple[str, dict[str, Any]]] = {  # Stable-Baselines3's defaults -> our learner and its settings
    "td3": ("td3", TD3),
    "td3_noise": ("td3", {**TD3, "action_std": 0.1}),
    "ddpg": ("td3", {**TD3, "policy_delay": 1, "twin": False, "policy_std": 0.0}),
    "sac": ("sac", {**OFF, "lr": 3e-4, "alpha": 1.0}),
    "ppo": ("ppo", PPO),
    "ppo_fast": ("ppo", {**PPO, "lr": 1e-3}),
    "ppo_example": ("ppo", {**PPO, "lr": 1e-3, "rollout_steps": 1024, "minibatches": 4, "ent_coef": 0.001}),
}
FIRST = 100  # learning_starts of Stable-Baselines3: steps of random actions
TASKS = {"CartPole-v1": "CartPole-v0", "Pendulum-v1": "Pendulum-v0"}  # of this project, with the same spaces


def section_of(learner: str, steps: int, first: int, tests: int) -> tuple[str, LearnerSection]:
    """A name of ``SETTINGS`` -> this project's learner and its settings. steps: of training; PPO trains for as many
    whole rollouts as fit into them. first: episodes of random actions, of learners that have them."""
    name, values = SETTINGS[learner]
    own = {"train_steps": steps, "train_episodes": steps, "early_out_min_steps": steps + 1, "test_episodes": tests}
    if name == "ppo":
        rollout = values["rollout_steps"]
        own["train_steps"] = steps // rollout * rollout - rollout + 1
    else:
        own["init_episodes"] = first
    section = LEARNERS[name].section(**{**values, **own})
    assert isinstance(section, PPOSection) == (name == "ppo")
    return name, section


def agent_in(world: str, learner: str, steps: int, seed: int) -> Callable[[np.ndarray], np.ndarray]:
    """Trains one agent in a world of the zoo -> its greedy policy, from an observation to an action. learner: a name of
    ``SETTINGS``."""
    known = open_world(world).task
    task = make_task(TASKS.get(known, known), None, NEVER_SOLVED)
    largest = task.max_action
    vars(task)["max_action"] = 1.0  # agents learn of shares of it, as Stable-Baselines3's do
    name, hyper = section_of(learner, steps, FIRST, 1)
    section, flat = bandit_of(world, task)
    keys = np.array([seed], dtype=np.int64)
    result = train(name, hyper, None, task, "se", section, flat[None], keys)
    (policy,) = policies(name, of_one_step_episodes(hyper, None), None, task, result.weights, keys)

    def act(x: np.ndarray) -> np.ndarray:
        action = policy(torch.as_tensor(x, dtype=torch.float32).reshape(1, 1, -1))[0, 0].numpy()
        return action * largest if task.action_size else action

    return act


def bandit_of(world: str, task: Task) -> tuple[EnvSection, torch.Tensor]:
    """A world of the zoo as this project's learners take it: its section and its numbers, float32 [D]. Observations
    have the task's units, actions are shares of the largest."""
    zoo = open_world(world)
    tensors, _ = read_tensors(path_of(world))
    mean, scale = (torch.from_numpy(tensors.pop(f"observation_{name}").copy()) for name in ("mean", "scale"))
    hidden = [layer.shape[1] for layer in zoo.bandit.reward_net.weights[:-1]]
    section = EnvSection(
        contextual_bandit=True,
        hidden_size=hidden[0],
        hidden_layer=len(hidden),
        activation_fn=zoo.bandit.reward_net.activation,
    )
    state = {name: torch.from_numpy(values.copy()) for name, values in tensors.items()}
    return section, observed(task, section, flat_from_state_dict("se", task, section, state), mean, scale)
