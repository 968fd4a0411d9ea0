"""The policy that a world holds: its gradient, its twin with torch, and what it returns on the tasks."""

from __future__ import annotations

from pathlib import Path

import gymnasium
import numpy as np
import pytest
import torch

import envolve.worlds
from envolve.core.statistics import interval
from envolve.envs.worlds import best_paid
from envolve.envs.worlds.file import read_world
from envolve.outer.reporting.names import return_range
from envolve.outer.zoo.convert import zoo_bytes
from envolve.outer.zoo.measure import held
from envolve.worlds.bandit import ACTIVATIONS, Net
from envolve.worlds.file import action_of
from envolve.worlds.file import read_world as read_zoo
from envolve.worlds.policy import policy, policy_of, with_gradient
from envolve.worlds.shelf import names, open_world
from envolve.worlds.units import units_of

ROOT = Path(__file__).parents[2]
DISTILLED = ROOT / "results" / "continuous_control" / "half_cheetah" / "run-0" / "distilled.pt"


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("hidden", [(7,), (7, 5), (6, 5, 4)])
def test_the_gradient_is_that_of_finite_differences(activation: str, hidden: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    sizes = [4, *hidden, 1]
    weights = tuple(rng.normal(size=size) for size in zip(sizes, sizes[1:]))
    net = Net(weights, tuple(rng.normal(size=n) for n in sizes[1:]), activation, 0.25)  # float64, as the differences
    z = rng.normal(size=(3, 5, hidden[0]))
    reward, gradient = with_gradient(net, z.copy())
    np.testing.assert_allclose(reward, net.rest(z.copy())[..., 0])
    for k in range(hidden[0]):
        e = 1e-6 * np.eye(hidden[0])[k]
        found = (net.rest(z + e) - net.rest(z - e))[..., 0] / 2e-6
        np.testing.assert_allclose(gradient[..., k], found, rtol=1e-4, atol=1e-7)


def test_numbers_are_as_good_as_those_of_the_twin_with_torch(tmp_path: Path) -> None:
    file = read_world(str(DISTILLED))
    path = tmp_path / "world.safetensors"
    path.write_bytes(zoo_bytes(file))
    zoo, twin = read_zoo(path), file.world()
    contexts, part = zoo.bandit.contexts(np.random.default_rng(1).random((200, zoo.bandit.uniforms)))
    found = zoo.bandit.pay(part, zoo.action.codes(policy_of(zoo)(contexts * zoo.scale + zoo.mean)))
    state = torch.from_numpy(contexts)[None]
    expected = twin.step(state, best_paid.best_actions(twin, state))[1][0].numpy()
    assert abs(found.mean() - expected.mean()) < 0.002 and np.abs(found - expected).max() < 0.1


@pytest.mark.parametrize("name", names())
def test_no_drawn_action_is_paid_much_more(name: str) -> None:
    world, act = open_world(name), policy(name)
    contexts, part = world.bandit.contexts(np.random.default_rng(0).random((50, world.bandit.uniforms)))
    actions = act(contexts * world.scale + world.mean)
    assert all(world.action.space.contains(action) for action in actions)
    best = world.bandit.pay(part, world.action.codes(actions))
    world.action.space.seed(0)
    for _ in range(100):
        drawn = np.stack([world.action.space.sample() for _ in range(50)])
        assert (world.bandit.pay(part, world.action.codes(drawn)) <= best + 0.02).all()


@pytest.mark.parametrize("name", ["CartPole-v1-bandit", "HalfCheetah-v5-bandit-2", "FrozenLake-v1-bandit"])
def test_one_observation_or_many(name: str) -> None:
    envs = gymnasium.make_vec(f"envolve/{name}", num_envs=5)
    many, _ = envs.reset(seed=0)
    act = policy(name)
    actions = act(many)
    assert actions.shape == envs.action_space.shape
    for one, action in zip(many, actions):
        np.testing.assert_allclose(act(one), action, atol=1e-5)
        np.testing.assert_allclose(act(one.ravel()), action, atol=1e-5)


def test_normalised_observations_lead_to_the_same_actions() -> None:
    name = "Hopper-v5-bandit"
    world = open_world(name)
    contexts, _ = world.bandit.contexts(np.random.default_rng(0).random((100, world.bandit.uniforms)))
    own = contexts * world.scale + world.mean
    seen = units_of(world).of(own)
    kept = (np.abs(seen) < 10).all(-1)  # what is clipped is another observation
    plain, normalised = policy(name)(own[kept]), policy(name, normalised=True)(seen[kept])
    assert kept.sum() > 90 and np.abs(plain - normalised).mean() < 0.01


@pytest.mark.parametrize(
    "about",
    [
        {"kind": "Discrete", "nvec": [4], "start": [2], "shape": [], "dtype": "int64"},
        {"kind": "MultiDiscrete", "nvec": [3, 2, 4], "start": [0, 1, -1], "shape": [3], "dtype": "int64"},
        {"kind": "MultiBinary", "nvec": [2, 2, 2], "start": [0, 0, 0], "shape": [3], "dtype": "int8"},
        {"kind": "Box", "low": [-2.0, 0.0], "high": [2.0, 0.5], "shape": [1, 2], "dtype": "float64"},
    ],
)
def test_codes_have_a_way_back(about: dict[str, object]) -> None:
    action = action_of(about)
    action.space.seed(0)
    drawn = np.stack([action.space.sample() for _ in range(50)])
    back = action.actions(action.codes(drawn))
    assert back.shape == drawn.shape and all(action.space.contains(a) for a in back)
    np.testing.assert_allclose(back, drawn, atol=1e-6)


@pytest.mark.parametrize("name", names())
def test_every_card_says_what_its_world_holds(name: str) -> None:
    figure = envolve.worlds.card(name)["policy"]
    assert figure["episodes"] == 20 and np.isfinite(figure["mean_return"])
    random = envolve.worlds.card(name)["random"]["mean_return"]
    assert figure["mean_return"] > random, "it teaches nothing"


@pytest.mark.parametrize("name", ["CartPole-v1-bandit", "CliffWalking-v1-bandit-2", "Pendulum-v1-bandit"])
def test_a_card_has_the_figures_of_today(name: str) -> None:
    world = open_world(name)
    found, card = held(world, return_range({"env_name": world.task})), envolve.worlds.card(name)["policy"]
    assert found["mean_return"] == pytest.approx(card["mean_return"], rel=0.05)  # another machine rounds differently


def test_an_interval_of_equal_returns_says_what_may_have_been_missed() -> None:
    card = envolve.worlds.card("CartPole-v1-bandit")["policy"]
    assert card["interval"] == pytest.approx(list(interval([500.0] * 20, bounds=(0.0, 500.0))), rel=0.05)
