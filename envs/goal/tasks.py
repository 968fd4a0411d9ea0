"""Every goal-conditioned task: importing this fills ``GOAL_TASKS``."""

from __future__ import annotations

import envs.goal.ant_mazes
import envs.goal.ant_objects
import envs.goal.arm
import envs.goal.arm_cube
import envs.goal.humanoid
import envs.goal.point
import envs.goal.pushers
import envs.goal.reacher
import envs.goal.walkers  # noqa: F401
