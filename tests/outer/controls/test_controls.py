"""The controls: what each is made of, on tasks where the right answer is known."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from envolve.agents.common.rollout import test_episodes as episodes_of
from envolve.envs.section import EnvSection
from envolve.envs.task import make_task
from envolve.envs.worlds.best_paid import best_actions, candidates, greedy, rewards
from envolve.envs.worlds.contextual_bandit import ContextualBandit
from envolve.envs.worlds.file import read_world
from envolve.envs.worlds.reward_network import RewardNetwork
from envolve.envs.worlds.world import RealTask
from envolve.outer.controls import direct
from envolve.outer.controls.direct import EPISODES, PAIRS, evolve_policy
from envolve.outer.controls.hand_made import HAND_MADE
from envolve.outer.controls.values import optimal_values
from envolve.outer.distil import bandit, fit
from envolve.outer.distil.bandit import fit_bandit
from envolve.outer.distil.energy import MANY, energy_loss
from envolve.outer.distil.fit import fit_classifier, fit_potential
from envolve.outer.distil.policy import of_observation, play
from envolve.outer.search.nes import RETEST, member_seeds
from tests.outer.distil.energy import energy_distance

CARTPOLE = make_task("CartPole-v0")
DISTILLED = Path(__file__).parents[3] / "results" / "continuous_control" / "half_cheetah" / "run-0" / "distilled.pt"
KEYS = member_seeds(7, RETEST, 0, 2)


def by_hand(x: torch.Tensor) -> torch.Tensor:
    return torch.stack([HAND_MADE["CartPole-v0"].act(one) for one in x])


def test_play_takes_the_episodes_that_agents_are_tested_in() -> None:
    """Two ways to walk the same task: the resets, returns and step counts are equal."""
    played = play(CARTPOLE, of_observation(CARTPOLE, by_hand), KEYS, 3, keep=True)
    key = torch.as_tensor(KEYS)
    returns, steps = episodes_of(CARTPOLE, lambda x, _: by_hand(x), key, torch.zeros_like(key), 3, 1)
    np.testing.assert_array_equal(played.returns, returns.numpy())
    np.testing.assert_array_equal(played.steps, steps.numpy())
    assert len(played.observations) == played.steps.sum()


@pytest.mark.parametrize(("name", "least"), [("CartPole-v0", 199), ("Acrobot-v1", -120), ("Pendulum-v0", -300),
                                            ("MountainCarContinuous-v0", 80)])  # fmt: skip
def test_policies_by_hand_solve_their_tasks(name: str, least: float) -> None:
    task = make_task(name)
    act = HAND_MADE[name].act
    played = play(task, of_observation(task, lambda x: torch.stack([act(one) for one in x])), KEYS[:1], 10)
    assert played.returns.mean() >= least


@pytest.mark.parametrize("name", list(HAND_MADE))
def test_states_by_hand_are_observations(name: str) -> None:
    task, hand = make_task(name), HAND_MADE[name]
    states = hand.states(torch.from_numpy(np.random.default_rng(0).random((500, task.observation_size))).float())
    assert states.shape == (500, task.observation_size) and bool(torch.isfinite(states).all())
    if name in ("Acrobot-v1", "Pendulum-v0"):
        assert torch.allclose(states[:, :2].square().sum(1), torch.ones(500), atol=1e-5)
    action = hand.act(states)
    assert action.shape == ((500,) if task.num_actions else (500, task.action_size))


def test_a_bandit_fitted_to_a_policy_pays_most_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bandit, "CONTEXT_STEPS", 300)
    section = EnvSection(contextual_bandit=True, hidden_size=32)
    hand = HAND_MADE["CartPole-v0"]
    states = hand.states(torch.from_numpy(np.random.default_rng(0).random((1000, 4))).float())
    flat = fit_bandit(CARTPOLE, section, states, hand.act, 3, steps=300)
    world = ContextualBandit(CARTPOLE, section, flat[None])
    played = play(CARTPOLE, greedy(world), KEYS[:1], 10)
    assert played.returns.mean() > 190
    # and its contexts are like the given states: closer than states of another scale
    own = world.reset(torch.from_numpy(np.random.default_rng(1).random((1, 500, 4))))[0]
    assert energy_distance(own, states[:500]) < 0.3 * energy_distance(3 * states[:500], states[500:])
    classified = play(CARTPOLE, fit_classifier(CARTPOLE, own, hand.act(own), 4), KEYS[:1], 10)
    assert classified.returns.mean() > 190


@pytest.mark.parametrize("features", [2, MANY])
def test_energy_distance_is_that_of_a_loop(features: int) -> None:
    x, y = (torch.from_numpy(np.random.default_rng(i).normal(size=(6, features))) for i in range(2))

    def mean(a: torch.Tensor, b: torch.Tensor) -> float:
        return float(np.mean([[float((p - q).norm()) for q in b] for p in a]))

    assert float(energy_distance(x, y)) == pytest.approx(2 * mean(x, y) - mean(x, x) - mean(y, y), abs=1e-5)


def test_products_of_matrices_have_the_gradient_of_the_distances() -> None:
    """Also among points that are near each other and far from zero, and for a point and itself."""
    x = (100 + 1e-3 * torch.randn(40, MANY, generator=torch.Generator().manual_seed(0))).requires_grad_(True)
    y = 100 + torch.randn(40, MANY, generator=torch.Generator().manual_seed(1))
    (found,) = torch.autograd.grad(energy_loss(x, y), x)
    exact = x.detach().double().requires_grad_(True)
    apart = (exact[:, None] - torch.cat((y.double(), exact))).square().sum(-1)
    far = torch.where(apart > 0, apart, 1.0).sqrt() * (apart > 0)
    (expected,) = torch.autograd.grad(2 * far[:, :40].mean() - far[:, 40:].mean(), exact)
    assert torch.allclose(found.double(), expected, rtol=1e-3, atol=1e-6 * float(expected.abs().max()))


def test_optimal_values_of_cliff_are_a_potential_whose_greedy_policy_is_optimal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The shortest way takes 12 steps, each of which costs 1. The potential is added to the task's reward: alone, it
    pays the same for the last step, whose reward is 0, as for standing still, and rounding decides."""
    monkeypatch.setattr(fit.minimise, "__defaults__", (500,))
    task = make_task("Cliff", max_steps=50)
    values = optimal_values(task, 0.9)
    start = int(task.reset(torch.zeros(1, 1, task.reset_uniforms))[0, 0, 0])
    assert float(values[start]) == pytest.approx(-sum(0.9**t for t in range(12)), abs=1e-4)
    section = EnvSection(reward_env_type=2, hidden_size=32, activation_fn="prelu")
    flat = fit_potential(task, section, values, 5)
    rn = RewardNetwork(task, replace(section), flat[None], torch.tensor([0.9]))
    assert play(task, greedy(rn), KEYS[:1], 1).returns[0, 0] == -12


