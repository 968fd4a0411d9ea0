"""Actor and critic of a PPO population: shapes, initial weights, sampling of actions, and the gradient of the loss.

An agent is one flat vector: the standard deviations of a Gaussian policy (none for discrete actions), actor, critic.
Axes: L members, N environments, B samples, A actions (or action dimensions), F observation features.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, List, NamedTuple, Sequence, Tuple

import numpy as np
import torch
from torch import Tensor

from envolve.agents.common.hyper import Hyper
from envolve.agents.common.population import stack
from envolve.agents.ppo.returns import normalise
from envolve.core import rng
from envolve.envs.nets.networks import PRELU_INIT, MLPShape, activate_, forward, init_flat
from envolve.envs.task import Task

STD_MIN = 1e-3
ADVANTAGE_EPSILON = 1e-8
_LOG_2PI = math.log(2 * math.pi)


class Nets(NamedTuple):
    """Parts of every agent's flat vector, in this order."""

    std: int  # parameters that are standard deviations: one per action dimension, 0 if actions are discrete
    actor: MLPShape  # observation -> a logit per action, or what tanh makes the mean of
    critic: MLPShape  # observation -> value
    squash: bool = True  # false: the mean is the actor's output itself

    def mean(self, out: Tensor, max_action: float) -> Tensor:
        """Mean of a continuous action by the actor's output, of any shape."""
        return max_action * torch.tanh(out) if self.squash else out

    def split(self, params: Tensor) -> Tuple[Tensor, Tensor, Tensor]:
        """Views of params [L, D] -> std [L, std], actor, critic."""
        std, actor, critic = params.split([self.std, self.actor.size, self.critic.size], dim=1)
        return std, actor, critic


@dataclass
class Coefficients:
    """Coefficients of the loss, float32 [L, 1] each."""

    eps_clip: Tensor
    vf_coef: Tensor
    ent_coef: Tensor


def networks(task: Task, hyper: Hyper) -> List[Tuple[MLPShape, MLPShape]]:
    """Actor and critic of each member."""
    activation = hyper.section.activation_fn  # type: ignore[attr-defined]
    F, A = task.observation_size, task.num_actions or task.action_size
    sizes = zip(hyper["hidden_size"].tolist(), hyper["hidden_layer"].tolist())
    return [(MLPShape(F, A, *s, activation), MLPShape(F, 1, *s, activation)) for s in sizes]


def initial_weights(
    task: Task, agents: Sequence[Tuple[MLPShape, MLPShape]], hyper: Hyper, keys: np.ndarray
) -> np.ndarray:
    """Fresh agents, one per key: float32 [P, D_max], each row as long as its agent and then zeros. keys: int64 [P]."""
    weights = np.zeros((len(keys), task.action_size + max(actor.size + critic.size for actor, critic in agents)))
    weights[:, : task.action_size] = hyper["action_std"][:, None]
    streams = rng.fold(torch.as_tensor(keys), rng.INIT)
    for nets in set(agents):
        rows, offset = [i for i, other in enumerate(agents) if other == nets], task.action_size
        for net, gain in zip(nets, (0.01, 1.0)):
            if hyper.section.orthogonal_init:  # type: ignore[attr-defined]
                flat = orthogonal_flat(net, streams[rows], offset, gain)
            else:
                flat = init_flat(net, streams[rows], offset)
            weights[rows, offset : offset + net.size] = flat.numpy()
            offset += net.size
    return weights.astype(np.float32)


def padded(own: Tensor, agents: Sequence[Tuple[MLPShape, ...]], nets: Nets) -> Tensor:
    """Agents that all fit into ``nets``, with units that stay zero: float32 [P, >= D_i] -> [P, D]."""
    return torch.cat((own[:, : nets.std], stack(own[:, nets.std :], agents, (nets.actor, nets.critic))), 1)


def orthogonal_flat(net: MLPShape, key: Tensor, counter: int, gain: float) -> Tensor:
    """Orthogonal weights (Saxe et al. 2014, https://arxiv.org/abs/1312.6120) times sqrt 2, of the output layer times
    ``gain``; biases 0. key: int64 [P] -> float32 [P, D]."""
    flat = torch.zeros(len(key), net.size)
    layers = net.layer_offsets()
    for offset, k, m in layers:
        draws = rng.normal(key[:, None], torch.arange(counter + offset, counter + offset + k * m))
        tall = draws.double().view(-1, k, m) if k >= m else draws.double().view(-1, k, m).transpose(1, 2)
        q, r = torch.linalg.qr(tall)
        q = q * r.diagonal(dim1=1, dim2=2).sign()[:, None]  # without it q is not uniformly distributed
        w = (q if k >= m else q.transpose(1, 2)) * (gain if offset == layers[-1][0] else math.sqrt(2))
        flat[:, offset : offset + k * m] = w.reshape(-1, k * m).float()
    if net.slope_slots:
        flat[:, -1] = PRELU_INIT
    return flat


def noise(nets: Nets, key: Tensor, counter: Tensor) -> Tensor:
    """Noise that makes actions random: standard normal (continuous) or Gumbel (discrete) variables, one per output.

    key [..., 1], counter [...], the number of the draw: int64 -> float32 [..., A].
    """
    A = nets.actor.outputs
    counter = counter.unsqueeze(-1) * A + torch.arange(A, device=key.device)
    return rng.normal(key, counter) if nets.std else rng.gumbel(key, counter)


