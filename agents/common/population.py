"""Tools shared by all learners over a population: stacked parameters ``[P, D]``, Adam on them, and memory retention.

A population is one flat float32 buffer, a row per member, so that an optimiser step, a soft target update and a copy
are a handful of operations whatever the network (views of layers: ``envs/nets/networks.py``). Every operation here
works on rows independently: what one member holds, NaN included, never reaches another.
"""

from __future__ import annotations

import ctypes
import functools
import logging
from dataclasses import replace
from typing import Any, Iterator, List, Sequence, Tuple, Type

import numpy as np
import torch
from torch import Tensor

from envolve.agents.common.hyper import Hyper
from envolve.core import rng
from envolve.envs.nets.networks import MLPShape, init_flat
from envolve.envs.task import Task

log = logging.getLogger("envolve")

Nets = Tuple[MLPShape, ...]  # the networks of one agent, in the order in which its flat vector holds them

BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8  # torch.optim.Adam's defaults
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3  # malloc.h


@functools.lru_cache(maxsize=None)
def keep_pages() -> bool:
    """Tell glibc to keep freed memory, once per process. Returns whether it does.

    By default it hands large blocks back to the kernel, and every step of a training loop pays the page faults again:
    1.3 times the time of a batched DDQN step. The price is that a process keeps its peak memory.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
        kept = all([mallopt(_M_MMAP_THRESHOLD, 1 << 30), mallopt(_M_TRIM_THRESHOLD, (1 << 31) - 1)])
        kept = bool(mallopt(_M_TOP_PAD, 256 << 20)) and kept
    except (AttributeError, OSError, TypeError):  # musl, macOS, Windows
        kept = False
    if not kept:
        log.info("this C library has no mallopt: batched training works, but slower")
    return kept


def nets_of(algorithm: Type[Any], task: Task, hyper: Hyper) -> List[Nets]:
    """Networks of each member, built by ``algorithm.nets_of`` from its hidden_size and hidden_layer."""
    sizes = zip(hyper["hidden_size"].tolist(), hyper["hidden_layer"].tolist())
    return [algorithm.nets_of(task, hyper.section, hidden, layers) for hidden, layers in sizes]


def size(nets: Nets) -> int:
    """Parameters of one agent, D."""
    return sum(net.size for net in nets)


def initial_weights(agents: Sequence[Nets], keys: np.ndarray) -> np.ndarray:
    """Fresh networks, one agent per key: float32 [P, D_max], each row ``agents[i]`` and then zeros. keys: int64 [P]."""
    weights = np.zeros((len(keys), max(size(nets) for nets in agents)), np.float32)
    streams = rng.fold(torch.as_tensor(keys), rng.INIT)
    for nets in set(agents):
        rows, offset = [i for i, other in enumerate(agents) if other == nets], 0
        for net in nets:
            weights[rows, offset : offset + net.size] = init_flat(net, streams[rows], offset).numpy()
            offset += net.size
    return weights


def widest(agents: Sequence[Nets]) -> Nets:
    """Networks that all agents fit into: each with the largest number of hidden units."""
    return tuple(max(same, key=lambda net: net.hidden) for same in zip(*agents))


def by_depth(agents: Sequence[Nets], hyper: Hyper) -> Iterator[Tuple[np.ndarray, List[Nets], Nets]]:
    """Members whose networks have the same depth: their rows int64 [L], their networks, and those that all of these fit
    into. Networks of one depth are stacked, the narrower ones padded with units that stay zero."""
    depth = np.maximum(1, hyper["hidden_layer"])
    for layers in np.unique(depth):
        rows = np.flatnonzero(depth == layers)
        part = [agents[i] for i in rows.tolist()]
        yield rows, part, widest(part)


def embedding(own: Nets, stacked: Nets) -> Tensor:
    """Position of each parameter of ``own`` in the flat vector of ``stacked``, the wider networks: int64 [size(own)].

    The other parameters of ``stacked`` must be zero, and training leaves them exactly zero: a hidden unit without
    weights is 0 (every activation maps 0 to 0), so the gradient of its outgoing weights is 0; its outgoing weights are
    0, so that of its incoming weights is 0; and Adam moves a parameter whose gradients were all 0 by 0 / (0 + eps).
    With layer norm that holds if ``envolve.envs.nets.networks.forward`` is told each member's own width.

    Raises ValueError if it does not fit.
    """
    if len(own) != len(stacked):
        raise ValueError(f"{len(own)} nets do not fit into {len(stacked)}")
    offsets = np.cumsum([0] + [net.size for net in stacked]).tolist()
    return torch.cat([_net_embedding(a, b) + offset for a, b, offset in zip(own, stacked, offsets)])


def _net_embedding(own: MLPShape, stacked: MLPShape) -> Tensor:
    depths = max(1, own.layers), max(1, stacked.layers)
    if replace(own, layers=depths[0], hidden=stacked.hidden) != replace(stacked, layers=depths[1]):
        raise ValueError(f"{own} and {stacked} differ in more than their hidden units")
    if own.hidden > stacked.hidden:
        raise ValueError(f"{own} does not fit into {stacked}")
    parts = []
    for (_, k, m), (offset, big_k, big_m) in zip(own.layer_offsets(), stacked.layer_offsets()):
        weights = offset + torch.arange(k)[:, None] * big_m + torch.arange(m)
        parts += [weights.flatten(), offset + big_k * big_m + torch.arange(m)]
    if own.norm_slots:
        parts += [stacked.norm_offset + torch.arange(own.hidden)]
        parts += [stacked.norm_offset + stacked.hidden + torch.arange(own.hidden)]
    parts.append(torch.arange(stacked.size - stacked.slope_slots, stacked.size))
    return torch.cat(parts)


def stack(flats: Tensor, agents: Sequence[Nets], stacked: Nets) -> Tensor:
    """Pads flat parameters with units that stay zero. flats: [P, >= D_i], each row the nets ``agents[i]`` -> [P,
    size(stacked)]."""
    out = flats.new_zeros(len(agents), size(stacked))
    for nets in set(agents):
        rows = torch.tensor([i for i, other in enumerate(agents) if other == nets], device=flats.device)
        out[rows[:, None], embedding(nets, stacked).to(flats.device)] = flats[rows, : size(nets)]
    return out


def unstack(params: Tensor, agents: Sequence[Nets], stacked: Nets, width: int) -> Tensor:
    """Inverse of ``stack``: [P, size(stacked)] -> [P, width], each member in its own layout, padded with zeros."""
    out = params.new_zeros(len(agents), width)
    for nets in set(agents):
        rows = torch.tensor([i for i, other in enumerate(agents) if other == nets], device=params.device)
        out[rows, : size(nets)] = params[rows[:, None], embedding(nets, stacked).to(params.device)]
    return out


def adam(
    params: Tensor, grad: Tensor, m: Tensor, v: Tensor, update: Tensor, lr: Tensor, epsilon: float = EPSILON
) -> None:
    """One Adam step (Kingma & Ba 2015, https://arxiv.org/abs/1412.6980) in place; params, grad, m, v: float32 [P, D].

    update: int64 [P], the number of this update, from 1; lr: float64 [P]. Members count updates apart from each other,
    which is why torch's own (fused) Adam does not do: it has one step count per tensor.
    """
    update = update.double()  # as int64 it would give float32 powers, and 1 - 0.999^u would lose four digits
    step = (lr / (1 - BETA1**update)).to(params.dtype)[:, None]
    scale = (1 - BETA2**update).rsqrt().to(params.dtype)[:, None]
    m.lerp_(grad, 1 - BETA1)
    v.mul_(BETA2).addcmul_(grad, grad, value=1 - BETA2)
    # theta -= lr m^ / (sqrt(v^) + eps) with m^ = m / (1 - beta1^u), v^ = v / (1 - beta2^u)
    params.sub_((m * step).div_(v.sqrt().mul_(scale).add_(epsilon)))
