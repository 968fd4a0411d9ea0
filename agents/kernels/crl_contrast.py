"""Energies and contrastive losses with their gradients by the representations; twin of ``agents/crl_energy.py`` and
``agents/crl_losses.py``, whose docstrings have the formulas.

A loss is known by the weights that it gives to the gradients of log-sum-exps, or is a sum over single logits. Its value
is computed only where it is asked for: training needs the gradient alone.

Axes: B samples, L their padded number, R features of a representation; logits [B, L], state-action i with goal j.
"""

from __future__ import annotations

import math
from typing import NamedTuple, Optional

import numpy as np
from numba import njit

from agents.crl_losses import LOSSES
from agents.kernels import JIT_UNCOUNTED
from agents.kernels.activation import F4, I8, NIL, NONE, ONE, UNIT, ZERO
from agents.kernels.gemm import out_of_line, product, transpose
from agents.kernels.mlp import aligned
from agents.kernels.vector import exp, larger

DISTANCE, SQUARED, DOT, COSINE = I8(0), I8(1), I8(2), I8(3)
ENERGIES = {"l2": DISTANCE, "l2_no_sqrt": SQUARED, "dot": DOT, "cos": COSINE, "cosine": COSINE}
ROWS, COLUMNS, BOTH, FLAT_ROWS, FLAT_COLUMNS, BINARY, FB, DPO, IPO, SPPO = (I8(i) for i in range(10))
_CODES = {
    "infonce": ROWS, "infonce_backward": COLUMNS, "symmetric_infonce": BOTH, "flatnce": FLAT_ROWS,
    "flatnce_backward": FLAT_COLUMNS, "binary": BINARY, "fb": FB, "dpo": DPO, "ipo": IPO, "sppo": SPPO,
}  # fmt: skip
EPSILON = F4(1e-6)  # agents.crl_energy.EPSILON
NEAREST = -np.sqrt(EPSILON)  # the energy ``l2`` of a distance of 0
TAKEN_OFF = F4(100.0)  # agents.crl_losses.RESUBSTITUTION
PENALTY_EPSILON = F4(1e-6)
HALF, TWO = F4(0.5), F4(2)
LANES = 16


def no_twin(energy: str) -> Optional[str]:
    """The reason why there is nothing compiled for an energy (its canonical name), or None."""
    return None if energy in ENERGIES else f"the energy {energy} has no compiled twin, only {', '.join(ENERGIES)} have"


def loss_code(name: str) -> int:
    """Of any accepted name of a contrastive loss."""
    return next(code for known, code in _CODES.items() if LOSSES[known] is LOSSES[name])


