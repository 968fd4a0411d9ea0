"""Bodies of Gymnasium's Box2D and MuJoCo tasks, put where an observation says they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from envolve.outer.shapers.video import VideoError


def turned(offset: Any, angle: float) -> tuple[float, float]:
    """An offset (x, y), turned by an angle in rad."""
    c, s = float(np.cos(angle)), float(np.sin(angle))
    return c * offset[0] - s * offset[1], s * offset[0] + c * offset[1]


class Lander:
    """LunarLander. Its ground beside the pad is not observed: it is always that of random seed 0. Flames are not
    drawn."""

    def __init__(self, env: Any) -> None:
        from gymnasium.envs.box2d import lunar_lander as theirs

        self.env, self.names = env, theirs
        at, angle = env.lander.position, env.lander.angle
        self.legs = [(turned(leg.position - at, -angle), leg.angle - angle) for leg in env.legs]
        self.height = env.helipad_y + theirs.LEG_DOWN / theirs.SCALE

    def moved(self, observations: np.ndarray) -> np.ndarray:
        """Nothing: its place is observed. [T, 2]"""
        return np.zeros((len(observations), 2))

    def place(self, observation: np.ndarray, moved: np.ndarray) -> None:
        """observation: [8], of which x, height and angle are seen; beyond the edge of the picture it is at the edge."""
        half = self.names.VIEWPORT_W / self.names.SCALE / 2, self.names.VIEWPORT_H / self.names.SCALE / 2
        x, y = (1 + float(np.clip(observation[0], -1, 1))) * half[0], float(np.clip(observation[1], -0.5, 1.42))
        angle = float(np.clip(observation[4], -np.pi, np.pi))
        self.env.lander.position, self.env.lander.angle = (x, y * half[1] + self.height), angle
        for leg, (offset, turn) in zip(self.env.legs, self.legs):
            dx, dy = turned(offset, angle)
            leg.position, leg.angle = (x + dx, y * half[1] + self.height + dy), angle + turn


class Walker:
    """BipedalWalker. Its joints, the angle of its hull and its distance from the ground are observed; how far it came
    is the sum of its velocities. The ground is drawn flat, as an observation has ten distances to it and no more."""

    MOST = 100.0  # m that it can go; the task ends after 84

    def __init__(self, env: Any) -> None:
        from gymnasium.envs.box2d import bipedal_walker as theirs

        self.env, self.names = env, theirs
        self.start, level = float(env.hull.position.x), theirs.TERRAIN_HEIGHT
        self.scale = 0.3 * theirs.VIEWPORT_W / theirs.SCALE  # of the observed velocity, per picture
        edges = [2 * theirs.TERRAIN_STEP * i for i in range(130)]
        env.terrain_poly = [  # two greens, so that one sees it move
            ([(a, level), (b, level), (b, 0), (a, 0)], (102, 153, 76) if i % 2 else (92, 141, 68))
            for i, (a, b) in enumerate(zip(edges, edges[1:]))
        ]
        self.rest = [float(j.bodyB.angle - j.bodyA.angle - j.angle) for j in env.joints]  # rad, where a joint reads 0
        env.drawlist = [*env.legs, env.hull]  # without the edges of the ground that is not flat
        env.lidar = []

    def moved(self, observations: np.ndarray) -> np.ndarray:
        """observations: [T, 24] -> m that it has gone by each of them, along x and y [T, 2]."""
        steps = np.nan_to_num(observations[:, 2].astype(float)) / self.scale
        along = np.clip(np.cumsum(steps) - steps[0], -self.start, self.MOST)
        return np.column_stack((along, np.zeros_like(along)))

    def place(self, observation: np.ndarray, moved: np.ndarray) -> None:
        """observation: [24]; joints bend as far as they do on the task. moved: m from where it began."""
        names, env = self.names, self.env
        angle = float(np.clip(observation[0], -np.pi, np.pi))
        hips = [float(np.clip(observation[k], -1.1, 1.4)) for k in (4, 9)]
        knees = [float(np.clip(observation[k] - 1, -1.9, 0.2)) for k in (6, 11)]
        half = names.LEG_H / 2
        parts: list[tuple[Any, tuple[float, float], float]] = []  # body, its middle seen from the hull, its angle
        for k, (hip, knee) in enumerate(zip(hips, knees)):
            at = turned((0, names.LEG_DOWN), angle)
            upper = angle + hip + self.rest[2 * k]
            lower = upper + knee + self.rest[2 * k + 1]
            middle = _plus(at, turned((0, -half), upper))
            joint = _plus(at, turned((0, -2 * half), upper))
            parts += [(env.legs[2 * k], middle, upper)]
            parts += [(env.legs[2 * k + 1], _plus(joint, turned((0, -half), lower)), lower)]
        feet = [_plus(middle, turned((0, -half), a))[1] for _, middle, a in parts[1::2]]
        far = float(np.clip(observation[14], 0, 1)) * names.LIDAR_RANGE  # straight down
        x, y = self.start + float(moved[0]), names.TERRAIN_HEIGHT + max(far, -min(feet))
        env.hull.position, env.hull.angle = (x, y), angle
        for body, (dx, dy), turn in parts:
            body.position, body.angle = (x + dx, y + dy), turn
        env.scroll = x - names.VIEWPORT_W / names.SCALE / 5


class Model(NamedTuple):
    """A robot of Gymnasium's. Its first ``hidden`` coordinates are not observed; the others come first in an
    observation, then the velocities. dt: s of a step."""

    file: str
    dt: float
    hidden: int = 1


ROBOTS = {
    "HalfCheetah": Model("half_cheetah.xml", 0.05),
    "Hopper": Model("hopper.xml", 0.008),
    "Walker2d": Model("walker2d.xml", 0.008),
    "Swimmer": Model("swimmer.xml", 0.04, 2),
    "Ant": Model("ant.xml", 0.05, 2),
    "Humanoid": Model("humanoid.xml", 0.015, 2),
    "InvertedPendulum": Model("inverted_pendulum.xml", 0.04, 0),
}


class Robot:
    """A robot on the stage of films (``envs/sim/stage.py``). How far it came is the sum of its velocities."""

    FAR = 1000.0  # m, rad: what a world makes up may lie anywhere

    def __init__(self, name: str) -> None:
        """Raises VideoError where MuJoCo is missing."""
        from envolve.envs.sim.opengl import choose_opengl
        from envolve.envs.sim.simulator import MODELS

        choose_opengl()
        try:
            from envolve.envs.sim.stage import Stage  # needs MuJoCo
        except ImportError as e:
            raise VideoError(f"{name} is drawn by MuJoCo: pip install mujoco ({e})") from e
        self.model = ROBOTS[name]
        path = MODELS / self.model.file
        if not path.is_file():
            import gymnasium

            path = Path(gymnasium.__file__).parent / "envs/mujoco/assets" / self.model.file
        self.stage = Stage(path)
        self.nq = int(self.stage.model.nq)

    def moved(self, observations: np.ndarray) -> np.ndarray:
        """observations: [T, F] -> m that it has gone by each of them, along x and y [T, 2]."""
        n, out = self.model.hidden, np.zeros((len(observations), 2))
        speeds = np.clip(np.nan_to_num(observations[:, self.nq - n : self.nq]), -self.FAR, self.FAR)
        way = np.cumsum(speeds * self.model.dt, axis=0)
        out[:, :n] = np.clip(way - way[0], -self.FAR, self.FAR)
        return out

    def picture(self, observation: np.ndarray, moved: np.ndarray, width: int, height: int) -> np.ndarray:
        """observation: [F] -> uint8 [height, width, 3]. Raises VideoError where there is no off-screen OpenGL."""
        from envolve.envs.sim.simulator import SimulatorError

        n = self.model.hidden
        rest = np.clip(observation[: self.nq - n], -self.FAR, self.FAR)
        try:
            return self.stage.picture(np.concatenate((moved[:n], rest)), width, height)
        except SimulatorError as e:
            raise VideoError(str(e)) from e

    def close(self) -> None:
        self.stage.close()


def _plus(a: tuple[float, float], b: tuple[float, float]) -> tuple[float, float]:
    return a[0] + b[0], a[1] + b[1]
