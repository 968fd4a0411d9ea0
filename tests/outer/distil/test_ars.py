"""Augmented random search: it solves, by itself and as an expert; what it may not be asked."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from torch import Tensor

from envolve.core import rng
from envolve.envs.section import EnvSection
from envolve.envs.task import Task, make_task
from envolve.outer.config.load import ConfigError, config_of
from envolve.outer.config.section import ARSSection
from envolve.outer.distil.ars import ARS
from envolve.outer.distil.expert import train_experts
from envolve.outer.distil.linear import Linear

CAR = ARSSection(train_steps=40_000, directions=8, top=4, step_size=0.5, noise_std=1.0, test_episodes=5)
CAR_TASK = make_task("MountainCarContinuous-v0")


class Plane(Task):
    """One step per episode: pays minus the squared distance of the action from 0.5 x."""

    name, observation_size, action_size, reset_uniforms, default_max_steps = "Plane", 2, 1, 2, 1

    def reset(self, u: Tensor) -> Tensor:
        return 4 * u.float() - 1

    def observe(self, state: Tensor) -> Tensor:
        return state.clone()

    def step(self, state: Tensor, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        reward = -(action[..., 0] - 0.3 * state[..., 0]).square()
        return state, reward, torch.ones(reward.shape, dtype=torch.bool)


def test_an_iteration_is_the_published_one() -> None:
    """Mean and deviation of the first iteration are 0 and 1; the step, written out."""
    section = ARSSection(train_steps=1, directions=5, top=3, step_size=0.1, noise_std=0.2, alive_bonus=0.5)
    search = ARS(Plane(), section, 3)
    search.train()
    assert search.steps == 10, "one iteration, two episodes of one step per direction"
    key = torch.tensor([3])
    D = rng.normal(rng.fold(key, rng.ARS_DIRECTIONS)[:, None], torch.arange(10))[0].view(5, 2).double()
    state = search.mean.float()  # all episodes began there
    x = state.double()
    reward = [[-(float((0.2 * s * d @ x).clamp(-1, 1) - 0.3 * x[0]) ** 2) - 0.5 for s in (1, -1)] for d in D]
    best = sorted(range(5), key=lambda i: -max(reward[i]))[:3]
    spread = np.std([reward[i] for i in best], ddof=1)
    step = sum((reward[i][0] - reward[i][1]) * D[i] for i in best) / 3 / spread
    torch.testing.assert_close(search.weights[0].double(), 0.1 * step, rtol=1e-4, atol=1e-6)


def test_it_climbs_the_mountain_with_a_linear_policy() -> None:
    search = ARS(make_task("MountainCarContinuous-v0"), CAR, 1)
    search.train()
    assert search.score() > 85 and search.steps < 60_000


def test_as_an_expert_it_repeats_itself_and_counts_its_steps() -> None:
    task, keys = make_task("MountainCarContinuous-v0"), np.array([4, 5])
    short = ARSSection(train_steps=1_000, directions=3, top=3, step_size=0.5, noise_std=1.0, test_episodes=2)
    made = train_experts("ars", short, task, EnvSection(), keys, False, "auto", 1)
    again = train_experts("ars", short, task, EnvSection(), keys[1:], False, "auto", 1)[0]
    assert made[1] is not None and again is not None
    assert (made[1].mean_return, made[1].steps) == (again.mean_return, again.steps)
    assert torch.equal(made[1].states, again.states)
    assert made[1].steps >= 1_000 + len(made[1].states)
    x = torch.randn(50, 2)
    assert torch.equal(made[1].act(x), again.act(x)) and made[1].act(100 * x).abs().max() == 1


def test_it_may_begin_with_a_policy_whose_units_stay() -> None:
    section = ARSSection(train_steps=1, directions=5, top=3, step_size=0.1, noise_std=0.2)
    begin = Linear(torch.tensor([[0.3, 0.1]]), torch.tensor([1.0, 2.0]), torch.tensor([0.5, 4.0]), 100)
    search = ARS(Plane(), section, 3, begin)
    x = torch.tensor([[1.0, 2.0], [2.0, 6.0]])
    torch.testing.assert_close(search.policy()(x), torch.tensor([[0.0], [0.7]]))
    search.train()
    assert search.steps == 110, "the budget is its own"
    torch.testing.assert_close((search.mean.float(), search.std), (begin.mean, begin.std))
    assert not torch.equal(search.weights, begin.weights)


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0])
def test_units_are_powers_of_the_deviations_and_keep_the_first_policy(power: float) -> None:
    section = ARSSection(train_steps=1, directions=5, top=3, step_size=0.1, noise_std=0.2, unit_power=power)
    begin = Linear(torch.tensor([[0.3, 0.1]]), torch.tensor([1.0, 2.0]), torch.tensor([0.5, 4.0]), 100)
    search = ARS(Plane(), section, 3, begin)
    torch.testing.assert_close(search.unit[1] / search.unit[0], torch.tensor(8.0**power))
    torch.testing.assert_close((begin.std / search.unit).square().mean(), torch.tensor(1.0))
    x = torch.tensor([[1.0, 2.0], [2.0, 6.0]])
    torch.testing.assert_close(search.policy()(x), torch.tensor([[0.0], [0.7]]))
    if power == 1.0:
        assert torch.equal(search.unit, search.std) and torch.equal(search.weights, begin.weights)


def test_noise_on_actions_is_the_same_for_all_policies_of_an_iteration_and_not_in_tests() -> None:
    def returns(noise: float, number: int) -> list[float]:
        search = ARS(CAR_TASK, dataclasses.replace(CAR, action_noise=noise), 1)
        search.count, search.square = 1, torch.ones(2, dtype=torch.float64)
        return search._play(torch.tensor([[[0.0, 30.0]]]).repeat(3, 1, 1), number).returns[:, 0].tolist()

    quiet, noisy = returns(0.0, 4), returns(0.3, 4)
    assert len(set(noisy)) == 1 and noisy[0] != quiet[0]
    assert noisy == returns(0.3, 4) and noisy != returns(0.3, 5) != quiet
    scores = {ARS(CAR_TASK, dataclasses.replace(CAR, action_noise=n), 1).score() for n in (0.0, 0.3)}
    assert len(scores) == 1, "tests have no noise"


def test_discrete_actions_and_no_budget_are_refused() -> None:
    with pytest.raises(ValueError, match="discrete actions"):
        ARS(make_task("CartPole-v0"), CAR, 1)
    raw = {
        "env_name": "CartPole-v0",
        "envs": {"CartPole-v0": {"contextual_bandit": True}},
        "agents": {
            "gtn": {"agent_name": "DDQN", "init": "distilled"},
            "ddqn": {},
            "expert": {"learner": "ars"},
            "ars_expert": {"train_steps": 10},
        },
    }
    with pytest.raises(ConfigError, match="a learner with networks for CartPole-v0"):
        config_of(raw, (), "test")
    raw = {
        "env_name": "Swimmer-v5",
        "envs": {"Swimmer-v5": {"contextual_bandit": True}},
        "agents": {
            "gtn": {"agent_name": "TD3", "init": "distilled"},
            "td3": {},
            "expert": {"learner": "ars"},
            "ars_expert": {},
        },
    }
    with pytest.raises(ConfigError, match="the expert's budget of steps"):
        config_of(raw, (), "test")