class Contrast(NamedTuple):
    """What is compared how, and room for it."""

    energy: int
    loss: int
    no_resubs: bool
    scaled: bool  # whether there is a factor
    B: int
    R: int
    L: int
    f: np.ndarray  # [L, L], energies
    logits: np.ndarray  # [L, L], energies times the factor; the same array where nothing is learned about that
    d: np.ndarray  # [L, L], gradient by the logits, then by products of representations
    e: np.ndarray  # [L, L], exponentials, then ``d`` transposed
    u: np.ndarray  # [2, R, L], what products are taken of: both representations, moved or scaled
    norms: np.ndarray  # [2, L], squared lengths of both, or factors that make their length 1
    sums: np.ndarray  # [2, L], of ``d``, over rows and over columns
    own: np.ndarray  # [L], logits of the diagonal
    row: np.ndarray  # [2, L], largest logit and log-sum-exp of a row
    column: np.ndarray  # [2, L], largest logit of a column and its sum of exponentials
    lanes: np.ndarray  # [LANES]

    @classmethod
    def create(cls, energy: str, loss: str, no_resubs: bool, learns_scale: bool, B: int, R: int) -> Contrast:
        L = -(-B // 16) * 16
        f = aligned((L, L))
        logits = aligned((L, L)) if learns_scale else f
        return cls(
            ENERGIES[energy], loss_code(loss), no_resubs, learns_scale, B, R, L, f, logits, aligned((L, L)),
            aligned((L, L)), aligned((2, R, L)), aligned((2, L)), aligned((2, L)), aligned((L,)), aligned((2, L)),
            aligned((2, L)), aligned((LANES,)),
        )  # fmt: skip


@njit(**JIT_UNCOUNTED)
def compare(c, x, y, scale):
    """Fills f and logits = scale f, and what their gradient needs. x, y: [R, L]."""
    out_of_line()
    B, L, R, u, norms = c.B, c.L, c.R, c.u, c.norms
    norms[:] = ZERO
    for r in range(R):
        middle = ZERO
        if c.energy <= SQUARED:  # a common shift changes no distance, and leaves less to cancel
            for j in range(B):
                middle += y[r, j]
            middle /= F4(B)
        for j in range(L):
            u[0, r, j] = x[r, j] - middle
            u[1, r, j] = y[r, j] - middle
            norms[0, j] += u[0, r, j] * u[0, r, j]
            norms[1, j] += u[1, r, j] * u[1, r, j]
    if c.energy == COSINE:
        for k in range(2):
            for j in range(L):
                norms[k, j] = ONE / math.sqrt(norms[k, j] + EPSILON)
            for r in range(R):
                for j in range(L):
                    u[k, r, j] *= norms[k, j]
    product(u, NIL, UNIT, L, NONE, u[1], L, c.f, NIL, L, R, B, L)  # x_i . y_j
    f, logits, across = c.f, c.logits, norms[1]
    for i in range(B):
        length = norms[0, i]
        if c.energy == DISTANCE:
            for j in range(L):
                f[i, j] = -math.sqrt(max(length + across[j] - TWO * f[i, j], ZERO) + EPSILON)
        elif c.energy == SQUARED:
            for j in range(L):
                f[i, j] = -max(length + across[j] - TWO * f[i, j], ZERO)
        if c.scaled:
            for j in range(L):
                logits[i, j] = scale * f[i, j]
        c.own[i] = scale * f[i, i]


@njit(**JIT_UNCOUNTED)
def _rows(c, weight, penalty):
    """Of each row the log-sum-exp into row[1]; d <- the gradient of weight lse + penalty (lse + 1e-6)^2, its mean."""
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
    """Of each column the largest logit and the sum of exponentials; d += the gradient of weight lse, its mean."""
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
def compare_gradient(c, scale, dx, dy):
    """dx, dy [R, L] <- gradient by the representations that ``compare`` was given, of the loss whose gradient by the
    logits is d, which is overwritten. Returns that by the factor."""
    out_of_line()
    B, L, R, u, f, d, sums = c.B, c.L, c.R, c.u, c.f, c.d, c.sums
    by_scale, across = ZERO, sums[1]
    across[:] = ZERO
    for i in range(B):
        for j in range(B):
            by_scale += d[i, j] * f[i, j]
        if c.energy == DISTANCE:  # from here on d is the gradient by the squared distance
            for j in range(B):
                d[i, j] = HALF * scale * d[i, j] / f[i, j] if f[i, j] < NEAREST else ZERO
        elif c.energy == SQUARED:
            for j in range(B):
                d[i, j] = -scale * d[i, j] if f[i, j] < ZERO else ZERO
        else:
            for j in range(B):
                d[i, j] *= scale
        for j in range(B):
            across[j] += d[i, j]
    transpose(d, B, L, c.e, sums, NIL)
    product(u, R * L, L, UNIT, NONE, c.e, L, dx, NIL, L, B, R, L)  # sum_j d_ij y_j
    product(u, NIL, L, UNIT, NONE, d, L, dy, NIL, L, B, R, L)  # sum_i d_ij x_i
    if c.energy <= SQUARED:  # of d_ij |x_i - y_j|^2
        for r in range(R):
            for j in range(L):
                dx[r, j] = TWO * (u[0, r, j] * sums[0, j] - dx[r, j])
                dy[r, j] = TWO * (u[1, r, j] * across[j] - dy[r, j])
    elif c.energy == COSINE:
        _unit_gradient(c, u[0], c.norms[0], dx)
        _unit_gradient(c, u[1], c.norms[1], dy)
    for r in range(R):
        for j in range(B, L):
            dx[r, j] = ZERO
            dy[r, j] = ZERO
    return by_scale


@njit(**JIT_UNCOUNTED)
def _unit_gradient(c, unit, inverse, d):
    """d: gradient by x / |x| -> that by x, in place: (d - unit (unit . d)) / |x|."""
    along = c.sums[0]
    along[:] = ZERO
    for r in range(c.R):
        for j in range(c.L):
            along[j] += unit[r, j] * d[r, j]
    for r in range(c.R):
        for j in range(c.L):
            d[r, j] = (d[r, j] - unit[r, j] * along[j]) * inverse[j]


@njit(**JIT_UNCOUNTED)
def add_representation_penalty(c, x, weight, dx):
    """dx += gradient of weight mean x^2."""
    factor = TWO * weight / (F4(c.B) * F4(c.R))
    for r in range(c.R):
        for j in range(c.B):
            dx[r, j] += factor * x[r, j]


@njit(**JIT_UNCOUNTED)
def pairs(c, x, y, scale, bonus, like, dx):
    """like[L] <- scale f(x_i, y_i) + bonus |x_i|, what the actor is paid; dx[R, L] <- gradient of minus its mean."""
    out_of_line()
    B, L, R, f, length = c.B, c.L, c.R, c.sums[0], c.sums[1]
    share, inverse = ONE / F4(B), c.norms
    f[:], length[:], inverse[:] = ZERO, ZERO, ZERO
    for r in range(R):
        for j in range(L):
            length[j] += x[r, j] * x[r, j]
            inverse[1, j] += y[r, j] * y[r, j]
            if c.energy <= SQUARED:
                f[j] -= (x[r, j] - y[r, j]) * (x[r, j] - y[r, j])
            else:
                f[j] += x[r, j] * y[r, j]
    for j in range(L):
        length[j] = math.sqrt(length[j] + EPSILON)
        if c.energy == DISTANCE:
            f[j] = -math.sqrt(EPSILON - f[j])
        elif c.energy == COSINE:
            inverse[0, j] = ONE / length[j]
            inverse[1, j] = ONE / math.sqrt(inverse[1, j] + EPSILON)
            f[j] *= inverse[0, j] * inverse[1, j]
        like[j] = scale * f[j] + bonus * length[j]
    for r in range(R):
        for j in range(B):
            if c.energy == DISTANCE:
                by = (x[r, j] - y[r, j]) / f[j]
            elif c.energy == SQUARED:
                by = -TWO * (x[r, j] - y[r, j])
            elif c.energy == DOT:
                by = y[r, j]
            else:
                by = (y[r, j] * inverse[1, j] - x[r, j] * inverse[0, j] * f[j]) * inverse[0, j]
            dx[r, j] = -share * (scale * by + bonus * x[r, j] / length[j])
        for j in range(B, L):
            dx[r, j] = ZERO


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
