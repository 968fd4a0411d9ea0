"""model.pt: round trip, byte determinism, and every kind of damaged, wrong or hostile file."""

from __future__ import annotations

import copy
import math
import os
import pickle
import subprocess
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from envolve.envs.section import EnvSection
from envolve.envs.task import make_task
from envolve.envs.worlds.file import WorldFileError, checksum, read_world, save_world
from envolve.envs.worlds.format import world_state_dict
from envolve.envs.worlds.world import init_world
from tests.examples import examples


def make_config(name="CartPole-v0", **section):
    return {
        "seed": 3,
        "env_name": name,
        "agents": {"gtn": {"agent_name": "DDQN_vary"}, "ddqn": {"gamma": 0.75}, "ddqn_vary": {"vary_hp": True}},
        "envs": {name: {"hidden_size": 4, "max_steps": 200, "solved_reward": 195.0, **section}},
    }


def make_flat(kind, config, seed=1):
    name = config["env_name"]
    return init_world(kind, make_task(name), EnvSection(**config["envs"][name]), torch.tensor([seed]))[0]


def save(path, kind="se", **section):
    config = make_config(**section)
    flat = make_flat(kind, config)
    save_world(str(path), kind, config["env_name"], flat, config, budget=1500, score=196.5, solved=True)
    return flat, config


@pytest.mark.parametrize("kind", ["se", "rn"])
def test_round_trip(tmp_path, kind):
    flat, config = save(tmp_path / "model.pt", kind, reward_env_type=2, activation_fn="prelu")
    world = read_world(str(tmp_path / "model.pt"))
    assert torch.equal(world.flat, flat) and world.config == config
    assert (world.kind, world.env_name) == (kind, "CartPole-v0")
    assert (world.budget, world.score, world.solved) == (1500, 196.5, True)
    assert world.section.activation_fn == "prelu" and world.task().max_steps == 200
    assert world.discount() == 0.75 and world.world().kind == kind
    assert os.listdir(tmp_path) == ["model.pt"], "no temporary file stays"


@pytest.mark.parametrize("kind", ["se", "rn"])
def test_a_world_with_continuous_actions(tmp_path, kind):
    flat, config = save(tmp_path / "model.pt", kind, name="Pendulum-v0", reward_env_type=6, max_steps=30)
    world = read_world(str(tmp_path / "model.pt"))
    assert torch.equal(world.flat, flat) and world.task().max_steps == 30
    task, env = world.task(), world.world()
    state, reward, done, failed = env.step(env.reset(torch.rand(1, 4, 2)), torch.rand(1, 4, task.action_size))
    assert env.observe(state).shape == (1, 4, 3) and reward.shape == done.shape == failed.shape == (1, 4)


def test_unknown_score_is_nan(tmp_path):
    config = make_config()
    save_world(str(tmp_path / "m.pt"), "se", "CartPole-v0", make_flat("se", config), config)
    world = read_world(str(tmp_path / "m.pt"))
    assert math.isnan(world.score) and world.budget == 0 and world.solved is False


def test_bytes_depend_on_the_content_alone(tmp_path):
    flat, config = save(tmp_path / "a.pt")
    (tmp_path / "deep").mkdir()
    other = tmp_path / "deep" / "another_name.pt"
    shuffled = dict(reversed(list(copy.deepcopy(config).items())))  # other objects, other order
    shuffled["env_name"] = "".join(list("CartPole-v0"))
    view = torch.cat((torch.ones(5), flat))[5:]  # a view of a longer buffer
    save_world(str(other), "se", "CartPole-v0", view, shuffled, budget=1500, score=196.5, solved=True)
    assert other.read_bytes() == (tmp_path / "a.pt").read_bytes()


@pytest.mark.slow
def test_bytes_depend_on_no_hash(tmp_path):
    save(tmp_path / "a.pt")
    program = "import sys; from tests.envs.worlds.test_file import save; save(sys.argv[1])"
    environment = {**os.environ, "PYTHONHASHSEED": "7"}
    subprocess.run([sys.executable, "-c", program, str(tmp_path / "b.pt")], check=True, env=environment)
    assert (tmp_path / "b.pt").read_bytes() == (tmp_path / "a.pt").read_bytes()


