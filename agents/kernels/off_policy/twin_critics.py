"""What the kernels of TD3 and of discrete TD3 have in common: a member's hyperparameters, nets, and room for an update.

The flat vectors of weights hold actor | critic 1 | critic 2.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

import envolve.agents.off_policy.td3
from envolve.agents.common.population import size
from envolve.agents.kernels.dense.mlp import Net, activations, aligned, workspace
from envolve.agents.kernels.off_policy.training import padded
from envolve.envs.nets.networks import ACTIVATIONS
from envolve.envs.task import Task

I8 = np.int64


class TwinCritics(NamedTuple):
    """What both variants have: hyperparameters, sizes and the arrays of one update."""

    init_episodes: int
    batch_size: int
    lr: float  # of the critics
    actor_lr: float
    tau: float
    policy_delay: int
    action_std: float
    policy_std: float
    policy_std_clip: float
    test_noise: bool
    observations: int
    actions: int
    actor: Net
    critic: Net
    norm: bool  # with layer norm
    critic1: int  # where the critics begin
    critic2: int  # the end, if there is one critic
    actor_updates: np.ndarray  # int64 [1]
    q: np.ndarray  # [1, L], values of a critic, then the gradient of the loss by them
    y: np.ndarray  # [1, L], the target
    dx: np.ndarray  # [F + A, L], gradient by a critic's input
    out: np.ndarray  # [A, L], outputs of the actor, then the gradient by them
    h: np.ndarray  # [layers, hidden, L], activations of a critic for its backward pass
    actor_h: np.ndarray
    dh: np.ndarray  # scratch of the backward pass
    one_out: np.ndarray  # [A], of one observation, as the next two
    one_h: np.ndarray
    one_h2: np.ndarray

    @classmethod
    def create(cls, task: Task, section: Any) -> TwinCritics:
        """section: the member's own."""
        nets = envolve.agents.off_policy.td3.TD3.nets_of(task, section, section.hidden_size, section.hidden_layer)
        F, A, H, layers = nets[0].inputs, nets[0].outputs, section.hidden_size, max(1, section.hidden_layer)
        act, norm, s = ACTIVATIONS.index(section.activation_fn), nets[0].layer_norm, section
        L = padded(s.batch_size)
        return cls(
            init_episodes=s.init_episodes,
            batch_size=s.batch_size,
            lr=s.lr,
            actor_lr=s.lr,
            tau=s.tau,
            policy_delay=s.policy_delay,
            action_std=s.action_std,
            policy_std=s.policy_std,
            policy_std_clip=s.policy_std_clip,
            test_noise=s.test_noise,
            observations=F,
            actions=A,
            actor=Net(F, H, layers, A, act),
            critic=Net(F + A, H, layers, 1, act),
            norm=norm,
            critic1=size(nets[:1]),
            critic2=size(nets[:2]),
            actor_updates=np.zeros(1, I8),
            q=aligned((1, L)),
            y=aligned((1, L)),
            dx=aligned((F + A, L)),
            out=aligned((A, L)),
            h=activations(H, layers, L, act, norm),
            actor_h=activations(H, layers, L, act, norm),
            dh=workspace(H, L),
            one_out=aligned((A,)),
            one_h=aligned((H,)),
            one_h2=aligned((H,)),
        )
