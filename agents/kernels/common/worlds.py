"""numba twin of the worlds in ``envs/`` and of ``repeat`` in ``agents/common/rollout.py``: one member's world, step by
step.

A step takes an action's index, which discrete tasks read, and its vector, which continuous tasks read.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from envolve.agents.kernels import JIT_INNER, JIT_UNCOUNTED
from envolve.agents.kernels.common import tasks
from envolve.agents.kernels.common.rng import uniform
from envolve.agents.kernels.dense.gemm import out_of_line
from envolve.agents.kernels.dense.mlp import F4, NIL, ONE, UNIT, ZERO, Net, predict, size
from envolve.envs.nets.networks import ACTIVATIONS
from envolve.envs.section import EnvSection
from envolve.envs.task import Task

REAL, SE, RN = 0, 1, 2
KINDS = {"real": REAL, "se": SE, "rn": RN}
OUTPUT_BOUND = F4(1000.0)  # envs.worlds.world.OUTPUT_BOUND
LATENT_SCALE = F4(2.0 * math.sqrt(3.0))  # envs.nets.networks.LATENT_SCALE
U = np.uint64


class KernelWorld(NamedTuple):
    """What one member trains in, its state included."""

    kind: int
    task: int
    num_actions: int  # 0: actions are continuous
    rn_type: int
    hidden: int  # of the world's nets, as the next two
    layers: int
    act: int
    raw_done: bool
    bandit: bool  # an SE of one-step episodes
    stored: int  # states in a bandit's table; 0: init_net draws them
    gamma: float  # the agent's discount, for potentials
    params: np.ndarray  # float32 [W]
    s: np.ndarray  # float64 [S], state of the real task
    obs: np.ndarray  # float32 [F], what the agent sees
    inputs: np.ndarray  # float32 [A + F], action code and observation, what the nets of an SE read
    phi: np.ndarray  # float32 [1], potential of the present state
    out: np.ndarray  # float32 [F], scratch as the next two
    h: np.ndarray  # float32 [hidden]
    h2: np.ndarray
    codes: np.ndarray  # int64 [C, 2], features [start, stop) of a bandit's states that are one-hot


def create_world(task: Task, kind: str, section: EnvSection, gamma: float, params: np.ndarray) -> KernelWorld:
    """params: float32 [W], the flat vector of a world (not read for kind "real"); gamma: the agent's discount."""
    F, H = task.observation_size, section.hidden_size
    bandit = kind == "se" and section.contextual_bandit
    return KernelWorld(
        kind=KINDS[kind],
        task=tasks.TASK_CODES.get(task.name, tasks.NO_TWIN),
        num_actions=task.num_actions,
        rn_type=section.reward_env_type,
        hidden=H,
        layers=max(1, section.hidden_layer),
        act=ACTIVATIONS.index(section.activation_fn),
        raw_done=section.raw_done,
        bandit=bandit,
        stored=section.stored_contexts if bandit else 0,
        gamma=gamma,
        params=params,
        s=np.zeros(tasks.STATE_SIZE),
        obs=np.zeros(F, F4),
        inputs=np.zeros(task.action_inputs + F, F4),
        phi=np.zeros(1, F4),
        out=np.zeros(F, F4),
        h=np.zeros(H, F4),
        h2=np.zeros(H, F4),
        codes=np.array(task.codes, np.int64).reshape(-1, 2),
    )


@njit(**JIT_INNER)
def _net(w, offset, outputs, x):
    """The world's net at ``offset`` -> w.out[:outputs]. Returns the offset behind it, and whether all are finite."""
    out_of_line()
    net = Net(x.shape[0], w.hidden, w.layers, outputs, w.act)
    end = predict(w.params, offset, net, x, w.out, w.h, w.h2)
    finite = True
    for i in range(outputs):
        finite = finite and math.isfinite(w.out[i])
        w.out[i] = min(max(w.out[i], -OUTPUT_BOUND), OUTPUT_BOUND)
    return end, finite


@njit(**JIT_INNER)
def _phi(w):
    """Output of a reward network for the present observation; not clamped."""
    net = Net(w.obs.shape[0], w.hidden, w.layers, UNIT, w.act)
    predict(w.params, NIL, net, w.obs, w.out, w.h, w.h2)
    return w.out[0]


@njit(**JIT_UNCOUNTED)
def reset(w, key, number):
    """Reset number ``number`` of ``key``: that of the real task, in every kind of world but a bandit."""
    out_of_line()
    if w.bandit:
        if w.stored:
            _take_state(w, key, U(number))
        else:
            _draw_state(w, key, U(number * w.obs.shape[0]))
        return
    tasks.reset(w.task, w.s, key, U(number * tasks.reset_uniforms(w.task)))
    tasks.observe(w.task, w.s, w.obs)
    if w.kind == RN and (w.rn_type == 1 or w.rn_type == 2):
        w.phi[0] = _phi(w)


