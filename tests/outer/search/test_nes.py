"""NES: the published update by hand, the antithetic estimator against a known gradient, and who gets which seed."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from envolve.outer.config.section import GTNSection
from envolve.outer.search import nes as numbers
from envolve.outer.search.nes import MINUS, NES, ORIG, PLUS, NESState, member_seeds
from envolve.outer.search.transforms import score_transform
from tests.examples import examples

D = 7


def init(world_seed: int) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(world_seed).standard_normal(D).astype(np.float32))


def search(seed=0, state=None, mask=None, size=D, **section):
    section = {"num_workers": 4, "noise_std": 0.1, "step_size": 0.5, "score_transform_type": 3, **section}
    mask = torch.ones(size) if mask is None else mask
    return NES(GTNSection(**section), seed, init if size == D else lambda s: torch.zeros(size), mask, state)


def same(a: NES, b: NES) -> bool:
    x, y = a.state.to_dict(), b.state.to_dict()
    return all(torch.equal(x[k], y[k]) if isinstance(x[k], torch.Tensor) else x[k] == y[k] for k in x)


# -------------------------------------------------------------------------------- who is in a generation


def test_ask_lists_the_members_in_order():
    nes = search(num_workers=3, num_grad_evals=2, num_orig_evals=5)
    population, psi, eps = nes.ask(), nes.state.psi, nes.noise()
    assert population.roles == [ORIG] * 5 + [PLUS] * 6 + [MINUS] * 6
    assert population.perturbation.tolist() == [-1] * 5 + [0, 0, 1, 1, 2, 2] * 2
    assert population.worlds.dtype == torch.float32 and population.seeds.dtype == torch.int64
    assert population.worlds.shape == (17, D) and len(set(population.seeds.tolist())) == 17
    for member in range(17):
        i, sign = population.perturbation[member], {ORIG: 0, PLUS: 1, MINUS: -1}[population.roles[member]]
        assert torch.equal(population.worlds[member], psi + sign * eps[i] if sign else psi)


def test_as_many_unperturbed_members_as_perturbations_unless_told_otherwise():
    assert search(num_workers=3).ask().roles.count(ORIG) == 3


def test_without_mirrored_sampling_there_is_no_minus():
    nes = search(mirrored_sampling=False, num_grad_evals=2)
    population = nes.ask()
    assert population.roles == [ORIG] * 4 + [PLUS] * 8
    mirrored = search(num_grad_evals=2).ask()
    assert torch.equal(population.seeds, mirrored.seeds[:12]) and torch.equal(population.worlds, mirrored.worlds[:12])


def test_noise_has_the_standard_deviation_that_was_asked_for():
    eps = search(size=20_000, num_workers=4, noise_std=0.0124).noise()
    assert eps.shape == (4, 20_000)
    assert abs(float(eps.std()) / 0.0124 - 1) < 0.01 and abs(float(eps.mean())) < 0.0124 / 100
    correlation = np.corrcoef(eps.numpy()) - np.eye(4)
    assert np.abs(correlation).max() < 0.04, "perturbations are independent"


def test_common_random_numbers_pair_the_seeds():
    population = search(num_grad_evals=2, common_random_numbers=True).ask()
    plus, minus = population.seeds[4:12], population.seeds[12:]
    assert torch.equal(plus, minus) and len(set(population.seeds.tolist())) == 12
    apart = search(num_grad_evals=2).ask()
    assert not set(apart.seeds[4:12].tolist()) & set(apart.seeds[12:].tolist())


@given(st.integers(0, 2**40), st.integers(0, 1000))
@settings(max_examples=examples(20))
def test_ask_is_a_function_of_seed_and_generation(seed, generation):
    one, two = search(seed), search(seed)
    for nes in (one, two):
        nes.state.generation = generation
    two.ask()  # asking changes nothing
    a, b = one.ask(), two.ask()
    assert torch.equal(a.worlds, b.worlds) and torch.equal(a.seeds, b.seeds) and same(one, two)
    two.state.generation += 1
    c = two.ask()
    assert not set(a.seeds.tolist()) & set(c.seeds.tolist()) and not torch.equal(a.worlds[4:], c.worlds[4:])


def test_no_seed_serves_two_purposes():
    nes = search()
    purposes = [member_seeds(0, p, 0, 50).tolist() for p in range(1, 7)] + [member_seeds(1, 2, 0, 50).tolist()]
    assert len({s for p in purposes for s in p}) == 350
    confirming = nes.confirmation(20, 0)
    assert not set(confirming.seeds.tolist()) & set(nes.ask().seeds.tolist())
    assert torch.equal(confirming.worlds, nes.state.psi.expand(20, -1)) and confirming.roles == ["confirm"] * 20


# -------------------------------------------------------------------------------- the published update


@pytest.mark.parametrize("mirrored", [True, False])
@pytest.mark.parametrize("nes_step_size", [True, False])
@pytest.mark.parametrize("decay", [0.0, 0.02])
@pytest.mark.parametrize("evals,how", [(1, "mean"), (3, "mean"), (3, "minmax")])
@pytest.mark.parametrize("kind", [3, 7])
def test_published_update_by_hand(mirrored, nes_step_size, decay, evals, how, kind):
    """psi <- (1 - decay) psi + alpha' sum_i F_i eps_i, with eps_i turned where minus is better (spec 2.1 to 2.4)."""
    nes = search(
        mirrored_sampling=mirrored,
        nes_step_size=nes_step_size,
        weight_decay=decay,
        num_grad_evals=evals,
        grad_eval_type=how,
        score_transform_type=kind,
        num_orig_evals=2,
    )
    n, psi, eps = 4, nes.state.psi.double(), nes.noise().double()
    scores = np.random.default_rng(1).normal(size=2 + (1 + mirrored) * n * evals)
    orig, rest = scores[:2], scores[2:].reshape(1 + mirrored, n, evals)
    expected = torch.zeros(D, dtype=torch.float64)
    best, direction = [], []
    for i in range(n):
        plus = min(rest[0, i]) if how == "minmax" else sum(rest[0, i]) / evals
        best.append(plus)
        direction.append(eps[i])
        if mirrored:
            minus = min(rest[1, i]) if how == "minmax" else sum(rest[1, i]) / evals
            if minus > plus:
                best[i], direction[i] = minus, -eps[i]
    weights = score_transform(np.array(best), kind, orig.mean())
    for i in range(n):
        expected += weights[i] * direction[i]
    alpha = 0.5 / n if nes_step_size else 0.5
    expected = (1 - decay) * psi + alpha * expected
    nes.tell(scores)
    assert nes.state.generation == 1 and nes.state.psi.dtype == torch.float32
    torch.testing.assert_close(nes.state.psi.double(), expected, atol=1e-6, rtol=1e-6)


