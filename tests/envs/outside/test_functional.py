"""A functional task as an environment: its steps are the task's, and Gymnasium accepts it."""

from __future__ import annotations

from pathlib import Path

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.utils.env_checker import check_env

from envolve.core import plugins
from envolve.envs.outside.build import class_in
from envolve.envs.outside.functional import TaskEnv, environment_class
from envolve.envs.task import TASKS, Task, make_task

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "my_task.py"
NAMES = ("CartPole-v0", "Pendulum-v0", "Cliff", "HalfCheetah-v3")


def made(name: str, **options: object) -> TaskEnv:
    env = environment_class(type("Made", (_class_of(name),), {}))(**options)
    assert isinstance(env, TaskEnv)
    return env


def _class_of(name: str) -> type:
    found = TASKS.find(name)
    return found if isinstance(found, type) else type(make_task(name))


@pytest.mark.parametrize("name", NAMES)
def test_every_step_is_the_tasks(name: str) -> None:
    env, task = made(name, max_steps=30), make_task(name, 30)
    observation, _ = env.reset(seed=3)
    state = task.reset(torch.from_numpy(np.random.default_rng(3).random((1, 1, task.reset_uniforms))))
    env.action_space.seed(0)
    for step in range(30):
        assert np.array_equal(observation, task.observe(state)[0, 0].numpy())
        action = env.action_space.sample()
        chosen = torch.as_tensor(action).reshape(1, 1) if task.num_actions else torch.as_tensor(action)[None, None]
        before = state
        state, reward, terminated = task.step(state, chosen)
        observation, paid, ended, cut, info = env.step(action)
        assert (paid, ended) == (float(reward), bool(terminated)) or task.reward_noise
        assert cut == (step == 29 and not ended)
        assert list(info) == list(task.info_names)
        if info:
            assert list(info.values()) == task.info(before, chosen, state).reshape(-1).tolist()
        if ended:
            break


@pytest.mark.parametrize("name", NAMES)
def test_gymnasiums_own_check(name: str) -> None:
    env = made(name)
    check_env(env, skip_render_check=True)
    task = make_task(name)
    assert env.spec is not None and env.spec.max_episode_steps == task.max_steps


def test_a_class_in_a_file() -> None:
    cls = class_in(plugins.load(EXAMPLE), "PointMass")
    assert issubclass(cls, gymnasium.Env) and cls.__name__ == "PointMass"
    env = cls(max_steps=7)
    env.reset(seed=0)
    assert [env.step(1)[3] for _ in range(7)] == [False] * 6 + [True]
    assert env.spec.reward_threshold == -20.0
    with pytest.raises(plugins.PluginError, match="found no class PointMas, did you mean PointMass"):
        class_in(plugins.load(EXAMPLE), "PointMas")


def test_a_class_that_is_neither(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("class Mine: pass\n")
    words = "found no subclass of gymnasium.core.Env or envolve.envs.task.Task"
    with pytest.raises(plugins.PluginError, match=words):
        class_in(plugins.load(tmp_path / "mine.py"), "Mine")


def test_noise_of_the_reward_is_added() -> None:
    class Noisy(_class_of("Cliff")):  # type: ignore[misc]
        reward_noise = 0.5

    env, plain = environment_class(Noisy)(), made("Cliff")
    rewards = []
    for e in (env, plain):
        e.reset(seed=0)
        rewards.append([e.step(0)[1] for _ in range(400)])
    difference = np.array(rewards[0]) - np.array(rewards[1])
    assert abs(difference.std() - 0.5) < 0.06 and abs(difference.mean()) < 0.08


def test_step_before_reset_is_refused() -> None:
    with pytest.raises(gymnasium.error.ResetNeeded):
        made("Cliff").step(0)
    assert issubclass(TaskEnv, gymnasium.Env) and not issubclass(TaskEnv, Task)
