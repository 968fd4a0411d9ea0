"""A reward sees the environment and cannot change it, whatever the allow-list lets through."""

from __future__ import annotations

import collections
import dataclasses
from typing import Any, NamedTuple

import numpy as np
import pytest

from envolve.llm.gym.allowlist import check_method
from envolve.llm.gym.method import with_reward
from envolve.llm.gym.view import Self, View, copied
from envolve.llm.vetting.text.parsing import VetError


class Vector:
    """As a physics engine has them: numbers by name and by index, arithmetic of its own."""

    def __init__(self, x: float, y: float) -> None:
        self.x, self.y = x, y

    def __add__(self, other: Vector) -> Vector:
        return Vector(self.x + other.x, self.y + other.y)

    def __getitem__(self, i: int) -> float:
        return (self.x, self.y)[i]

    def __len__(self) -> int:
        return 2

    def dot(self, other: Vector) -> float:
        return self.x * other.x + self.y * other.y


@dataclasses.dataclass
class Robot:
    pos: np.ndarray
    speed: Vector


class Pair(NamedTuple):
    left: np.ndarray
    right: list[float]


class Env:
    """Its fitness is how far everything in it has really gone."""

    def __init__(self) -> None:
        self.robot, self.sim = Robot(np.zeros(2), Vector(1, 2)), {"pos": np.zeros(2)}
        self.bodies, self.pair = [np.zeros(2)], Pair(np.zeros(2), [0.0])
        self.past = collections.deque([np.zeros(2)], maxlen=3)

    def reset(self, **kwargs: Any) -> tuple[int, dict[str, Any]]:
        return 0, {}

    def step(self, action: Any) -> float:
        self.compute_reward(action)  # type: ignore[attr-defined]
        everything = (self.robot.pos, self.sim["pos"], *self.bodies, *self.pair, *self.past, action)
        return float(sum(np.abs(part).sum() for part in everything))


CHANGES = (
    "np.add(0.0, 100.0, self.robot.pos)", "np.add(0.0, 100.0, self.sim['pos'])", "np.add(0.0, 100.0, action)",
    "np.clip(self.bodies[0], 100.0, 200.0, self.bodies[0])", "self.robot.pos.clip(100.0, 200.0, self.robot.pos)",
    "np.nan_to_num(self.robot.pos, False)", "x = np.asarray(self.pair.left)\n    np.add(0.0, 1.0, x)",
    "for x in self.past:\n        np.add(0.0, 1.0, x)", "np.add(0.0, 1.0, ARRAY)",
)  # fmt: skip
REWARD = "def compute_reward(self, action):\n    {}\n    return 0.0, {{}}\n"


@pytest.mark.parametrize("body", CHANGES)
def test_what_is_accepted_changes_nothing(body: str) -> None:
    code, array = REWARD.format(body), np.zeros(2)
    check_method(code)
    env = with_reward(Env, code, {"ARRAY": array})()
    env.reset()
    assert env.step(np.zeros(2)) == 0.0 and not array.any()


@pytest.mark.parametrize(
    "body, said",
    [
        ("x = self.robot.pos.astype(np.float64, copy=False)\n    x[0] = 1.0", "the argument 'copy' is not allowed"),
        ("x = np.array(self.robot.pos, copy=False)\n    x[0] = 1.0", "the argument 'copy' is not allowed"),
        ("np.median(self.robot.pos, overwrite_input=True)", "the argument 'overwrite_input' is not allowed"),
    ],
)
def test_a_model_is_told_early(body: str, said: str) -> None:
    with pytest.raises(VetError, match=said):
        check_method(REWARD.format(body))


def test_a_function_of_the_codes_own_makes_nothing_new() -> None:
    code = REWARD.format("x = zeros(self.robot.pos)\n    x[0] = 100.0")
    with pytest.raises(VetError, match="may change the environment; make your own first"):
        check_method("def zeros(a):\n    return a\n\n\n" + code)
    check_method(code.replace("zeros(", "np.zeros_like("))


def test_objects_of_the_environment_are_read_as_they_are() -> None:
    env = Env()
    view: Any = Self(env)
    assert isinstance(view.robot, View) and (view.robot.speed.x, view.robot.speed[1]) == (1, 2)
    total = view.robot.speed + view.robot.speed
    assert (total.x, total.y, len(total), list(total)) == (2, 4, 2, [2, 4]) and env.robot.speed.x == 1
    assert view.robot.speed.dot(view.robot.speed) == 5 and float(np.sum(view.robot.speed)) == 3
    assert view.robot == view.robot and view.robot != view.pair and bool(view.robot)
    assert view.pair.right == [0.0] and type(view.pair) is Pair and view.past[0].shape == (2,)
    assert copied({"a": {1, 2}, 3: (None, "x", 1j)}) == {"a": {1, 2}, 3: (None, "x", 1j)}
    objects = np.array([Vector(1, 2), None], dtype=object)
    assert copied(objects)[0].x == 1 and copied(objects)[1] is None
    with pytest.raises(AttributeError, match="must not change the environment"):
        view.robot.speed.x = 3
    with pytest.raises(TypeError):
        view.robot + 1


def test_tensors_are_copies() -> None:
    torch = pytest.importorskip("torch")
    own = torch.zeros(2)
    found = copied({"x": own})["x"]
    found += 1
    assert not own.any() and found.sum() == 2