def test_published_update_in_numbers():
    """Two perturbations, type 0 (linear): the better one weighs 1, the other 0, whatever the scale of the scores."""
    nes = search(num_workers=2, score_transform_type=0, step_size=0.25)
    psi, eps = nes.state.psi.clone(), nes.noise()
    #         orig       plus      minus: the second perturbation is best, with a minus sign
    nes.tell(np.array([0.0, 0.0, 10.0, 20.0, 5.0, 90.0]))
    torch.testing.assert_close(nes.state.psi, psi - 0.25 * eps[1], atol=1e-6, rtol=0)


def test_a_tie_within_a_pair_goes_to_plus():
    nes = search(num_workers=1, score_transform_type=4)
    psi, eps = nes.state.psi.clone(), nes.noise()
    nes.tell(np.array([0.0, 3.0, 3.0]))
    torch.testing.assert_close(nes.state.psi, psi + 0.5 * eps[0], atol=1e-6, rtol=0)


# -------------------------------------------------------------------------------- the antithetic estimator


def ascend(nes: NES, f, generations: int) -> list[float]:
    values = []
    for _ in range(generations):
        population = nes.ask()
        values.append(float(f(nes.state.psi[None])[0]))
        nes.tell(f(population.worlds).double().numpy())
    return values


def test_antithetic_direction_is_the_gradient():
    """The first Adam moment after one generation is (1 - b1) g."""
    goal = torch.linspace(-2, 2, 30)
    nes = search(
        seed=3, size=30, estimator="antithetic", num_workers=2000, noise_std=0.05, num_orig_evals=1, step_size=0.01
    )
    nes.tell(-((nes.ask().worlds - goal) ** 2).sum(1).double().numpy())
    gradient = 2 * goal.double()  # of -|psi - goal|^2 at psi = 0
    g = nes.state.moment1
    assert float(torch.dot(g, gradient) / (g.norm() * gradient.norm())) > 0.95
    step = nes.state.psi.double()
    assert float(torch.dot(step, gradient)) > 0
    torch.testing.assert_close(step.abs(), torch.full((30,), 0.01, dtype=torch.float64), atol=1e-4, rtol=0)