def test_greedy_on_the_task_itself_takes_the_best_next_reward() -> None:
    task = make_task("Pendulum-v0")
    actions = candidates(task, 0)
    assert actions.shape == (33, 1) and float(actions.abs().max()) == task.max_action
    state = torch.tensor([[[0.3, 1.0]]], dtype=torch.float64)  # the reward falls with the torque: none is best
    assert float(greedy(RealTask(task, 1))(state)[0, 0, 0]) == 0.0


def test_best_actions_of_several_dimensions_climb() -> None:
    """In a distilled world, which pays minus the distance to the expert's action: at most 0, but for errors."""
    world = read_world(str(DISTILLED)).world()
    u = np.random.default_rng(0).random((1, 300, world.reset_uniforms))
    state = world.reset(torch.from_numpy(u))
    drawn = rewards(world, state, candidates(world.task, 0)).max(2).values
    action = best_actions(world, state)
    assert action.shape == (1, 300, 6) and float(action.abs().max()) <= 1
    found = world.step(state, action)[1]
    assert (found >= drawn).all()
    assert float(drawn.mean()) < -0.3 and float(found.mean()) > -0.05


def test_best_actions_of_worlds_side_by_side_are_those_of_each() -> None:
    file = read_world(str(DISTILLED))
    other = file.flat + 0.02 * torch.randn(file.flat.shape, generator=torch.Generator().manual_seed(1))
    both = ContextualBandit(file.task(), file.section, torch.stack((file.flat, other)))
    state = both.reset(torch.from_numpy(np.random.default_rng(0).random((2, 50, both.reset_uniforms))))
    found = best_actions(both, state)
    alone = [ContextualBandit(file.task(), file.section, flat[None]) for flat in (file.flat, other)]
    expected = torch.cat([best_actions(world, state[i : i + 1]) for i, world in enumerate(alone)])
    assert torch.equal(found, expected) and not torch.allclose(found[0], found[1], atol=0.1)


def test_direct_evolution_spends_its_budget_and_repeats() -> None:
    first, again = (evolve_policy(CARTPOLE, 5000, 11) for _ in range(2))
    assert first.steps == again.steps
    most = 2 * PAIRS * EPISODES * CARTPOLE.max_steps  # of one generation
    assert 5000 <= first.steps < 5000 + most
    played = [play(CARTPOLE, e.policy, KEYS[:1], 5).returns for e in (first, again)]
    np.testing.assert_array_equal(*played)


def test_equal_returns_give_direct_evolution_no_direction(monkeypatch: pytest.MonkeyPatch) -> None:
    gradients: list[Tensor] = []
    monkeypatch.setattr(direct, "adam", lambda flat, gradient, *rest: gradients.append(gradient))
    evolve_policy(make_task("CartPole-v0", 3), 2 * PAIRS * EPISODES * 3 + 1, 11)  # no pole falls in three steps
    assert len(gradients) == 2 and not any(g.any() for g in gradients)


@pytest.mark.slow
def test_direct_evolution_solves_cartpole() -> None:
    """Random search over linear policies needs about 5,000 steps; a network by evolution within 300,000."""
    found = evolve_policy(CARTPOLE, 300_000, 12)
    assert play(CARTPOLE, found.policy, KEYS[:1], 20).returns.mean() >= 195
