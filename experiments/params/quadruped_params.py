"""A quadruped of Minitaur's kind learns to run (distributed/environments/quadruped.py): 200,000 environment steps, one
gradient step for each, while a load on its back, a floor that gets slippery and the noise of its sensors grow.

    envolve distributed --params experiments/params/quadruped_params.py \
        --config experiments/params/quadruped.json
"""

from __future__ import annotations

from typing import Any

from envolve.distributed.environments.quadruped import Quadruped
from envolve.distributed.files.params import TrainParamsBase


class TrainParams(TrainParamsBase):
    num_iter = 400
    num_steps_per_iter = 500  # as many as the environment steps of an iteration: one episode
    n_buffer_init_episodes = 10
    n_episodes_in_buffer = 400
    log_alpha_init = -2.3  # alpha = 0.1: a step is worth less than 1
    eval_period = 20
    checkpoint_period = 20

    def env_ctor(self, seed: int, *args: Any, **kwargs: Any) -> Quadruped:
        return Quadruped(horizon=self.horizon, **{**self.env_config["env"], **kwargs})

    def eval_env_args_kwargs(self, worker: int, collect_env: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Policies are judged where the curriculum ends."""
        return (), self.env_config["eval_env"]
