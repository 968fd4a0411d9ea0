"""The model's method in the user's class: what it sees, what it may return, what it is told."""

from __future__ import annotations

import sys
from pathlib import Path

import gymnasium
import numpy as np
import pytest

from envolve.llm.gym.allowlist import check_method
from envolve.llm.gym.method import (
    BadReward,
    UserError,
    checked_reward,
    compile_method,
    feedback,
    load_class,
    with_reward,
)
from tests.llm.gym.user import method, write_user_env


class Position(list):
    """Not copied on its way to the reward, as Box2D's vectors are not."""


class Base(gymnasium.Env):
    def __init__(self) -> None:
        self.state = np.zeros(2)
        self.legs = [1, 2]
        self.position = Position([1, 2])

    def reset(self, seed=None, options=None):
        return self.state, {}

    def ask(self):
        return self.compute_reward(self.state, np.ones(1))


def made(body: str, **names: object) -> Base:
    env = with_reward(Base, method(body), names)()
    env.reset()
    return env


def test_the_reward_sees_the_environment_and_its_constants() -> None:
    env = made("return self.state[0] + LENGTH, {'legs': len(self.legs)}", LENGTH=3)
    assert env.ask() == (3.0, {"legs": 2.0})


@pytest.mark.parametrize(
    "body",
    [
        "s = self.state\ns += 1\nreturn 0.0, {}",
        "x += 1\nreturn 0.0, {}",
        "l = self.legs\nl += [3]\nl.append(4)\nself.state[0] = 3\nreturn 0.0, {}",  # what no allow-list lets through
        "x[0] = 3\nreturn 0.0, {}",
        "c = {'leg': self.position}\nc['leg'] += [3]\nreturn 0.0, {}",
    ],
)
def test_the_environment_stays_as_it_is(body: str) -> None:
    env = made(body)
    env.ask()
    assert list(env.state) == [0, 0] and env.legs == env.position == [1, 2]


def test_nothing_is_written_to_self() -> None:
    with pytest.raises(AttributeError, match="reward_memory"):
        made("self.state = 3\nreturn 0.0, {}").ask()


def test_the_memory_lasts_for_an_episode() -> None:
    env = made("n = self.reward_memory.get('n', 0)\nself.reward_memory['n'] = n + 1\nreturn n, {}")
    assert [env.ask()[0], env.ask()[0]] == [0, 1]
    env.reset()
    assert env.ask()[0] == 0


def test_it_is_not_run_before_the_first_reset() -> None:
    env = with_reward(Base, "raise_at_import()\n" + method("return 0.0, {}"), {})()
    with pytest.raises(UserError, match="before reset"):
        env.ask()
    with pytest.raises(NameError):
        env.reset()


def test_names_of_numpy_and_math_can_be_imported() -> None:
    lines = "from math import sqrt, pi as p\nfrom numpy import clip\nimport numpy as q\nimport math\n"
    code = lines + "def compute_reward(self):\n    return clip(q.exp(0.0) + sqrt(4.0) + math.floor(p), 0, 5), {}\n"
    check_method(code)
    assert compile_method(code, {})(None) == (5.0, {})


def test_builtins_are_few() -> None:
    with pytest.raises(NameError):
        made("return open('/etc/passwd'), {}").ask()


@pytest.mark.parametrize(
    "returned, message",
    [
        (1.0, "returned a float, expected"),
        ((1.0, [1.0]), "a tuple of 2"),
        ((float("nan"), {}), "the total reward is nan"),
        ((np.ones(2), {}), "has shape \\(2,\\)"),
        (("x", {}), "is a str, expected a number"),
        ((None, {}), "the total reward"),
        ((1.0, {"a": np.inf}), "the component 'a' is inf"),
        ((1.0, {1: 1.0}), "a component is called 1"),
        ((1.0, {"fitness_score": 1.0}), "choose another name"),
        ((1.0, {str(i): 1.0 for i in range(65)}), "65 components"),
    ],
)
def test_what_is_no_reward(returned: object, message: str) -> None:
    with pytest.raises(BadReward, match=message):
        checked_reward(returned)


def test_numbers_come_in_many_types() -> None:
    expected = (1.0, {"a": 2.0, "b": 1.0})
    assert checked_reward((np.float32(1), {"a": np.array([2.0]), "b": True})) == expected


def test_feedback_shows_the_models_lines_only() -> None:
    env = made("speed = self.velocity\nreturn speed, {}")
    with pytest.raises(AttributeError) as error:
        env.ask()
    text = feedback(error.value)
    assert "line 2, in compute_reward" in text and "speed = self.velocity" in text and "gym_method" not in text
    assert text.endswith("'Base' object has no attribute 'velocity'")


def test_the_users_class_is_loaded_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setitem(sys.modules, "user_env", None)
    env = write_user_env(tmp_path) / "env_code" / "env.py"
    found, names = load_class(env, "Walk")
    assert found.__name__ == "Walk" and names["LENGTH"] == 5.0 and "np" not in names
    with pytest.raises(UserError, match="found no class 'Wolk', expected one of Walk"):
        load_class(env, "Wolk")
    env.write_text("import nowhere_to_be_found")
    with pytest.raises(UserError, match="nowhere_to_be_found"):
        load_class(env, "Walk")
