"""What a Ray worker does, without Ray: it says what it is, learns configurations, and evaluates chunks.

One object lives as long as its process, so torch and compiled kernels are loaded once. What the user's own files may do
here is said in ``core/plugins.py``: their bytes come with the worker's start, from the run's folder alone, and are
executed only if the configuration names their SHA-256.
"""

from __future__ import annotations

import os
import platform
import socket
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import envolve
from envolve.core import plugins
from envolve.outer.exchange.evaluation import ChunkEvaluation, Evaluate
from envolve.outer.exchange.pairs import pack, unpack
from envolve.outer.exchange.sources import sources
from envolve.outer.ray.codec import Drawn, NotDrawn, answer, drawing, work_of

CONFIGS, GROUNDS = 64, 2  # the latest that a worker keeps; its driver counts along, to know what to send
Versions = dict[str, str]


def setup(run_id: str, files: dict[str, bytes], **more: Any) -> bytes:
    """What a worker is started with. files: of the user's own, and descriptions of environments, by their name; more:
    plain values."""
    import torch

    held = {name: torch.frombuffer(bytearray(data), dtype=torch.uint8) for name, data in files.items() if data}
    return pack({"run_id": run_id, "files": held, **more})


class Evaluator:
    """Evaluates chunks in a process of Ray. ``load``: returns the evaluation; the default imports the learners."""

    def __init__(self, start: bytes, load: Callable[[], Evaluate] | None = None) -> None:
        self._start = content = unpack(start, "the start of a worker")
        self._name = f"{content['run_id']} at {socket.gethostname()}, pid {os.getpid()}"
        self._configs: OrderedDict[str, dict[str, Any]] = OrderedDict()
        self._grounds: OrderedDict[str, Drawn] = OrderedDict()
        self._load = load or _networks
        self._evaluation: ChunkEvaluation | None = None
        for data in content["files"].values():
            plugins.receive(data.numpy().tobytes())

    def hello(self) -> dict[str, str]:
        """Loads the evaluation -> versions, and where this is: "pid", "host", "nice"."""
        self._evaluation = ChunkEvaluation(self._load(), self._name)
        return {**versions(), "pid": str(os.getpid()), "host": socket.gethostname(), "nice": str(os.nice(0))}

    def learn(self, key: str, config: bytes) -> None:
        """Remembers a configuration, in the encoding of ``pack``, or how the worlds of a generation were drawn."""
        content = unpack(config, "a configuration")
        if "ground" in content:
            self._grounds[key] = drawing(content["ground"])
        else:
            self._configs[key] = content["config"]
        for known, most in ((self._configs, CONFIGS), (self._grounds, GROUNDS)):
            while len(known) > most:
                known.popitem(last=False)

    def evaluate(self, data: bytes) -> bytes:
        """-> an answer; b"" if the chunk's worlds are to be sent."""
        assert self._evaluation is not None, "hello() comes first"
        try:
            chunk = work_of(data, self._configs, self._grounds)
        except NotDrawn:
            return b""
        return answer(self._evaluation(chunk, ""))


def _networks() -> Evaluate:
    from envolve.outer.evaluate.networks import evaluate  # late: it imports the learners and their compiled kernels

    return evaluate


def versions(*more: str) -> Versions:
    """Versions on which the bytes of a result depend. more: rooms beside ``ROOMS`` whose code they depend on."""
    import numba
    import torch

    return {
        "Python": ".".join(platform.python_version_tuple()[:2]),
        "envolve": f"{envolve.__version__} ({sources(*more)})",
        "torch": torch.__version__.partition("+")[0],
        "numba": numba.__version__,
    }


def differences(mine: Versions, theirs: dict[str, str]) -> list[str]:
    """What another node has otherwise, in words."""
    return [f"{name} {theirs.get(name)} there and {mine[name]} here" for name in mine if theirs.get(name) != mine[name]]
