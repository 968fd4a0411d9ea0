"""The compiled path of contrastive RL against the PyTorch path, and what both promise."""

from __future__ import annotations

import dataclasses
import logging
import math
from typing import Any

import numpy as np
import pytest
import torch
from numba import njit
from torch import Tensor

from envolve.agents.common.normaliser import CLIP
from envolve.agents.goal.crl import CRL, METRICS
from envolve.agents.goal.crl_energy import EPSILON
from envolve.agents.goal.crl_losses import LOSSES, RESUBSTITUTION
from envolve.agents.goal.crl_networks import LEAST_STD, LOG_STD, NORM_EPSILON
from envolve.agents.goal.crl_replay import TrajectoryReplay
from envolve.agents.goal.crl_section import CRLSection
from envolve.agents.kernels import JIT
from envolve.agents.kernels.dense import vector
from envolve.agents.kernels.goal import crl, crl_draw, crl_energy, crl_losses, crl_trunk
from tests.agents.goal.test_crl import ALL, GOAL, SMALL, VARIANTS, A, S, memory

pytestmark = pytest.mark.slow
COMPILED = [v for v in VARIANTS if v.get("energy_fn", "l2") in crl_energy.ENERGIES]
MORE: list[dict[str, Any]] = [
    {"activation": "swish", "use_ln": True, "n_hidden": 5, "skip_connections": 2, "normalize_observations": True},
    {"n_hidden": 4, "skip_connections": 1, "energy_fn": "l2_no_sqrt", "l2_penalty": 0.1},
    {"energy_fn": "cos", "batch_size": 37, "repr_dim": 40, "disable_entropy_actor": True, "no_resubs": True},
    {**ALL, "energy_fn": "dot", "policy_std": "bounded"},
    {**ALL, "exploration_coef": 0.0, "energy_fn": "cosine", "h_dim": 33},
]
OWN = {
    "policy_lr": [1e-3, 3e-4, 0.0],
    "discounting": [0.9, 0.5, 0.99],
    "logsumexp_penalty": [0.0, 0.1, 1.0],
    "random_goals": [0.0, 1.0, 0.5],
    "initial_alpha": [1.0, 0.1, 0.5],
}


def both(section: CRLSection, keys: list[int], **own: list[float]) -> tuple[CRL, CRL, TrajectoryReplay]:
    """PyTorch, compiled, and what they learn from."""
    slow, fast = (CRL(section, S, A, GOAL, torch.tensor(keys), own, backend) for backend in ("torch", "compiled"))
    return slow, fast, memory(len(keys), slow.fields, keys)


def close(a: Tensor, b: Tensor, share: float) -> None:
    """Differences are below ``share`` of the largest number."""
    assert torch.isfinite(a).all() and (a - b).abs().max() <= share * b.abs().max()


def compare(variant: dict[str, Any], updates: int, **own: list[float]) -> None:
    keys = [5, 6, 7] if own else [5]
    slow, fast, replay = both(dataclasses.replace(SMALL, **variant), keys, **own)
    features, goal = torch.randn(len(keys), 4, S), torch.randn(len(keys), 4, 2)
    for learner in (slow, fast):
        learner.act(features, goal)
        learner.merge_moments()
    close(fast.act(features, goal), slow.act(features, goal), 1e-5)
    close(fast.greedy(features, goal), slow.greedy(features, goal), 1e-5)
    a, b = fast.learn(replay, measure=True), slow.learn(replay, measure=True)
    torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)
    border = slow.actor.size  # Adam's first moment is a tenth of the gradient
    for part in (slice(0, border), slice(border, border + slow.phi.size), slice(border + slow.phi.size, None)):
        close(fast.m[:, part], slow.m[:, part], 1e-4)
    torch.testing.assert_close(fast.alpha_m, slow.alpha_m, atol=1e-6, rtol=1e-4)
    for _ in range(updates - 1):
        a, b = fast.learn(replay, measure=True), slow.learn(replay, measure=True)
    torch.testing.assert_close(fast.params, slow.params, atol=5e-4, rtol=1e-3)
    torch.testing.assert_close(a, b, atol=5e-3, rtol=5e-3)
    assert torch.equal(fast.updates, slow.updates)


