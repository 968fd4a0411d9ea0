from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.utils.env_checker import check_env

from envolve.distributed.environments.goal_env import GoalEnv
from envolve.distributed.files.params import TrainParamsBase
from envolve.envs.goal.episodes import Episodes
from envolve.envs.goal.task import make_goal_task
from envolve.envs.sim.simulator import SimulatorError


def play(env: GoalEnv, seed: int, steps: int) -> list[Any]:
    obs, _ = env.reset(seed=seed)
    found: list[Any] = [obs]
    for t in range(steps):
        found.append(env.step(np.sin(t + np.arange(2)).astype(np.float32)))
    return found


def test_it_is_gymnasiums() -> None:
    check_env(GoalEnv("reacher", 20), skip_render_check=True)


def test_it_is_the_task() -> None:
    """Against its episodes: where they begin, where they lead, what is near, and their end."""
    env, T = GoalEnv("reacher", 30), 30
    first, *steps = play(env, 7, T)
    env.reset(seed=7)
    key = torch.tensor([int(np.random.Generator(np.random.PCG64(np.random.SeedSequence(7))).integers(2**62))])
    task = make_goal_task("reacher")
    episodes = Episodes(task, key, 1, episode_length=T)
    assert np.array_equal(first["observation"], episodes.features[0, 0])
    assert np.array_equal(first["desired_goal"], episodes.goal[0, 0])
    for t, (obs, reward, terminated, truncated, info) in enumerate(steps):
        outcome = episodes.advance(torch.tensor(np.sin(t + np.arange(2)), dtype=torch.float32)[None, None])
        assert np.array_equal(obs["observation"], outcome.features[0, 0])
        assert np.array_equal(obs["achieved_goal"], obs["observation"][4:7])
        near = np.linalg.norm(obs["achieved_goal"] - obs["desired_goal"]) < 0.05
        assert info["success"] == near == reward and not terminated and truncated == (t == T - 1)


def test_an_episode_depends_on_its_seed_alone() -> None:
    one, other = GoalEnv("reacher", dense=True), GoalEnv("reacher", dense=True)
    other.reset(seed=1)
    a, b, c = play(one, 3, 5)[-1], play(other, 3, 5)[-1], play(other, 4, 5)[-1]
    assert np.array_equal(a[0]["observation"], b[0]["observation"]) and a[1] == b[1] < 0
    assert not np.array_equal(a[0]["desired_goal"], c[0]["desired_goal"])
    drawn = other.reset()[0]["desired_goal"]
    assert not np.array_equal(drawn, other.reset()[0]["desired_goal"])


def test_an_observation_is_no_view() -> None:
    env = GoalEnv("reacher")
    obs, _ = env.reset(seed=1)
    before = {name: part.copy() for name, part in obs.items()}
    env.step(np.ones(2, np.float32))
    assert all(np.array_equal(obs[name], part) for name, part in before.items())


@pytest.mark.parametrize("name", ["simple_u_maze", "ant"])
def test_others_are_learned_in_too(name: str) -> None:
    class Params(TrainParamsBase):
        algorithm = "CRL"

        def env_ctor(self, seed: int, *args: Any, **kwargs: Any) -> GoalEnv:
            return GoalEnv(name)

    env = Params().collect_env(0, 0)
    obs, _ = env.reset(seed=0)
    assert env.observation_space.contains(obs) and env.step(env.action_space.sample())[4].keys() == {"success"}


def test_an_unknown_task() -> None:
    with pytest.raises(ValueError, match="nearest: 'reacher'"):
        GoalEnv("reachr")


def test_pictures_show_the_goal_and_what_moves() -> None:
    """Where there is no OpenGL, that is what is said."""
    assert GoalEnv("reacher").render() is None
    env = GoalEnv("reacher", render_mode="rgb_array")
    env.reset(seed=1)
    try:
        before = env.render()
    except SimulatorError as e:
        pytest.skip(str(e))
    for _ in range(20):
        env.step(np.ones(2, np.float32))
    after = env.render()
    env.close()
    assert before.shape == (352, 480, 3) and before.dtype == np.uint8 and (before != after).any()
    green = (after[..., 1].astype(int) - after[..., 0] > 40).mean()
    assert green > 1e-4