def test_saving_replaces_all_or_nothing(tmp_path, monkeypatch):
    path = tmp_path / "model.pt"
    save(path)
    before = path.read_bytes()

    def no_space(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", no_space)
    with pytest.raises(OSError, match="No space"):
        save(path, hidden_size=9)
    assert path.read_bytes() == before and os.listdir(tmp_path) == ["model.pt"]


def test_saving_refuses_what_reading_would_refuse(tmp_path):
    config = make_config()
    flat = make_flat("se", config)
    flat[3] = float("nan")
    with pytest.raises(WorldFileError, match=r"'env.state_net.0.weight': found values that are not finite"):
        save_world(str(tmp_path / "m.pt"), "se", "CartPole-v0", flat, config)
    assert os.listdir(tmp_path) == []


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    path = tmp_path_factory.mktemp("good") / "model.pt"
    save(path)
    return path


@settings(max_examples=examples(150), deadline=None)
@given(data=st.data())
def test_flipped_bytes_are_found_or_harmless(good, tmp_path_factory, data):
    original = good.read_bytes()
    damaged = bytearray(original)
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(original) - 1))] ^= data.draw(st.integers(1, 255))
    path = tmp_path_factory.mktemp("flip") / "model.pt"
    path.write_bytes(damaged)
    try:
        world = read_world(str(path))
    except WorldFileError as error:
        assert str(path) in str(error)
    else:  # bytes that mean nothing, such as a date in the archive
        wanted = read_world(str(good))
        assert torch.equal(world.flat, wanted.flat) and world.config == wanted.config and world.budget == wanted.budget


@settings(max_examples=examples(40), deadline=None)
@given(data=st.data())
def test_truncated_files_are_refused(good, tmp_path_factory, data):
    original = good.read_bytes()
    path = tmp_path_factory.mktemp("cut") / "model.pt"
    path.write_bytes(original[: data.draw(st.integers(0, len(original) - 1))])
    with pytest.raises(WorldFileError, match="model.pt"):
        read_world(str(path))


@settings(max_examples=examples(60), deadline=None)
@given(
    content=st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    )
)
def test_any_value_in_place_of_any_key_is_refused(good, tmp_path_factory, content):
    path = tmp_path_factory.mktemp("any") / "model.pt"
    base = torch.load(good, weights_only=True)
    for key in base:
        if repr(base[key]) != repr(content):
            torch.save({**base, key: content}, path)
            with pytest.raises(WorldFileError):
                read_world(str(path))
    for key in ("model", "config"):
        torch.save({"model": base["model"], "config": base["config"], key: content}, path)
        with pytest.raises(WorldFileError):
            read_world(str(path))


class Hostile:
    def __reduce__(self):
        return os.system, ("touch hostile_was_here",)


def test_a_hostile_pickle_is_not_executed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "raw.pt").write_bytes(pickle.dumps(Hostile()))
    torch.save({"model": {}, "config": {"x": Hostile()}}, tmp_path / "zip.pt")
    for name in ("raw.pt", "zip.pt"):
        with pytest.raises(WorldFileError, match=name):
            read_world(str(tmp_path / name))
    assert not (tmp_path / "hostile_was_here").exists()


def section_of(content):
    return content["config"]["envs"]["CartPole-v0"]


