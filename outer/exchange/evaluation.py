"""One chunk in a worker, from its content to its result, whatever its members do. Python 3.8."""

from __future__ import annotations

import logging
import time
import traceback
from typing import Any, Callable, Dict

import torch
from torch import Tensor

from envolve.core.cleaning import printable_traceback
from envolve.core.memory import shortage
from envolve.core.plugins import PluginError
from envolve.outer.exchange.messages import PLUGINS, Chunk, ChunkResult, result_of

log = logging.getLogger("envolve")

Evaluate = Callable[[Dict[str, Any], Tensor, Tensor, str, int], Dict[str, Any]]


class ChunkEvaluation:
    """Evaluates chunks with ``evaluate``; an exception becomes the result. ``name``: of the worker, for its log."""

    def __init__(self, evaluate: Evaluate, name: str) -> None:
        self.function, self._name = evaluate, name
        self._threads = 0

    def __call__(self, chunk: Chunk, sha256: str) -> ChunkResult:
        begin = time.perf_counter()
        try:
            threads = threads_of(chunk.config)
            if threads != self._threads:
                torch.set_num_threads(threads)
                self._threads = threads
            returned = self.function(chunk.config, chunk.worlds, chunk.seeds, chunk.mode, threads)
            result = result_of(chunk, sha256, returned)
        except PluginError as e:  # this worker may not execute the user's own code, or has another version of it
            log.error("%s: %s: %s", self._name, chunk.label, e)
            return ChunkResult.failed(chunk, sha256, f"{PLUGINS}{e}")
        except Exception as e:  # whatever a member does must not end the worker
            short = shortage(e)
            if short:
                log.error("%s: %s: %s", self._name, chunk.label, short)
                return ChunkResult.failed(chunk, sha256, short)
            log.error("%s: %s failed\n%s", self._name, chunk.label, printable_traceback())
            frame = traceback.extract_tb(e.__traceback__)[-1]
            text = f"{type(e).__name__}: {e} ({frame.filename}:{frame.lineno})"
            return ChunkResult.failed(chunk, sha256, text)
        log.debug("%s: %s took %.3f s", self._name, chunk.label, time.perf_counter() - begin)
        return result


def threads_of(config: Dict[str, Any]) -> int:
    """Value of ``agents.gtn.num_threads_per_worker``, 1 if the configuration does not have it."""
    gtn = config.get("agents", {}).get("gtn", {})
    threads = gtn.get("num_threads_per_worker", 1)
    if type(threads) is not int or not 1 <= threads <= 1024:
        raise ValueError(f"agents.gtn.num_threads_per_worker is {threads!r}, expected a number from 1 to 1024")
    return threads
