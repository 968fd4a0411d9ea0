"""Proximal policy optimisation (Schulman et al. 2017, https://arxiv.org/abs/1707.06347) for candidates that shape one
physics task: every candidate of ``ShapedEnvs`` has an agent of its own, and all of them learn side by side.

An iteration is T decisions in every environment (``rollout_steps``), then epochs of minibatches over each candidate's
own T N transitions. A candidate's networks are as wide as its own observation and action; nothing is padded, and on the
compiled path its result has the same bits whatever else is in the batch, with any number of threads. It has its own
normaliser of observations and of rewards (``agents/common/normaliser.py``), because scales are the candidates' choice.

Settings are those of ``agents.ppo`` in ``PPOSection``. ``num_envs`` is the simulator's; those about episodes, tests and
frame skip have no meaning here. Truncated episodes are bootstrapped (``bootstrap_time_limit``).

Random numbers are counted: decision d of environment n draws the EXPLORE counters (d N + n) A + a, epoch k shuffles by
the REPLAY counters k T N + i.

Axes: P candidates, N environments each, T decisions, A actions, F features, D parameters.
"""

from __future__ import annotations

import dataclasses
import logging
from typing import Any, Collection, Dict, Optional, Protocol, Sequence, Tuple

import numpy as np
import torch
from torch import Tensor

from envolve.agents.common.hyper import draw
from envolve.agents.common.sections import PPOSection
from envolve.agents.kernels.building import ahead
from envolve.agents.kernels.shaped import ppo_population as compiled
from envolve.agents.ppo import training as ppo
from envolve.agents.shaped.ppo_torch import PyTorchBackend
from envolve.envs.shaping.envs import ShapedEnvs, Step

log = logging.getLogger("envolve")


def defaults(**own: Any) -> PPOSection:
    """Settings for an arbitrary shaped task with 64 or more environments per candidate; ``own`` overrides some.

    Those of CleanRL's continuous PPO (https://docs.cleanrl.dev/rl-algorithms/ppo/) but for short rollouts in many
    environments and a learning rate that adapts to how far the policy moves, both as in legged_gym. On HalfCheetah
    (two seeds, 300,000 steps) a desired divergence of 0.02 reached 4.6 m/s, 0.01 3.9, fixed rates of 1e-3 and 3e-4 4.6
    and 1.8; a rate that suits one reward does not suit another, which is why it adapts.
    """
    return PPOSection(**{
        "rollout_steps": 32, "ppo_epochs": 5, "minibatches": 8, "gamma": 0.99, "advantage": "gae", "gae_lambda": 0.95,
        "norm_advantage": True, "eps_clip": 0.2, "lr": 1e-3, "desired_kl": 0.02, "vf_coef": 0.5, "ent_coef": 0.0,
        "max_grad_norm": 1.0, "hidden_size": 128, "hidden_layer": 2, "activation_fn": "tanh", "orthogonal_init": True,
        "action_std": 0.6, "normalise_obs": True, "normalise_reward": True, **own,
    })  # fmt: skip


class Backend(Protocol):
    """Back end that acts and learns for all candidates."""

    diverged: Tensor  # bool [P]: the weights are no longer finite; the candidate learns and acts no more

    def __init__(
        self, section: PPOSection, widths: Sequence[Tuple[int, int]], keys: Tensor, device: torch.device, threads: int
    ) -> None:
        """widths: (F, A) of each candidate; keys: int64 [P]."""

    def act(self, obs: Tensor, decision: int, t: int) -> Tensor:
        """Draws and stores decision t of the rollout, number ``decision`` of the training: obs [P, N, F_max] -> [P, N,
        A_max]; zeros for removed candidates."""

    def record(self, step: Step, t: int) -> None:
        """Stores the outcome of decision t."""

    def learn(self, before: int) -> None:
        """Learns from the T stored decisions; before: environment steps of earlier rollouts."""

    def mean_action(self, obs: Tensor) -> Tensor:
        """Actions by the policy's mean; nothing is stored."""

    def drop(self, out: Collection[int]) -> None:
        """Removes these candidates: they act no more, and their policies stay as they are."""

    def inherit(self, other: Any, rows: Sequence[int]) -> None:
        """Copies the state of agent rows[i] of ``other``, a back end of the same class, to agent i: weights, Adam's
        moments, learning rate, normalisers. The number of environments may differ."""

    def policy(self, i: int) -> Tuple[Tensor, Tensor, Tensor]:
        """Weights float32 [D], and the mean and 1 / deviation of observations, [F]."""


