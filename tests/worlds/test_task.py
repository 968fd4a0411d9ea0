"""The task of a world, as its agents see it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import envolve.worlds
from envolve.worlds.file import WorldError, read_world
from envolve.worlds.task import LIMIT, task_of
from envolve.worlds.tensors import read_tensors, tensor_bytes

MOUNTAIN_CAR = "MountainCar-v0-bandit"
RESCALED = [["RescaleObservation", {"min_obs": -1, "max_obs": 1}]]


def changed(tmp_path: Path, name: str, **about: Any) -> Path:
    """A world of the zoo with other metadata."""
    tensors, metadata = read_tensors(envolve.worlds.shelf.path_of(name))
    path = tmp_path / "changed.safetensors"
    path.write_bytes(tensor_bytes(tensors, {"envolve": json.dumps({**json.loads(metadata["envolve"]), **about})}))
    return path


def test_a_task_without_a_limit_ends() -> None:
    env = envolve.worlds.make_task("CliffWalking-v1-bandit")
    observation, _ = env.reset(seed=0)
    assert np.shape(observation) == (48,)
    ends = [env.step(0)[3] for _ in range(LIMIT)]  # against the upper wall
    assert not any(ends[:-1]) and ends[-1]


def test_a_task_with_flat_observations_is_gymnasiums_own() -> None:
    env = envolve.worlds.make_task("envolve/CartPole-v1-bandit", render_mode="rgb_array")
    plain = gymnasium.make("CartPole-v1")
    assert env.render_mode == "rgb_array" and type(env) is type(plain)
    assert np.array_equal(env.reset(seed=1)[0], plain.reset(seed=1)[0])


def test_wrappers_of_a_file_are_around_its_task(tmp_path: Path) -> None:
    path = changed(tmp_path, MOUNTAIN_CAR, version=3, wrappers=RESCALED)
    env = envolve.worlds.make_task(str(path))
    plain = gymnasium.make("MountainCar-v0")
    low, high = plain.observation_space.low, plain.observation_space.high
    seen, own = env.reset(seed=0)[0], plain.reset(seed=0)[0]
    np.testing.assert_allclose(seen, 2 * (own - low) / (high - low) - 1, rtol=1e-5, atol=1e-6)
    assert env.step(2)[0].shape == (2,)


@pytest.mark.parametrize(
    "version, wrappers, words",
    [
        (1, RESCALED, "wrappers: an unknown key"),
        (3, [["RecordVideo", {"video_folder": "/tmp/x"}]], "wrappers: found 'RecordVideo', expected one of ClipAction"),
        (3, [["RescaleObservation"]], "wrappers: found .*, expected a list of names and arguments"),
        (3, ["RescaleObservation"], "wrappers: found .*, expected a list of names and arguments"),
        (3, {}, "wrappers: found {}, expected a list"),
        (3, RESCALED * 9, "expected a list of names and arguments"),
    ],
)
def test_wrappers_that_a_file_may_not_ask_for(tmp_path: Path, version: int, wrappers: Any, words: str) -> None:
    with pytest.raises(WorldError, match=words):
        read_world(changed(tmp_path, MOUNTAIN_CAR, version=version, wrappers=wrappers))


def test_arguments_that_a_wrapper_does_not_take_are_one_line(tmp_path: Path) -> None:
    world = read_world(changed(tmp_path, MOUNTAIN_CAR, version=3, wrappers=[["RescaleObservation", {"least": 1}]]))
    with pytest.raises(WorldError, match=r"MountainCar-v0: wrapper RescaleObservation {'least': 1}: .*least"):
        task_of(world)
