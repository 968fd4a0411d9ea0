"""An ant and something to move, as in JaxGCRL (https://arxiv.org/abs/2408.11052): a ball that is to roll to its goal; a
block that is in the way (after HIRO, https://arxiv.org/abs/1805.08296).

The object slides along x and y. Coordinates: the ant's 15 positions, the object's two, the ant's 14 velocities, the
object's two. Features: the ant's 29, then where the object is (x and y, m).
"""

from __future__ import annotations

import math
from typing import Any, ClassVar, Dict, Tuple

import torch
from torch import Tensor

from envolve.envs.goal.mazes import Maze
from envolve.envs.goal.task import Random, register
from envolve.envs.goal.walkers import ANT_REST, NOISE, Ant, noisy, one_of_two, spring_ant
from envolve.envs.sim.simulator import Scene, Simulator

GOAL_RADIUS = 5.0  # m, of the ball's goals about the ant's start
BALL_RADIUS = 0.5  # m
BALL = {"mass": 1.0}  # kg; as a link of the ant in Brax's "spring" (``walkers.spring_ant``), there the file says 1.58
BALL_RANGE = 10.3  # m, either way: as far as the ball rolls
CELL = 8.0  # m, of the map around the block
ROOM = (
    "#####",
    "#R.##",
    "#.Mg#",
    "##g##",
    "#####",
)
ORIGIN = (1, 1)  # R's row and column: there is the world's origin
HEIGHT = 4.0  # m, of its walls
BLOCK = (8.0, 8.0)  # m, where the block is at first: in the cell M
BLOCK_SIZE = (7.2, 7.2, 3.6)  # m
# JaxGCRL's has 0.2 g. A contact in MuJoCo is as soft as the lighter body asks: an ant would walk through that one.
BLOCK_MASS = 0.1  # kg
BLOCK_FRICTION = 1.0  # N, along x and y each: its weight
BELOW = 0.05  # m, between block and floor, so that the friction above is all there is
GOALS = ((16.0, 8.0), (8.0, 16.0))  # m; either, and up to GOAL_SPREAD more along x and y
GOAL_SPREAD = 2.0


class AntAndObject(Ant):
    state_numbers = 33
    state_size = 31
    object_at: ClassVar[Tuple[float, float]] = (0.0, 0.0)  # m, where its coordinates are 0

    def measure(self, sim: Simulator) -> Tensor:
        ant, there, velocity, _ = super().measure(sim).split((15, 2, 14, 2), 1)
        return torch.cat((ant, velocity, there + there.new_tensor(self.object_at)), 1)

    def begin(self, random: Random, there: Tensor) -> Tensor:
        """Coordinates of all bodies from those of the object, there: [K, 2], at rest."""
        position, velocity = noisy(torch.tensor(ANT_REST, device=there.device), 14, random).split((15, 14), 1)
        return torch.cat((position, there, velocity, torch.zeros_like(there)), 1)


def add_object(spec: Any, position: Tuple[float, float, float], geom: Dict[str, Any], joint: Dict[str, Any]) -> None:
    """Adds a body called "object" that slides along x and y; the ant and walls touch it."""
    import mujoco

    body = spec.worldbody.add_body(name="object", pos=position)
    body.add_geom(
        name="object",
        contype=1,
        conaffinity=1,
        condim=3,
        friction=[1, 0.5, 0.5],
        margin=0.01,
        rgba=[0.9, 0.2, 0.2, 1],
        **geom,
    )
    for name, axis in (("object_x", [1, 0, 0]), ("object_y", [0, 1, 0])):
        body.add_joint(name=name, type=mujoco.mjtJoint.mjJNT_SLIDE, axis=axis, armature=0, damping=0, **joint)


@register
class AntBall(AntAndObject):
    """Goal g = 5 u and ball b = u + v, with u and v on the unit circle at any angle each (JaxGCRL's v has the sine of
    u). The ball is drawn first; u is then one of the two whose sum it is."""

    name = "ant_ball"
    goal_indices = (29, 30)

    def scene(self) -> Scene:
        def build(spec: Any) -> None:
            import mujoco

            spring_ant(spec)
            ball = {"type": mujoco.mjtGeom.mjGEOM_SPHERE, "size": [BALL_RADIUS, 0, 0], **BALL}
            add_object(spec, (0.0, 0.0, BALL_RADIUS), ball, {"limited": 1, "range": [-BALL_RANGE, BALL_RANGE]})
            spec.add_exclude(name="ball_and_floor", bodyname1="world", bodyname2="object")  # it rolls without friction

        return build

    def start(self, random: Random, members: Tensor) -> Tensor:
        angle = 2 * math.pi * random.uniform(2)
        return self.begin(random, torch.stack((torch.cos(angle).sum(1), torch.sin(angle).sum(1)), 1))

    def whereabouts(self, start: Tensor) -> Tensor:
        return start[:, 15:17]

    def goal(self, random: Random, start: Tensor, members: Tensor) -> Tensor:
        return GOAL_RADIUS * one_of_two(start[:, 15:17], random)


@register
class AntPush(AntAndObject):
    """The way to the goal, in one of two cells g, is blocked: the ant pushes the block M off and passes. The ant is
    Gymnasium's, for JaxGCRL has this task in MuJoCo's physics (MJX)."""

    name = "ant_push"
    substeps = 5
    object_at = BLOCK

    def __init__(self) -> None:
        self.maze = Maze(ROOM, CELL, ORIGIN)

    def scene(self) -> Scene:
        def build(spec: Any) -> None:
            import mujoco

            self.maze.build(spec, HEIGHT)
            half = [side / 2 for side in BLOCK_SIZE]
            block = {"type": mujoco.mjtGeom.mjGEOM_BOX, "size": half, "mass": BLOCK_MASS}
            add_object(spec, (*BLOCK, half[2] + BELOW), block, {"limited": 0, "frictionloss": BLOCK_FRICTION})

        return build

    def start(self, random: Random, members: Tensor) -> Tensor:
        return self.begin(random, NOISE * (2 * random.uniform(2) - 1))

    def goal(self, random: Random, start: Tensor, members: Tensor) -> Tensor:
        corners = torch.tensor(GOALS, device=members.device)
        u = random.uniform(3)
        return corners[(2 * u[:, 0]).long()] + GOAL_SPREAD * u[:, 1:]
