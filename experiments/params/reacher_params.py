"""The reacher (docs/goals.md) learns to bring its fingertip anywhere, by contrastive RL and without rewards.

    envolve distributed --params experiments/params/reacher_params.py \
        --config experiments/params/reacher.json --num-collectors 2
"""

from __future__ import annotations

from typing import Any

from envolve.distributed.environments.goal_env import GoalEnv
from envolve.distributed.files.params import TrainParamsBase


class TrainParams(TrainParamsBase):
    algorithm = "CRL"
    gamma = 0.9
    actor_lr = critic_lr = alpha_lr = 1e-3
    log_alpha_init = 0.0
    hidden = (128, 128)
    num_iter = 50
    num_steps_per_iter = 62  # one for every 16 environment steps of an iteration
    n_train_episodes_per_iter = 5
    n_buffer_init_episodes = 15
    n_episodes_in_buffer = 500
    n_eval_episodes = 20
    eval_period = 25
    checkpoint_period = 25

    def env_ctor(self, seed: int, *args: Any, **kwargs: Any) -> GoalEnv:
        return GoalEnv(horizon=self.horizon, **{**self.env_config["env"], **kwargs})
