"""Where agents learn: tasks, and the worlds that the outer loop changes. Importing the package registers every task."""

from envs import acrobot, cartpole, gridworld

__all__ = ["acrobot", "cartpole", "gridworld"]
