"""Tasks, and the worlds that the outer loop evolves. Importing the package registers every task."""

from envolve.envs.classic import (
    acrobot,
    bandit,
    cartpole,
    gridworld,
    half_cheetah,
    mountain_car,
    mountain_car_continuous,
    mujoco_v5,
    pendulum,
)

__all__ = [
    "acrobot", "bandit", "cartpole", "gridworld", "half_cheetah", "mountain_car", "mountain_car_continuous",
    "mujoco_v5", "pendulum",
]  # fmt: skip
