"""A learning rate that follows how far the policy moves (Rudin et al. 2022, https://arxiv.org/abs/2109.11978): down by
1.5 where it moved twice as far as desired, up by 1.5 where less than half.

How far is the estimate mean(rho - 1 - log rho) of KL(old policy || new), where rho is the ratio of their probabilities
of an action (Schulman, http://joschu.net/blog/kl-approx.html).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

RATE_STEP, RATE_MIN, RATE_MAX = 1.5, 1e-5, 1e-2


def adapted(rate: Any, divergence: Any, desired: float) -> Any:
    """Rate after the policy moved by ``divergence``: float64, tensors or arrays alike."""
    rate, divergence = torch.as_tensor(rate), torch.as_tensor(divergence)
    down, up = divergence > 2 * desired, divergence < desired / 2
    moved: Tensor = torch.where(down, rate / RATE_STEP, torch.where(up, rate * RATE_STEP, rate))
    return torch.where(down | up, moved.clamp(RATE_MIN, RATE_MAX), rate)