def test_antithetic_step_by_hand():
    """Two generations of g = 1/(n sigma) sum_i (u_i+ - u_i-) eps_i and Adam, written out."""
    nes = search(estimator="antithetic", num_workers=2, noise_std=0.2, step_size=0.03, num_orig_evals=1)
    psi, m, v = nes.state.psi.double(), 0.0, 0.0
    for t, (scores, u) in enumerate(
        [
            ([0.0, 5.0, 1.0, -2.0, 3.0], (0.5, -1 / 6, -0.5, 1 / 6)),
            ([9.0, 2.0, 2.0, 1.0, 7.0], (0.0, 0.0, -0.5, 0.5)),  # a tie shares its mean rank
        ],
        start=1,
    ):
        eps = nes.noise().double()
        g = ((u[0] - u[2]) * eps[0] + (u[1] - u[3]) * eps[1]) / (2 * 0.2)
        m, v = 0.9 * m + 0.1 * g, 0.99 * v + 0.01 * g * g
        psi = psi + 0.03 * (m / (1 - 0.9**t)) / ((v / (1 - 0.99**t)).sqrt() + 1e-8)
        nes.tell(np.array(scores))
        torch.testing.assert_close(nes.state.psi.double(), psi, atol=1e-6, rtol=1e-6)
        psi = nes.state.psi.double()
    assert nes.state.updates == 2


@pytest.mark.parametrize(
    "section",
    [
        {"estimator": "antithetic", "noise_std": 0.1, "step_size": 0.05, "num_workers": 16},
        {"estimator": "antithetic", "noise_std": 0.1, "step_size": 0.05, "num_workers": 8, "num_grad_evals": 2},
        {"estimator": "published", "noise_std": 0.1, "step_size": 0.5, "num_workers": 16},
        {"estimator": "published", "noise_std": 0.1, "step_size": 0.5, "num_workers": 32, "mirrored_sampling": False},
    ],
)
def test_both_estimators_climb(section):
    goal = torch.tensor([1.0, -1.0, 0.5, 0.0, 2.0, -0.5, 1.5])
    curvature = torch.tensor([1.0, 2.0, 0.5, 1.0, 1.0, 3.0, 1.0])
    values = ascend(search(5, **section), lambda x: -((x - goal) ** 2 * curvature).sum(1), 150)
    assert values[0] < -3 and max(values[-20:]) > -0.1


def test_a_flat_population_gives_no_direction():
    nes = search(estimator="antithetic")
    psi = nes.state.psi.clone()
    nes.tell(np.full(12, 8.0))
    assert torch.equal(nes.state.psi, psi)


# -------------------------------------------------------------------------------- masks, resume, restart


@pytest.mark.parametrize("estimator", ["published", "antithetic"])
def test_masked_parameters_never_move(estimator):
    mask = torch.tensor([1.0, 1, 0, 1, 0, 1, 1])
    nes = search(mask=mask, estimator=estimator, weight_decay=0.1)
    fixed = nes.state.psi[mask == 0].clone()
    moving = nes.state.psi[mask == 1].clone()
    for seed in range(5):
        assert (nes.ask().worlds[:, mask == 0] == fixed).all()
        nes.tell(np.random.default_rng(seed).normal(size=12))
    assert torch.equal(nes.state.psi[mask == 0], fixed) and (nes.state.psi[mask == 1] != moving).all()