def forward_few(net: MLPShape, flat: Tensor, x: Tensor) -> Tensor:
    """Forward pass without gradient, as envs/nets has it, for the few samples of one decision: flat [L, D], x [L,
    N, K] -> [L, N, M]. Each sample is a row: a product with few columns is four times slower than one with few rows."""
    layers, sizes = net.layout
    parts = flat.split(sizes, dim=1)
    for i, (_, k, m) in enumerate(layers):
        x = torch.baddbmm(parts[2 * i + 1].unsqueeze(1), x, parts[2 * i].view(-1, k, m))
        if i < len(layers) - 1:
            x = activate_(x, net.activation, parts[-1].unsqueeze(2))
    return x


def act(nets: Nets, params: Tensor, obs: Tensor, noise: Tensor, max_action: float) -> Tuple[Tensor, Tensor, Tensor]:
    """Chooses actions. obs [L, N, F], noise [L, N, A] (zeros: the most likely action) -> the action for the world,
    int64 [L, N] or float32 [L, N, A]; the stored action, float32 [L, N, 1 or A]; the actor's output [L, N, A]."""
    std, actor, _ = nets.split(params)
    out = forward_few(nets.actor, actor, obs)
    if nets.std == 0:
        action = (out + noise).max(2).indices  # Gumbel-max: a sample of the softmax of out
        return action, action.unsqueeze(-1).to(out.dtype), out
    drawn = nets.mean(out, max_action) + std.clamp(min=STD_MIN)[:, None] * noise
    return drawn.clamp(-max_action, max_action), drawn, out


def greedy(nets: Nets, params: Tensor, obs: Tensor, max_action: float) -> Tensor:
    """The most likely action for the world: obs [L, N, F] -> int64 [L, N] or float32 [L, N, A]."""
    noise = torch.zeros(obs.shape[:2] + (nets.actor.outputs,), device=obs.device)
    return act(nets, params, obs, noise, max_action)[0]


def log_prob(nets: Nets, params: Tensor, out: Tensor, action: Tensor, max_action: float) -> Tensor:
    """Log-probability log pi(action) -> [L, B]. out: the actor's output [L, A, B]; action: as stored, [L, 1 or A,
    B]."""
    if nets.std == 0:
        return torch.log_softmax(out, 1).gather(1, action.long())[:, 0]
    std = params[:, : nets.std].clamp(min=STD_MIN)[:, :, None]
    z = (action - nets.mean(out, max_action)) / std
    return -(0.5 * z * z + std.log() + 0.5 * _LOG_2PI).sum(1)


def gradient(
    nets: Nets,
    params: Tensor,
    obs: Tensor,
    action: Tensor,
    logp: Tensor,
    returns: Tensor,
    value: Tensor,
    c: Coefficients,
    section: Any,
    max_action: float,
) -> Tensor:
    """Gradient by params [L, D] of each member's loss, the mean over its batch of

        -min(rho A, clip(rho, 1 - eps, 1 + eps) A) + vf_coef (V(s) - G)^2 - ent_coef H(pi(s))

    with rho = pi(a | s) / pi_old(a | s). obs [L, F, B]; action [L, 1 or A, B]; logp, returns, value: log pi_old(a | s),
    G and V_old(s), [L, B]. The advantage A is G - V_old(s), with Monte Carlo returns G - V(s), as published.
    """
    B = obs.shape[2]
    std_parameter, actor, critic = (part.detach() for part in nets.split(params))
    actor.requires_grad_(), critic.requires_grad_()
    out, v = forward(nets.actor, actor, obs), forward(nets.critic, critic, obs)
    with torch.no_grad():
        error = v[:, 0] - returns
        if section.advantage == "monte_carlo":
            advantage = -error
        else:
            advantage = returns - value
        if section.norm_advantage:
            advantage = normalise(advantage, ADVANTAGE_EPSILON)
        dv = error * (2 / B * c.vf_coef)
        if section.clip_value_loss:  # the larger of the plain and the clipped error; the latter's gradient is 0
            change = v[:, 0] - value
            clipped = value + change.clamp(-c.eps_clip, c.eps_clip) - returns
            outside = change.abs() > c.eps_clip  # inside the two errors are equal, but for rounding
            dv = torch.where(outside & (clipped.square() > error.square()), torch.zeros_like(dv), dv)
        rho = (log_prob(nets, params, out, action, max_action) - logp).exp_()
        flat = ((rho > 1 + c.eps_clip) & (advantage > 0)) | ((rho < 1 - c.eps_clip) & (advantage < 0))
        dlogp = torch.where(flat, torch.zeros_like(rho), rho * advantage * (-1 / B))
        if nets.std == 0:
            # dlogp/dlogit_j = [a = j] - p_j,  dH/dlogit_j = -p_j (log p_j + H)
            log_p = torch.log_softmax(out, 1)
            p = log_p.exp()
            weighted = p * log_p
            entropy = -weighted.sum(1, keepdim=True)
            taken = action == torch.arange(nets.actor.outputs, device=params.device)[:, None]
            dout = (taken.to(p.dtype) - p) * dlogp[:, None]
            dout += (weighted + p * entropy) * (c.ent_coef / B)[:, :, None]
            dstd = std_parameter
        else:
            # dlogp/dmean = z / std,  dlogp/dstd = (z^2 - 1) / std,  H = sum log std + ...
            std = std_parameter.clamp(min=STD_MIN)
            mean = nets.mean(out, max_action)
            slope = max_action - mean.square() / max_action if nets.squash else torch.ones_like(mean)  # dmean/dout
            z = (action - mean) / std[:, :, None]
            dout = dlogp[:, None] * z * (slope / std[:, :, None])
            dstd = ((z * z - 1) * dlogp[:, None]).sum(2) / std - c.ent_coef / std
            dstd = torch.where(std_parameter < STD_MIN, torch.zeros_like(dstd), dstd)
        gradients = torch.autograd.grad((out, v), (actor, critic), (dout, dv[:, None]))
    return torch.cat((dstd,) + gradients, dim=1)
