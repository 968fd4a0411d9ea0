"""Limits of the messages to a serving hub: the arguments of every call with types and bounds, and so the size of the
largest message. A caller with the token may still be wrong, outdated or broken; it gets a one-line error.

Axes: P members, D parameters of a policy, T steps of a turn, W columns of a transition, E episodes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from envolve.core.files import MIB
from envolve.distributed.engine.wire import MOST_HEAD, WireError
from envolve.distributed.memory.rows import RANDOM, Chunk

MOST_WAIT = 60.0  # s that a call may ask the hub to wait
CALLS = {  # method of the hub -> its arguments
    "begin": ("session", "version"), "publish": ("session", "version", "policy", "timeout"),
    "ready": ("session", "version", "timeout"), "has": ("version",), "sample": ("first", "count"), "checkpoint": (),
    "finish": (), "progress": (), "pull": ("worker", "timeout"), "append": ("chunk",),
}  # fmt: skip


@dataclass(frozen=True)
class Limits:
    """Limits of one run."""

    workers: int
    iterations: int
    members: int  # P
    policy: int  # D
    row: int  # W
    steps: int  # T, the most of a turn
    batches: int  # that may be asked for at once

    @property
    def message_bytes(self) -> int:
        """Size of the largest legal message, a policy or a chunk of rows, in bytes."""
        chunk = self.members * self.steps * (self.row + 2)  # at most every step ends an episode
        return 4 * max(self.members * self.policy, chunk) + MOST_HEAD + MIB

    def check(self, method: str, arguments: Any) -> list[Any]:
        """Checks the arguments of a call. Raises WireError."""
        names = CALLS[method]
        if type(arguments) is not list or len(arguments) != len(names):
            count = len(arguments) if type(arguments) is list else type(arguments).__name__
            raise WireError(f"found {count} arguments, expected {', '.join(names) or 'none'}")
        for name, value in zip(names, arguments):
            self._check(name, value)
        return arguments

    def _check(self, name: str, value: Any) -> None:
        if name == "policy":
            self._numbers(name, value, (self.members, self.policy))
        elif name == "chunk":
            if type(value) is not Chunk:
                raise WireError(f"chunk: found {type(value).__name__}, expected Chunk")
            for part in ("session", "version", "worker", "ticket"):
                self._check(part, getattr(value, part))
            self._numbers("rows", value.rows, (self.members, (1, self.steps), self.row))
            self._numbers("episodes", value.episodes, ((0, self.members * self.steps), 2))
        elif name == "timeout":
            if type(value) not in (int, float) or not 0 <= value <= MOST_WAIT:
                raise WireError(f"timeout: found {_short(value)}, expected 0 to {MOST_WAIT:g} s")
        else:
            least, most = self._range(name)
            if type(value) is not int or not least <= value <= most:
                raise WireError(f"{name}: found {_short(value)}, expected an integer from {least} to {most}")

    def _range(self, name: str) -> tuple[int, int]:
        return {
            "session": (0, 2**31), "version": (RANDOM, self.iterations), "worker": (0, self.workers - 1),
            "ticket": (0, 2**62), "first": (0, 2**53), "count": (1, self.batches),
        }[name]  # fmt: skip

    @staticmethod
    def _numbers(name: str, value: Any, shape: tuple[Any, ...]) -> None:
        """Checks for a tensor of finite numbers with this shape; (least, most) stands for a range."""
        if type(value) is not Tensor or value.dtype != torch.float32:
            raise WireError(f"{name}: found {_short(value)}, expected a float32 tensor")
        spans = [n if type(n) is tuple else (n, n) for n in shape]
        found = list(value.shape)
        if len(found) != len(spans) or not all(a <= n <= b for n, (a, b) in zip(found, spans)):
            words = ", ".join(str(a) if a == b else f"{a} to {b}" for a, b in spans)
            raise WireError(f"{name}: found torch.float32 {found}, expected torch.float32 [{words}]")
        if not math.isfinite(float(value.sum())) and not bool(torch.isfinite(value).all()):
            raise WireError(f"{name}: found NaN or infinite numbers, expected finite ones")


def _short(value: Any) -> str:
    """Shortens foreign text to one line."""
    if type(value) is int and abs(value) >= 2**64:
        return "a larger integer"
    return repr(value)[:80] if type(value) in (bool, int, float, type(None)) else type(value).__name__