@pytest.mark.parametrize("estimator", ["published", "antithetic"])
@given(st.integers(0, 7), st.integers(0, 7))
@settings(max_examples=examples(15))
def test_resumed_search_goes_on_bit_for_bit(estimator, stop, restart):
    """Interrupted at any generation, also before or after a restart, through what a checkpoint stores."""

    def live(nes: NES, first: int, last: int) -> None:
        for generation in range(first, last):
            worlds = nes.ask().worlds
            if generation == restart:
                nes.restart()
                nes.state.generation += 1
            else:
                nes.tell(-(worlds.double() ** 2).sum(1).numpy())

    undisturbed, first = search(9, estimator=estimator), search(9, estimator=estimator)
    live(undisturbed, 0, 8)
    live(first, 0, stop)
    stored = {k: v.clone() if isinstance(v, torch.Tensor) else v for k, v in first.state.to_dict().items()}
    second = search(9, state=NESState(**stored), estimator=estimator)
    live(second, stop, 8)
    assert same(undisturbed, second)


def test_restart_leaves_for_a_new_world():
    nes = search(estimator="antithetic")
    worlds = [nes.state.psi.clone()]
    for restarts in range(1, 4):
        nes.tell(np.arange(12.0))
        assert nes.state.moment1.any() and nes.state.updates == 1
        generation = nes.state.generation
        nes.restart()
        assert nes.state.restarts == restarts and nes.state.generation == generation
        assert not nes.state.moment1.any() and not nes.state.moment2.any() and nes.state.updates == 0
        worlds.append(nes.state.psi.clone())
    assert len({tuple(w.tolist()) for w in worlds}) == 4
    again = search(estimator="antithetic")
    again.restart()
    assert torch.equal(again.state.psi, worlds[1]), "and it is the same new world in every run of this seed"


def test_another_seed_begins_elsewhere():
    assert not torch.equal(search(0).state.psi, search(1).state.psi)


def test_state_is_what_a_checkpoint_needs():
    """A field that is forgotten in to_dict would be lost on resume."""
    assert set(search().state.to_dict()) == {f.name for f in dataclasses.fields(NESState)}


def test_average_of_the_iterates_is_what_is_scored():
    nes = search(3, iterate_averaging=0.75, num_orig_evals=2)
    average = nes.state.psi.clone()
    for generation in range(4):
        population = nes.ask()
        torch.testing.assert_close(population.worlds[0], average)
        assert torch.equal(nes.confirmation(3, 0).worlds[0], population.worlds[0])
        plus, minus = (population.worlds[[r == role for r in population.roles]] for role in ("plus", "minus"))
        torch.testing.assert_close((plus + minus) / 2, nes.state.psi.expand_as(plus))  # perturbations are of psi itself
        nes.tell(np.random.default_rng(generation).normal(size=len(population.roles)))
        average = 0.75 * average + 0.25 * nes.state.psi


def test_confirming_stages_share_no_agent():
    nes = search()
    first, second = (set(nes.confirmation(20, stage).seeds.tolist()) for stage in (0, 1))
    assert len(first) == len(second) == 20 and not first & second


def test_no_two_purposes_of_a_run_share_a_number():
    """What one decision has seen no other may see."""
    purposes = (
        numbers.NOISE,
        numbers.MEMBERS,
        numbers.RESTART,
        numbers.CONFIRM,
        numbers.COMPARISON,
        numbers.RETEST,
        numbers.ISLANDS,
        numbers.TRIAL,
    )
    assert len({*purposes, numbers.OWN}) == 9
    counters = (
        numbers.EVOLVED,
        numbers.ON_TASK,
        numbers.COUNTED,
        numbers.EXPERTS,
        numbers.CHOOSING,
        numbers.BETTER,
        numbers.PAID,
        numbers.UNSEEN,
    )
    assert len(set(counters)) == 8
