"""The server of ``llm/vetting/jail/jailed.py`` with nothing but the jail: code is run as it is, with all of Python's
builtins. What it returns goes to the master, so that a test sees whether a secret is in it.

With ENVOLVE_TEST_UNLOCKED in its environment not even the jail: to see that the tests would notice."""

from __future__ import annotations

import math
import os
import sys
from typing import Any

import torch

import envolve.llm.vetting.trace.tracer
from envolve.llm.vetting.jail import jailed, landlock
from envolve.llm.vetting.jail import locks as jail

GRAPH = {
    "inputs": ["progress"], "nodes": [{"op": "aten.mul.Tensor", "args": [{"in": 0}, 0.25]}], "outputs": [{"node": 0}],
    "names": ["total"],
}  # fmt: skip


def run_as_it_is(code: str, types: list[str], probe: Any) -> dict[str, Any]:
    namespace: dict[str, Any] = {"torch": torch, "math": math, "F": torch.nn.functional}
    exec(compile(code, "<candidate>", "exec"), namespace)
    out = namespace["compute_reward"]({name: part.clone() for name, part in probe.state.items()})
    return {"functions": {"compute_reward": GRAPH}, "action_size": None, "literal_names": [], "out": repr(out)}


if __name__ == "__main__":
    if "ENVOLVE_TEST_UNLOCKED" in os.environ:
        jail.lock_tracing = lambda *_: jail.Protection(0, False)
        landlock.restrict = lambda *_: 0
    envolve.llm.vetting.trace.tracer.trace_candidate = run_as_it_is
    sys.exit(jailed.main())
