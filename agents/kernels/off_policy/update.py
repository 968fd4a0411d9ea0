"""Single updates by the compiled kernels, on the tensors of PyTorch agents: for loops whose transitions come from
elsewhere than the own worlds of ``training.py``.

All that an agent is stays in the ``rows`` of its ``envolve.agents.off_policy.algorithm.Algorithm``, read and written
where it lies. So such an object acts, is stored and is loaded as ever, and either twin may make its next update.

Axes: P members, F observation features, A actions, W = 2 F + A + 2 rows of a batch (s, s', action, reward, done), B
minibatch.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import partial
from typing import Any, Callable, Dict, Optional, Union

import numpy as np
import torch
from numba import njit
from torch import Tensor

from envolve.agents.common.sections import SACSection, TD3Section
from envolve.agents.kernels import JIT_INNER, JIT_UNCOUNTED
from envolve.agents.kernels.building import ahead
from envolve.agents.kernels.dense.mlp import ONE
from envolve.agents.kernels.off_policy import sac, td3
from envolve.agents.kernels.off_policy.training import Batch, Weights, learn
from envolve.agents.off_policy.algorithm import Algorithm
from envolve.agents.off_policy.sac import SAC
from envolve.agents.off_policy.td3 import TD3
from envolve.agents.off_policy.td3_discrete import TD3Discrete

log = logging.getLogger("envolve")

Update = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor, bool], None]  # as ``Algorithm.update``
UPDATES = {"sac_update": SACSection, "td3_update": TD3Section}  # that can be compiled alone
ACTORS_TURN, NOT_YET = np.int64(0), np.int64(1)  # numbers of decisions that are divisible by a delay, and that are not


@njit(**JIT_INNER)
def fill(batch, rows, gamma):
    """batch <- rows [W, B]; its padding stays zero."""
    W, B = rows.shape
    inputs = batch.sa.shape[0]
    F = W - 2 - inputs
    for i in range(B):
        for f in range(F):
            batch.sa[f, i] = rows[f, i]
            batch.next_sa[f, i] = rows[F + f, i]
        for a in range(inputs - F):
            batch.sa[F + a, i] = rows[2 * F + a, i]
        batch.reward[i] = rows[W - 2, i]
        batch.discount[i] = gamma * (ONE - rows[W - 1, i])


@njit(**JIT_UNCOUNTED)
def update_member(agent, batch, rows, gamma, key, decision, number):
    """Update ``number`` (from 1) on rows float32 [W, B]. key: uint64, of stream UPDATE; gamma: float32."""
    fill(batch, rows, gamma)
    learn(agent, batch, key, decision, number)


def why_not(algorithm: Algorithm) -> Optional[str]:
    """The reason why ``CompiledUpdate`` cannot update these agents, or None if it can: then its kernel is there."""
    if _is_own(type(algorithm)) or not isinstance(algorithm, (SAC, TD3)) or isinstance(algorithm, TD3Discrete):
        return f"{type(algorithm).__name__} has no compiled update"
    if algorithm.rows.params.device.type != "cpu":
        return "compiled updates are for the CPU"
    return ahead.why_not(_kernel(algorithm))


def _is_own(kind: type) -> bool:
    """Whether a subclass by a user computes anything but its learning rates by itself."""
    given = {"rates"}
    for base in kind.__mro__:
        if base.__module__.startswith("envolve.agents."):
            return False
        if {name for name in vars(base) if not name.startswith("__")} - given:
            return True
    return True


def _kernel(algorithm: Algorithm) -> str:
    return "sac_update" if isinstance(algorithm, SAC) else "td3_update"


class CompiledUpdate:
    """``algorithm.update``, member by member; one that does not learn is left alone. Samples count evenly: ``weight``
    is not looked at."""

    def __init__(self, algorithm: Union[SAC, TD3]) -> None:
        """algorithm: of which ``why_not`` says None. Its ``rates`` are asked once, here; tau at every update."""
        ahead.compiled_ahead(_kernel(algorithm))
        self.algorithm, self.rows, task = algorithm, algorithm.rows, algorithm.task
        net, inputs = algorithm.nets[0], task.observation_size + task.action_size
        self.batch = Batch.create(inputs, algorithm.section.batch_size)
        # members narrower than the nets were padded with units that stay zero
        shape: Any = {"hidden_size": net.hidden, "hidden_layer": net.layers}
        self.section = replace(algorithm.section, **shape)
        members = range(len(self.rows.lr))
        rates = [rate.tolist() for rate in algorithm.rates(torch.ones(len(members), dtype=torch.bool))]
        self.agents = [self._agent(i, [rate[i] for rate in rates]) for i in members]

    def _agent(self, i: int, rates: list[float]) -> Any:
        """The kernels' tuple of member i: its arrays are views."""
        r: Any = self.rows
        task, section = self.algorithm.task, self.section

        def view(of: Tensor) -> np.ndarray:
            return of[i].numpy()

        def weights(p: Tensor, target: Tensor, m: Tensor, v: Tensor) -> Weights:
            return Weights(view(p), view(target), view(m), view(v), np.zeros(p.shape[1], np.float32))

        flat = weights(r.params, r.target, r.m, r.v)
        if isinstance(self.algorithm, SAC):
            new = sac.SAC.create(task, section, view(r.params))
            temperature = weights(r.log_alpha, r.log_alpha, r.alpha_m, r.alpha_v)  # it has no target
            lr, actor_lr, alpha_lr = rates
            return new._replace(weights=flat, temperature=temperature, lr=lr, actor_lr=actor_lr, alpha_lr=alpha_lr)
        other, (lr, actor_lr) = td3.TD3.create(task, section, view(r.params)), rates
        common = other.common._replace(
            lr=lr,
            actor_lr=actor_lr,
            actor_updates=r.actor_updates.numpy()[i : i + 1],
            policy_std=float(r.policy_std[i]),
            policy_std_clip=float(r.policy_std_clip[i]),
        )
        return other._replace(weights=flat, common=common)

    def __call__(
        self, batch: Tensor, weight: Tensor, learns: Tensor, updates: Tensor, noise_key: Tensor, actor: bool
    ) -> None:
        """See ``Algorithm.update``."""
        if self.algorithm.rows is not self.rows:  # members were dropped
            raise RuntimeError("these are no longer the agents that this update was made for")
        keys, numbers, live = noise_key.numpy().view(np.uint64), updates.numpy(), learns.tolist()
        gamma, tau = self.rows.gamma[:, 0].numpy(), self.rows.tau[:, 0].tolist()
        decision = ACTORS_TURN if actor else NOT_YET
        for i, agent in enumerate(self.agents):
            if not live[i]:
                continue
            rows = batch[i].contiguous().numpy()
            update_member(with_tau(agent, tau[i]), self.batch, rows, gamma[i], keys[i], decision, numbers[i])


