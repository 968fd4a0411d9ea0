"""Gymnasium's HalfCheetah-v5 learns to run: a million environment steps, one gradient step for each.

    envolve distributed --params experiments/params/half_cheetah_params.py \
        --config experiments/params/half_cheetah.json
"""

from __future__ import annotations

from typing import Any

import gymnasium

from envolve.distributed.files.params import TrainParamsBase


class TrainParams(TrainParamsBase):
    num_iter = 1000
    num_steps_per_iter = 1000  # as many as the environment steps of an iteration: one episode
    n_buffer_init_episodes = 10
    n_episodes_in_buffer = 1000
    log_alpha_init = 0.0
    eval_period = 25
    checkpoint_period = 25

    def env_ctor(self, seed: int, *args: Any, **kwargs: Any) -> gymnasium.Env[Any, Any]:
        options = {**self.env_config["env"], **kwargs}
        return gymnasium.make("HalfCheetah-v5", max_episode_steps=self.horizon, disable_env_checker=True, **options)
