"""The compiled path of ``agents/goal/crl.py``: members shared among threads. The kernels are in ``crl.py``.

Nothing is kept here between calls but room: the kernels work on the tensors of the learner and of its replay, which
``state_dict`` holds and other code may write to. A member's numbers depend on no other and on no thread.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Callable, Dict, Optional, Tuple

import numpy as np
import torch
from torch import Tensor

from envolve.agents.goal import crl_energy
from envolve.agents.goal.crl_replay import TrajectoryReplay
from envolve.agents.goal.crl_section import CRLSection
from envolve.agents.kernels.building import ahead
from envolve.agents.kernels.goal import crl
from envolve.agents.kernels.goal.crl_draw import Members, Memory
from envolve.agents.kernels.goal.crl_energy import Contrast, no_twin
from envolve.agents.kernels.goal.crl_losses import loss_code
from envolve.agents.kernels.goal.crl_trunk import Trunk

if TYPE_CHECKING:
    from envolve.agents.goal.crl import CRL


PARTS = ("decisions", "updates", "updates by a batch")


def why_not(section: CRLSection, device: torch.device) -> Optional[str]:
    """The reason why the compiled path cannot train this population, or None if it can: then its kernels are there."""
    if device.type != "cpu":
        return f"kernels run on a CPU, not on {device}"
    return no_twin(crl_energy.canonical(section.energy_fn)) or ahead.why_not("crl")


def parts(name: str) -> Dict[str, Callable[[], None]]:
    """As ``building/shortest.py`` asks for them."""
    return {part: partial(_shortest, part) for part in PARTS}


def _shortest(part: str) -> None:
    """Calls the kernels of one of ``PARTS`` once."""
    from envolve.agents.goal.crl import CRL

    section = CRLSection(batch_size=2, h_dim=1, n_hidden=1, repr_dim=1)
    learner = CRL(section, 1, 1, (0,), torch.zeros(1, dtype=torch.int64), backend="compiled")
    state = torch.zeros(1, 1, 1)
    if part == "decisions":
        learner.act(state, state)
        return
    replay = TrajectoryReplay(1, 1, 2, learner.fields, learner.device)
    replay.write({"state": state, "action": torch.zeros(1, 1, 1)})
    if part == "updates":
        learner.learn(replay, measure=True)
    else:
        learner.learn_batch(learner.sample(replay))


def _array(x: Tensor) -> np.ndarray:
    return np.ascontiguousarray(x.numpy())


class Compiled:
    """Acts and learns for all members of a learner."""

    def __init__(self, learner: CRL) -> None:
        self.learner = learner
        starts = np.cumsum([0, *learner.sizes]).tolist()
        shapes = learner.actor, learner.phi, learner.psi
        self.actor, self.phi, self.psi = (Trunk.create(shape, at) for shape, at in zip(shapes, starts))
        self.size = starts[-1]
        self.goal_indices = learner.goal_indices.numpy()
        self.threads = min(torch.get_num_threads(), learner.P)
        self.pool = ThreadPoolExecutor(self.threads) if self.threads > 1 else None
        self.rooms: Dict[int, SimpleQueue[Any]] = {}  # samples that a policy has room for, or 0: a learner's
        self.values = np.zeros((learner.P, 9))
        self.unmoved = np.zeros((2, learner.P, learner.S + learner.G), np.float32)

    def act(self, features: Tensor, goal: Tensor, explores: bool) -> Tensor:
        """``CRL.act`` without counting the decision, or ``CRL.greedy``."""
        N = features.shape[1]
        members, decision = self._members(), int(self.learner.decisions)
        x, g = _array(features), _array(goal)
        action = torch.empty(self.learner.P, N, self.learner.A)
        out = action.numpy()

        def some(room: crl.CRLPolicy, first: int, last: int) -> None:
            crl.decide(room, members, x, g, decision, explores, first, last, out)

        self._share(N, lambda: self._policy(N), some)
        return action

    def learn(self, replay: TrajectoryReplay, measure: bool) -> Optional[Tensor]:
        """``CRL.learn``."""
        members = self._members()
        state, action = (replay.fields[name].flatten(0, 2).numpy() for name in ("state", "action"))
        number, last_write = replay.number.view(-1).numpy(), replay.last.view(-1).numpy()
        memory = Memory(state, action, number, last_write, int(replay.written), replay.R, replay.N)

        def some(room: crl.CRLLearner, first: int, last: int) -> None:
            crl.learn(room, members, memory, first, last, measure, self.values)

        self._share(0, self._learner, some)
        return self._measured() if measure else None

    def learn_batch(self, batch: Tuple[Tensor, ...], measure: bool) -> Optional[Tensor]:
        """``CRL.learn_batch``."""
        members = self._members()
        state, action, goal = (_array(part) for part in batch[:3])

        def some(room: crl.CRLLearner, first: int, last: int) -> None:
            crl.learn_batch(room, members, state, action, goal, first, last, measure, self.values)

        self._share(0, self._learner, some)
        return self._measured() if measure else None

    def _measured(self) -> Tensor:
        return torch.from_numpy(self.values).float()

    def _share(self, kind: int, create: Callable[[], Any], some: Callable[[Any, int, int], None]) -> None:
        """some(room, first, last) for all members, as many to each thread."""
        P = self.learner.P
        if kind not in self.rooms:
            self.rooms[kind] = SimpleQueue()
            for _ in range(self.threads):
                self.rooms[kind].put(create())
        rooms = self.rooms[kind]

        def one(first: int) -> None:
            room = rooms.get()
            some(room, first, min(first + each, P))
            rooms.put(room)

        each = -(-P // self.threads)
        if self.pool is None:
            one(0)
        else:
            list(self.pool.map(one, range(0, P, each)))

    def _policy(self, batch: int) -> crl.CRLPolicy:
        L = self.learner
        bounded = L.section.policy_std == "bounded"
        return crl.CRLPolicy.create(self.actor, L.S, L.G, L.A, bounded, L.moments is not None, batch)

    def _learner(self) -> crl.CRLLearner:
        L, s = self.learner, self.learner.section
        c = Contrast.create(
            L.energy, loss_code(s.contrastive_loss_fn), s.no_resubs, L.learns_scale, s.batch_size, s.repr_dim
        )
        return crl.CRLLearner.create(
            self._policy(s.batch_size),
            self.phi,
            self.psi,
            c,
            not s.disable_entropy_actor,
            L.learns_scale,
            self.goal_indices,
            self.size,
        )

    def _members(self) -> Members:
        """The learner's tensors, as they are now: others may have put new ones in their place."""
        L = self.learner
        own = {name: getattr(L, name).numpy() for name in ("params", "m", "v", "log_alpha", "alpha_m", "alpha_v")}
        own["mean"], own["scale"] = self.unmoved
        if L.moments is not None:
            own["mean"], own["scale"] = L.moments.mean.float().numpy(), L.moments.scale.numpy()
        own["updates"] = L.updates.numpy()
        for name in ("replay_key", "update_key", "explore_key"):
            own[name] = getattr(L, name).numpy().view(np.uint64)
        own.update({name: L.lr[name].numpy() for name in L.lr})
        own.update({name: L.hyper[name].numpy() for name in Members._fields if name not in own})
        return Members(**own)
