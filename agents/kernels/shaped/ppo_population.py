"""The compiled path of ``agents/shaped/ppo.py``: one agent per candidate, and the calls that let all of them act and
learn, shared among threads. The kernels are in ``ppo.py``."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any, Callable, Collection, Dict, List, Sequence, Tuple

import numpy as np
import torch
from torch import Tensor

from envolve.agents.common.sections import PPOSection
from envolve.agents.kernels.building.ahead import compiled_ahead
from envolve.agents.kernels.common.members import settings
from envolve.agents.kernels.common.rng import fold
from envolve.agents.kernels.dense.mlp import aligned
from envolve.agents.kernels.off_policy.training import EXPLORE, REPLAY, padded
from envolve.agents.kernels.ppo import training as ppo
from envolve.agents.kernels.ppo.update import Block
from envolve.agents.kernels.shaped.ppo import Memory, act, improve, mean_action, record
from envolve.agents.ppo.rate import adapted
from envolve.agents.shaped.ppo_policy import create, spaces

PARTS = ("decisions", "updates")


def parts(name: str) -> Dict[str, Callable[[], None]]:
    """As ``building/shortest.py`` asks for them."""
    return {part: partial(_shortest, part) for part in PARTS}


def _shortest(part: str) -> None:
    """Calls the kernels of one of ``PARTS`` once."""
    section = PPOSection(rollout_steps=2, ppo_epochs=1, hidden_size=1, normalise_obs=True, desired_kl=0.01)
    agents = Compiled(section, [(1, 1)], torch.zeros(1, dtype=torch.int64), torch.device("cpu"), 1)
    obs, no = torch.zeros(1, 1, 1), torch.zeros(1, 1, dtype=torch.bool)
    step = SimpleNamespace(reward=torch.zeros(1, 1), terminated=no, truncated=no, last_obs=obs)
    if part == "updates":
        agents.learn(0)
        return
    agents.act(obs, 0, 0)
    agents.record(step, 0)
    agents.mean_action(obs)


class Member:
    """One candidate's agent. What it needs for the time of its updates only is most of what they need, and lies in a
    buffer of the thread that does them: 2.6 of 4 MB per candidate with 48 observations and 12 actions."""

    def __init__(self, section: PPOSection, F: int, A: int, key: int) -> None:
        task = spaces(F, A)
        nets, weights = create(section, F, A, key)
        self.c = settings(
            ppo.PPOSettings,
            task,
            section,
            test_each=False,
            monte_carlo=section.advantage == "monte_carlo",
            update_kl=section.desired_kl if section.kl_after == "update" else 0.0,
        )
        agent = ppo.PPO.create(task, nets[0], self.c, False, weights)
        self.scratch = [x.shape for x in (*agent.block, agent.g, agent.part, agent.advantage)]
        none = np.zeros(0, np.float32)
        self.agent = agent._replace(block=None, g=none, part=none, advantage=none)  # type: ignore[arg-type]
        self.memory = Memory.create(section, F)
        unsigned = np.array([key], np.int64).view(np.uint64)[0]
        self.explore, self.shuffle = (np.uint64(fold(unsigned, stream)) for stream in (EXPLORE, REPLAY))
        self.ends, self.epoch, self.updates, self.rate = 0, 0, 0, section.lr

    @property
    def buffer_size(self) -> int:
        return sum(padded(math.prod(shape)) for shape in self.scratch) + padded(1)

    def learner(self, buffer: np.ndarray) -> Any:
        """The agent with its scratch in ``buffer``, which is set to 0: what was there before may not be finite."""
        views, first = [], 0
        for shape in self.scratch:
            n = math.prod(shape)
            views.append(buffer[first : first + n].reshape(shape))
            first += padded(n)
        buffer[:first] = 0
        *block, g, part, advantage = views
        return self.agent._replace(block=Block(*block), g=g, part=part, advantage=advantage)


class Compiled:
    """All members, shared among threads. See ``envolve.agents.shaped.ppo.Backend``."""

    def __init__(
        self, section: PPOSection, widths: Sequence[Tuple[int, int]], keys: Tensor, device: torch.device, threads: int
    ) -> None:
        compiled_ahead("shaped_ppo")
        self.section, self.threads = section, threads
        self.members = [Member(section, F, A, key) for (F, A), key in zip(widths, keys.tolist())]
        self.active = list(range(len(widths)))
        self.diverged = torch.zeros(len(widths), dtype=torch.bool)
        self.action = torch.zeros(len(widths), section.num_envs, max(A for _, A in widths))
        largest = max(member.buffer_size for member in self.members)
        self.buffers: SimpleQueue[np.ndarray] = SimpleQueue()  # one per thread
        for _ in range(threads):
            self.buffers.put(aligned((largest,)))
        self.pool = ThreadPoolExecutor(threads) if threads > 1 else None

    def _each(self, one: Callable[[int, Member], None], chunk: int) -> None:
        """one(i, member) for every member that is not out; threads take ``chunk`` of them at a time."""
        parts = [self.active[first : first + chunk] for first in range(0, len(self.active), chunk)]

        def some(part: List[int]) -> None:
            for i in part:
                one(i, self.members[i])

        if self.pool is None or len(parts) < 2:
            for part in parts:
                some(part)
        else:
            list(self.pool.map(some, parts))

    @property
    def _share(self) -> int:
        """Members per thread, for calls that are too short to be handed out one by one."""
        return -(-len(self.active) // self.threads) or 1

    def act(self, obs: Tensor, decision: int, t: int) -> Tensor:
        seen, action = obs.contiguous().numpy(), self.action.numpy()

        def one(i: int, m: Member) -> None:
            act(m.agent.policy, m.agent.rollout, m.memory, seen, action, i, m.explore, decision, t)

        self._each(one, self._share)
        return self.action

    def record(self, step: Any, t: int) -> None:
        parts = [x.contiguous().numpy() for x in (step.reward, step.terminated, step.truncated, step.last_obs)]

        def one(i: int, m: Member) -> None:
            m.ends = record(m.agent.rollout, m.memory, m.c, *parts, i, t, m.ends)

        self._each(one, self._share)

    def learn(self, before: int) -> None:
        s = self.section

        def one(i: int, m: Member) -> None:
            rate = s.lr * max(0.0, 1 - before / s.train_steps) if s.anneal_lr else m.rate
            adapts = s.desired_kl > 0 and s.kl_after == "iteration"
            learned, buffer = m.updates, self.buffers.get()
            try:
                m.updates, rate, moved, ok = improve(
                    m.learner(buffer), m.memory, m.c, adapts, m.ends, m.shuffle, m.epoch, m.updates, rate
                )
            finally:
                self.buffers.put(buffer)
            m.ends = 0
            if m.updates > learned:
                m.epoch += s.ppo_epochs
                m.rate = adapted(rate, moved, s.desired_kl).item() if adapts else rate
            self.diverged[i] = not ok

        self._each(one, 1)
        self.drop(self.diverged.nonzero()[:, 0].tolist())

    def mean_action(self, obs: Tensor) -> Tensor:
        out = torch.zeros(obs.shape[:2] + self.action.shape[2:])
        seen, action = obs.contiguous().numpy(), out.numpy()
        self._each(lambda i, m: mean_action(m.agent.policy, m.memory, seen, action, i), self._share)
        return out

    def drop(self, out: Collection[int]) -> None:
        self.active = [i for i in self.active if i not in out]
        self.action[list(out)] = 0

    def inherit(self, other: Compiled, rows: Sequence[int]) -> None:
        for m, old in zip(self.members, (other.members[j] for j in rows)):
            pairs = [(m.agent.policy.p, old.agent.policy.p)]
            pairs += [(getattr(m.agent, name), getattr(old.agent, name)) for name in ("m", "v", "scale")]
            for name in ("seen", "paid"):
                pairs += list(zip(getattr(m.memory, name)[1:], getattr(old.memory, name)[1:]))
            for own, theirs in pairs:
                own[:] = theirs
            m.epoch, m.updates, m.rate = old.epoch, old.updates, old.rate

    def policy(self, i: int) -> Tuple[Tensor, Tensor, Tensor]:
        m = self.members[i]
        seen = m.memory.seen
        weights, mean, scale = (torch.from_numpy(x.copy()) for x in (m.agent.policy.p, seen.shift, seen.scale))
        return weights, mean, scale
