"""Parametric distributions of starts and goals for evolution: five families.

    circle   radius uniform in [r1, r2], angle uniform in [phi - w / 2, phi + w / 2], about the task's home
    offset   the same about where the episode begins (of a start: about where the task would have begun it)
    box      uniform in [x - a, x + a] x [y - b, y + b]
    cells    the centre of a free cell of the maze, with probability softmax(logits)
    point    always the same

Any real numbers are valid: sizes count by their absolute value, radii in either order, w up to 2 pi. A family draws the
first two numbers of a goal (one, where a goal has one: box and point only), or those of a start that ``start_indices``
of the task names; the others are the task's own. In a maze what would lie in a wall lies in the nearest free cell.

A world of the search is u [D], the numbers in units: theta = own + u scale. ``own`` resembles the task's distribution,
by 512 draws from it: u = 0 is near it, and one noise fits all.

Axes: P members, K rows that begin, n = 1 or 2 numbers of a place, D parameters.
"""

from __future__ import annotations

import math
from typing import Callable, NamedTuple, Optional, Tuple

import torch
from torch import Tensor

from envolve.core.registry import Registry
from envolve.envs.goal.ant_mazes import AntMaze
from envolve.envs.goal.ant_objects import AntPush
from envolve.envs.goal.mazes import Maze
from envolve.envs.goal.point import PointMaze
from envolve.envs.goal.task import Beginnings, GoalTask, Random

SAMPLES = 512  # of the task's own distribution
UNLIKELY = -2.0  # logit of a free cell that the task has no goals in; 0: of the others
ALL_AROUND = 0.3  # rad, the widest gap between the angles of samples that count as all around
MARGIN = 1.0  # m, from a start to the edge of its cell: an ant has legs


class Family(NamedTuple):
    """Draws points(theta [K, D], random, origin [K, n]) -> [K, n]. origin: where the episode begins."""

    names: Tuple[str, ...]  # D
    own: Tensor  # [D], like the task's distribution
    scale: Tensor  # [D], units of u
    points: Callable[[Tensor, Random, Tensor], Tensor]


def ring(theta: Tensor, random: Random, centre: Tensor) -> Tensor:
    """theta: [K, 4], r1, r2, phi, w."""
    u = random.uniform(2)
    low, high = theta[:, :2].abs().sort(1).values.unbind(1)
    radius = low + (high - low) * u[:, 0]
    angle = theta[:, 2] + theta[:, 3].abs().clamp_max(2 * math.pi) * (u[:, 1] - 0.5)
    return centre + radius[:, None] * torch.stack((torch.cos(angle), torch.sin(angle)), 1)


def _ring(places: Tensor, about: Tensor, points: Callable[..., Tensor]) -> Family:
    """places, about: [samples, 2]."""
    way = places - about
    low, high = float(way.norm(dim=1).min()), float(way.norm(dim=1).max())
    unit = max(high, 0.1)
    own = torch.tensor([low, high, *(arc(torch.atan2(way[:, 1], way[:, 0])) if high > 0 else (0.0, 2 * math.pi))])
    return Family(("r1", "r2", "phi", "w"), own, torch.tensor([unit, unit, math.pi, math.pi]), points)


def arc(angles: Tensor) -> Tuple[float, float]:
    """Middle and width of the shortest arc that contains all angles [samples], rad."""
    ordered = angles.sort().values
    gaps = torch.cat((ordered[1:], ordered[:1] + 2 * math.pi)) - ordered
    widest = int(gaps.argmax())
    width = 2 * math.pi - float(gaps[widest])
    if float(gaps[widest]) < ALL_AROUND:
        return 0.0, 2 * math.pi
    return float(ordered[(widest + 1) % len(ordered)]) + width / 2, width


def circle(task: GoalTask, places: Tensor, origin: Tensor) -> Family:
    maze = maze_of(task)
    home = torch.zeros(2) if maze is None else maze.start.cpu()

    def points(theta: Tensor, random: Random, origin: Tensor) -> Tensor:
        return ring(theta, random, home.to(origin.device))

    return _ring(places, home.expand_as(places), points)


def offset(task: GoalTask, places: Tensor, origin: Tensor) -> Family:
    return _ring(places, origin, ring)


def box(task: GoalTask, places: Tensor, origin: Tensor) -> Family:
    n = places.shape[1]
    low, high = places.min(0).values, places.max(0).values
    half = (high - low) / 2
    unit = half.clamp_min(0.1)

    def points(theta: Tensor, random: Random, origin: Tensor) -> Tensor:
        return theta[:, :n] + theta[:, n:].abs() * (2 * random.uniform(n) - 1)

    names = ("x", "y")[:n] + ("a", "b")[:n]
    return Family(names, torch.cat(((low + high) / 2, half)), torch.cat((unit, unit)), points)


def cells(task: GoalTask, places: Tensor, origin: Tensor) -> Family:
    maze = maze_of(task)
    if maze is None:
        raise ValueError(f"cells: {task.name} has no maze")
    at, centres = maze.free, maze.centres(maze.free)
    own = torch.full((len(at),), UNLIKELY)
    nearest = (places[:, None] - centres).norm(dim=2).argmin(1)
    own[nearest] = 0.0

    def points(theta: Tensor, random: Random, origin: Tensor) -> Tensor:
        below = theta.double().softmax(1).cumsum(1)[:, :-1].contiguous()  # the inverse of the distribution function
        cell = torch.searchsorted(below, random.uniform(1).double(), right=True)[:, 0]
        return centres.to(origin.device)[cell]

    return Family(tuple(f"cell {i},{j}" for i, j in at), own, torch.ones(len(at)), points)


