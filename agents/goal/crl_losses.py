"""Contrastive losses over logits L[i, j], state-action i with goal j; the diagonal holds the positives.

Every loss takes logits [P, B, B] and returns one number per member, [P]. lse is log-sum-exp; ``rows`` sums over the
goals j of a state-action, ``columns`` over the state-actions i of a goal.
"""

from __future__ import annotations

from typing import Callable, Dict, Tuple

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid, softplus

from envolve.core.registry import Registry

RESUBSTITUTION = 100.0  # what no_resubs takes off the diagonal inside a log-sum-exp


class Contrast:
    """Logits with the quantities that the losses need."""

    def __init__(self, logits: Tensor, no_resubs: bool) -> None:
        self.logits, self.B = logits, logits.shape[1]
        self.eye = torch.eye(self.B, dtype=logits.dtype, device=logits.device)
        self.positive = logits.diagonal(dim1=1, dim2=2)  # L_ii, [P, B]
        self.summed = logits - RESUBSTITUTION * self.eye if no_resubs else logits  # what a log-sum-exp runs over

    def rows(self) -> Tensor:
        """Log-sum-exp of each row, lse_j L_ij, [P, B]."""
        return self.summed.logsumexp(2)

    def columns(self) -> Tensor:
        """Log-sum-exp of each column, lse_i L_ij, [P, B]."""
        return self.summed.logsumexp(1)


def infonce(c: Contrast) -> Tensor:
    """InfoNCE over goals: -mean_i (L_ii - lse_j L_ij)."""
    return (c.rows() - c.positive).mean(1)


def infonce_backward(c: Contrast) -> Tensor:
    """InfoNCE over state-actions: -mean_j (L_jj - lse_i L_ij)."""
    return (c.columns() - c.positive).mean(1)


def symmetric_infonce(c: Contrast) -> Tensor:
    return infonce(c) + infonce_backward(c)


def binary(c: Contrast) -> Tensor:
    """Mean cross entropy of sigmoid(L) with the identity: softplus(L) - L on the diagonal, softplus(L) off it."""
    return (softplus(c.logits).sum((1, 2)) - c.positive.sum(1)) / c.B**2


def _flat(lse: Tensor, positive: Tensor) -> Tensor:
    """mean_i exp(c_i - stopgrad(c_i)), c_i = lse_j (L_ij - L_ii): always 1, its gradient is that of c."""
    c = lse - positive
    return (c - c.detach()).exp().mean(1)


def flatnce(c: Contrast) -> Tensor:
    """FlatNCE, https://arxiv.org/abs/2107.01152."""
    return _flat(c.rows(), c.positive)


def flatnce_backward(c: Contrast) -> Tensor:
    return _flat(c.columns(), c.positive)


def fb(c: Contrast) -> Tensor:
    """Forward-backward (https://arxiv.org/abs/2103.07945): mean_i (-L_ii + sum_{j != i} L_ij^2 / (2 (B - 1)))."""
    off = c.logits * (1 - c.eye)
    return (off.square().sum(2) / (2 * (c.B - 1)) - c.positive).mean(1)


def dpo(c: Contrast) -> Tensor:
    """-mean_ij log sigmoid(L_ii - L_ij), after https://arxiv.org/abs/2305.18290."""
    return -logsigmoid(c.positive[:, :, None] - c.logits).mean((1, 2))


def ipo(c: Contrast) -> Tensor:
    """mean_ij (L_ii - L_ij - 1)^2, after https://arxiv.org/abs/2310.12036."""
    return (c.positive[:, :, None] - c.logits - 1).square().mean((1, 2))


def sppo(c: Contrast) -> Tensor:
    """mean_ij w_ij (L_ij - t_ij)^2 with t = 1, w = B on the diagonal and t = -1, w = 1 off it, after
    https://arxiv.org/abs/2405.00675."""
    target, weight = 2 * c.eye - 1, 1 + (c.B - 1) * c.eye
    return (weight * (c.logits - target).square()).mean((1, 2))


Loss = Callable[[Contrast], Tensor]
LOSSES: Registry[Loss] = Registry("contrastive_loss_fn", {  # JaxGCRL's names, then those of newer versions
    "infonce": infonce, "infonce_backward": infonce_backward, "symmetric_infonce": symmetric_infonce, "binary": binary,
    "flatnce": flatnce, "flatnce_backward": flatnce_backward, "fb": fb, "dpo": dpo, "ipo": ipo, "sppo": sppo,
    "fwd_infonce": infonce, "bwd_infonce": infonce_backward, "sym_infonce": symmetric_infonce, "binary_nce": binary,
    "dp": dpo,  # its name in an example of JaxGCRL
})  # fmt: skip
LOSS_NAMES: Tuple[str, ...] = tuple(LOSSES)


def loss_named(name: str) -> Loss:
    """Loss function called ``name``. Raises ValueError with the nearest valid name."""
    return LOSSES.find(name)


def logsumexp_penalty(c: Contrast) -> Tensor:
    """Log-sum-exp penalty mean_i (lse_j L_ij + 1e-6)^2, over rows for every loss."""
    return (c.rows() + 1e-6).square().mean(1)


def representation_penalty(x: Tensor, y: Tensor) -> Tensor:
    """L2 penalty mean phi^2 + mean psi^2; x, y: [P, B, R]."""
    return x.square().mean((1, 2)) + y.square().mean((1, 2))


def diagnostics(c: Contrast) -> Dict[str, Tensor]:
    """Metrics, [P] each: share of rows in which the own goal has the largest logit, mean logits on and off the
    diagonal, lse."""
    own = c.positive.mean(1)
    return {
        "categorical_accuracy": (c.logits.argmax(2) == torch.arange(c.B, device=own.device)).to(own.dtype).mean(1),
        "logits_pos": own,
        "logits_neg": (c.logits.sum((1, 2)) - c.positive.sum(1)) / (c.B * (c.B - 1)),
        "logsumexp": c.rows().mean(1),
    }
