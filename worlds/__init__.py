"""The zoo: evolved worlds in Gymnasium, for NumPy and Gymnasium alone. Importing it registers them.

>>> import gymnasium, envolve.worlds
>>> env = gymnasium.make("envolve/CartPole-v1-bandit")
>>> envs = gymnasium.make_vec("envolve/CartPole-v1-bandit", num_envs=64)

>>> task = envolve.worlds.make_task("CartPole-v1-bandit")  # to test agents on
>>> act = envolve.worlds.policy("CartPole-v1-bandit")  # the policy that the world holds: observation -> action

With ``normalised=True`` all of them show observations in units of their spread, which helps in worlds of robots.

``envolve/<task>-<kind>`` is the first world of a task, ``envolve/<task>-<kind>-2`` the second. ``names()`` lists them,
``card(name)`` says how a world was made and what agents reach that trained in it. Torch is never imported.
"""

from __future__ import annotations

from envolve.worlds.check import LearnerCheck, check_learner, share
from envolve.worlds.policy import policy
from envolve.worlds.shelf import NAMESPACE, WorldError, card, names, open_world, register_all
from envolve.worlds.task import make_task

__all__ = [
    "NAMESPACE", "LearnerCheck", "WorldError", "card", "check_learner", "make_task", "names", "open_world", "policy",
    "share",
]  # fmt: skip

register_all()
