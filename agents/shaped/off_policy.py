"""SAC and TD3 for candidates that shape one physics task, all of them side by side; TD3 with many environments is that
of FastTD3 (Seo et al. 2025, https://arxiv.org/abs/2505.22642) in its main idea: few updates per control step.

Every candidate of ``ShapedEnvs`` has an agent and a replay memory of its own. An iteration is DECISIONS decisions in
every environment; after each, the N transitions of every candidate go to its memory, and every agent makes
``updates_per_decision`` updates from its own. Candidates whose observations and actions are as wide as each other's
train as one batch (``agents/shaped/batch.py``), with the rules of ``agents/off_policy/sac.py`` and ``td3.py``; nothing
is padded.

Settings are those of ``agents.sac`` and ``agents.td3``. An "episode" of ``init_episodes`` is as many environment steps
of a candidate as the task's time limit; so long actions are random and nothing is learned. How long training lasts is
the caller's, so that ``train_episodes`` and what is about tests and early out have no meaning here.

A memory holds ``rb_size`` transitions of 2 F + A + 2 float32, allocated as they come: 34 MB per candidate of
HalfCheetah with the default of 200,000, 570 MB where observations have 348 numbers.

Random numbers are counted: decision d of environment n is what decision d N + n is to the learners of classic tasks.
A candidate's results depend on its key and its functions; other members of its batch change them by rounding only,
because a matrix product chooses its kernel by size.

Axes: P candidates, N environments each, L candidates of one batch, A actions, F features, D parameters.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, ClassVar, Dict, List, Optional, Tuple, Type

import numpy as np
import torch
from torch import Tensor

from envolve.agents.common.sections import SACSection, TD3Section
from envolve.agents.off_policy.algorithm import Algorithm
from envolve.agents.off_policy.sac import SAC
from envolve.agents.off_policy.td3 import TD3
from envolve.agents.shaped.batch import Batch

if TYPE_CHECKING:
    from envolve.envs.shaping.envs import ShapedEnvs

log = logging.getLogger("envolve")
DECISIONS = 32  # of an iteration
WHY = "of the learners of shaped tasks only ppo has a compiled loop"
_said: List[str] = []


def sac_defaults(**own: Any) -> SACSection:
    """Settings for an arbitrary shaped task with some 32 environments per candidate; ``own`` overrides some.

    Data is cheap and updates are not, so that values have to spread in few of them: hence FastTD3's tau, 0.1. CartPole
    (3 agents, 16 environments, 64 hidden units) scored 1.00 with it after 18,000 steps, with 0.05 0.94, and with 0.01
    and half the updates 0.51 after 31,000; HalfCheetah moved at 1.4 m/s after 34,000, with 0.02 at 0.8. The temperature
    begins low because normalised rewards are small, some 1 - gamma.
    """
    return SACSection(**{
        "init_episodes": 5, "rb_size": 200_000, "batch_size": 256, "gamma": 0.99, "alpha": 0.01, "lr": 1e-3,
        "tau": 0.1, "log_std_min": -5.0, "hidden_size": 128, "hidden_layer": 2, "updates_per_decision": 4, **own,
    })  # fmt: skip


def td3_defaults(**own: Any) -> TD3Section:
    """Default settings of TD3, as in ``sac_defaults``, with more exploration and less target noise than for one
    environment. The actor learns at every update: 2 agents scored 1.00 on CartPole after 28,000 steps (0.68 after
    37,000 with a delay of 2); HalfCheetah moved at 1.57 m/s after 37,000.
    """
    return TD3Section(**{
        "init_episodes": 5, "rb_size": 200_000, "batch_size": 256, "gamma": 0.99, "lr": 1e-3, "tau": 0.1,
        "policy_delay": 1, "action_std": 0.4, "policy_std": 0.1, "hidden_size": 128, "hidden_layer": 2,
        "updates_per_decision": 4, **own,
    })  # fmt: skip


class ShapedOffPolicy:
    """Learner over ``envs``; see ``ShapedLearner`` in ``agents/shaped/training.py``."""

    name: ClassVar[str]
    algorithm: ClassVar[Type[Algorithm]]

    def __init__(
        self, envs: ShapedEnvs, section: Any, keys: np.ndarray, backend: str = "auto", threads: int = 1
    ) -> None:
        """keys: int64 [P], random keys of the candidates. backend: "torch", or "auto": compiled gradient steps where
        there is a kernel. threads: unused; set PyTorch's number with torch.set_num_threads. Raises ValueError."""
        self._check(envs, section, keys, backend)
        self.envs, self.section = envs, section
        obs = envs.begin()
        device = obs.device
        members: Dict[Tuple[int, int], List[int]] = {}
        for i, widths in enumerate(zip(envs.observation_sizes, envs.action_sizes)):
            members.setdefault(widths, []).append(i)
        self.batches = [
            Batch(
                self.algorithm,
                section,
                widths,
                torch.tensor(own, device=device),
                np.asarray(keys)[own],
                envs.N,
                compiled_update=backend == "auto",
            )
            for widths, own in members.items()
        ]
        if backend == "auto" and self.name not in _said:
            _said.append(self.name)
            compiled = self.batches[0].agents.compiled
            log.warning("%s trains on the PyTorch path%s: %s", self.name, ", updates compiled" if compiled else "", WHY)
        self.action = torch.zeros(envs.P, envs.N, max(envs.action_sizes), device=device)
        self.diverged = torch.zeros(envs.P, dtype=torch.bool, device=device)
        self.final: Dict[int, Dict[str, Tensor]] = {}  # policies of those that are out
        self.obs: Optional[Tensor] = None  # what the next decision sees
        self.decision = 0  # decisions in each environment so far
        self.steps = 0

    def _check(self, envs: ShapedEnvs, section: Any, keys: np.ndarray, backend: str) -> None:
        if len(keys) != envs.P:
            raise ValueError(f"{len(keys)} keys for {envs.P} candidates")
        if backend not in ("auto", "torch", "compiled"):
            raise ValueError(f"backend {backend!r}: expected one of auto, torch, compiled")
        if section.rb_size < envs.N:
            raise ValueError(
                f"{self.name}: rb_size {section.rb_size} holds less than one step of {envs.N} environments"
            )
        if backend == "compiled":
            raise ValueError(f"backend 'compiled': {self.name}: {WHY}")

    def iteration(self) -> None:
        """Makes DECISIONS decisions and the updates between them. Episodes restart if the environments were used for an
        evaluation since the last call."""
        envs, s = self.envs, self.section
        if self.obs is None or envs.evaluation:
            self.obs = envs.begin()
            for batch in self.batches:
                batch.begin()
        # from an iteration's begin only: before the first, nothing is known of the observations' scale
        learning = self.steps >= s.init_episodes * envs.task.max_steps and self.steps > 0
        for _ in range(DECISIONS):
            self._drop(list(envs.failures))
            episode = self.steps // envs.task.max_steps
            self.action.zero_()
            for batch in self.batches:
                batch.choose(self.obs, self.decision, episode, self.action)
            step = envs.step(self.action)
            over = step.terminated | step.truncated
            done = step.terminated if s.bootstrap_time_limit else over
            for batch in self.batches:
                batch.store(step.reward, step.last_obs, done, over)
                if learning:
                    batch.learn(s.updates_per_decision)
            self.obs = step.obs
            self.decision += 1
            self.steps += envs.N
        for batch in self.batches:
            batch.merge()
            self.diverged[batch.members] |= ~batch.finite()
        self._drop(list(envs.failures) + self.diverged.nonzero()[:, 0].tolist())

    def _drop(self, out: List[int]) -> None:
        """Removes these candidates: their agents neither act nor learn any more."""
        if all(i in self.final for i in out):
            return
        for batch in self.batches:
            mine = batch.members.tolist()
            self.final.update((i, batch.policy(mine.index(i))) for i in out if i in mine)
            if any(i in mine for i in out):
                batch.keep([k for k, i in enumerate(mine) if i not in out])
        self.batches = [batch for batch in self.batches if len(batch.members)]

    def act(self, obs: Tensor) -> Tensor:
        """Deterministic actions [P, N, A_max] for obs [P, N, F_max]; zeros for removed candidates."""
        self._drop(list(self.envs.failures))
        action = torch.zeros(*obs.shape[:2], self.action.shape[2], device=obs.device)
        for batch in self.batches:
            batch.act(obs, action)
        return action

    def policy(self, i: int) -> Dict[str, Tensor]:
        """Policy of candidate i: its weights (actor, critic 1, critic 2; layers as in ``envs/nets/networks.py``), and
        its normaliser; the network's input is (obs - mean) * scale, clipped to [-10, 10]."""
        if i in self.final:
            return self.final[i]
        for batch in self.batches:
            if i in (mine := batch.members.tolist()):
                return batch.policy(mine.index(i))
        raise IndexError(f"candidate {i}: expected 0 to {self.envs.P - 1}")


class ShapedSAC(ShapedOffPolicy):
    """Soft actor-critic (Haarnoja et al. 2018, https://arxiv.org/abs/1812.05905)."""

    name, algorithm = "sac", SAC


class ShapedTD3(ShapedOffPolicy):
    """Twin delayed DDPG (Fujimoto et al. 2018, https://arxiv.org/abs/1802.09477)."""

    name, algorithm = "td3", TD3
