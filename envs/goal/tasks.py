"""Every goal-conditioned task: importing this fills ``GOAL_TASKS``."""

from __future__ import annotations

import envolve.envs.goal.ant_mazes
import envolve.envs.goal.ant_objects
import envolve.envs.goal.arm
import envolve.envs.goal.arm_cube
import envolve.envs.goal.humanoid
import envolve.envs.goal.point
import envolve.envs.goal.pushers
import envolve.envs.goal.reacher
import envolve.envs.goal.walkers  # noqa: F401