@njit(**JIT_INNER)
def _draw_state(w, key, counter):
    """init_net's state for the uniforms counter .. counter + F - 1; all NaN if an output is not finite."""
    F = w.obs.shape[0]
    for f in range(F):
        w.inputs[f] = LATENT_SCALE * (uniform(key, counter + U(f)) - F4(0.5))
    _, ok = _net(w, 0, F, w.inputs[:F])
    for f in range(F):
        w.obs[f] = w.out[f] if ok else F4(math.nan)
    if ok:
        _encode(w)


@njit(**JIT_INNER)
def _take_state(w, key, counter):
    """The row of the table that uniform ``counter`` says; all NaN if one of its numbers is not finite."""
    F = w.obs.shape[0]
    row = min(int(uniform(key, counter) * w.stored), w.stored - 1) * F
    finite = True
    for f in range(F):
        finite = finite and math.isfinite(w.params[row + f])
    for f in range(F):
        inside = min(max(w.params[row + f], -OUTPUT_BOUND), OUTPUT_BOUND)
        w.obs[f] = inside if finite else F4(math.nan)
    if finite:
        _encode(w)


@njit(**JIT_INNER)
def _encode(w):
    """1 at the largest number of each one-hot part of the state, 0 elsewhere in it."""
    for i in range(w.codes.shape[0]):
        start, stop = w.codes[i, 0], w.codes[i, 1]
        best = start
        for f in range(start + 1, stop):
            if w.obs[f] > w.obs[best]:
                best = f
        for f in range(start, stop):
            w.obs[f] = ONE if f == best else ZERO


@njit(**JIT_INNER)
def _step_se(w, index, action):
    F = w.obs.shape[0]
    A = w.inputs.shape[0] - F
    for i in range(A):
        if w.num_actions == 0:
            w.inputs[i] = action[i]
        else:
            w.inputs[i] = ONE if i == index else ZERO
    for f in range(F):
        w.inputs[A + f] = w.obs[f]
    if w.bandit:  # reward_net lies behind the table, or init_net, F -> F
        behind = w.stored * F if w.stored else size(F, w.hidden, w.layers, F, w.act)
        _, ok = _net(w, behind, 1, w.inputs)
        return w.out[0], ONE, True, not (ok and math.isfinite(w.obs[0]))
    offset, ok = _net(w, 0, F, w.inputs)
    for f in range(F):
        w.obs[f] = w.out[f]
    offset, ok_reward = _net(w, offset, 1, w.inputs)
    reward = w.out[0]
    offset, ok_done = _net(w, offset, 1, w.inputs)
    done = w.out[0]
    over = done > F4(0.5)
    if not w.raw_done:
        done = ONE if over else ZERO
    return reward, done, over, not (ok and ok_reward and ok_done)


@njit(**JIT_INNER)
def _step_task(w, index, action):
    """The real task; of an RN with its reward instead or in addition (types: envs/worlds/reward_network.py)."""
    if w.num_actions == 0:
        reward, over = tasks.step_continuous(w.task, w.s, action)
    else:
        reward, over = tasks.step(w.task, w.s, index)
    tasks.observe(w.task, w.s, w.obs)
    failed = False
    if w.kind == RN and w.rn_type > 0:
        shaped = phi = _phi(w)
        failed = not math.isfinite(phi)
        if w.rn_type == 1 or w.rn_type == 2:  # potential: gamma phi(s') - phi(s)
            shaped = F4(w.gamma) * phi - w.phi[0]
            w.phi[0] = phi
        reward = shaped + (reward if w.rn_type % 2 == 0 else ZERO)
    return reward, ONE if over else ZERO, over, failed


@njit(**JIT_INNER)
def step(w, index, action):
    """One step -> reward float32, done float32, over (done > 0.5), failed (an output of a net is not finite)."""
    if w.kind == SE:
        return _step_se(w, index, action)
    return _step_task(w, index, action)


@njit(**JIT_UNCOUNTED)
def repeat(w, index, action, skip, left):
    """Up to ``skip`` steps with one action, until the world says done or fails, or ``left`` steps are taken.

    Returns summed reward, done, over, failed, steps.
    """
    out_of_line()
    reward, done, over, failed = step(w, index, action)
    steps = 1
    while steps < skip and steps < left and not over and not failed:
        r, done, over, failed = step(w, index, action)
        reward += r
        steps += 1
    return reward, done, over, failed, steps
