"""Conversion between a world's flat vector and named tensors, with the names and shapes of the original project's model
files.

``env.state_net.0.weight`` is the first linear layer's weight [out, in] of an SE's state_net; an activation module sits
between two linear layers, so these are numbered 0, 2, 4, ... A PReLU net has one slope, ``env.<net>.1.weight`` [1].
A weighted info vector (RN types 101, 102) is one tensor, ``env.reward_net`` [info_dim]; so is a bandit's table of
states, ``env.contexts`` [K, F].
"""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Set, Tuple

import torch
from torch import Tensor

from envolve.envs.nets.networks import LinearShape, MLPShape, TableShape
from envolve.envs.section import EnvSection
from envolve.envs.task import Task
from envolve.envs.worlds.world import world_nets, world_size

# One entry per tensor: name, shape, offset in the flat vector, and whether the flat vector holds its transpose.
Entry = Tuple[str, Tuple[int, ...], int, bool]


def _entries(net: str, shape: MLPShape, offset: int, stride: int) -> List[Entry]:
    """Tensors of one net. Linear layers after the first are ``stride`` modules apart."""
    if isinstance(shape, TableShape):
        return [(f"env.{net}", (shape.inputs, shape.outputs), offset, False)]
    if isinstance(shape, LinearShape):
        return [(f"env.{net}", (shape.size,), offset, False)]
    out: List[Entry] = []
    for i, (start, k, m) in enumerate(shape.layer_offsets()):
        module = f"env.{net}.{0 if i == 0 else 2 + stride * (i - 1)}"
        out.append((f"{module}.weight", (m, k), offset + start, True))
        out.append((f"{module}.bias", (m,), offset + start + k * m, False))
    if shape.slope_slots:
        out.append((f"env.{net}.1.weight", (1,), offset + shape.size - 1, False))
    return out


def _layout(kind: str, task: Task, section: EnvSection, stride: int) -> List[Entry]:
    out: List[Entry] = []
    offset = 0
    for net, shape in world_nets(kind, task, section):
        out.extend(_entries(net, shape, offset, stride))
        offset += shape.size
    return out


def world_state_dict(kind: str, task: Task, section: EnvSection, flat: Tensor) -> Dict[str, Tensor]:
    """flat: float32 [D] -> named tensors, each a contiguous copy."""
    out = {}
    for name, shape, start, transposed in _layout(kind, task, section, stride=2):
        block = flat[start : start + torch.Size(shape).numel()]
        out[name] = (block.view(shape[1], shape[0]).t() if transposed else block.view(shape)).contiguous().clone()
    return out


def _shared_slopes(kind: str, task: Task, section: EnvSection, state: Mapping[str, Any]) -> Set[str]:
    """Duplicate names of PReLU slopes in the original's files: its nets share one activation module between layers."""
    out: Set[str] = set()
    for net, shape in world_nets(kind, task, section):
        slope = state.get(f"env.{net}.1.weight")
        for i in range(2, max(1, shape.layers) + 1) if shape.slope_slots else ():
            name = f"env.{net}.{3 * i - 2}.weight"
            copy = state.get(name)
            if isinstance(copy, Tensor) and isinstance(slope, Tensor) and torch.equal(copy, slope):
                out.add(name)
    return out


def flat_from_state_dict(kind: str, task: Task, section: EnvSection, state: Mapping[str, Any]) -> Tensor:
    """Inverse of ``world_state_dict``: named tensors -> float32 [D]. Files of the original load too; with more than one
    hidden layer these count a normalisation module before each activation (0, 2, 5, 8, ...).

    Raises ValueError with the key, what was found and what was expected.
    """
    layout = _layout(kind, task, section, stride=2)
    original, shared = _layout(kind, task, section, stride=3), _shared_slopes(kind, task, section, state)
    if set(state) - shared == {name for name, _, _, _ in original}:
        layout = original
    else:
        shared = set()
    names = [name for name, _, _, _ in layout]
    for name in names:
        if name not in state:
            raise ValueError(f"key {name!r} is missing; expected keys: {', '.join(names)}")
    for name in state:
        if name not in names and name not in shared:
            raise ValueError(f"key {name!r} is not expected; expected keys: {', '.join(names)}")
    flat = torch.empty(world_size(kind, task, section))
    for name, shape, start, transposed in layout:
        value = state[name]
        if not isinstance(value, Tensor):
            raise ValueError(f"key {name!r}: found {type(value).__name__}, expected a tensor of shape {list(shape)}")
        if value.dtype != torch.float32 or tuple(value.shape) != shape:
            found = f"{str(value.dtype)[6:]} of shape {list(value.shape)}"
            raise ValueError(f"key {name!r}: found {found}, expected float32 of shape {list(shape)}")
        if value.layout != torch.strided or value.device.type != "cpu":
            found = f"a {value.layout} tensor on {value.device}"
            raise ValueError(f"key {name!r}: found {found}, expected a dense one on cpu")
        block = value.detach().t() if transposed else value.detach()
        flat[start : start + value.numel()] = block.reshape(-1)
    return flat