@pytest.mark.parametrize("variant", [*COMPILED, *MORE], ids=range(len(COMPILED) + len(MORE)))
def test_an_update_is_that_of_the_pytorch_path(variant: dict[str, Any]) -> None:
    compare(variant, 20)


@pytest.mark.parametrize("no_resubs", [False, True])
@pytest.mark.parametrize("name", LOSSES)
def test_every_loss(name: str, no_resubs: bool) -> None:
    compare({"contrastive_loss_fn": name, "no_resubs": no_resubs, "logsumexp_penalty": 0.1 * no_resubs}, 3)


def test_members_with_hyperparameters_of_their_own() -> None:
    compare({}, 20, **OWN)


def test_two_hundred_updates_stay_near() -> None:
    """They are chaotic, but of the same kind: what was learned is the same."""
    section = dataclasses.replace(SMALL, h_dim=64, critic_lr=1e-3)
    slow, fast, replay = both(section, [5])
    first = slow.learn(replay, measure=True)
    fast.learn(replay)
    for _ in range(200):
        a, b = fast.learn(replay, measure=True), slow.learn(replay, measure=True)
    loss = METRICS.index("critic_loss")
    assert b[0, loss] < first[0, loss] - 0.2
    torch.testing.assert_close(a, b, atol=0.05, rtol=0.05)


@pytest.mark.parametrize("writes", [1, 20, 64, 200])
def test_the_same_rows_are_drawn(writes: int) -> None:
    """Also of a ring that has wrapped."""
    section = dataclasses.replace(SMALL, batch_size=500)
    slow, fast, _ = both(section, [5, 6], discounting=[0.9, 0.99])
    replay = TrajectoryReplay(2, 3, 64, fast.fields, fast.device)
    for t in range(writes):
        replay.write({"state": torch.randn(2, 3, S), "action": torch.randn(2, 3, A)})
        replay.end(torch.tensor([[t % 7 == 6, t % 13 == 12, t % 50 == 49]] * 2))
    room, members = fast.compiled._learner(), fast.compiled._members()
    rows = [replay.fields[name].flatten(0, 2).numpy() for name in ("state", "action")]
    kept = crl_draw.Memory(
        *rows, replay.number.view(-1).numpy(), replay.last.view(-1).numpy(), writes, replay.R, replay.N
    )
    for update in (0, 3, 12345):
        slow.updates[:] = update
        fast.updates[:] = update
        batch, noise = slow.sample(replay), slow.noise()
        for i in range(2):
            crl_draw.draw(room, members, kept, i)
            crl_draw.make_noise(room, members, i)
            for mine, torchs in ((room.sa[:S], batch[0]), (room.sa[S:], batch[1]), (room.goal, batch[2])):
                assert torch.equal(torch.from_numpy(mine[:, :500].T.copy()), torchs[i])
            torch.testing.assert_close(torch.from_numpy(room.noise[:, :500].T.copy()), noise[0][i])
            assert torch.equal(torch.from_numpy(room.other[:500]), noise[1][i])


def test_a_batch_from_elsewhere() -> None:
    """The same bits as from the memory."""
    _, fast, replay = both(SMALL, [5, 6])
    _, other, _ = both(SMALL, [5, 6])
    for _ in range(3):
        a, b = fast.learn(replay, measure=True), other.learn_batch(other.sample(replay), measure=True)
    assert torch.equal(fast.params, other.params) and torch.equal(a, b)
    assert torch.equal(fast.log_alpha, other.log_alpha)


def test_measuring_changes_nothing() -> None:
    for variant in ({}, {"contrastive_loss_fn": "infonce_backward"}, {"contrastive_loss_fn": "dpo"}):
        one, other = (both(dataclasses.replace(SMALL, **variant), [5])[1] for _ in range(2))
        replay = memory(1, one.fields, [5])
        for _ in range(3):
            one.learn(replay, measure=True)
            other.learn(replay)
        assert torch.equal(one.params, other.params)


def test_members_threads_and_order_change_no_bit() -> None:
    """A member's numbers are the same alone, among others, and with any number of threads."""
    found = []
    threads = torch.get_num_threads()
    try:
        for n, keys in ((1, [5, 6, 7]), (2, [5, 6, 7]), (1, [6])):
            torch.set_num_threads(n)
            _, fast, replay = both(SMALL, keys)
            for _ in range(3):
                fast.learn(replay)
            found.append(fast.params[keys.index(6)])
            assert fast.compiled is not None and fast.compiled.threads == n
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(found[0], found[1]) and torch.equal(found[0], found[2])


