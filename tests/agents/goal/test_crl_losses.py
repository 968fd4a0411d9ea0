"""Energies and contrastive losses: each against its formula, written out in float64 with loops."""

from __future__ import annotations

import logging
import math

import numpy as np
import pytest
import torch

from envolve.agents.goal import crl_energy
from envolve.agents.goal.crl_losses import LOSS_NAMES, LOSSES, Contrast, diagnostics, logsumexp_penalty, loss_named

torch.manual_seed(0)
P, B, R = 2, 5, 6
X, Y = torch.randn(P, B, R, dtype=torch.float64), torch.randn(P, B, R, dtype=torch.float64)
FIXED = [[2.0, -1.0, 0.5], [0.0, 1.0, 3.0], [-2.0, 0.25, -0.5]]


def lse(values: list[float]) -> float:
    return math.log(sum(math.exp(v) for v in values))


def energy_by_hand(name: str, x: np.ndarray, y: np.ndarray) -> float:
    if name == "l2":
        return -math.sqrt(sum((a - b) ** 2 for a, b in zip(x, y)) + 1e-6)
    if name == "l2_no_sqrt":
        return -sum((a - b) ** 2 for a, b in zip(x, y))
    if name == "l1":
        return -sum(abs(a - b) for a, b in zip(x, y))
    if name == "dot":
        return sum(a * b for a, b in zip(x, y))
    if name in ("cos", "cosine"):
        return sum(a * b for a, b in zip(x, y)) / math.hypot(*x) / math.hypot(*y)
    h = len(x) // 2
    asymmetric = max(max(a - b, 0) for a, b in zip(x[:h], y[:h]))
    return -(asymmetric + math.sqrt(sum((a - b) ** 2 for a, b in zip(x[h:], y[h:])) + 1e-6))


@pytest.mark.parametrize("name", crl_energy.ENERGY_NAMES)
def test_energies(name: str) -> None:
    energy = crl_energy.canonical(name)
    got = crl_energy.logits(energy, X, Y)
    expected = [
        [[energy_by_hand(energy, X[p, i].numpy(), Y[p, j].numpy()) for j in range(B)] for i in range(B)]
        for p in range(P)
    ]
    np.testing.assert_allclose(got, expected, atol=2e-6)  # 1e-6 under a root and in a norm
    np.testing.assert_allclose(crl_energy.pairs(energy, X, Y), got.diagonal(dim1=1, dim2=2), atol=1e-12)


def test_names_of_old_and_new_versions(caplog: pytest.LogCaptureFixture) -> None:
    crl_energy._said.clear()
    with caplog.at_level(logging.INFO, "envolve"):
        assert crl_energy.canonical("l2") == crl_energy.canonical("norm") == crl_energy.canonical("l2") == "l2"
    assert [r.message for r in caplog.records] == [caplog.records[0].message] and "square root" in caplog.text
    with pytest.raises(ValueError, match="nearest: 'cosine'"):
        crl_energy.canonical("cosin")
    assert loss_named("bwd_infonce") is loss_named("infonce_backward") and loss_named("dp") is loss_named("dpo")
    with pytest.raises(ValueError, match="nearest: 'symmetric_infonce'"):
        loss_named("symetric_infonce")


@pytest.mark.parametrize("energy", ["l2", "l2_no_sqrt"])
def test_distances_of_near_neighbours_far_from_the_origin(energy: str) -> None:
    """Where a product of matrices cancels: the common mean is taken off first."""
    x = 100 + 0.1 * torch.randn(1, 64, 32)
    y = x + 0.01 * torch.randn(1, 64, 32)
    exact = crl_energy.pairs(energy, x.double(), y.double())
    got = crl_energy.logits(energy, x, y).diagonal(dim1=1, dim2=2)
    np.testing.assert_allclose(got, exact, rtol=0.01)


def test_gradient_where_both_are_equal_is_finite() -> None:
    x = torch.ones(1, 4, 3, requires_grad=True)
    for logits in (crl_energy.logits("l2", x, x), crl_energy.pairs("l2", x, x)):
        assert torch.isfinite(torch.autograd.grad(logits.sum(), x)[0]).all()


# ------------------------------------------------------------------------------------------------------------ losses


