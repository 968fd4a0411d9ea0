"""How alike state-actions and goals are, and the gradient by their representations; twin of
``agents/goal/crl_energy.py``, whose docstring has the formulas.

Axes: B samples, L their padded number, R features of a representation; energies and logits [B, L], state-action i with
goal j.
"""

from __future__ import annotations

import math
from typing import NamedTuple, Optional

import numpy as np
from numba import njit

from envolve.agents.kernels import JIT_UNCOUNTED
from envolve.agents.kernels.dense.activation import F4, I8, NIL, NONE, ONE, UNIT, ZERO
from envolve.agents.kernels.dense.gemm import out_of_line, product, transpose
from envolve.agents.kernels.dense.mlp import aligned

DISTANCE, SQUARED, DOT, COSINE = I8(0), I8(1), I8(2), I8(3)
ENERGIES = {"l2": DISTANCE, "l2_no_sqrt": SQUARED, "dot": DOT, "cos": COSINE, "cosine": COSINE}
EPSILON = F4(1e-6)  # agents.goal.crl_energy.EPSILON
NEAREST = -np.sqrt(EPSILON)  # the energy ``l2`` of a distance of 0
HALF, TWO, LANES = F4(0.5), F4(2), 16


def no_twin(energy: str) -> Optional[str]:
    """The reason why there is nothing compiled for an energy (its canonical name), or None."""
    return None if energy in ENERGIES else f"the energy {energy} has no compiled twin, only {', '.join(ENERGIES)} have"


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
    def create(cls, energy: str, loss: int, no_resubs: bool, learns_scale: bool, B: int, R: int) -> Contrast:
        L = -(-B // 16) * 16
        f = aligned((L, L))
        logits = aligned((L, L)) if learns_scale else f
        return cls(
            energy=ENERGIES[energy],
            loss=loss,
            no_resubs=no_resubs,
            scaled=learns_scale,
            B=B,
            R=R,
            L=L,
            f=f,
            logits=logits,
            d=aligned((L, L)),
            e=aligned((L, L)),
            u=aligned((2, R, L)),
            norms=aligned((2, L)),
            sums=aligned((2, L)),
            own=aligned((L,)),
            row=aligned((2, L)),
            column=aligned((2, L)),
            lanes=aligned((LANES,)),
        )


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
