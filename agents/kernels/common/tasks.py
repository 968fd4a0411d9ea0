"""numba twins of the classic-control tasks in ``envs/``: float64 state, float32 observation, one environment.

``step`` takes the index of a discrete action, ``step_continuous`` the vector of a continuous one.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from envolve.agents.kernels import JIT
from envolve.agents.kernels.common.rng import uniform

# Dynamics are compiled without fast-math: a sum in another order would leave Gymnasium's trajectory.
EXACT = {**JIT, "fastmath": False}
CARTPOLE, ACROBOT, MOUNTAIN_CAR, MOUNTAIN_CAR_CONTINUOUS, PENDULUM = range(5)
TASK_CODES = {
    "CartPole-v0": CARTPOLE,
    "Acrobot-v1": ACROBOT,
    "MountainCar-v0": MOUNTAIN_CAR,
    "MountainCarContinuous-v0": MOUNTAIN_CAR_CONTINUOUS,
    "Pendulum-v0": PENDULUM,
}
NO_TWIN = -1  # any other task: of a bandit, which never asks for it
RESET_UNIFORMS = (4, 4, 1, 1, 2)  # uniforms that one reset draws, by task code: each Task's reset_uniforms
STATE_SIZE = 4  # of the largest state; the others use the first two numbers
F4, F8 = np.float32, np.float64  # numba's float() leaves a float32 as it is
_TWO_PI = 2 * math.pi


@njit(**EXACT)
def cartpole_step(s, action):
    """Euler step of Barto, Sutton & Anderson (1983) with Gymnasium's constants. Returns terminated."""
    x, x_dot, theta, theta_dot = s[0], s[1], s[2], s[3]
    force = 10.0 if action == 1 else -10.0
    costheta, sintheta = math.cos(theta), math.sin(theta)
    temp = (force + 0.05 * theta_dot * theta_dot * sintheta) / 1.1
    theta_acc = (9.8 * sintheta - costheta * temp) / (0.5 * (4.0 / 3.0 - 0.1 * costheta * costheta / 1.1))
    x_acc = temp - 0.05 * theta_acc * costheta / 1.1
    s[0] = x + 0.02 * x_dot
    s[1] = x_dot + 0.02 * x_acc
    s[2] = theta + 0.02 * theta_dot
    s[3] = theta_dot + 0.02 * theta_acc
    limit = 12 * 2 * math.pi / 360
    return s[0] < -2.4 or s[0] > 2.4 or s[2] < -limit or s[2] > limit


@njit(**EXACT)
def _acrobot_derivatives(th1, th2, d_th1, d_th2, torque):
    """Sutton & Barto's 'book' equations; all lengths, masses and inertias 1, centres of mass at 0.5, g = 9.8."""
    d1 = 0.25 + (1.0 + 0.25 + 2 * 0.5 * math.cos(th2)) + 1.0 + 1.0
    d2 = 0.25 + 0.5 * math.cos(th2) + 1.0
    phi2 = 0.5 * 9.8 * math.cos(th1 + th2 - math.pi / 2.0)
    phi1 = (
        -0.5 * d_th2**2 * math.sin(th2)
        - 2 * 0.5 * d_th2 * d_th1 * math.sin(th2)
        + (0.5 + 1.0) * 9.8 * math.cos(th1 - math.pi / 2)
        + phi2
    )
    dd_th2 = (torque + d2 / d1 * phi1 - 0.5 * d_th1**2 * math.sin(th2) - phi2) / (0.25 + 1.0 - d2**2 / d1)
    dd_th1 = -(d2 * dd_th2 + phi1) / d1
    return d_th1, d_th2, dd_th1, dd_th2


@njit(**EXACT)
def _wrap(x):
    while x > math.pi:
        x -= _TWO_PI
    while x < -math.pi:
        x += _TWO_PI
    return x


@njit(**EXACT)
def acrobot_step(s, action):
    """One RK4 step of 0.2 s. Returns terminated: the tip is more than one link length above the pivot."""
    torque = float(action) - 1.0
    h, h2 = 0.2, 0.1
    a, b, c, d = s[0], s[1], s[2], s[3]
    k1 = _acrobot_derivatives(a, b, c, d, torque)
    k2 = _acrobot_derivatives(a + h2 * k1[0], b + h2 * k1[1], c + h2 * k1[2], d + h2 * k1[3], torque)
    k3 = _acrobot_derivatives(a + h2 * k2[0], b + h2 * k2[1], c + h2 * k2[2], d + h2 * k2[3], torque)
    k4 = _acrobot_derivatives(a + h * k3[0], b + h * k3[1], c + h * k3[2], d + h * k3[3], torque)
    s[0] = _wrap(a + h / 6.0 * (k1[0] + 2 * k2[0] + 2 * k3[0] + k4[0]))
    s[1] = _wrap(b + h / 6.0 * (k1[1] + 2 * k2[1] + 2 * k3[1] + k4[1]))
    s[2] = min(max(c + h / 6.0 * (k1[2] + 2 * k2[2] + 2 * k3[2] + k4[2]), -4 * math.pi), 4 * math.pi)
    s[3] = min(max(d + h / 6.0 * (k1[3] + 2 * k2[3] + 2 * k3[3] + k4[3]), -9 * math.pi), 9 * math.pi)
    return -math.cos(s[0]) - math.cos(s[1] + s[0]) > 1.0


