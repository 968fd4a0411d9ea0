"""Measuring an environment: the child finds the modules of its parent, and what cannot be used is refused with its
reason."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from envolve.envs.outside.flat import FlatError
from envolve.envs.outside.measure import LUCKLESS, OutsideError, _measure, measure
from envolve.envs.outside.spaces import SpaceError, action_of, observation_of

PLAIN: dict[str, Any] = {"env_kwargs": {}, "wrappers": []}
WRAPPER = """
import gymnasium


class W(gymnasium.RewardWrapper):
    def reward(self, reward):
        return {factor} * reward
"""


def test_a_child_searches_the_folders_of_its_parent_and_not_the_current_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file named as one of Python's own broke it, and another module of the same name was measured."""
    for name, factor in (("project", 10), ("elsewhere", 1000)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "my_wrapper_here.py").write_text(WRAPPER.format(factor=factor))
    (tmp_path / "elsewhere" / "random.py").write_text("raise ImportError('not Python's own')")
    monkeypatch.chdir(tmp_path / "elsewhere")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "project"), *(p for p in sys.path if p)])
    found = measure("gymnasium:CartPole-v1", {**PLAIN, "wrappers": ["my_wrapper_here:W"]})
    assert found["reward_scale"] == pytest.approx(0.1)


def test_a_wrapper_that_exits_when_it_is_imported_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "exits_at_once.py").write_text("import sys\nsys.exit(3)")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    with pytest.raises(OutsideError, match="wrapper exits_at_once:W: SystemExit: 3"):
        measure("gymnasium:CartPole-v1", {**PLAIN, "wrappers": ["exits_at_once:W"]})


class NeverEnds(gymnasium.Env[np.ndarray, int]):
    """Fails in the 13th step of every episode: once in thirteen calls, and none comes to an end."""

    observation_space = spaces.Box(-1, 1, (2,))
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.t = 0
        return np.zeros(2, np.float32), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.t += 1
        if self.t == 13:
            raise RuntimeError("no episode is this long")
        return np.zeros(2, np.float32), 1.0, False, False, {}


def test_an_environment_of_which_every_episode_fails_is_refused() -> None:
    with pytest.raises(FlatError, match=rf"no episode is this long in .* steps: {LUCKLESS} of {LUCKLESS} episodes"):
        _measure("gymnasium:NeverEnds-v0", PLAIN, 0, NeverEnds)


def test_spaces_without_room_are_refused_with_their_reason() -> None:
    with pytest.raises(SpaceError, match="with low >= high, expected low < high"):
        action_of(spaces.Box(np.array([0.0, 1.0]), np.array([0.0, 2.0])))
    with pytest.raises(SpaceError, match="without finite bounds"):
        action_of(spaces.Box(-np.inf, np.inf, (2,)))
    with pytest.raises(SpaceError, match=r"found observations Dict\(\) without any part"):
        observation_of(spaces.Dict())
