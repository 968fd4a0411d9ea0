"""Successive halving: who goes on, with what, and at what price."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import torch

from envolve.agents.shaped.halving import Training, train_halving
from envolve.agents.shaped.training import default_section
from envolve.envs.shaping.candidate import Candidate, Shaper
from tests.agents.shaped.test_ppo import run

SECTION = dataclasses.replace(default_section("ppo"), hidden_size=8, rollout_steps=8, ppo_epochs=1, minibatches=2)
KEYS = np.array([3, 4])


def paid(factor: float) -> Candidate:
    return Candidate(f"x{factor:g}", {"compute_reward": Shaper(lambda s: factor * s["pole_angle"].cos(), False)})


def raises(state):
    raise RuntimeError("no")


BAD = Candidate("bad", {"compute_reward": Shaper(raises, False)})


def training(**changes) -> Training:
    section = changes.pop("section", SECTION)
    return Training(
        **{
            "task": "Cartpole",
            "learner": "ppo",
            "section": section,
            "num_envs": 4,
            "iterations": 6,
            "agents": 2,
            "eta": 2,
            **changes,
        }
    )


def test_rungs_shrink_to_one_and_never_outnumber_the_iterations():
    assert training(eta=4).rungs(16) == [16, 4, 1]
    assert training(eta=3, iterations=2).rungs(10) == [10, 4]
    assert training(eta=1).rungs(16) == [16]
    assert training().rungs(1) == [1]


def test_losers_hand_their_environments_to_survivors_at_equal_cost():
    candidates = [paid(1), paid(-1), paid(2), BAD]
    seen = []
    halved = train_halving(training(), candidates, KEYS, KEYS + 9, report=lambda p, inside: seen.append((p, inside)))
    rungs = [max(halved.runs[2 * c + k].rung for k in range(2)) for c in range(4)]
    assert sorted(rungs) == [0, 0, 1, 2] and rungs[3] == 0
    last = [inside for _, inside in seen]
    assert [len(x) for x in last] == [4, 4, 2, 2, 1, 1]
    # an iteration costs 2 agents x 4 candidates x 4 environments x 8 decisions in every rung
    steps = [[run.steps for run in halved.runs if len(run.steps) == n] for n in (2, 4, 6)]
    assert steps[0][0] == [32, 64] and steps[1][0] == [32, 64, 128, 192] and steps[2][0][-2:] == [320, 448]
    assert [p.iteration for p, _ in seen] == [1, 2, 3, 4, 5, 6]
    for c, candidate in enumerate(candidates):
        for run_ in halved.runs[2 * c : 2 * c + 2]:
            assert math.isnan(run_.score) == (candidate is BAD) == (run_.failure is not None)
            assert len(run_.episode_scores) == (16 if rungs[c] == 2 else 0)  # only the last rung is judged


def test_without_halving_it_is_train_shaped_and_the_reference_stays():
    one = train_halving(training(eta=1), [paid(1), paid(-1)], KEYS, KEYS)
    assert all(r.rung == 0 and len(r.episode_scores) == 4 for r in one.runs) and one.agents == [0, 1, 2, 3]
    kept = train_halving(training(), [paid(-1), paid(-2), Candidate("human")], KEYS, KEYS, stays={2})
    assert all(r.rung == 1 and r.episode_scores for r in kept.runs[4:])
    assert sorted(r.spent for r in kept.runs) == [3 * 32] * 2 + [3 * 32 + 3 * 64] * 4  # the reference as the winner
    again = train_halving(training(), [paid(-1), paid(-2), Candidate("human")], KEYS, KEYS, stays={2})
    assert [r.score for r in again.runs] == [r.score for r in kept.runs]


def test_blocks_say_how_many_environments_there_are_to_share():
    few = train_halving(training(blocks=6), [paid(1), paid(-1)], KEYS, KEYS)  # as if four others had been rejected
    assert sorted(r.spent for r in few.runs) == [3 * 3 * 32] * 2 + [3 * 3 * 32 + 3 * 6 * 32] * 2
    assert train_halving(training(blocks=6, eta=1), [paid(1)], KEYS, KEYS).runs[0].spent == 6 * 32


def test_halving_needs_a_learner_that_can_go_on():
    with pytest.raises(ValueError, match="halving .* td3 cannot: use ppo"):
        train_halving(training(learner="td3", section=default_section("td3")), [paid(1)], KEYS, KEYS)


@pytest.mark.parametrize("backend", ["compiled", "torch"])
def test_an_heir_has_what_its_ancestor_learned(backend):
    old = run(backend=backend, iterations=2)
    heirs = [4, 0, 3]
    new = run(heirs, backend, iterations=0)
    new.inherit(old, heirs)
    for i, j in enumerate(heirs):
        for name, value in new.policy(i).items():
            assert torch.equal(value, old.policy(j)[name]), name
    assert new.steps == old.steps
    before = [new.policy(i)["weights"] for i in range(3)]
    new.iteration()  # with known moments it learns from its first rollout
    assert all((new.policy(i)["weights"] - before[i]).abs().max() > 0 for i in range(3))


def test_the_twins_go_on_alike():
    heirs, results = [1, 4], []
    for backend in ("compiled", "torch"):
        old, new = run(backend=backend, iterations=2), run(heirs, backend, iterations=0)
        new.inherit(old, heirs)
        for _ in range(2):
            new.iteration()
        results.append([new.policy(i) for i in range(2)])
    for a, b in zip(*results):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-3)