@njit(**EXACT)
def _clip(x, low, high):
    """As torch.clamp, NaN stays NaN: the caller must see that a member diverged."""
    if x < low:
        return low
    return high if x > high else x


@njit(**EXACT)
def mountain_car_step(s, action):
    """One step of Moore's car with Gymnasium's constants. Returns terminated."""
    push = (float(action) - 1.0) * 0.001
    velocity = _clip(s[1] + (push - 0.0025 * math.cos(3 * s[0])), -0.07, 0.07)
    position = _clip(s[0] + velocity, -1.2, 0.6)
    if position == -1.2 and velocity < 0.0:
        velocity = 0.0
    s[0], s[1] = position, velocity
    return position >= 0.5 and velocity >= 0.0


# Of MountainCarContinuous, whose state is rounded to float32 as Gymnasium's is. They have names, because numba widens
# what meets a literal to float64.
_ONE, _THREE, _POWER, _MAX_SPEED = F4(1.0), F4(3.0), F4(0.0015), F4(0.07)
_LEFT, _RIGHT, _GOAL = F4(-1.2), F4(0.6), F4(0.45)


@njit(**EXACT)
def mountain_car_continuous_step(s, force):
    """force: float32. Returns (reward, terminated)."""
    position, velocity = F4(s[0]), F4(s[1])
    pull = F4(0.0025 * math.cos(F8(_THREE * position)))
    velocity = _clip(velocity + (_clip(force, -_ONE, _ONE) * _POWER - pull), -_MAX_SPEED, _MAX_SPEED)
    position = _clip(position + velocity, _LEFT, _RIGHT)
    if position == _LEFT and velocity < F4(0.0):
        velocity = F4(0.0)
    s[0], s[1] = position, velocity
    terminated = position >= _GOAL and velocity >= F4(0.0)
    return F4((100.0 if terminated else 0.0) - 0.1 * (F8(force) * F8(force))), terminated


_TWO, _TORQUE_COST = F4(2.0), F4(0.001)


@njit(**EXACT)
def pendulum_step(s, torque):
    """torque: float32, and so are its products, as Gymnasium's. Returns the reward; an episode ends with its time."""
    angle, velocity = s[0], s[1]
    u = _clip(torque, -_TWO, _TWO)
    wrapped = (angle + math.pi) % _TWO_PI - math.pi
    cost = wrapped * wrapped + 0.1 * (velocity * velocity) + F8(_TORQUE_COST * (u * u))
    velocity = _clip(velocity + (15.0 * math.sin(angle) + F8(_THREE * u)) * 0.05, -8.0, 8.0)
    s[0], s[1] = angle + velocity * 0.05, velocity
    return F4(-cost)


@njit(**EXACT)
def reset_uniforms(task):
    """Uniforms that one reset draws: reset number i uses the counters from i times this."""
    return RESET_UNIFORMS[task]


@njit(**EXACT)
def reset(task, s, key, counter):
    """Fill s from the uniforms counter .. counter + reset_uniforms(task) - 1."""
    first = float(uniform(key, counter))
    if task == PENDULUM:
        s[0] = -math.pi + _TWO_PI * first
        s[1] = -1.0 + 2.0 * float(uniform(key, counter + np.uint64(1)))
    elif task == MOUNTAIN_CAR or task == MOUNTAIN_CAR_CONTINUOUS:
        position = -0.6 + (-0.4 - -0.6) * first
        s[0] = position if task == MOUNTAIN_CAR else F8(F4(position))
        s[1] = 0.0
    else:
        width = 0.1 if task == CARTPOLE else 0.2
        for i in range(4):
            s[i] = float(uniform(key, counter + np.uint64(i))) * width - width / 2


@njit(**EXACT)
def observe(task, s, out):
    if task == CARTPOLE:
        for i in range(4):
            out[i] = F4(s[i])
    elif task == MOUNTAIN_CAR or task == MOUNTAIN_CAR_CONTINUOUS:
        out[0], out[1] = F4(s[0]), F4(s[1])
    elif task == PENDULUM:
        out[0], out[1], out[2] = F4(math.cos(s[0])), F4(math.sin(s[0])), F4(s[1])
    else:
        out[0], out[1] = F4(math.cos(s[0])), F4(math.sin(s[0]))
        out[2], out[3] = F4(math.cos(s[1])), F4(math.sin(s[1]))
        out[4], out[5] = F4(s[2]), F4(s[3])


@njit(**EXACT)
def step(task, s, action):
    """Advance s in place by a discrete action's index. Returns (reward, terminated)."""
    if task == CARTPOLE:
        return F4(1.0), cartpole_step(s, action)
    if task == MOUNTAIN_CAR:
        return F4(-1.0), mountain_car_step(s, action)
    terminated = acrobot_step(s, action)
    return F4(0.0) if terminated else F4(-1.0), terminated


@njit(**EXACT)
def step_continuous(task, s, action):
    """Advance s in place by a continuous action, float32 [A]. Returns (reward, terminated)."""
    if task == PENDULUM:
        return pendulum_step(s, action[0]), False
    return mountain_car_continuous_step(s, action[0])
