"""Replays a step as a CUDA graph: one launch instead of about eighty.

The step must be capturable: it writes its state in place, reads nothing back and takes no branch on a tensor's value.
Then the same code runs eagerly on a CPU and captured on a GPU. See https://pytorch.org/docs/stable/notes/cuda.html.
"""

from __future__ import annotations

import gc
from typing import Any, Callable, Dict, Hashable, Tuple

import torch
from torch import Tensor

EAGER_CALLS = 3  # before a capture: libraries allocate their workspaces in the first calls


class Graphs:
    """Calls ``step(variant, *inputs)``; if enabled, through one captured graph per variant."""

    def __init__(self, step: Callable[..., Tuple[Tensor, ...]], enabled: bool) -> None:
        """step: function of a hashable variant and tensors; only the variant may decide which operations it runs."""
        self.step, self.enabled = step, enabled
        self.captured: Dict[Hashable, Tuple[Any, Tuple[Tensor, ...], Tuple[Tensor, ...]]] = {}
        self.calls: Dict[Hashable, int] = {}

    def forget(self) -> None:
        """Discards all captured graphs, because state tensors have moved."""
        self.captured.clear()
        self.calls.clear()

    def __call__(self, variant: Hashable, *inputs: Tensor) -> Tuple[Tensor, ...]:
        if not self.enabled:
            return self.step(variant, *inputs)
        if variant not in self.captured:
            self.calls[variant] = self.calls.get(variant, 0) + 1
            if self.calls[variant] <= EAGER_CALLS:
                return self._on_side_stream(variant, inputs)
            self._capture(variant, inputs)
        graph, static, outputs = self.captured[variant]
        for buffer, value in zip(static, inputs):
            buffer.copy_(value)
        graph.replay()
        return outputs

    def _on_side_stream(self, variant: Hashable, inputs: Tuple[Tensor, ...]) -> Tuple[Tensor, ...]:
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            outputs = self.step(variant, *inputs)
        torch.cuda.current_stream().wait_stream(stream)
        return outputs

    def _capture(self, variant: Hashable, inputs: Tuple[Tensor, ...]) -> None:
        """Captures the step without running it."""
        static = tuple(value.clone() for value in inputs)
        graph = torch.cuda.CUDAGraph()
        # An older graph that the garbage collector finds now would be destroyed, which CUDA does not permit in between.
        collects = gc.isenabled()
        gc.disable()
        try:
            with torch.cuda.graph(graph):
                outputs = self.step(variant, *static)
        finally:
            if collects:
                gc.enable()
        self.captured[variant] = (graph, static, outputs)