def losses_by_hand(L: list[list[float]], no_resubs: bool) -> dict[str, float]:
    n = len(L)
    M = [[v - 100 * (no_resubs and i == j) for j, v in enumerate(row)] for i, row in enumerate(L)]
    rows, columns = [lse(row) for row in M], [lse([M[i][j] for i in range(n)]) for j in range(n)]
    every = [(i, j) for i in range(n) for j in range(n)]

    def sigmoid(z: float) -> float:
        return 1 / (1 + math.exp(-z))

    forward = sum(rows[i] - L[i][i] for i in range(n)) / n
    backward = sum(columns[i] - L[i][i] for i in range(n)) / n
    return {
        "infonce": forward,
        "infonce_backward": backward,
        "symmetric_infonce": forward + backward,
        "binary": -sum(math.log(sigmoid(L[i][j]) if i == j else 1 - sigmoid(L[i][j])) for i, j in every) / n**2,
        "flatnce": 1.0,
        "flatnce_backward": 1.0,
        "fb": sum(-L[i][i] + sum(L[i][j] ** 2 for j in range(n) if j != i) / (2 * (n - 1)) for i in range(n)) / n,
        "dpo": -sum(math.log(sigmoid(L[i][i] - L[i][j])) for i, j in every) / n**2,
        "ipo": sum((L[i][i] - L[i][j] - 1) ** 2 for i, j in every) / n**2,
        "sppo": sum(n * (L[i][i] - 1) ** 2 if i == j else (L[i][j] + 1) ** 2 for i, j in every) / n**2,
        "penalty": sum((row + 1e-6) ** 2 for row in rows) / n,
    }


@pytest.mark.parametrize("no_resubs", [False, True])
def test_losses_of_a_fixed_matrix(no_resubs: bool) -> None:
    second = [[v / 2 for v in row] for row in FIXED]
    c = Contrast(torch.tensor([FIXED, second], dtype=torch.float64), no_resubs)
    expected = [losses_by_hand(FIXED, no_resubs), losses_by_hand(second, no_resubs)]
    for name in (
        "infonce",
        "infonce_backward",
        "symmetric_infonce",
        "binary",
        "flatnce",
        "flatnce_backward",
        "fb",
        "dpo",
        "ipo",
        "sppo",
    ):
        np.testing.assert_allclose(LOSSES[name](c), [e[name] for e in expected], rtol=1e-12, err_msg=name)
    np.testing.assert_allclose(logsumexp_penalty(c), [e["penalty"] for e in expected], rtol=1e-12)


def test_two_losses_worked_out_on_paper() -> None:
    zeros = Contrast(torch.zeros(1, 4, 4), False)
    assert LOSSES["infonce"](zeros).item() == pytest.approx(math.log(4))
    assert LOSSES["binary"](zeros).item() == pytest.approx(math.log(2))
    assert LOSSES["ipo"](zeros).item() == pytest.approx(1)
    assert LOSSES["sppo"](zeros).item() == pytest.approx((4 * 4 + 12) / 16)


@pytest.mark.parametrize("name", LOSS_NAMES)
def test_gradients_against_differences(name: str) -> None:
    logits = torch.randn(2, 4, 4, dtype=torch.float64, requires_grad=True)
    if "flatnce" in name:  # its value is constant: its gradient is that of the mean of c
        c = Contrast(logits, False)
        lse_of = c.rows() if name == "flatnce" else c.columns()
        expected = torch.autograd.grad((lse_of - c.positive).mean(1).sum(), logits)[0]
        got = torch.autograd.grad(LOSSES[name](Contrast(logits, False)).sum(), logits)[0]
        np.testing.assert_allclose(got, expected, atol=1e-12)
    else:
        assert torch.autograd.gradcheck(lambda z: LOSSES[name](Contrast(z, False)), logits)


@pytest.mark.parametrize("energy", sorted({crl_energy.canonical(n) for n in crl_energy.ENERGY_NAMES}))
def test_gradients_of_energies_against_differences(energy: str) -> None:
    x, y = X.clone().requires_grad_(), Y.clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda a, b: crl_energy.logits(energy, a, b), (x, y))
    assert torch.autograd.gradcheck(lambda a, b: crl_energy.pairs(energy, a, b), (x, y))


def test_diagnostics() -> None:
    d = diagnostics(Contrast(torch.tensor([FIXED]), False))
    assert d["categorical_accuracy"].item() == pytest.approx(1 / 3)
    assert d["logits_pos"].item() == pytest.approx(2.5 / 3) and d["logits_neg"].item() == pytest.approx(0.75 / 6)
