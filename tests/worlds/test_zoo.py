"""The zoo: NumPy's worlds against torch's, Gymnasium's checker, batched against single, files that are damaged."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from hypothesis import given, settings
from hypothesis import strategies as st

import envolve.worlds
from envolve.envs.task import make_task
from envolve.envs.worlds.export import load_world
from envolve.envs.worlds.file import WorldFileError, read_world, save_world
from envolve.outer.zoo.convert import zoo_bytes
from envolve.worlds.env import BLOCK, ZooEnv, ZooVectorEnv
from envolve.worlds.file import WorldError
from envolve.worlds.file import read_world as read_zoo
from envolve.worlds.shelf import names, open_world, path_of
from envolve.worlds.tensors import TensorFileError, read_tensors, tensor_bytes
from tests.envs.worlds.test_export import random_actions, saved
from tests.envs.worlds.test_file import make_config, make_flat

ROOT = Path(__file__).parents[2]
BANDIT = {"contextual_bandit": True, "hidden_size": 32, "hidden_layer": 1}


def pair(tmp_path: Path, task: str = "CartPole-v0", **section: object) -> tuple[str, Path]:
    """The same world as model.pt and as a file of the zoo."""
    model = saved(tmp_path, "se", task, **{**BANDIT, **section})
    path = tmp_path / "world.safetensors"
    path.write_bytes(zoo_bytes(read_world(model)))
    return model, path


@pytest.mark.parametrize("activation", ["tanh", "relu", "leakyrelu", "prelu", "identity"])
@pytest.mark.parametrize("task", ["CartPole-v0", "Pendulum-v0"])
@pytest.mark.parametrize("layers", [1, 2])
def test_numpy_and_torch_agree(tmp_path: Path, task: str, activation: str, layers: int) -> None:
    model, path = pair(tmp_path, task, activation_fn=activation, hidden_layer=layers)
    same_world(model, path)


@pytest.mark.parametrize("task", ["Swimmer-v5", "Hopper-v5", "Walker2d-v5", "HalfCheetah-v5"])
def test_bandits_of_robots_agree(tmp_path: Path, task: str) -> None:
    model, path = pair(tmp_path, task)
    same_world(model, path)
    assert read_zoo(path).task == task and path.stat().st_size < 20_000


@pytest.mark.parametrize("task", ["CartPole-v0", "Pendulum-v0"])
def test_stored_contexts_agree(tmp_path: Path, task: str) -> None:
    model, path = pair(tmp_path, task, stored_contexts=100)
    same_world(model, path)
    tensors, metadata = read_tensors(path)
    assert tensors["env.contexts"].shape == (100, 4 if task == "CartPole-v0" else 3)
    for K, words in ((99, "'env.contexts': found the shape"), (0, "stored_contexts: found 0"), ("9", "'9'")):
        about = {**json.loads(metadata["envolve"]), "stored_contexts": K}
        path.write_bytes(tensor_bytes(tensors, {"envolve": json.dumps(about)}))
        with pytest.raises(WorldError, match=words):
            read_zoo(path)


def test_a_task_with_another_name_in_gymnasium_has_that(tmp_path: Path) -> None:
    assert read_zoo(pair(tmp_path, "Pendulum-v0")[1]).task == "Pendulum-v1"


def same_world(model: str, path: Path) -> None:
    """Contexts, spaces and rewards of the two, over 20 episodes."""
    theirs, ours = load_world(model), ZooEnv(read_zoo(path))
    assert ours.observation_space == theirs.observation_space and ours.action_space == theirs.action_space
    actions = random_actions(ours.action_space, np.random.default_rng(0), 20)
    for i, action in enumerate(actions):
        seed = 5 if i == 0 else None  # one stream of contexts, beyond the first
        np.testing.assert_allclose(ours.reset(seed=seed)[0], theirs.reset(seed=seed)[0], rtol=1e-5, atol=1e-5)
        expected = theirs.step(action)
        found = ours.step(action)
        np.testing.assert_allclose(found[1], expected[1], rtol=1e-5, atol=1e-5)
        assert found[2:4] == expected[2:4] == (True, False)


def test_contexts_are_coded_as_the_tasks_observations_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(make_task("CartPole-v0")), "codes", ((0, 2), (2, 4)))
    model, path = pair(tmp_path)
    same_world(model, path)
    env = ZooEnv(read_zoo(path))
    seen = np.stack([env.reset(seed=0)[0], *(env.reset()[0] for _ in range(50))])
    assert set(map(tuple, seen.tolist())) <= {(a, 1 - a, b, 1 - b) for a in (0.0, 1.0) for b in (0.0, 1.0)}


@pytest.mark.parametrize("codes", [[[0, 5]], [[2, 2]], [[2, 4], [0, 2]], [[0]], [0], {}, [["a", 2]]])
def test_codes_that_do_not_fit_are_refused(tmp_path: Path, codes: object) -> None:
    tensors, metadata = read_tensors(pair(tmp_path)[1])
    about = {**json.loads(metadata["envolve"]), "version": 2, "codes": codes}
    path = tmp_path / "other.safetensors"
    path.write_bytes(tensor_bytes(tensors, {"envolve": json.dumps(about)}))
    with pytest.raises(WorldError, match="codes: found"):
        read_zoo(path)


@pytest.mark.parametrize("name", envolve.worlds.names())
def test_every_world_passes_gymnasiums_checker_and_has_a_card(name: str) -> None:
    env = gymnasium.make(f"envolve/{name}").unwrapped
    check_env(env, skip_render_check=True)
    card = envolve.worlds.card(name)
    assert card["name"] == name and path_of(name).stat().st_size <= 20_000
    assert card["sha256"] == hashlib.sha256(path_of(name).read_bytes()).hexdigest()
    for agent, figures in card["unseen"].items():
        assert {"mean_return", "interval", "agents", "train_steps"} <= set(figures), agent


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
@pytest.mark.parametrize("stored", [0, 50])
@pytest.mark.parametrize("task", ["CartPole-v0", "Pendulum-v0"])
def test_a_batch_is_single_environments_side_by_side(
    tmp_path: Path, task: str, stored: int, mode: AutoresetMode
) -> None:
    world = read_zoo(pair(tmp_path, task, stored_contexts=stored)[1])
    ours = ZooVectorEnv(world, 3, mode)
    theirs = SyncVectorEnv([lambda: ZooEnv(world)] * 3, autoreset_mode=mode)
    close = {"rtol": 1e-5, "atol": 1e-6}  # a product of matrices rounds by their sizes
    np.testing.assert_allclose(ours.reset(seed=3)[0], theirs.reset(seed=3)[0], **close)
    rng = np.random.default_rng(0)
    for _ in range(2 * BLOCK + 5):  # beyond the blocks that are drawn at once
        actions = np.stack([random_actions(ours.single_action_space, rng, 1)[0] for _ in range(3)])
        for found, expected in zip(ours.step(actions)[:4], theirs.step(actions)[:4]):
            np.testing.assert_allclose(found, expected, **close)


def test_make_vec_takes_this_projects_batch() -> None:
    name = envolve.worlds.names()[0]
    envs = gymnasium.make_vec(f"envolve/{name}", num_envs=4, autoreset_mode="SameStep")
    assert isinstance(envs.unwrapped, ZooVectorEnv) and envs.unwrapped.mode == AutoresetMode.SAME_STEP
    seen, _ = envs.reset(seed=0)
    after, _, over, _, info = envs.step(envs.action_space.sample())
    assert over.all() and (info["final_obs"] == seen).all() and not (after == seen).all()


def test_a_step_out_of_turn_or_with_a_wrong_action_is_refused(tmp_path: Path) -> None:
    world = read_zoo(pair(tmp_path)[1])
    env, envs = ZooEnv(world), ZooVectorEnv(world, 2)
    for one, action in ((env, 0), (envs, np.zeros(2, np.int64))):
        with pytest.raises(gymnasium.error.ResetNeeded):
            one.step(action)
        one.reset(seed=0)
    for one, action in ((env, 7), (envs, np.array([0, 7])), (envs, np.array([0.0, 1.0])), (envs, np.zeros(3, int))):
        with pytest.raises(ValueError, match="expected"):
            one.step(action)
    assert env.step(1)[2]
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(1)


def test_importing_the_zoo_loads_no_torch_and_takes_a_moment() -> None:
    code = (
        "import sys, time; import numpy, gymnasium; t = time.process_time(); import envolve.worlds\n"
        "assert 'torch' not in sys.modules, 'torch'\n"
        "name = envolve.worlds.names()[0]\n"
        "env = gymnasium.make('envolve/' + name); env.reset(seed=0); env.step(env.action_space.sample())\n"
        "assert 'torch' not in sys.modules and 'pydantic' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def test_an_unknown_world_gets_the_nearest_name() -> None:
    name = envolve.worlds.names()[0]
    with pytest.raises(WorldError, match=f"did you mean {name}"):
        envolve.worlds.card(name[:-1])


def test_only_bandits_become_worlds_of_the_zoo(tmp_path: Path) -> None:
    with pytest.raises(WorldFileError, match="expected a contextual bandit"):
        zoo_bytes(read_world(saved(tmp_path, "se")))
    with pytest.raises(WorldFileError, match="found a reward network"):
        zoo_bytes(read_world(saved(tmp_path, "rn")))


DAMAGE = {
    "cannot be read": lambda data: None,
    "expected a header": lambda data: data[:100],
    "behind the last tensor": lambda data: data + b"\0" * 4,
    "data_offsets": lambda data: data[:-4],
    "no JSON header": lambda data: data[:8] + b"x" + data[9:],
}


@pytest.mark.parametrize("words", DAMAGE)
def test_a_damaged_file_is_refused_in_one_line(tmp_path: Path, words: str) -> None:
    path = pair(tmp_path)[1]
    damaged = DAMAGE[words](path.read_bytes())
    path.unlink() if damaged is None else path.write_bytes(damaged)
    with pytest.raises(WorldError, match=words) as e:
        read_zoo(path)
    assert str(path) in str(e.value) and "\n" not in str(e.value)


CHANGES = {
    "version: found 5, expected 4: the file is newer": {"version": 5},
    "codes: an unknown key": {"version": 1, "codes": []},
    "kind: found 'se'": {"kind": "se"},
    "activation: found 'gelu'": {"activation": "gelu"},
    "observation_shape": {"observation_shape": [0]},
    "expected \\[5\\]": {"observation_shape": [5]},
    "task: found": {"task": "a\nb"},
    "action.kind": {"action": {"kind": "Text"}},
    "combinations": {"action": {"kind": "Discrete", "shape": [], "dtype": "int64", "nvec": [10**6], "start": [0]}},
    "unknown key": {"more": 1},
}


@pytest.mark.parametrize("words", CHANGES)
def test_a_file_that_says_something_else_is_refused(tmp_path: Path, words: str) -> None:
    path = pair(tmp_path)[1]
    tensors, metadata = read_tensors(path)
    about = {**json.loads(metadata["envolve"]), **CHANGES[words]}
    path.write_bytes(tensor_bytes(tensors, {"envolve": json.dumps(about)}))
    with pytest.raises(WorldError, match=words):
        read_zoo(path)


def test_tensors_survive_a_round_trip_and_give_the_same_bytes(tmp_path: Path) -> None:
    tensors = {"b": np.arange(6, dtype=np.float32).reshape(2, 3), "a": np.float32([1.5])}
    path = tmp_path / "x.safetensors"
    path.write_bytes(tensor_bytes(tensors, {"k": "v"}))
    found, metadata = read_tensors(path)
    assert metadata == {"k": "v"} and set(found) == {"a", "b"}
    assert all((found[k] == v).all() for k, v in tensors.items())
    assert tensor_bytes(dict(reversed(tensors.items())), {"k": "v"}) == path.read_bytes()


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_no_bytes_break_the_reader(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    good = tensor_bytes({"a": np.zeros((2, 2), np.float32)}, {"envolve": "{}"})
    at = data.draw(st.integers(0, len(good) - 1))
    damaged = good[:at] + data.draw(st.binary(max_size=12)) + good[at + data.draw(st.integers(0, 12)) :]
    path = tmp_path_factory.mktemp("zoo") / "x.safetensors"
    path.write_bytes(damaged)
    try:
        tensors, _ = read_tensors(path)
        assert all(x.dtype == np.float32 and np.isfinite(x).all() for x in tensors.values())
    except TensorFileError as e:
        assert str(path) in str(e)
    with pytest.raises(WorldError):
        read_zoo(path)


def test_a_file_that_is_written_anew_is_read_anew(tmp_path: Path) -> None:
    _, path = pair(tmp_path)
    assert open_world(str(path)).task == "CartPole-v0"
    path.write_bytes(pair(tmp_path, "Pendulum-v0")[1].read_bytes())
    assert open_world(str(path)).task == "Pendulum-v1"
    assert open_world("envolve/" + names()[0]) is open_world("envolve/" + names()[0])


def test_a_path_is_opened_too(tmp_path: Path) -> None:
    model, path = pair(tmp_path)
    assert open_world(str(path)).task == "CartPole-v0"
    config = make_config("CartPole-v0", **BANDIT)
    flat = make_flat("se", config) * 0 + np.float32(3e38)
    save_world(model, "se", "CartPole-v0", flat, config, budget=1000)
    path.write_bytes(zoo_bytes(read_world(model)))
    with pytest.raises(FloatingPointError, match="overflowed"), np.errstate(all="ignore"):
        ZooEnv(read_zoo(path)).reset(seed=0)
