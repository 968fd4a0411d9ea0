"""Off-policy updates compiled by torch.compile, 1.5 times as fast for small networks.

https://docs.pytorch.org/docs/stable/generated/torch.compile.html. It needs a C++ compiler. The first update takes about
ten seconds, and so does the first one after members have finished: from then on their number is a variable of the code.
``envolve.envs.nets.networks.forward`` has a form for compilation. On a GPU the whole step is a CUDA graph already.
"""

from __future__ import annotations

from typing import Any, Optional

import torch

from envolve.agents.off_policy.algorithm import Algorithm

BACKEND = "inductor"  # torch.compile's own, which makes C++ of what it traces


def why_not(name: str, off_policy: bool, device: str) -> Optional[str]:
    """Reason why learner ``name`` has no compiled updates, or None."""
    if not off_policy:
        return f"it compiles the updates of off-policy learners, and {name} is none"
    return None if device == "cpu" else f"it is for the CPU, and the device is {device}"


def update_of(algorithm: Algorithm) -> Any:
    """``algorithm.update``, compiled at its first call."""
    config: Any = torch._dynamo.config
    config.trace_autograd_ops = True  # updates call torch.autograd.grad
    # Every shape of network that a process ever trains is a version of the code, and beyond the limit it would raise.
    config.recompile_limit = config.accumulated_recompile_limit = 10_000
    return torch.compile(algorithm.update, fullgraph=True, backend=BACKEND)