def update_of(algorithm: Algorithm) -> Update:
    """``algorithm.update`` under the conditions of ``CompiledUpdate``, compiled where there is a kernel for it; the log
    says where there is none."""
    reason = why_not(algorithm)
    if reason is None:
        assert isinstance(algorithm, (SAC, TD3))
        return CompiledUpdate(algorithm)
    log.info("updates take the PyTorch path: %s", reason)
    return algorithm.update


def with_tau(agent: Any, tau: float) -> Any:
    """The agent with this step of its target nets."""
    if isinstance(agent, sac.SAC):
        return agent._replace(tau=tau)
    return agent._replace(common=agent.common._replace(tau=tau))


def parts(name: str) -> Dict[str, Callable[[], None]]:
    """As ``building/shortest.py`` asks for them."""
    return {"update": partial(_shortest, name)}


def _shortest(name: str) -> None:
    """Whatever compiles the kernels of ``name``, a key of ``UPDATES``."""
    from envolve.agents.common.hyper import draw
    from envolve.agents.common.population import initial_weights, nets_of
    from envolve.envs.task import make_task

    task, keys = make_task("Pendulum-v0"), np.zeros(1, np.int64)
    kind: Any = SAC if name == "sac_update" else TD3
    hyper = draw(UPDATES[name](hidden_size=1, hidden_layer=1, batch_size=1), keys)
    nets = nets_of(kind, task, hyper)
    weights = torch.as_tensor(initial_weights(nets, keys))
    algorithm = kind(task, hyper, nets[0], weights, torch.ones(1, dtype=torch.int64))
    batch = torch.zeros(1, 2 * task.observation_size + task.action_size + 2, 1)
    ones = torch.ones(1, dtype=torch.int64)
    CompiledUpdate(algorithm)(batch, ones, ones, ones, torch.as_tensor(keys), True)
