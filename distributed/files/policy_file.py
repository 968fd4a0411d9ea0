"""``policy_checkpoint_<step>.pt``: a greedy policy alone, plain values and tensors, read without executing anything.

A dictionary written by ``torch.save``: format, algorithm, actor (float32 [P, D], layout of ``envs/nets/networks.py``),
inputs, outputs, hidden, layers, low and high (bounds of each action), step (gradient steps of its training). A policy
of CRL, whose inputs are an observation and then a goal, has the layout of ``agents/goal/crl_networks.py``, and skip.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from envolve.agents.goal.crl_networks import TrunkShape
from envolve.agents.goal.crl_networks import forward as trunk_forward
from envolve.core.files import TORCH_BYTES, read_plain
from envolve.core.torch_file import TorchFileError, read_torch
from envolve.distributed.memory.rows import scaled
from envolve.envs.nets.networks import MLPShape, forward
from envolve.envs.worlds.file import write_atomic
from envolve.outer.checkpoint import CheckpointError

FORMAT = "envolve-policy-1"
KINDS: dict[str, Any] = {
    "format": str, "algorithm": str, "actor": Tensor, "inputs": int, "outputs": int, "hidden": int, "layers": int,
    "activation": str, "low": Tensor, "high": Tensor, "step": int,
}  # fmt: skip
CRL_KINDS: dict[str, Any] = {**KINDS, "skip": int}
ACTIVATIONS = {"SAC": ("relu",), "TD3": ("relu",), "CRL": ("relu", "swish")}
Policy = Callable[[np.ndarray], np.ndarray]


def checkpoint_name(step: int) -> str:
    """Path without the ending .pt."""
    return f"policy_checkpoint_{step:010d}"


def actor_shape(content: Mapping[str, Any]) -> MLPShape | TrunkShape:
    """Outputs of the network per action: two for SAC and CRL (mean and deviation), else one."""
    outputs = content["outputs"] * (1 if content["algorithm"] == "TD3" else 2)
    sizes = content["inputs"], outputs, content["hidden"], content["layers"], content["activation"]
    return TrunkShape(*sizes, skip=content["skip"]) if content["algorithm"] == "CRL" else MLPShape(*sizes)


def save_policy(path: str | Path, content: Mapping[str, Any]) -> None:
    """Writes a policy. content: keys as in KINDS or CRL_KINDS, without the format. The bytes depend on it alone. Raises
    OSError."""
    buffer = io.BytesIO()
    torch.save({"format": FORMAT, **content}, buffer)
    write_atomic(str(path), buffer.getvalue())


def read_policy(path: str | Path) -> dict[str, Any]:
    """Reads and checks a policy written by ``save_policy``. path: with or without the ending .pt. Raises
    CheckpointError."""
    path = Path(path)
    path = path if path.suffix == ".pt" else path.with_name(path.name + ".pt")
    try:
        content = read_torch(read_plain(path, TORCH_BYTES))
        _check(content)
    except OSError as e:
        raise CheckpointError(f"{path}: found no policy there ({e.strerror})") from None
    except TorchFileError as e:
        raise CheckpointError(f"{path}: not a policy of this version ({e})") from None
    return content


def _check(content: Any) -> None:
    """Checks the content. Raises TorchFileError."""
    kinds = CRL_KINDS if type(content) is dict and content.get("algorithm") == "CRL" else KINDS
    if type(content) is not dict or set(content) != set(kinds) or content["format"] != FORMAT:
        raise TorchFileError(f"expected a dictionary of {', '.join(kinds)} and format {FORMAT}")
    for name, kind in kinds.items():
        value = content[name]
        if type(value) is not kind or (kind is int and not 0 <= value < 2**40):
            raise TorchFileError(f"{name}: found {type(value).__name__}, expected {kind.__name__}")
        if kind is Tensor and (value.dtype != torch.float32 or not value.is_contiguous()):
            raise TorchFileError(f"{name}: found {value.dtype}, expected contiguous torch.float32")
    if content["activation"] not in ACTIVATIONS.get(content["algorithm"], ()):
        found = f"{content['algorithm'][:40]} with {content['activation'][:40]}"
        raise TorchFileError(f"found {found}, expected SAC or TD3 with relu, or CRL with relu or swish")
    if min(content[name] for name in ("inputs", "outputs", "hidden", "layers")) < 1 or content["layers"] > 64:
        raise TorchFileError("found a network without inputs, outputs, hidden units or layers")
    actor, size = content["actor"], actor_shape(content).size
    if actor.ndim != 2 or actor.shape[1] != size or not len(actor):
        raise TorchFileError(f"actor: found the shape {list(actor.shape)}, expected [P, {size}]")
    for name in ("low", "high"):
        shape, A = list(content[name].shape), content["outputs"]
        if shape != [A]:
            raise TorchFileError(f"{name}: found the shape {shape}, expected [{A}]")


def greedy_policy(content: Mapping[str, Any], member: int = 0) -> Policy:
    """Actions float32 [N, A], within the environment's bounds, for obs float32 [N, F]."""
    shape, actor = actor_shape(content), content["actor"][member : member + 1].clone()
    low, high, A = content["low"].numpy(), content["high"].numpy(), content["outputs"]

    def act(obs: np.ndarray) -> np.ndarray:
        x = torch.as_tensor(np.asarray(obs, np.float32))
        with torch.no_grad():
            if isinstance(shape, TrunkShape):
                mean = torch.tanh(trunk_forward(shape, actor, x[None])[0, :, :A])
            else:
                mean = torch.tanh(forward(shape, actor, x.T[None])[0, :A]).T
        return scaled(mean.numpy(), low, high)

    return act


def load_policy(path: str | Path, member: int = 0) -> Policy:
    """Actions float32 [N, A] of one member, within the environment's bounds, for obs float32 [N, F]. Raises
    CheckpointError."""
    content = read_policy(path)
    if not 0 <= member < len(content["actor"]):
        raise CheckpointError(f"{path}: found {len(content['actor'])} members, expected number {member} among them")
    return greedy_policy(content, member)
