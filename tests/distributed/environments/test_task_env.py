from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from envolve.distributed.environments.task_env import TaskEnv
from envolve.distributed.files.curriculum import apply
from envolve.distributed.files.params import TrainParamsBase
from envolve.envs.task import make_task
from envolve.envs.worlds.export import WorldEnv
from envolve.envs.worlds.world import RealTask
from envolve.outer.config.yaml_lines import ConfigError
from tests.experiments.test_eval_shapers import GOOD, RAISES, WIDE


def play(env: Any, seed: int, steps: int = 20) -> np.ndarray:
    """-> rewards and observations [steps, 1 + F], of actions that depend on the step alone."""
    rows = [np.concatenate([[0.0], env.reset(seed=seed)[0]])]
    for t in range(steps):
        obs, reward, terminated, truncated, _ = env.step(np.sin(t + np.arange(env.action_space.shape[0])))
        rows.append(np.concatenate([[reward], obs]))
        if terminated or truncated:
            break
    return np.stack(rows)


@pytest.mark.parametrize(
    "make", [lambda: TaskEnv("HalfCheetah"), lambda: WorldEnv(RealTask(make_task("Pendulum-v0"), 1), 50)]
)
def test_a_users_class_may_return_tasks_of_this_project(make: Any) -> None:
    class Params(TrainParamsBase):
        def env_ctor(self, seed: int, *args: Any, **kwargs: Any) -> Any:
            return make()

    env = Params().collect_env(0, 0)
    assert env.observation_space.shape == env.reset(seed=0)[0].shape


def test_half_cheetah_is_gymnasiums() -> None:
    """From its beginning, with its physics and its reward."""
    ours, theirs = TaskEnv("HalfCheetah"), gymnasium.make("HalfCheetah-v5", disable_env_checker=True)
    theirs.reset(seed=0)
    inner: Any = theirs.unwrapped
    ours.reset(seed=3)
    sim: Any = ours.envs.task.sim
    inner.set_state(sim.qpos[0].numpy(), sim.qvel[0].numpy())
    for t in range(30):
        action = np.sin(t + np.arange(6)).astype(np.float32)
        obs, reward, _, _, info = ours.step(action)
        expected, paid, _, _, _ = theirs.step(action)
        np.testing.assert_allclose(obs, expected, rtol=1e-4, atol=1e-4)
        assert reward == pytest.approx(float(paid), rel=1e-3, abs=1e-4)


def test_an_episode_depends_on_its_seed_alone() -> None:
    env = TaskEnv("Cartpole")
    first = play(env, 1)
    other = play(env, 2, 7)
    assert not np.array_equal(first[0], other[0])
    np.testing.assert_array_equal(play(env, 1), first)
    np.testing.assert_array_equal(play(TaskEnv("Cartpole"), 1), first)
    begins = [env.reset()[0] for _ in range(2)]  # without seeds each one is another
    assert not np.array_equal(*begins)


def test_the_time_limit_truncates_and_what_ends_terminates() -> None:
    env = TaskEnv("HalfCheetah")
    env.reset(seed=0)
    env.envs.t += env.envs.task.max_steps - 1
    _, _, terminated, truncated, _ = env.step(np.zeros(6))
    assert (terminated, truncated) == (False, True)
    assert env.reset()[0].shape == (17,) and env.step(np.zeros(6))[3] is False


def test_a_curriculum_moves_the_tasks_parameters() -> None:
    env = TaskEnv("HalfCheetah", config={"friction_scale": [0.5, 0.9]})
    env.reset(seed=0)
    assert float(env.envs.task.state["mass_scale"][0]) == 1.0
    assert 0.5 <= float(env.envs.task.state["friction_scale"][0]) <= 0.9
    heavy = play(env, 5)
    apply(env, {"mass_scale": 2.0})
    assert not np.allclose(play(env, 5)[-1], heavy[-1]) and float(env.envs.task.state["mass_scale"][0]) == 2.0


def test_a_shaped_task(tmp_path: Path) -> None:
    files = {"good": GOOD, "wide": WIDE, "raises": RAISES}
    for name, text in files.items():
        (tmp_path / f"{name}.py").write_text(text)
    env = TaskEnv("Cartpole", shaper=tmp_path / "wide.py")
    assert (env.observation_space.shape, env.action_space.shape) == ((5,), (2,))
    shaped = TaskEnv("Cartpole", shaper=tmp_path / "good.py")
    shaped.reset(seed=0)
    _, reward, _, _, info = shaped.step(np.zeros(1))
    angle = float(shaped.envs.task.state["pole_angle"][0])
    assert reward == pytest.approx(np.cos(3 * angle), rel=1e-5) and info["score"] != reward
    broken = TaskEnv("Cartpole", shaper=tmp_path / "raises.py")
    broken.reset(seed=0)
    with pytest.raises(ConfigError, match="TaskEnv: raises: KeyError"):
        broken.step(np.zeros(1))


def test_names_and_values_that_are_wrong(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="HalfCheeta"):
        TaskEnv("HalfCheeta")
    with pytest.raises(ConfigError, match="no parameter 'mass'; nearest: mass_scale"):
        TaskEnv("HalfCheetah", config={"mass": 1.0})
    env = TaskEnv("HalfCheetah", config={"mass_scale": "heavy"})
    with pytest.raises(ConfigError, match="mass_scale: found 'heavy', expected a number or a range"):
        env.reset()
