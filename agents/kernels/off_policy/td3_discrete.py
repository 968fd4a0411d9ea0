"""Discrete TD3 for the compiled loop; twin of ``agents/off_policy/td3_discrete.py``, on what ``td3.py`` has for both
variants."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from envolve.agents.kernels import JIT_INNER
from envolve.agents.kernels.common.rng import gumbel, integer, normal
from envolve.agents.kernels.dense.mlp import F4, ONE, ZERO, aligned
from envolve.agents.kernels.off_policy.dispatch import implement
from envolve.agents.kernels.off_policy.td3 import (
    I8,
    SAMPLES,
    U,
    actor_predict,
    begin_episode,
    clipped_noise,
    update_actor,
    update_critics,
)
from envolve.agents.kernels.off_policy.training import Weights, padded
from envolve.agents.kernels.off_policy.twin_critics import TwinCritics
from envolve.agents.off_policy.td3_discrete import LAST_TEMPERATURE
from envolve.envs.task import Task


class TD3Discrete(NamedTuple):
    """One member's agent."""

    weights: Weights
    common: TwinCritics
    temperature: float  # the first
    fall: float  # the share of it that annealing takes away
    anneal_updates: int
    hard: bool
    learned: np.ndarray  # int64 [1], updates so far
    soft: np.ndarray  # [A, L], the actor's soft samples

    @classmethod
    def create(cls, task: Task, section: Any, p: np.ndarray) -> TD3Discrete:
        return cls(
            weights=Weights.create(p),
            common=TwinCritics.create(task, section),
            temperature=section.gumbel_softmax_temp,
            fall=1 - LAST_TEMPERATURE,
            anneal_updates=section.anneal_updates,
            hard=section.gumbel_softmax_hard,
            learned=np.zeros(1, I8),
            soft=aligned((task.num_actions, padded(section.batch_size))),
        )

    @staticmethod
    def columns(task: Task) -> int:
        return task.num_actions


@njit(**JIT_INNER)
def inverse_temperature(agent):
    """1 / T; T falls linearly by the number of updates to a twentieth."""
    passed = min(F4(agent.learned[0]) / F4(agent.anneal_updates), ONE)
    return ONE / (F4(agent.temperature) * (ONE - F4(agent.fall) * passed))


@njit(**JIT_INNER)
def gumbel_softmax(z, y, i, key, first, inverse):
    """y[:, i] <- softmax((z[:, i] + Gumbel noise) / T), the noise from counter ``first`` on. Returns the largest."""
    best, A = 0, z.shape[0]
    for a in range(A):
        y[a, i] = (z[a, i] + gumbel(key, first + U(a))) * inverse
        if y[a, i] > y[best, i]:
            best = a
    total, largest = ZERO, y[best, i]
    for a in range(A):
        y[a, i] = F4(math.exp(y[a, i] - largest))
        total += y[a, i]
    for a in range(A):
        y[a, i] /= total
    return best


@njit(**JIT_INNER)
def _entry(agent, y, a, i, best):
    """Entry a of the vector that a soft one stands for."""
    if agent.hard:
        return ONE if a == best else ZERO
    return y[a, i]


@njit(**JIT_INNER)
def _noisy_vector(agent, key, gumbels, normals, obs, action):
    """A sample of the actor with exploration noise. Returns the action."""
    c, y = agent.common, agent.soft
    actor_predict(agent, obs, c.one_out)
    sample = gumbel_softmax(c.one_out.reshape(c.actions, 1), y, 0, key, U(gumbels), inverse_temperature(agent))
    best = 0
    for a in range(c.actions):
        noise = F4(c.action_std) * normal(key, U(normals + a))
        action[a] = _entry(agent, y, a, 0, sample) + noise
        if action[a] > action[best]:
            best = a
    return best


def _explore(agent, key, decision, episode, obs, action):
    """Decision d uses the counters (2 A + 1) d + j: Gumbel, normal, the random action."""
    c = agent.common
    first = decision * (2 * c.actions + 1)
    if episode >= c.init_episodes:
        return _noisy_vector(agent, key, first, first + c.actions, obs, action)
    index = integer(key, U(first + 2 * c.actions), U(c.actions))
    for a in range(c.actions):
        action[a] = ONE if a == index else ZERO
    return index


def _test_action(agent, key, step, obs, action):
    c = agent.common
    if c.test_noise:
        first = step * 2 * c.actions
        return _noisy_vector(agent, key, first, first + c.actions, obs, action)
    actor_predict(agent, obs, c.one_out)
    best = 0
    for a in range(1, c.actions):
        if c.one_out[a] > c.one_out[best]:
            best = a
    return best


@njit(**JIT_INNER)
def _counter(update, i, A):
    """The first counter of sample i."""
    return (U(update) * SAMPLES + U(i)) * U(3 * A)


def _target_actions(agent, out, key, update, sa):
    c, y, inverse = agent.common, agent.soft, inverse_temperature(agent)
    A = c.actions
    for i in range(c.batch_size):
        first = _counter(update, i, A)
        best = gumbel_softmax(out, y, i, key, first, inverse)
        for a in range(A):
            noise = clipped_noise(agent, normal(key, first + U(A + a)))
            sa[c.observations + a, i] = _entry(agent, y, a, i, best) + noise


def _actor_actions(agent, out, key, update, sa):
    c, y, inverse = agent.common, agent.soft, inverse_temperature(agent)
    for i in range(c.batch_size):
        best = gumbel_softmax(out, y, i, key, _counter(update, i, c.actions) + U(2 * c.actions), inverse)
        for a in range(c.actions):
            sa[c.observations + a, i] = _entry(agent, y, a, i, best)


def _actor_gradient(agent, da, out):
    """Gradient by the soft sample, also where the critic saw a one-hot one: dz_a = y_a (da_a - sum_b y_b da_b) / T."""
    c, y, inverse = agent.common, agent.soft, inverse_temperature(agent)
    F = c.observations
    for i in range(c.batch_size):
        mean = ZERO
        for a in range(c.actions):
            mean += y[a, i] * da[F + a, i]
        for a in range(c.actions):
            out[a, i] = y[a, i] * (da[F + a, i] - mean) * inverse


def _learn(agent, batch, key, decision, update):
    update_critics(agent, batch, key, update)
    if decision % agent.common.policy_delay == 0:
        update_actor(agent, batch, key, update)
    agent.learned[0] = update


implement(TD3Discrete, target_actions=_target_actions, actor_actions=_actor_actions, actor_gradient=_actor_gradient)
implement(TD3Discrete, begin_episode=begin_episode, explore=_explore, test_action=_test_action, learn=_learn)