@pytest.mark.parametrize("bad", [math.nan, math.inf, 1e30])
def test_one_that_diverges_harms_no_other(bad: float) -> None:
    _, sick, replay = both(SMALL, [5, 6, 7])
    _, well, _ = both(SMALL, [5, 6, 7])
    sick.params[1] = bad
    features, goal = torch.randn(3, 4, S), torch.randn(3, 4, 2)
    for _ in range(3):
        sick.learn(replay, measure=True)
        well.learn(replay, measure=True)
    assert sick.diverged().tolist() == [False, True, False]
    assert torch.equal(sick.params[[0, 2]], well.params[[0, 2]])
    assert torch.equal(sick.act(features, goal)[[0, 2]], well.act(features, goal)[[0, 2]])


def test_what_diverges_in_training_is_noticed() -> None:
    """A weight without a number reaches the gradients through relu, softmax and Adam."""
    for at in ("actor", "phi", "psi"):
        _, fast, replay = both(SMALL, [5])
        start = {"actor": 0, "phi": fast.actor.size, "psi": fast.actor.size + fast.phi.size}[at]
        fast.params[0, start] = math.nan
        fast.learn(replay)
        assert fast.params[0, start + 1 :].isnan().any()


def test_what_is_kept_goes_on_the_same() -> None:
    section = dataclasses.replace(SMALL, normalize_observations=True)
    _, fast, replay = both(section, [5, 6])
    _, again, _ = both(section, [5, 6])
    features, goal = torch.randn(2, 4, S), torch.randn(2, 4, 2)
    fast.act(features, goal)
    fast.merge_moments()
    fast.learn(replay)
    again.load_state_dict(fast.state_dict())
    for one in (fast, again):
        one.learn(replay)
    assert torch.equal(fast.params, again.params) and torch.equal(fast.act(features, goal), again.act(features, goal))


def test_what_has_no_twin(caplog: pytest.LogCaptureFixture) -> None:
    section = dataclasses.replace(SMALL, energy_fn="mrn")
    with caplog.at_level(logging.WARNING, logger="envolve"):
        assert CRL(section, S, A, GOAL, torch.tensor([1])).compiled is None
    assert "trains on the PyTorch path, which is slower: the energy mrn has no compiled twin" in caplog.text
    with pytest.raises(ValueError, match="backend 'compiled': the energy mrn"):
        CRL(section, S, A, GOAL, torch.tensor([1]), backend="compiled")
    with pytest.raises(ValueError, match="backend 'fast': expected one of auto, compiled, torch"):
        CRL(SMALL, S, A, GOAL, torch.tensor([1]), backend="fast")
    assert CRL(SMALL, S, A, GOAL, torch.tensor([1]), backend="torch").compiled is None
    assert CRL(SMALL, S, A, GOAL, torch.tensor([1])).compiled is not None


def test_constants_of_both_paths() -> None:
    assert crl_trunk.EPSILON == np.float32(NORM_EPSILON) and crl.CLIP == CLIP and crl.LEAST == LEAST_STD
    assert (crl.LOWEST, crl.LOWEST + crl.RANGE) == LOG_STD
    assert crl_energy.EPSILON == np.float32(EPSILON) and crl_losses.TAKEN_OFF == RESUBSTITUTION
    assert {LOSSES[name] for name in crl_losses.CODES} == set(LOSSES.values())


@njit(**{**JIT, "cache": False})
def _exponentials(x, y):
    for i in range(len(x)):
        y[i] = vector.exp(x[i])


def test_the_exponential() -> None:
    x = np.linspace(-86.9, 87.9, 100_001).astype(np.float32)
    y = np.empty_like(x)
    _exponentials(x, y)
    assert np.abs(y / np.exp(x.astype(np.float64)) - 1).max() < 2e-7
    ends = np.empty(5, np.float32)
    _exponentials(np.array([np.nan, -np.inf, np.inf, -200, 200], np.float32), ends)
    assert np.isnan(ends[0]) and 0 <= ends[1] == ends[3] < 2e-38 and 1e38 < ends[2] == ends[4] < np.inf
