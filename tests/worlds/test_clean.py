"""The zoo where NumPy and Gymnasium alone are installed, and agents that learn in it."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

import gymnasium
import pytest

import envolve.worlds
from envolve.agents import peers
from envolve.worlds.shelf import names
from examples import zoo_ppo
from tests.test_wheel import run, wheel  # noqa: F401  a fixture

NEEDED = ("numpy", "numpy.libs", "gymnasium", "cloudpickle", "farama_notifications", "typing_extensions.py")
USE = """
import sys
import gymnasium, envolve.worlds
for name in envolve.worlds.names():
    env = gymnasium.make("envolve/" + name)
    env.reset(seed=0)
    env.step(env.action_space.sample())
    envs = gymnasium.make_vec("envolve/" + name, num_envs=4)
    envs.reset(seed=0)
    envs.step(envs.action_space.sample())
    print(name, envolve.worlds.card(name)["task"])
found = envolve.worlds.check_learner(lambda env_id, steps, seed: envolve.worlds.policy(env_id), like="ppo")
assert found.ok and min(map(min, found.shares.values())) > 0.999, found
missing = [m for m in ("torch", "yaml", "pydantic", "rich", "mujoco") if m in sys.modules]
assert not missing, missing
"""


@pytest.mark.slow
def test_numpy_and_gymnasium_are_enough(wheel: Path, tmp_path: Path) -> None:  # noqa: F811
    venv = tmp_path / "venv"
    run(sys.executable, "-m", "venv", venv, cwd=tmp_path)
    (site,) = venv.glob("lib/python*/site-packages")
    here = Path(sysconfig.get_paths()["purelib"])
    for name in NEEDED:
        if (here / name).exists():
            (site / name).symlink_to(here / name)
    python = venv / "bin/python"
    run(python, "-m", "pip", "install", "-q", "--no-deps", wheel, cwd=tmp_path)
    lines = run(python, "-c", USE, cwd=tmp_path).splitlines()
    assert [line.split()[0] for line in lines] == names()
    broken = subprocess.run([python, "-c", "import torch"], cwd=tmp_path, capture_output=True)
    assert broken.returncode, "torch was there after all"


WON_OR_LOST = ("FrozenLake-v1",)  # tasks whose return is 0 or 1


def best_of(card: dict, agent: str) -> float:
    return float(card["unseen"][agent]["mean_return"])


def is_installed(name: str) -> bool:
    """Returns whether the task of a world can be made here. Its package may be missing, as Box2D's."""
    try:
        envolve.worlds.make_task(name).close()
    except gymnasium.error.Error:
        return False
    return True


def best_kind(name: str) -> str:
    """The agents of Stable-Baselines3 that reach most in a world, by its card; PPO where none is clearly better."""
    card = envolve.worlds.card(name)
    best = max(card["unseen"], key=lambda kind: best_of(card, kind))
    chance, most = card["random"]["mean_return"], best_of(card, best)
    fine = "ppo" in card["unseen"] and best_of(card, "ppo") >= chance + 0.95 * (most - chance)
    return "ppo" if fine else best


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in names() if best_kind(n) == "ppo"])
def test_three_agents_learn_what_the_card_promises(name: str) -> None:
    """Three agents; their mean is at least 95 % of the way from random actions to the card's PPO."""
    card = envolve.worlds.card(name)
    if not is_installed(name):
        pytest.skip(f"{card['task']} is not installed")
    chance, promised = card["random"]["mean_return"], best_of(card, "ppo")
    episodes = 100 if card["task"] in WON_OR_LOST else 10
    found = [zoo_ppo.test(zoo_ppo.train(f"envolve/{name}", 20_000, seed), name, episodes) for seed in range(3)]
    luck = 2 * (0.25 / (3 * episodes)) ** 0.5 if card["task"] in WON_OR_LOST else 0.0  # two standard errors
    assert sum(found) / 3 >= chance + 0.95 * (promised - chance) - luck, (found, chance, promised)


@pytest.mark.parametrize(
    "name, steps", [("CartPole-v1-bandit-3", 16_384), ("CliffWalking-v1-bandit-2", 8192), ("Acrobot-v1-bandit", 16_384)]
)
def test_an_agent_learns_in_seconds_what_the_card_promises(name: str, steps: int) -> None:
    """One agent of the example, two CPU seconds: at least 95 % of the way from random actions to the card's PPO."""
    card = envolve.worlds.card(name)
    chance, promised = card["random"]["mean_return"], best_of(card, "ppo")
    found = zoo_ppo.test(zoo_ppo.train(f"envolve/{name}", steps, 0), name, 5)
    assert found >= chance + 0.95 * (promised - chance), (found, chance, promised)


@pytest.mark.slow
def test_normalised_observations_help_the_example_in_a_robot_s_world() -> None:
    """docs/zoo.md: three agents have 592 without and 2,689 with them."""
    name = "Hopper-v5-bandit-2"
    plain, normalised = (
        sum(zoo_ppo.test(zoo_ppo.train(f"envolve/{name}", 10_240, seed, units), name, 5, units) for seed in range(3))
        for units in (False, True)
    )
    assert normalised > 2 * plain


@pytest.mark.slow
@pytest.mark.parametrize("name", [*names()[:3], *(n for n in names()[3:] if best_kind(n) != "ppo")])
def test_stable_baselines3_learns_what_the_card_promises(name: str) -> None:
    """One agent in each of three worlds, and in all that the example's PPO is not for. One agent has 80 % of the way
    from random actions to the card's mean, in robots' worlds, where agents differ by half, at least 50 %."""
    pytest.importorskip("stable_baselines3")
    if not is_installed(name):
        pytest.skip(f"{envolve.worlds.card(name)['task']} is not installed")
    card, kind = envolve.worlds.card(name), best_kind(name)
    shown = peers.shown(kind, gymnasium.make(f"envolve/{name}"))
    model = peers.algorithm(kind)("MlpPolicy", shown, seed=0, device="cpu")
    model.learn(card["unseen"][kind]["train_steps"])
    pupil = peers.pupil(model)
    env, returns = envolve.worlds.make_task(name), []
    for episode in range(10):
        observation, _ = env.reset(seed=episode)
        total, over = 0.0, False
        while not over:
            action = pupil.predict(observation, deterministic=True)[0]
            observation, reward, terminated, truncated, _ = env.step(action)
            total, over = total + float(reward), terminated or truncated
        returns.append(total)
    chance, promised = card["random"]["mean_return"], best_of(card, kind)
    share = 0.8 if kind == "ppo" else 0.5
    assert sum(returns) / 10 >= chance + share * (promised - chance), (returns, promised)