BACKENDS: Dict[str, Any] = {"compiled": compiled.Compiled, "torch": PyTorchBackend}


class ShapedPPO:
    """Learner over ``envs``; see ``ShapedLearner`` in ``agents/shaped/training.py``."""

    def __init__(
        self, envs: ShapedEnvs, section: PPOSection, keys: np.ndarray, backend: str = "auto", threads: int = 1
    ) -> None:
        """keys: int64 [P], random keys of the candidates. backend: "compiled" (CPU), "torch", or "auto". threads: of
        the compiled path. Raises ValueError if settings contradict each other."""
        self.envs = envs
        self.section = s = dataclasses.replace(section, num_envs=envs.N)
        keys = np.ascontiguousarray(keys, dtype=np.int64)
        if len(keys) != envs.P:
            raise ValueError(f"{len(keys)} keys for {envs.P} candidates")
        if s.rollout_steps == 0:
            raise ValueError("ppo: a shaped task needs rollout_steps, the decisions between updates")
        if not s.squash:
            raise ValueError("ppo: squash: found false, expected true: the mean action on a shaped task is a tanh")
        if s.desired_kl and s.anneal_lr:
            raise ValueError("ppo: either desired_kl adapts lr or anneal_lr lowers it, not both")
        ppo.check(s, draw(s, keys), 0)
        device = envs.device
        reason = ahead.why_not("shaped_ppo") if device.type == "cpu" and backend in ("auto", "compiled") else None
        if backend == "auto":
            backend = "compiled" if device.type == "cpu" and reason is None else "torch"
            if reason is not None:
                log.warning("ppo trains on the PyTorch path, which is slower: %s", reason)
        if backend not in BACKENDS:
            raise ValueError(f"backend {backend!r}: expected auto or one of {', '.join(BACKENDS)}")
        if backend == "compiled" and device.type != "cpu":
            raise ValueError(f"the compiled backend works on a CPU, these environments on {device}: use torch")
        if backend == "compiled" and reason is not None:
            raise ValueError(f"backend 'compiled': {reason}")
        widths = list(zip(envs.observation_sizes, envs.action_sizes))
        self.backend: Backend = BACKENDS[backend](s, widths, torch.as_tensor(keys), device, threads)
        self.obs: Optional[Tensor] = None  # what the next decision sees
        self.failed = 0  # candidates that the backend knows to have failed
        self.decision = 0  # decisions in each environment so far
        self.steps = 0

    @property
    def diverged(self) -> Tensor:
        return self.backend.diverged

    def iteration(self) -> None:
        """Makes a rollout and learns from it. Episodes restart if the environments were used for an evaluation in
        between."""
        s, envs = self.section, self.envs
        if self.obs is None or envs.evaluation:
            self.obs = envs.begin(staggered=True)
        for t in range(s.rollout_steps):
            self._drop_failed()
            step = envs.step(self.backend.act(self.obs, self.decision, t))
            self.backend.record(step, t)
            self.obs = step.obs
            self.decision += 1
        self._drop_failed()
        self.backend.learn(self.steps)
        self.steps += s.rollout_steps * s.num_envs

    def inherit(self, other: ShapedPPO, rows: Sequence[int]) -> None:
        """Copies the state of agent rows[i] of ``other`` to agent i before the first iteration. Both learners must have
        the same settings and those agents the same widths; the number of environments may differ."""
        self.backend.inherit(other.backend, rows)
        self.steps = other.steps

    def act(self, obs: Tensor) -> Tensor:
        """Policies' means, [P, N, A_max], for obs [P, N, F_max]; zeros for removed candidates."""
        self._drop_failed()
        return self.backend.mean_action(obs)

    def policy(self, i: int) -> Dict[str, Tensor]:
        """Policy of candidate i: its weights (standard deviations, actor, critic; ``agents/ppo/policy.py``) and its
        normaliser; the network's input is (obs - mean) * scale, clipped to [-10, 10]."""
        s, shape = self.section, (self.envs.observation_sizes[i], self.envs.action_sizes[i])
        weights, mean, scale = self.backend.policy(i)
        sizes = torch.tensor([*shape, s.hidden_size, max(1, s.hidden_layer)])
        return {"weights": weights, "observation_mean": mean, "observation_scale": scale, "sizes": sizes}

    def _drop_failed(self) -> None:
        if len(self.envs.failures) != self.failed:
            self.backend.drop(set(self.envs.failures))
            self.failed = len(self.envs.failures)
