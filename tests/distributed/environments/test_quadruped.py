from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from envolve.distributed.environments.quadruped import SENSORS, STANCE, Quadruped
from envolve.distributed.files.curriculum import apply
from envolve.outer.config.yaml_lines import ConfigError


def play(env: Quadruped, actions: Any, seed: int = 0) -> tuple[np.ndarray, list[dict[str, Any]], int, bool]:
    """-> rewards, infos, steps, whether it fell."""
    env.reset(seed=seed)
    rewards, infos, fell = [], [], False
    for t in range(env.horizon):
        _, reward, fell, over, info = env.step(actions(t))
        rewards.append(reward)
        infos.append(info)
        if fell or over:
            break
    return np.array(rewards), infos, len(rewards), fell


def trot(t: int) -> np.ndarray:
    """Diagonal legs swing together at 4 Hz, knees a quarter of a turn ahead of hips."""
    phase = 2 * np.pi * 4 * 0.02 * t + np.array([0, np.pi / 2, np.pi, 1.5 * np.pi, np.pi, 1.5 * np.pi, 0, np.pi / 2])
    return 0.3 * np.sin(phase)


def test_it_is_a_gymnasium_environment() -> None:
    env = Quadruped()
    with pytest.warns(UserWarning, match="Box observation space"):  # sensors have no bounds
        check_env(env, skip_render_check=True)
    assert env.action_space.shape == (8,) and env.dt == pytest.approx(0.02)


def test_it_stands_and_trots_and_falls_over() -> None:
    env = Quadruped()
    rewards, infos, steps, fell = play(env, lambda t: np.zeros(8))
    assert steps == 500 and not fell and abs(infos[-1]["x"]) < 0.1 and abs(rewards.sum()) < 5
    rewards, infos, steps, fell = play(env, trot)
    assert steps == 500 and not fell and infos[-1]["x"] > 4.0 and rewards.sum() > 150
    random = np.random.default_rng(0)
    _, _, steps, fell = play(env, lambda t: random.uniform(-1, 1, 8))
    assert fell and steps < 500


def test_reward_is_distance_minus_energy_per_second() -> None:
    env = Quadruped(energy_weight=0.01)
    rewards, infos, _, _ = play(env, trot)
    expected = [(i["distance"] - 0.01 * i["work"]) / 0.02 for i in infos]
    assert rewards == pytest.approx(expected) and all(i["work"] >= 0 for i in infos)
    assert sum(i["distance"] for i in infos) == pytest.approx(infos[-1]["x"], abs=1e-9)


def test_what_it_senses() -> None:
    env = Quadruped(noise=0.0)
    env.reset(seed=1)
    half = np.sqrt(0.5)
    env.set_state(np.array([0, 0, 1, half, 0, half, 0, *STANCE]), np.zeros(14))  # pitched by a quarter: nose down
    seen = env._seen()
    np.testing.assert_allclose(seen[:8], STANCE)
    np.testing.assert_allclose(seen[24:27], env.data.body("trunk").xmat.reshape(3, 3).T @ [0, 0, -1], atol=1e-9)
    np.testing.assert_allclose(seen[24:27], [1, 0, 0], atol=1e-9)


def test_mass_friction_and_noise_can_be_set_while_it_runs() -> None:
    env = Quadruped()
    own, inertia = env.model.body("trunk").mass[0], env.model.body("trunk").inertia.copy()
    apply(env, {"mass": 2.0, "friction": 0.3, "noise": 1.0})
    assert env.model.body("trunk").mass[0] == pytest.approx(own + 2.0)
    np.testing.assert_allclose(env.model.body("trunk").inertia, inertia * (own + 2) / own)
    assert env.model.body("trunk").subtreemass[0] == pytest.approx(env.model.body_mass.sum())  # derived again
    assert env.model.geom("floor").friction[0] == 0.3
    apply(env, {"mass": 0.0})
    assert env.model.body("trunk").mass[0] == pytest.approx(own)


def test_a_load_lowers_it_ice_stops_it_and_noise_is_that_of_the_sensors() -> None:
    def height(mass: float) -> float:
        env = Quadruped(mass=mass)
        play(env, lambda t: np.zeros(8))
        return float(env.data.qpos[2])

    assert height(3.0) < height(0.0) - 1e-3
    far = [play(Quadruped(friction=f), trot)[1][-1]["x"] for f in (0.8, 0.02)]
    assert far[1] < 0.6 * far[0]
    env = Quadruped(noise=2.0)
    env.reset(seed=0)
    draws = np.stack([env._seen() for _ in range(4000)])
    np.testing.assert_allclose(draws.std(0), 2 * SENSORS, rtol=0.1)


def test_episodes_depend_on_their_seed_alone() -> None:
    env = Quadruped(noise=1.0)
    first = play(env, trot, seed=5)[0]
    play(env, trot, seed=6)
    np.testing.assert_array_equal(play(env, trot, seed=5)[0], first)
    np.testing.assert_array_equal(play(Quadruped(noise=1.0), trot, seed=5)[0], first)


@pytest.mark.parametrize("name", ["mass", "friction", "noise"])
@pytest.mark.parametrize("value", [-1.0, float("nan"), "1", True])
def test_values_that_make_no_sense(name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=f"quadruped: {name}: found"):
        Quadruped(**{name: value})
