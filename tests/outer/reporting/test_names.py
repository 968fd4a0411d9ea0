"""Names in pictures and pages: tasks, observations, actions, scores."""

from __future__ import annotations

import gymnasium
import pytest

from envolve.envs.outside.define import define
from envolve.envs.outside.measure import _measure
from envolve.envs.task import make_task
from envolve.experiments.paper.common.series import learner, series_name
from envolve.outer.reporting import names
from envolve.outer.reporting.comparison import return_bounds


def test_a_task_has_one_plain_name() -> None:
    for name in ("CartPole-v0", "CartPole-v1", "gymnasium:CartPole-v1", "CartPole"):
        assert names.plain_name(name) == "CartPole"
        assert names.feature(name, 2) == "pole angle, rad" and names.action(name, 1) == "push right"
    assert names.plain_name("gymnasium:my_env.py:MyEnv") == "my_env.py:MyEnv"
    assert names.feature("Unheard-v3", 4) == "observation 4" and names.action("CartPole-v0", 7) == "action 7"


@pytest.mark.parametrize("name", sorted(set(names.FEATURES) - {"LunarLander", "InvertedPendulum"}))
def test_every_number_has_a_name(name: str) -> None:
    """As many as Gymnasium's own environment has. Box2D and MuJoCo are not needed to know the others."""
    newest = max(i for i in gymnasium.registry if i.rpartition("-v")[0] == name)
    space = gymnasium.make(newest).observation_space
    assert space.shape == (len(names.FEATURES[name]),)


def test_learners_and_series_have_names_for_people() -> None:
    assert learner("duelingddqn") == "Dueling DDQN" and learner("DDQN_vary") == "DDQN"
    assert learner("ql_icm") == "Q-learning, curious" and learner("my_agent.py:Mine") == "my_agent.py:Mine"
    assert learner(None) == ""
    assert series_name("mode 2") == "additive potential RN" and series_name("ddqn real") == "DDQN, real task"
    assert series_name("no noise") == "no noise"


def test_a_score_is_named_by_what_it_is() -> None:
    assert names.objective("auc").startswith("score, area") and names.objective("other") == "score (other)"


def test_what_returns_can_be() -> None:
    own = {"env_name": "CartPole-v0", "envs": {"CartPole-v0": {"max_steps": 100}}}
    assert names.return_range(own) == (0.0, 100.0) and names.return_range({"env_name": "CartPole-v0"}) == (0.0, 200.0)
    assert names.return_range({"env_name": "gymnasium:MountainCar-v0", "envs": {}}) == (-200.0, 0.0)
    wrapped = {"env_name": "gymnasium:CartPole-v1", "envs": {"gymnasium:CartPole-v1": {"wrappers": ["mine.py:Scaled"]}}}
    assert names.return_range(wrapped) is None and names.return_range({"env_name": "Pendulum-v1"}) is None
    other = {"env_name": "CartPole-v1", "envs": {"CartPole-v1": {"env_kwargs": {"sutton_barto_reward": True}}}}
    assert names.return_range(other) is None, "its rewards are -1 and 0"
    for name in ("CartPole-v0", "Acrobot-v1", "MountainCar-v0", "Pendulum-v0", "Cliff"):
        task = make_task(name, max_steps=77)
        assert return_bounds(task) == names.return_range({"env_name": name, "envs": {name: {"max_steps": 77}}})
    plain = {"env_kwargs": {}, "wrappers": []}
    for wrappers, bounds in (([], (0.0, 50.0)), (["TransformReward"], None)):
        section = {**plain, "wrappers": wrappers, "measured": _measure("gymnasium:CartPole-v1", plain, 0, None)}
        assert return_bounds(define("gymnasium:CartPole-v1", section)(max_steps=50)) == bounds
    for name in names.ENDS:  # the time limits are Gymnasium's
        if gymnasium.spec(name).max_episode_steps != names.ENDS[name][2]:
            raise AssertionError(name)
