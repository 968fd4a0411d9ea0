"""What the kernels of ``tabular.py`` take, and what they fill. Axes: P members, S states, A actions."""

from __future__ import annotations

from typing import Any, NamedTuple


class Drawn(NamedTuple):
    """Each member's key and hyperparameters [P]: key uint64, batch_size and train_steps int64, the others float64."""

    keys: Any
    alpha: Any
    gamma: Any
    beta: Any
    eps_init: Any
    eps_min: Any
    eps_decay: Any
    batch_size: Any
    train_steps: Any


class Rules(NamedTuple):
    """What holds for all members: how they learn, when training stops, and when an episode does."""

    published: Any  # bool: SARSA's target draws an action of its own
    train_episodes: Any
    init_episodes: Any
    skip: Any  # steps with one action
    window: Any  # episodes, of the early stop; as change and min_n
    change: Any
    min_n: Any
    bootstrap: Any  # bool, beyond the time limit
    synthetic: Any  # bool
    max_steps: Any
    solved_reward: Any
    test_each: Any  # bool
    start: Any  # state
    num_actions: Any


class Steps(NamedTuple):
    """Where a step leads, int32, what it pays and whether it ends the episode, float32: [P or 1, S A] of worlds, [S A]
    of the task. noise: float32, standard deviation of the reward's."""

    next_state: Any
    reward: Any
    done: Any
    noise: Any


class Results(NamedTuple):
    """Arrays that a training fills, as ``TrainResult`` has them. A member whose status is not OK is not trained."""

    q_tables: Any  # float32 [P, S A]
    episode_return: Any
    episode_length: Any
    test_return: Any
    steps: Any
    updates: Any
    episodes: Any
    real_steps: Any
    status: Any
