"""A quadruped of Minitaur's kind (Tan et al. 2018, https://arxiv.org/abs/1804.10332) that learns to run: eight motors,
a reward of forward distance minus energy, and mass, friction and noise for a curriculum to move.

The legs are two links in a row, where Minitaur's are closed loops of four; sensors are those of its motors and its IMU.
"""

from __future__ import annotations

from typing import Any

import mujoco
import numpy as np
from gymnasium import spaces
from gymnasium.envs.mujoco.mujoco_env import MujocoEnv

from envolve.envs.sim.simulator import MODELS
from envolve.outer.config.yaml_lines import ConfigError, show

SUBSTEPS = 10  # of 2 ms
STANCE = np.array([0.6, -1.2] * 4)  # rad, hip and knee of each leg: the pose of action 0
SWING = np.array([0.6, 0.8] * 4)  # rad, from there at action 1
LEAST_UP, LEAST_HEIGHT = 0.6, 0.11  # cosine of the tilt; m, of the trunk: below either it has fallen
LEAST_FRICTION = 0.01  # with none at all the engine's contacts blow up
RESET_NOISE = 0.05  # rad, rad/s
# deviations of the sensors at noise 1: joint angles rad, velocities rad/s, torques N m, gravity, gyroscope rad/s
SENSORS = np.repeat([0.02, 0.3, 0.2, 0.02, 0.1], [8, 8, 8, 3, 3])


class Quadruped(MujocoEnv):
    """Environment of the quadruped.

    Observation float64 [30]: angles (rad) and velocities (rad/s) of hip and knee of the legs front left, front right,
    hind left, hind right; their torques (N m); the direction of gravity and the gyroscope (rad/s) in the trunk's frame.
    Action [8] in [-1, 1]: target angles of the motors around the stance. Reward: (forward distance in m minus
    energy_weight times the motors' mechanical work in J) of a step of 0.02 s, divided by 0.02 s. An episode terminates
    when the robot falls, and is truncated after ``horizon`` steps."""

    metadata = {"render_modes": ["human", "rgb_array", "depth_array", "rgbd_tuple"], "render_fps": 50}

    def __init__(
        self,
        mass: float = 0.0,
        friction: float = 0.8,
        noise: float = 0.0,
        energy_weight: float = 0.0005,
        horizon: int = 500,
        **kwargs: Any,
    ) -> None:
        """mass: of a load on the trunk, kg; friction: coefficient of the floor; noise: of the sensors, 1 equals cheap
        sensors; energy_weight: m per J (at ten times the default, falling at once pays best); kwargs: of MujocoEnv,
        such as render_mode. mass, friction and noise may be set at any time. Raises ConfigError."""
        space = spaces.Box(-np.inf, np.inf, (len(SENSORS),), np.float64)
        camera: dict[str, Any] = {"camera_name": "track"}
        super().__init__(str(MODELS / "quadruped.xml"), SUBSTEPS, space, **{**camera, **kwargs})
        self.action_space = spaces.Box(-1.0, 1.0, (8,), np.float32)
        self.energy_weight, self.horizon = energy_weight, horizon
        self._trunk, self._floor = self.model.body("trunk").id, self.model.geom("floor").id
        self._own_mass = float(self.model.body_mass[self._trunk])
        self._own_inertia = self.model.body_inertia[self._trunk].copy()
        self._steps = 0
        self.mass, self.friction, self.noise = mass, friction, noise

    @property
    def mass(self) -> float:
        """Mass of a load spread over the trunk, kg."""
        return self._mass

    @mass.setter
    def mass(self, value: float) -> None:
        self._mass = _at_least(0.0, "mass", value)
        share = 1 + self._mass / self._own_mass
        self.model.body_mass[self._trunk] = share * self._own_mass
        self.model.body_inertia[self._trunk] = share * self._own_inertia
        mujoco.mj_setConst(self.model, mujoco.MjData(self.model))  # what the engine derives from masses

    @property
    def friction(self) -> float:
        return self._friction

    @friction.setter
    def friction(self, value: float) -> None:
        self._friction = _at_least(LEAST_FRICTION, "friction", value)
        self.model.geom_friction[self._floor, 0] = self._friction

    @property
    def noise(self) -> float:
        return self._noise

    @noise.setter
    def noise(self, value: float) -> None:
        self._noise = _at_least(0.0, "noise", value)

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:  # type: ignore[override]
        data = self.data
        before, work = float(data.qpos[0]), 0.0
        data.ctrl[:] = STANCE + SWING * np.clip(action, -1.0, 1.0)
        for _ in range(SUBSTEPS):
            mujoco.mj_step(self.model, data)
            # E = sum_t dt sum_i |tau_i omega_i|: braking costs as much as driving
            work += self.model.opt.timestep * float(np.abs(data.qfrc_actuator[6:] * data.qvel[6:]).sum())
        distance = float(data.qpos[0]) - before
        reward = (distance - self.energy_weight * work) / self.dt
        self._steps += 1
        upright = 1 - 2 * (data.qpos[4] ** 2 + data.qpos[5] ** 2)  # z of the trunk's z axis
        fallen = not (upright >= LEAST_UP and data.qpos[2] >= LEAST_HEIGHT)  # so that NaN has fallen
        if self.render_mode == "human":
            self.render()
        info = {"distance": distance, "work": work, "x": float(data.qpos[0])}
        return self._seen(), reward, fallen, self._steps >= self.horizon, info

    def reset_model(self) -> np.ndarray:
        self._steps = 0
        qpos, qvel = self.init_qpos.copy(), self.init_qvel.copy()
        qpos[7:] = STANCE + self.np_random.uniform(-RESET_NOISE, RESET_NOISE, 8)
        qvel[6:] = self.np_random.uniform(-RESET_NOISE, RESET_NOISE, 8)
        self.set_state(qpos, qvel)
        return self._seen()

    def _seen(self) -> np.ndarray:
        data = self.data
        w, x, y, z = data.qpos[3:7]
        # -R^T e_z, with R of the trunk's quaternion
        gravity = [2 * (w * y - x * z), -2 * (w * x + y * z), 2 * (x * x + y * y) - 1]
        seen = np.concatenate([data.qpos[7:], data.qvel[6:], data.qfrc_actuator[6:], gravity, data.qvel[3:6]])
        return seen + self._noise * SENSORS * self.np_random.standard_normal(len(SENSORS))


def _at_least(least: float, name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, np.number)) or not least <= value < np.inf:
        raise ConfigError([f"quadruped: {name}: found {show(value)}, expected a number >= {least:g}"])
    return float(value)
