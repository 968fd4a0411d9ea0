"""Contrastive losses and their gradients by the logits; twin of ``agents/goal/crl_losses.py``, whose docstrings have
the formulas.

A loss weights the gradients of log-sum-exps, or is a sum over single logits. Training needs its gradient alone: values
are computed where they are asked for.
"""

from __future__ import annotations

import math

from numba import njit

from envolve.agents.goal.crl_losses import LOSSES
from envolve.agents.kernels import JIT_UNCOUNTED
from envolve.agents.kernels.dense.activation import F4, I8, ONE, ZERO
from envolve.agents.kernels.dense.gemm import out_of_line
from envolve.agents.kernels.dense.vector import exp, larger
from envolve.agents.kernels.goal.crl_energy import LANES, TWO

ROWS, COLUMNS, BOTH, FLAT_ROWS, FLAT_COLUMNS, BINARY, FB, DPO, IPO, SPPO = (I8(i) for i in range(10))
CODES = {
    "infonce": ROWS, "infonce_backward": COLUMNS, "symmetric_infonce": BOTH, "flatnce": FLAT_ROWS,
    "flatnce_backward": FLAT_COLUMNS, "binary": BINARY, "fb": FB, "dpo": DPO, "ipo": IPO, "sppo": SPPO,
}  # fmt: skip
TAKEN_OFF = F4(100.0)  # agents.goal.crl_losses.RESUBSTITUTION
PENALTY_EPSILON = F4(1e-6)


def loss_code(name: str) -> int:
    """Code of a contrastive loss by any accepted name."""
    return next(code for known, code in CODES.items() if LOSSES[known] is LOSSES[name])


@njit(**JIT_UNCOUNTED)
def _rows(c, weight, penalty):
    """Writes each row's log-sum-exp into row[1]; d <- the gradient of weight lse + penalty (lse + 1e-6)^2, its mean."""
    out_of_line()
    B, z, d, lanes = c.B, c.logits, c.d, c.lanes
    for i in range(B):
        lanes[:] = z[i, 0]
        for first in range(0, B - LANES + 1, LANES):  # what is left over is less than LANES, and done after this
            for k in range(LANES):
                lanes[k] = larger(lanes[k], z[i, first + k])
        largest = lanes[0]
        for k in range(1, LANES):
            largest = larger(largest, lanes[k])
        for j in range(B - B % LANES, B):
            largest = larger(largest, z[i, j])
        total = ZERO
        for j in range(B):
            d[i, j] = exp(z[i, j] - largest)
            total += d[i, j]
        lse = largest + math.log(total)
        c.row[1, i] = lse
        factor = (weight + TWO * penalty * (lse + PENALTY_EPSILON)) / (F4(B) * total)
        for j in range(B):
            d[i, j] *= factor


@njit(**JIT_UNCOUNTED)
def _columns(c, weight):
    """Finds each column's largest logit and sum of exponentials; d += the gradient of weight lse, its mean."""
    out_of_line()
    B, z, d, e, largest, total = c.B, c.logits, c.d, c.e, c.column[0], c.column[1]
    for j in range(B):
        largest[j], total[j] = z[0, j], ZERO
    for i in range(1, B):
        for j in range(B):
            largest[j] = larger(largest[j], z[i, j])
    for i in range(B):
        for j in range(B):
            e[i, j] = exp(z[i, j] - largest[j])
            total[j] += e[i, j]
    factor = c.sums[1]
    for j in range(B):
        factor[j] = weight / (F4(B) * total[j])
    for i in range(B):
        for j in range(B):
            d[i, j] += factor[j] * e[i, j]