def point(task: GoalTask, places: Tensor, origin: Tensor) -> Family:
    n, middle = places.shape[1], places.mean(0)
    unit = (places - middle).abs().max(0).values.clamp_min(0.1)
    return Family(("x", "y")[:n], middle, unit, lambda theta, random, origin: theta)


FAMILIES: Registry[Callable[[GoalTask, Tensor, Tensor], Family]] = Registry(
    "family",
    {
        "circle": circle,
        "offset": offset,
        "box": box,
        "cells": cells,
        "point": point,
    },
)


def maze_of(task: GoalTask) -> Optional[Maze]:
    return task.maze if isinstance(task, (PointMaze, AntMaze, AntPush)) else None


def into_free_cells(maze: Maze, places: Tensor, margin: float) -> Tensor:
    """Moves places [K, 2], m, to the nearest free cell, at least margin from its edge."""
    centres = maze.centres(maze.free).to(places)
    nearest = centres[(places[:, None] - centres).norm(dim=2).argmin(1)]
    room = maze.cell / 2 - margin
    return nearest + (places - nearest).clamp(-room, room)


class ShapeSpace:
    """Search space: parameters of a family for goals, of one for starts, or of both, in this order."""

    def __init__(self, task: GoalTask, goal: str = "", start: str = "") -> None:
        """goal, start: names in FAMILIES; "": the task's own. Raises ValueError."""
        if not goal and not start:
            raise ValueError("expected a family for goals, starts or both")
        if goal and not task.goals_shaped:
            raise ValueError(f"goal family: {task.name}'s goals follow from its starts; expected a start family alone")
        n = min(2, task.goal_size)
        self.task, self.n = task, n
        self.start_indices = torch.tensor(task.start_indices[:n])
        key, number = torch.zeros(SAMPLES, dtype=torch.int64), torch.arange(SAMPLES)
        starts = task.start(Random(key, number), key)
        begins = starts[:, self.start_indices]
        self.goal: Optional[Family] = None
        if goal:
            origin = task.whereabouts(starts)[:, :n]
            self.goal = self._family("goal", goal, task.goal(Random(key + 1, number), starts, key)[:, :n], origin)
        self.start = self._family("start", start, begins, begins)
        families = [(role, f) for role, f in (("goal", self.goal), ("start", self.start)) if f is not None]
        self.names = [f"{role} {name}" for role, f in families for name in f.names]
        self.own = torch.cat([f.own for _, f in families])
        self.scale = torch.cat([f.scale for _, f in families])

    def _family(self, role: str, name: str, places: Tensor, origin: Tensor) -> Optional[Family]:
        if not name:
            return None
        family = FAMILIES.find(name, f"{role} family")
        if self.n == 1 and name not in ("box", "point"):
            raise ValueError(f"{role} family: {name} needs two numbers, {self.task.name} has one; expected box, point")
        return family(self.task, places, origin)

    def theta(self, u: Tensor) -> Tensor:
        """Parameters [.., D] for u: [.., D]."""
        return self.own.to(u.device) + u * self.scale.to(u.device)


class Shaped(Beginnings):
    """Starts and goals of a population, where each member has its own parameters."""

    def __init__(self, space: ShapeSpace, theta: Tensor, plain: Optional[Tensor] = None) -> None:
        """theta: [P, D]; plain: bool [P], members that use the task's own starts and goals."""
        if theta.shape[1] != len(space.names):
            raise ValueError(f"theta: found {theta.shape[1]} parameters, expected {len(space.names)}")
        self.space, self.task = space, space.task
        self.plain = torch.zeros(len(theta), dtype=torch.bool) if plain is None else plain
        self.plain = self.plain.to(theta.device)
        border = 0 if space.goal is None else len(space.goal.names)
        self.goal_theta, self.start_theta = theta[:, :border], theta[:, border:]

    def start(self, random: Random, members: Tensor) -> Tensor:
        own, family = self.task.start(random, members), self.space.start
        if family is None:
            return own
        at = self.space.start_indices.to(own.device)
        places = family.points(self.start_theta[members], random, own[:, at])
        shaped = own.clone()
        shaped[:, at] = self._free(places, MARGIN)
        return torch.where(self.plain[members][:, None], own, shaped)

    def goal(self, random: Random, start: Tensor, members: Tensor) -> Tensor:
        own, family, n = self.task.goal(random, start, members), self.space.goal, self.space.n
        if family is None:
            return own
        places = family.points(self.goal_theta[members], random, self.task.whereabouts(start)[:, :n])
        shaped = torch.cat((self._free(places, 0.0), own[:, n:]), 1)
        return torch.where(self.plain[members][:, None], own, shaped)

    def _free(self, places: Tensor, margin: float) -> Tensor:
        maze = maze_of(self.task)
        if maze is None:
            return places
        maze.to(places.device)
        return into_free_cells(maze, places, margin)


def samples(beginnings: Beginnings, members: Tensor, seed: int = 0) -> Tuple[Tensor, Tensor]:
    """Starts and goals of one episode for each entry of members [K], for pictures."""
    number = torch.arange(len(members))
    start = beginnings.start(Random(torch.full_like(number, seed), number), members)
    return start, beginnings.goal(Random(torch.full_like(number, seed + 1), number), start, members)