BIAS = "env.done_net.2.bias"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c["model"][BIAS].add_(1), "'sha256': found '[0-9a-f]{64}', expected '[0-9a-f]{64}'"),
        (lambda c: c.update(score=200.0), "key 'sha256'"),
        (lambda c: c["config"].update(seed=4), "key 'sha256'"),
        (lambda c: c.update(format="other"), "key 'format': found 'other', expected 'envolve-world'"),
        (lambda c: c.update(version=2), "key 'version': found 2, expected 1"),
        (lambda c: c.update(version=True), "key 'version': found True, expected 1"),
        (lambda c: c.pop("budget"), "key 'budget' is missing"),
        (lambda c: c.update(budget="9"), "key 'budget': found a value of type str, expected int"),
        (lambda c: c.update(budget=-1), "key 'budget': found -1, expected at least 0"),
        (lambda c: c.update(solved=1), "key 'solved': found a value of type int, expected bool"),
        (lambda c: c.update(extra=1), "key 'extra' is not expected"),
        (lambda c: c.update(kind="sn"), "key 'kind': found 'sn', expected 'se' or 'rn'"),
        (lambda c: c.update(kind="rn"), "key 'env.state_net.0.weight' is not expected; expected keys: env.reward"),
        (lambda c: c.update(env_name="Acrobot-v1"), "'config.envs.Acrobot-v1': found NoneType, expected a dictionary"),
        (lambda c: section_of(c).update(hidden_size=5), r"found float32 of shape \[4, 6\], expected"),
        (lambda c: section_of(c).update(hidden_size=0), "hidden_size': found 0, expected ge 1"),
        (lambda c: section_of(c).update(hidden_size=True), "found True, expected a value of type int"),
        (lambda c: section_of(c).update(activation_fn="sin"), "found 'sin', expected one of tanh, relu"),
        (lambda c: section_of(c).update(hiden_size=4), "'hiden_size' is not expected; known: .*hidden_size"),
        (lambda c: c["config"].update(x=torch.zeros(2)), "key 'config': holds more than plain values"),
        (lambda c: c["model"][BIAS].fill_(math.inf), f"{BIAS!r}: found values that are not finite"),
        (lambda c: c["model"].update({BIAS: torch.zeros(1).to_sparse()}), "it asks for .*_rebuild_sparse_tensor"),
    ],
)
def test_errors_name_file_key_found_and_expected(good, tmp_path, change, message):
    content = torch.load(good, weights_only=True)
    change(content)
    path = tmp_path / "changed.pt"
    torch.save(content, path)
    with pytest.raises(WorldFileError, match=message) as error:
        read_world(str(path))
    assert "changed.pt" in str(error.value)


def test_a_changed_file_with_a_right_checksum_loads(good, tmp_path):
    content = torch.load(good, weights_only=True)
    content["score"] = 7.0
    content["sha256"] = checksum(content)
    torch.save(content, tmp_path / "m.pt")
    assert read_world(str(tmp_path / "m.pt")).score == 7.0


def test_missing_file_and_unknown_task(tmp_path):
    with pytest.raises(WorldFileError, match="nothing.pt"):
        read_world(str(tmp_path / "nothing.pt"))
    config = make_config()
    config["envs"]["CartPole-v9"] = config["envs"]["CartPole-v0"]
    with pytest.raises(WorldFileError, match="nearest: 'CartPole-v0'"):
        save_world(str(tmp_path / "m.pt"), "se", "CartPole-v9", torch.zeros(3), config)


@pytest.mark.parametrize(("kind", "name"), [("se", "CartPole-v0"), ("rn", "Cliff")])
def test_files_of_the_original_load_with_a_warning(tmp_path, caplog, kind, name):
    config = make_config(name, weight_norm=False, reward_env_type=2, max_steps=[10, 60, 100])
    section = EnvSection(hidden_size=4, reward_env_type=2)
    flat = init_world(kind, make_task(name), section, torch.tensor([1]))[0]
    model = world_state_dict(kind, make_task(name), section, flat)
    torch.save({"model": model, "config": config}, tmp_path / "old.pt")
    world = read_world(str(tmp_path / "old.pt"))
    assert world.kind == kind and torch.equal(world.flat, flat) and world.task().max_steps == 60
    assert "without checksum" in caplog.text and "weight_norm" in caplog.text
    model.popitem()
    torch.save({"model": model, "config": config}, tmp_path / "old.pt")
    with pytest.raises(WorldFileError, match="is missing"):
        read_world(str(tmp_path / "old.pt"))


def test_missing_discount_is_named(tmp_path):
    config = make_config(reward_env_type=1)
    del config["agents"]["ddqn"]["gamma"]
    save_world(str(tmp_path / "m.pt"), "rn", "CartPole-v0", make_flat("rn", config), config)
    world = read_world(str(tmp_path / "m.pt"))
    with pytest.raises(WorldFileError, match=r"m.pt: key 'config.agents': found KeyError\('gamma'\)"):
        world.world()
    assert world.world(gamma=0.5).gamma.item() == 0.5