@njit(**JIT_UNCOUNTED)
def _single_logits(c):
    """d += the gradient of the losses that are sums over single logits, or over one and its row's own."""
    out_of_line()
    B, z, d = c.B, c.logits, c.d
    share = ONE / (F4(B) * F4(B))
    for i in range(B):
        own, back = z[i, i], ZERO
        if c.loss == BINARY:
            for j in range(B):
                d[i, j] += share / (ONE + exp(-z[i, j]))
            back = share
        elif c.loss == FB:
            weight = ONE / (F4(B) * F4(B - 1))
            for j in range(B):
                d[i, j] += weight * z[i, j]
            back = ONE / F4(B) + weight * own
        elif c.loss == DPO:
            for j in range(B):
                by = share / (ONE + exp(own - z[i, j]))
                d[i, j] += by
                back += by
        elif c.loss == IPO:
            for j in range(B):
                by = TWO * share * (z[i, j] + ONE - own)
                d[i, j] += by
                back += by
        else:  # SPPO: off the diagonal 2 (L + 1), on it 2 B (L - 1)
            for j in range(B):
                d[i, j] += TWO * share * (z[i, j] + ONE)
            back = TWO * share * (own + ONE - F4(B) * (own - ONE))
        d[i, i] -= back


@njit(**JIT_UNCOUNTED)
def logit_gradient(c, penalty, measured):
    """d <- gradient of the loss and of penalty mean_i (lse_j + 1e-6)^2 by the logits. measured: also fill ``row``."""
    out_of_line()
    B, d = c.B, c.d
    by_rows = c.loss == ROWS or c.loss == BOTH or c.loss == FLAT_ROWS
    by_columns = c.loss == COLUMNS or c.loss == BOTH or c.loss == FLAT_COLUMNS
    if c.no_resubs:
        for i in range(B):
            c.logits[i, i] -= TAKEN_OFF
    if by_rows or penalty != ZERO or measured:
        _rows(c, ONE if by_rows else ZERO, penalty)
    else:
        d[:] = ZERO
    if by_columns:
        _columns(c, ONE)
    if c.no_resubs:
        for i in range(B):
            c.logits[i, i] = c.own[i]
    if by_rows or by_columns:
        own = (ONE if by_rows else ZERO) + (ONE if by_columns else ZERO)
        for i in range(B):
            d[i, i] -= own / F4(B)
    else:
        _single_logits(c)


@njit(**JIT_UNCOUNTED)
def measure(c, penalty, values):
    """values[:5] <- the loss with the penalty of log-sum-exps, how often the own goal has the largest logit of its row,
    mean logits on and off the diagonal, mean log-sum-exp of rows. After ``logit_gradient``, before the gradient by
    representations, with ``measured``."""
    out_of_line()
    B, z, loss, penalties, best, on, whole, lses = c.B, c.logits, 0.0, 0.0, 0, 0.0, 0.0, 0.0
    for i in range(B):
        own, lse, largest = c.own[i], c.row[1, i], True
        on += own
        lses += lse
        penalties += (lse + PENALTY_EPSILON) * (lse + PENALTY_EPSILON)
        if c.loss == ROWS or c.loss == BOTH:
            loss += (lse - own) / B
        if c.loss == COLUMNS or c.loss == BOTH:
            loss += (c.column[0, i] + math.log(c.column[1, i]) - own) / B
        if c.loss == FLAT_ROWS or c.loss == FLAT_COLUMNS:
            loss += 1.0 / B
        for j in range(B):
            value = z[i, j]
            whole += value
            largest = largest and not (value > own or (value == own and j < i))
            if c.loss == BINARY:
                loss += softplus(value) / (B * B)
            elif c.loss == FB:
                loss += value * value / (2.0 * B * (B - 1)) if j != i else 0.0
            elif c.loss == DPO:
                loss += softplus(value - own) / (B * B)
            elif c.loss == IPO:
                loss += (own - value - 1.0) ** 2 / (B * B)
            elif c.loss == SPPO:
                loss += ((value + 1.0) ** 2 if j != i else B * (value - 1.0) ** 2) / (B * B)
        if c.loss == BINARY:
            loss -= own / (B * B)
        elif c.loss == FB:
            loss -= own / B
        best += 1 if largest else 0
    values[0] = loss + penalty * penalties / B
    values[1], values[2], values[3], values[4] = best / B, on / B, (whole - on) / (B * (B - 1.0)), lses / B


@njit(**JIT_UNCOUNTED)
def softplus(x):
    """log(1 + e^x) of one number."""
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))
