"""numba twin of ``agents/ppo/training.py``: a member's whole inner loop (rollout, returns, epochs of minibatches,
tests) as one function without the GIL. ``policy.py`` draws the actions, ``rollout.py`` plays, ``update.py``
learns; this is the loop around them. Equality with the PyTorch path is tested in tests/agents/ppo/test_training.py.

Cost per environment step with CleanRL's settings on CartPole (2 x 64 tanh, 4 epochs): 214,000 FLOP in the updates and
18,000 in the rollout, and 1,280 tanh: some 2.8 us on a core that does 95 GFLOP/s and a tanh in 0.25 ns.

Random numbers are counted: decision d of environment n draws the EXPLORE counters (d N + n) A + a and, if its episode
ends there, begins the next by reset number (d + 1) N + n; epoch k shuffles by the REPLAY counters k T N + i.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from envolve.agents.common.result import AGENT_DIVERGED, OK, WORLD_DIVERGED
from envolve.agents.kernels import JIT_UNCOUNTED
from envolve.agents.kernels.common import worlds
from envolve.agents.kernels.common.rng import fold
from envolve.agents.kernels.dense.mlp import aligned
from envolve.agents.kernels.off_policy.training import (
    EXPLORE,
    FINAL_TEST,
    REPLAY,
    RESET,
    TEST,
    early_out,
    finite,
    padded,
    test,
)
from envolve.agents.kernels.ppo.policy import Policy
from envolve.agents.kernels.ppo.rollout import Environments, Rollout, decide, environment
from envolve.agents.kernels.ppo.update import BLOCK, Block, learn
from envolve.envs.nets.networks import MLPShape
from envolve.envs.task import Task


class PPOSettings(NamedTuple):
    """What one member is trained with; names as in ``PPOSection``."""

    train_episodes: int
    init_episodes: int
    train_steps: int  # 0: no limit
    max_steps: int
    test_steps: int
    same_action_num: int
    early_out_num: int
    early_out_min_steps: int
    early_out_virtual_diff: float
    solved_reward: float
    test_episodes: int
    test_each: bool
    bootstrap_time_limit: bool
    num_envs: int
    rollout_steps: int  # T, never 0 here
    ppo_epochs: int
    minibatches: int
    monte_carlo: bool
    lr: float
    gamma: float
    gae_lambda: float
    eps_clip: float
    vf_coef: float
    ent_coef: float
    max_grad_norm: float
    norm_advantage: bool
    clip_value_loss: bool
    anneal_lr: bool
    adam_eps: float
    update_kl: float  # the divergence to which each update adapts lr; 0: none does


class PPO(NamedTuple):
    """One member's agent, environments and memory; in parts, because a call hands over every array of a tuple."""

    policy: Policy
    envs: Environments
    rollout: Rollout
    block: Block
    critic: int  # offset of the critic in p
    m: np.ndarray  # float32 [D], Adam's moments
    v: np.ndarray
    g: np.ndarray  # gradient; part: that of one block
    part: np.ndarray
    advantage: np.ndarray  # float32 [B], of a minibatch
    scale: np.ndarray  # float64 [2], mean and std of the Monte Carlo returns learned last

    @classmethod
    def create(
        cls, task: Task, actor: MLPShape, c: PPOSettings, test_noise: bool, p: np.ndarray, squash: bool = True
    ) -> PPO:
        """p: float32 [D], trained in place."""
        F, A, N, R = task.observation_size, actor.outputs, c.num_envs, c.num_envs * c.rollout_steps
        B = R // c.minibatches
        W = padded(-(-B // -(-B // BLOCK)))  # the fewest blocks, of equal width
        policy = Policy.create(task, actor, N, test_noise, squash, p)
        m, v, g, part = (aligned((len(p),)) for _ in range(4))
        return cls(
            policy=policy,
            envs=Environments.create(N, F),
            rollout=Rollout.create(R, F, max(1, task.action_size)),
            block=Block.create(W, F, A, policy.hidden, policy.layers, policy.act),
            critic=task.action_size + actor.size,
            m=m,
            v=v,
            g=g,
            part=part,
            advantage=aligned((B,)),
            scale=np.array([0.0, 1.0]),
        )


@njit(**JIT_UNCOUNTED)
def train(agent, world, task, c, key, test_returns, episode_return, episode_length, counts):
    """Train one member and test it.

    world, task: ``KernelWorld``, what it trains in and what it is tested on; c: ``PPOSettings``;
    test_returns: float64 [T]; episode_return: float32 [E]; episode_length: int32 [E]; counts: int64 [5] <- train steps,
    updates, episodes, real steps, status (agents/common/result.py).
    """
    N, policy, envs = c.num_envs, agent.policy, agent.envs
    explore_key, shuffle_key = fold(key, EXPLORE), fold(key, REPLAY)
    reset_key, test_key = fold(key, RESET), fold(key, TEST)
    n, decision, epoch, updates, e, real_steps, status = 0, 0, 0, np.int64(0), 0, 0, OK
    for i in range(N):
        worlds.reset(environment(envs, world, i), reset_key, i)
    stop, last = False, False
    while not stop:
        ends, before = np.int64(0), n
        for t in range(c.rollout_steps):
            steps, ends, failed = decide(policy, envs, agent.rollout, world, c, explore_key, decision, t, ends)
            n += steps
            decision += 1
            if failed:
                status, stop = WORLD_DIVERGED, True
                break
            for i in range(N):
                if not envs.ended[i]:
                    continue
                episode_length[e] = envs.t[i]
                total = envs.total[i]
                if c.test_each:
                    real_steps += test(policy, task, c, test_key, e * c.test_episodes, policy.sent, test_returns)
                    total = test_returns.mean()
                episode_return[e] = total
                solved = e >= c.init_episodes and early_out(episode_return, e, n, world.kind, c)
                e += 1
                last = e == c.train_episodes
                stop = solved or (last and t < c.rollout_steps - 1)  # a complete rollout is learned from
                if solved or last:
                    break
                worlds.reset(environment(envs, world, i), reset_key, decision * N + i)
                envs.t[i], envs.total[i] = 0, 0.0
            if stop:
                break
        if stop:
            break
        rate = c.lr * (1.0 - before / c.train_steps) if c.anneal_lr else c.lr
        updates, _ = learn(agent, c, ends, shuffle_key, epoch, updates, rate)
        epoch += c.ppo_epochs
        if not finite(policy.p):
            status, stop = AGENT_DIVERGED, True
        stop = stop or last or (c.train_steps > 0 and n >= c.train_steps)

    if world.kind != worlds.SE:
        real_steps += n
    if status == OK:
        real_steps += test(policy, task, c, fold(key, FINAL_TEST), np.int64(0), policy.sent, test_returns)
    else:
        test_returns[:] = np.nan
    counts[0], counts[1], counts[2], counts[3], counts[4] = n, updates, e, real_steps, status
