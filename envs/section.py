"""Section ``envs.<task>`` of a configuration: the task's limits and the shape of the world built around it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from envolve.core.option import option
from envolve.envs.nets.networks import ACTIVATIONS, MLPShape

RN_TYPES = (0, 1, 2, 3, 4, 5, 6, 7, 8, 101, 102)
INFO_TYPES = (3, 4, 7, 8, 101, 102)  # those that read the task's info vector
LINEAR_TYPES = (101, 102)  # a weighted info vector instead of a network


@dataclass(frozen=True)
class EnvSection:
    """One task and its synthetic environment (SE) or reward network (RN)."""

    solved_reward: Optional[float] = option(None, "mean return that counts as solved; default: the task's own")
    max_steps: Optional[int] = option(None, "most steps of an episode; default: the task's own", ge=1, le=10**6)
    test_steps: Optional[int] = option(
        None, "most steps of a test episode on the task; default: max_steps", ge=1, le=10**6
    )
    contextual_bandit: bool = option(
        False, "SE: episodes of one step from a state that init_net draws; evolved are init_net and reward_net"
    )
    stored_contexts: int = option(
        0, "bandit: states that it stores and draws from; evolved in init_net's place; 0: init_net", ge=0, le=65536
    )
    normalised: bool = option(
        False, "bandit: agents see observations in units of its contexts' spread, as behind VecNormalize"
    )
    activation_fn: str = option("leakyrelu", "activation of the world's networks", choices=ACTIVATIONS)
    hidden_size: int = option(128, "hidden units of each of the world's networks", ge=1, le=16384)
    hidden_layer: int = option(
        1, "hidden layers of each of the world's networks (0 and 1 build the same net)", ge=0, le=8
    )
    info_dim: int = option(0, "length of the info vector that RN types 3, 4, 7, 8, 101, 102 read", ge=0, le=16384)
    reward_env_type: int = option(
        0,
        "reward network: 0 none, 1-4 potential, 5-8 not, 101/102 weighted info vector; even: added to the reward; "
        "3, 4, 7, 8: of observation and info vector",
        choices=RN_TYPES,
    )
    raw_done: bool = option(
        False, "SE: the TD target uses the raw output of done_net, as published; false: 1 where it exceeds 0.5, else 0"
    )
    done_bias: float = option(
        0.0, "SE: added to the output bias of a fresh done_net; below 0 episodes start long and tend to stay so"
    )

    def net(self, inputs: int, outputs: int) -> MLPShape:
        return MLPShape(inputs, outputs, self.hidden_size, self.hidden_layer, self.activation_fn)
