"""Environments from outside against a plain loop over Gymnasium, and what their misbehaviour costs."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import resource
import signal
import sys
import time
from collections.abc import Callable

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env

import envolve
from envolve.agents.common.rollout import reset_uniforms
from envolve.agents.common.rollout import test_episodes as episodes_of
from envolve.core import plugins
from envolve.envs.outside import watch
from envolve.envs.outside.build import (
    OutsideError,
    canonical,
    check_configured,
    check_permission,
    maker,
    needs_permission,
)
from envolve.envs.outside.define import define, register_outside
from envolve.envs.outside.flat import Flat, FlatError
from envolve.envs.outside.measure import DEFAULT_STEPS, STEPS, _measure, measure
from envolve.envs.outside.spaces import SpaceError, action_of, observation_of, read_action, read_observation
from envolve.envs.section import EnvSection
from envolve.envs.task import NEVER_SOLVED, TASKS, make_task, mark_of
from envolve.envs.worlds.export import WorldEnv, WorldVectorEnv
from envolve.envs.worlds.file import WorldFileError, save_world
from envolve.envs.worlds.synthetic import synthetic_world
from envolve.envs.worlds.world import RealTask, init_world
from envolve.outer.config.load import config_of, describe
from envolve.outer.config.yaml_lines import ConfigError
from tests.examples import some_slow

PLAIN = {"env_kwargs": {}, "wrappers": []}
# twelve environments of six packages; Box2D's, minigrid's and gymnasium-robotics' where they are installed
IDS = (
    "CartPole-v1", "Acrobot-v1", "Pendulum-v1", "MountainCarContinuous-v0", "FrozenLake-v1", "Blackjack-v1",
    "CliffWalking-v1", "InvertedPendulum-v5", "Reacher-v5", "LunarLander-v3", "minigrid:MiniGrid-Empty-5x5-v0",
    "gymnasium_robotics:PointMaze_UMaze-v3",
)  # fmt: skip
NEEDS = {"LunarLander-v3": "Box2D", "MiniGrid-Empty-5x5-v0": "minigrid", "PointMaze_UMaze-v3": "gymnasium_robotics"}
WRAPPERS = {"MiniGrid-Empty-5x5-v0": ["minigrid.wrappers:ImgObsWrapper"]}


class Moody(gymnasium.Env):
    """Behaves until its third step."""

    observation_space = spaces.Box(-1, 1, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, mood="calm"):
        self.mood = mood

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.t += 1
        if self.t == 3 and self.mood == "raises":
            raise RuntimeError("out of paint")
        value = np.nan if self.t == 3 and self.mood == "nan" else 0.5
        cut = self.t == 3 and self.mood == "cut"
        if self.t == 3 and self.mood == "exits":
            raise SystemExit(3)
        return np.full(2, value, np.float32), 1.0, False, cut, {"speed": 2.0, "name": "x"}


class Limited(Moody):
    """Ends its episodes itself; nothing registers its limit. An odd one ends them after 7 or 8 steps."""

    def __init__(self, odd=False):
        super().__init__()
        self.odd = odd

    def step(self, action):
        observation, reward, *_, info = super().step(action)
        return observation, reward, False, self.t >= 7 + (self.odd and int(action)), info


def test_a_time_limit_that_nothing_registers_is_seen() -> None:
    section = {"env_kwargs": {}, "wrappers": []}
    found = _measure("gymnasium:Limited-v0", section, 0, Limited)
    assert (found["max_steps"], found["own_limit"]) == (7, True)
    odd = _measure("gymnasium:Limited-v0", {**section, "env_kwargs": {"odd": True}}, 0, Limited)
    assert (odd["max_steps"], odd["own_limit"]) == (DEFAULT_STEPS, False)


FLAKY = """
import gymnasium
import numpy as np


class Flaky(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    made = 0

    def __init__(self, share=0.01, resets=0.0):
        self.share, self.resets, self.broken = share, resets, False
        Flaky.made += 1

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        assert not self.broken, "nobody knows its state"
        self.t = 0
        if self.np_random.random() < self.resets:
            raise RuntimeError("no power")
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.t += 1
        self.broken = self.np_random.random() < self.share
        if self.broken:
            raise RuntimeError("the cable\\tcame loose")
        return self.np_random.uniform(-1, 1, 2).astype(np.float32), 1.0, False, self.t == 20, {}
"""


def flaky() -> type:
    namespace: dict = {}
    exec(FLAKY, namespace)
    return namespace["Flaky"]


def test_an_environment_that_raises_now_and_then_is_measured_all_the_same() -> None:
    """It could not be used at all, although in a run it costs its member only."""
    cls, name = flaky(), "gymnasium:Flaky-v0"
    found = _measure(name, PLAIN, 0, cls)
    said = re.fullmatch(r"step raised RuntimeError: the cable came loose in (\d+) of 3,\d\d\d steps", found["raised"])
    assert said and 10 < int(said[1]) < 60 and cls.made == 1 + int(said[1]), "a new one takes the place of each"
    assert STEPS - 60 < found["steps"] < STEPS
    assert found["deterministic"] and (found["max_steps"], found["own_limit"]) == (20, True)
    assert found["random_return"] == 20.0, "of episodes that did not fail"
    assert found == _measure(name, PLAIN, 0, flaky())
    task = define(name, {**PLAIN, "measured": found})
    assert task.default_max_steps == 20
    for wrong in (3, "x" * 1000, "two\nlines"):
        with pytest.raises(ValueError, match="measured.raised: found .*expected one line"):
            define(name, {**PLAIN, "measured": {**found, "raised": wrong}})
    resets = _measure(name, {**PLAIN, "env_kwargs": {"share": 0.0, "resets": 0.05}}, 0, cls)
    assert re.fullmatch(r"reset raised RuntimeError: no power in \d+ of \d+ resets", resets["raised"])
    assert "raised" not in _measure(name, {**PLAIN, "env_kwargs": {"share": 0.0}}, 0, cls)


@pytest.mark.parametrize("share, said", [(1.0, r"in 6 of 6 steps"), (0.4, r"in \d+ of \d+ steps")])
def test_an_environment_that_raises_too_often_is_refused(share: float, said: str) -> None:
    with pytest.raises(FlatError, match=f"step raised RuntimeError: the cable came loose {said}$"):
        _measure("gymnasium:Flaky-v0", {**PLAIN, "env_kwargs": {"share": share}}, 0, flaky())


def test_what_is_refused_was_made_and_cannot_be_used(tmp_path, monkeypatch, warm) -> None:
    (tmp_path / "flaky.py").write_text(FLAKY)
    name, section = "gymnasium:flaky.py:Flaky", {**PLAIN, "env_kwargs": {"share": 1.0}}
    monkeypatch.chdir(tmp_path)
    raw = {"env_name": name, "envs": {name: section}, "agents": {"gtn": {}, "ddqn": {}}}
    with pytest.raises(ConfigError, match="expected an environment that can be used: step raised .* in 6 of 6 steps"):
        config_of(raw)
    warnings = config_of({**raw, "envs": {name: PLAIN}}).warnings
    assert any("came loose in " in w and "while it was measured; in a run each costs its member" in w for w in warnings)


class Rich(Moody):
    def step(self, action):
        observation, _, *rest = super().step(action)
        return observation, 1e9, self.t >= 5, *rest[1:]


def test_a_return_of_the_stand_in_solves_no_environment_without_a_mark(measured, monkeypatch) -> None:
    """An environment whose returns are large was solved at once. Configurations keep the stand-in."""
    name, section = "gymnasium:Rich-v0", measured("gymnasium:Rich-v0", PLAIN, Rich)
    assert section["measured"]["random_return"] == 5e9 and section["measured"]["solved_reward"] is None
    monkeypatch.setattr("envolve.outer.config.outside.measure", lambda *_: section["measured"])
    raw = {"env_name": name, "agents": {"gtn": {}, "ddqn": {}}}
    config = config_of(raw)
    own = config.data["envs"][name]
    assert own["solved_reward"] == NEVER_SOLVED == 1e9 and config_of(config.data).data == config.data
    assert make_task(name, None, own["solved_reward"]).solved_reward == make_task(name).solved_reward == np.inf
    assert make_task(name, None, 7.0).solved_reward == 7.0
    assert "no solved mark" in describe(config) and "e+09" not in describe(config)
    assert [mark_of(x) for x in (None, 1e9, np.inf, 195.0, -5.0)] == [None, None, None, 195.0, -5.0]


@pytest.fixture(scope="module")
def measured():
    known = {}

    def of(name: str, section=PLAIN, cls=None):
        key = (name, str(section), cls)
        if key not in known:
            known[key] = {**section, "measured": _measure(name, section, 0, cls)}
        return known[key]

    return of


def moody(measured, mood: str, monkeypatch):
    """The task of an environment that behaved while it was measured."""
    section = measured("gymnasium:Moody-v0", PLAIN, Moody)
    task = define("gymnasium:Moody-v0", section)(max_steps=6)
    monkeypatch.setattr(task, "_make", lambda: Moody(mood))
    return task


def policy_of(task):
    def policy(obs, step):
        x = (obs.double().sum(-1) * 1000).abs()
        if task.num_actions:
            return x.long() % task.num_actions
        return torch.sin(x[..., None] * torch.arange(1, task.action_size + 1)).float()

    return policy


@pytest.mark.parametrize("name", IDS)
def test_returns_equal_a_plain_loop_bit_for_bit(measured, name):
    plain = name.rpartition(":")[2]
    if plain in NEEDS:
        pytest.importorskip(NEEDS[plain])
    section = measured(f"gymnasium:{name}", {"env_kwargs": {}, "wrappers": WRAPPERS.get(plain, [])})
    plugins.trust(canonical(f"gymnasium:{name}", section))
    task = define(f"gymnasium:{name}", section)(max_steps=60)
    key = torch.tensor([5, 6])
    returns, steps = episodes_of(task, policy_of(task), key, torch.zeros(2, dtype=torch.int64), 3, 1)
    u = reset_uniforms(key, torch.arange(3).expand(2, 3) * 2, 2).double().numpy()
    env, taken = maker(f"gymnasium:{name}", section)(), np.zeros(2, np.int64)
    for p in range(2):
        for n in range(3):
            observation, _ = env.reset(seed=int(u[p, n, 0] * 2**24) * 2**7 + int(u[p, n, 1] * 2**7))
            total = 0.0
            for _ in range(60):
                flat = np.asarray(spaces.flatten(env.observation_space, observation), np.float64).reshape(-1)
                seen = torch.from_numpy((flat - task.mean) / task.scale).float()
                chosen = policy_of(task)(seen[None, None], None)[0, 0].numpy()
                own = task.actions.of_index(int(chosen)) if task.num_actions else task.actions.of_numbers(chosen)
                observation, reward, terminated, truncated, _ = env.step(own)
                total, taken[p] = total + float(reward), taken[p] + 1
                if terminated or truncated:
                    break
            assert returns[p, n].item() == total
    assert steps.tolist() == taken.tolist()
    assert not task._live  # every environment was given back


def test_environments_are_made_once_and_reused(measured):
    task = define("gymnasium:CartPole-v1", measured("gymnasium:CartPole-v1"))(max_steps=5)
    for _ in range(3):
        episodes_of(task, policy_of(task), torch.tensor([1, 2]), torch.zeros(2, dtype=torch.int64), 2, 1)
    assert len(task._free) == 4


@pytest.mark.parametrize("deterministic, made", [(True, 4), (False, 8)])
def test_a_process_makes_the_environments_of_a_deterministic_task_once(measured, monkeypatch, deterministic, made):
    found = measured("gymnasium:Moody-v0", PLAIN, Moody)
    section = {**found, "measured": {**found["measured"], "deterministic": deterministic}}
    kind, count = define("gymnasium:Moody-v0", section), []

    def make():
        count.append(1)
        return Moody("calm")

    returns = []
    for _ in range(2):  # as many chunks
        task = kind(max_steps=5)
        monkeypatch.setattr(task, "_make", make)
        key, first = torch.tensor([1, 2]), torch.zeros(2, dtype=torch.int64)
        returns.append(episodes_of(task, policy_of(task), key, first, 2, 1)[0])
    assert len(count) == made and torch.equal(*returns)
    monkeypatch.setattr(kind, "spare", (-1, kind.spare[1]))  # as in a child, which inherits what its parent has made
    assert kind(max_steps=5)._free == []


def test_tests_come_in_batches_with_the_same_returns(measured, monkeypatch):
    task = define("gymnasium:CartPole-v1", measured("gymnasium:CartPole-v1"))(max_steps=30)
    arguments = (task, policy_of(task), torch.tensor([1, 2]), torch.zeros(2, dtype=torch.int64), 5, 1)
    whole = episodes_of(*arguments)
    monkeypatch.setattr("envolve.envs.outside.task.BATCH", 4)
    parts = episodes_of(*arguments)
    assert torch.equal(whole[0], parts[0]) and torch.equal(whole[1], parts[1])


@pytest.mark.parametrize("mood, said", [("raises", "out of paint"), ("nan", "not finite"), ("exits", "SystemExit")])
def test_what_misbehaves_fails_with_its_reason(measured, monkeypatch, mood, said):
    task = moody(measured, mood, monkeypatch)
    world = RealTask(task, 1)
    state = world.reset(torch.full((1, 1, 2), 0.25, dtype=torch.float64))
    action = torch.zeros(1, 1, dtype=torch.int64)
    for step in range(3):
        state, reward, done, failed = world.step(state, action)
        assert failed.item() == (step == 2)
    assert said in task.complaint(state)


class Odd(Moody):
    """Returns what its mood says for an entry of ``step``."""

    parts = {"reward": (1, 10**400), "flag": (2, np.zeros(2, bool)), "cut": (3, np.zeros(2, bool)), "info": (4, [1])}

    def step(self, action):
        out = list(super().step(action))
        if self.mood in self.parts:
            at, value = self.parts[self.mood]
            out[at] = value
        if self.mood == "number":
            out[4] = {"speed": 10**400}
        return tuple(out)


@pytest.mark.parametrize("mood, said", [
    ("reward", "the reward 1000"), ("flag", "expected two flags"), ("cut", "expected two flags"),
    ("info", r"the info \[1\], expected a mapping"),
])  # fmt: skip
def test_any_odd_part_of_a_step_costs_its_member_and_is_named(measured, monkeypatch, mood, said):
    with pytest.raises(FlatError, match=said):
        _measure("gymnasium:Moody-v0", {**PLAIN, "env_kwargs": {"mood": mood}}, 0, Odd)
    task = moody(measured, "calm", monkeypatch)
    monkeypatch.setattr(task, "_make", lambda: Odd(mood))
    state = task.reset(torch.full((1, 1, 2), 0.25, dtype=torch.float64))
    state, _, _ = task.step(state, torch.zeros(1, 1, dtype=torch.int64))
    assert task.stopped(state)[1].item() and re.search(f"gymnasium:Moody-v0: .*{said}", task.complaint(state))


def test_an_entry_of_info_that_no_float_holds_is_none(measured, monkeypatch):
    section = {**PLAIN, "env_kwargs": {"mood": "number"}}
    assert _measure("gymnasium:Moody-v0", section, 0, Odd)["info_names"] == []
    task = moody(measured, "calm", monkeypatch)
    monkeypatch.setattr(task, "_make", lambda: Odd("number"))
    before = task.reset(torch.full((1, 1, 2), 0.25, dtype=torch.float64))
    after, _, _ = task.step(before, torch.zeros(1, 1, dtype=torch.int64))
    assert task.info(before, torch.zeros(1, 1), after).item() == 0.0


class Vast(Moody):
    """Its observations and rewards have this size."""

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float64)

    def __init__(self, size):
        super().__init__()
        self.size, self.random = size, np.random.default_rng(0)

    def step(self, action):
        _, _, *rest = super().step(action)
        return self.random.normal(size=2) * self.size, self.size, *rest


def test_sizes_that_float32_does_not_hold():
    with pytest.raises(
        OutsideError, match=r"gymnasium:Vast-v0: found observations up to \S+e\+\d+, expected at most 3.4"
    ):
        _measure("gymnasium:Vast-v0", {**PLAIN, "env_kwargs": {"size": 1e39}}, 0, Vast)
    for size, scale, reward_scale in ((1e-60, 1.0, 1e30), (1e37, None, 1e-30)):
        section = {**PLAIN, "env_kwargs": {"size": size}}
        found = _measure("gymnasium:Vast-v0", section, 0, Vast)
        define("gymnasium:Vast-v0", {**section, "measured": found})  # its figures are those that a configuration takes
        assert scale is None or found["observation_scale"] == [scale] * 2
        assert found["reward_scale"] == reward_scale


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.uint64])
def test_a_world_has_an_integer_spaces_own_limits(monkeypatch, dtype):
    limits = np.iinfo(dtype)
    space = spaces.Box(limits.min, limits.max, (2,), dtype)
    monkeypatch.setattr(Moody, "observation_space", space)
    monkeypatch.setattr(Moody, "step", lambda self, action: (np.ones(2, dtype), 1.0, True, False, {}))
    monkeypatch.setattr(Moody, "reset", lambda self, **_: (np.zeros(2, dtype), {}))
    section = {**PLAIN, "measured": _measure("gymnasium:Moody-v0", PLAIN, 0, Moody)}
    task = define("gymnasium:Moody-v0", section)(max_steps=6)
    assert WorldEnv(RealTask(task, 1)).observation_space == space


def test_truncated_and_terminated_stay_apart(measured, monkeypatch):
    task = moody(measured, "cut", monkeypatch)
    world = RealTask(task, 1)
    state = world.reset(torch.full((1, 1, 2), 0.25, dtype=torch.float64))
    for _ in range(3):
        state, _, done, failed = world.step(state, torch.zeros(1, 1, dtype=torch.int64))
    assert world.truncated(state).item() and not done.item() and not failed.item()


def test_info_holds_the_numeric_entries(measured, monkeypatch):
    task = moody(measured, "calm", monkeypatch)
    assert task.info_names == ("speed",)
    before = task.reset(torch.full((1, 1, 2), 0.25, dtype=torch.float64))
    after, _, _ = task.step(before, torch.zeros(1, 1, dtype=torch.int64))
    assert task.info(before, torch.zeros(1, 1), after).item() == 2.0


def test_a_call_that_hangs_is_ended(measured, monkeypatch):
    task = moody(measured, "calm", monkeypatch)
    monkeypatch.setattr(watch, "STEP_SECONDS", 0.2)
    monkeypatch.setattr(Moody, "step", lambda self, action: time.sleep(60))
    state = task.reset(torch.full((1, 1, 2), 0.25, dtype=torch.float64))
    state, _, _ = task.step(state, torch.zeros(1, 1, dtype=torch.int64))
    assert task.stopped(state)[1].item() and "hang" in task.complaint(state)


def exit_code_of_a_copy(call: Callable[[], object]) -> int:
    """Of a process that begins as a copy of this one and may be ended by SIGPROF; 20 s of CPU time end it anyhow."""
    pid = os.fork()
    if pid == 0:
        code = 1
        with contextlib.suppress(BaseException):
            resource.setrlimit(resource.RLIMIT_CPU, (20, 20))
            watch.STEP_SECONDS, watch.CPU_SECONDS, watch.end_process = 0.1, 0.25, True
            call()
            code = 0
        os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_a_hang_in_compiled_code_ends_a_process_that_allows_it():
    """Python's own handlers never run there, so the first limit does nothing."""

    def hang() -> None:
        with watch.watched():
            sum(itertools.repeat(0))

    assert exit_code_of_a_copy(hang) == -signal.SIGPROF


def test_calls_that_are_long_together_end_no_process():
    def burn(look: Callable[[], object]) -> None:
        end = time.process_time() + 0.6
        while time.process_time() < end:
            look()

    def long_together() -> None:
        with watch.watched():
            burn(watch.again)  # a look now and then sets the limit back
        burn(watch.again)  # outside there is none

    assert exit_code_of_a_copy(long_together) == 0


@pytest.mark.parametrize("name", ["CartPole-v1", "Pendulum-v1"])
@pytest.mark.parametrize("bandit", [False, True])
def test_a_world_is_a_gymnasium_environment_in_own_units(measured, name, bandit):
    task = define(f"gymnasium:{name}", measured(f"gymnasium:{name}"))(max_steps=20)
    section = EnvSection(hidden_size=8, contextual_bandit=bandit)
    world = synthetic_world(task, section, init_world("se", task, section, torch.tensor([3])))
    env = WorldEnv(world)
    check_env(env, skip_render_check=True)
    own = gymnasium.make(name)
    assert env.action_space == own.action_space and env.observation_space.shape == own.observation_space.shape
    if not bandit:  # its episodes begin where the environment's do
        first = np.array([env.reset(seed=i)[0] for i in range(100)])
        theirs = np.array([own.reset(seed=i)[0] for i in range(100)])
        assert np.abs(first.mean(0) - theirs.mean(0)).max() < 3 * theirs.std(0).max()
    vector = WorldVectorEnv(world, 3)
    vector.reset(seed=0)
    for _ in range(30):
        vector.step(vector.action_space.sample())


def test_the_real_task_exported_is_the_environment(measured):
    name = "gymnasium:Pendulum-v1"
    env = WorldEnv(RealTask(define(name, measured(name))(max_steps=20), 1))
    check_env(env, skip_render_check=True)
    observation, _ = env.reset(seed=0)
    assert abs(np.hypot(*observation[:2]) - 1) < 1e-4  # cos and sin
    assert -17 < env.step(np.zeros(1, np.float32))[1] <= 0  # its own rewards, unscaled


@pytest.mark.parametrize(
    "space",
    [
        spaces.Box(-1, 1, (2, 3)), spaces.Discrete(5, start=2), spaces.MultiDiscrete([2, 3]), spaces.MultiBinary(4),
        spaces.Dict({"a": spaces.Discrete(3), "b": spaces.Box(0, 1, (2,))}),
        spaces.Tuple((spaces.Discrete(2), spaces.Box(0, 1, (1,)))),
        spaces.Tuple((spaces.Box(0, 1, (2,)), spaces.MultiDiscrete([2, 3]), spaces.MultiBinary(2), spaces.Discrete(4))),
    ],
)  # fmt: skip
def test_observation_spaces(space):
    found = read_observation(observation_of(space))
    space.seed(0)
    value = spaces.flatten(space, space.sample())
    assert found.size == np.asarray(value).size
    known = [[start, stop] for start, stop in found.codes]
    if found.kind == "flattened":
        numbers = np.ones(found.size, bool)
        for start, stop in known:  # all of them together are what ``flatten`` makes of discrete parts
            numbers[start:stop] = False
            assert sorted(value[start:stop]) == [0] * (stop - start - 1) + [1]
        leaves = [s for s in (getattr(space, "spaces", None) or [space]) if not isinstance(s, str)]
        leaves = list(space.spaces.values()) if isinstance(space, spaces.Dict) else leaves
        assert numbers.sum() == sum(s.shape[0] for s in leaves if isinstance(s, (spaces.Box, spaces.MultiBinary)))


@pytest.mark.parametrize("codes", [[[0, 7]], [[2, 2]], [[3, 5], [0, 2]], [[0]], [0], 3, [["a", 2]], [[-1, 2]]])
def test_one_hot_parts_that_do_not_fit_are_refused(codes):
    data = {**observation_of(spaces.Discrete(6)), "codes": codes}
    with pytest.raises(ValueError, match="codes: found"):
        read_observation(data)


def test_a_run_of_an_older_version_has_no_one_hot_parts():
    data = observation_of(spaces.Discrete(6))
    assert read_observation(data).codes == ((0, 6),)
    del data["codes"]
    assert read_observation(data).codes == ()


@pytest.mark.parametrize(
    "space",
    [
        spaces.Discrete(4, start=-1),
        spaces.MultiDiscrete([2, 3]),
        spaces.MultiBinary(3),
        spaces.Box(np.array([-2, 0]), np.array([2, 5]), dtype=np.float64),
    ],
)
def test_actions_there_and_back(space):
    action = read_action(action_of(space))
    space.seed(1)
    for _ in range(20):
        own = space.sample()
        if action.n:
            again = action.of_index(action.to_index(own))
            assert np.array_equal(again, own) and space.contains(again)
        else:
            assert np.allclose(action.of_numbers(action.to_numbers(own)), own, atol=1e-5)


@pytest.mark.parametrize("dtype, low, high", [
    (np.int8, 0, 1), (np.int32, -2, 2), (np.int64, 0, 3), (np.uint8, 250, 255), (bool, 0, 1),
    (np.int64, 2**53, 2**63 - 1),
])  # fmt: skip
def test_whole_actions_have_equal_shares_and_an_inverse(dtype, low, high):
    space = spaces.Box(low, high, (1,), dtype)
    action = read_action(action_of(space))
    few = int(high) - int(low) < 256
    for own in range(int(low), int(high) + 1) if few else (int(low), int(high)):
        own = np.array([own]).astype(dtype)
        again = action.of_numbers(action.to_numbers(own))
        assert again.dtype == own.dtype and again == own
    evenly = (np.arange(12000) + 0.5) / 6000 - 1
    values, counts = np.unique(action.of_numbers(evenly[:, None]), return_counts=True)
    assert space.contains(values[:1]) and space.contains(values[-1:])
    if few:
        assert counts.tolist() == [12000 // len(values)] * (int(high) - int(low) + 1)


@pytest.mark.parametrize(
    "space, said",
    [
        (spaces.Box(0, 255, (64, 64, 3), np.uint8), "images"), (spaces.Box(-1, 1, (600,)), "600 numbers"),
        (spaces.Text(5), "expected Box"), (spaces.OneOf((spaces.Discrete(2), spaces.Discrete(3))), "found .*OneOf"),
    ],
)  # fmt: skip
def test_observations_that_are_refused(space, said):
    with pytest.raises(SpaceError, match=said):
        observation_of(space)


@pytest.mark.parametrize(
    "space, said",
    [
        (spaces.Box(-np.inf, np.inf, (2,)), "finite bounds"), (spaces.MultiBinary(7), "128 combinations"),
        (spaces.Text(5), "expected Discrete"),
    ],
)  # fmt: skip
def test_actions_that_are_refused(space, said):
    with pytest.raises(SpaceError, match=said):
        action_of(space)


def test_old_interfaces_are_named():
    class Old:
        observation_space = spaces.Discrete(2)
        action_space = spaces.Discrete(2)

        def reset(self, seed=None):
            return 0

    observation, action = observation_of(Old.observation_space), action_of(Old.action_space)
    flat = Flat(Old(), read_observation(observation), read_action(action))
    with pytest.raises(FlatError, match="old interface"):
        flat.reset(0)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "importing package_of_envs registers none: call its function"),
        (
            "import gymnasium\nfor i in range(7):\n    gymnasium.register(f'Of{i}-v0', 'package_of_envs:Env')\n",
            "importing package_of_envs registers Of0-v0, Of1-v0, Of2-v0, Of3-v0, Of4-v0 and 2 more",
        ),
    ],
)
def test_an_unknown_id_of_a_package_lists_what_the_package_has(tmp_path, monkeypatch, content, words):
    (tmp_path / "package_of_envs.py").write_text(content)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(gymnasium.envs.registration, "registry", dict(gymnasium.registry))
    monkeypatch.setattr(gymnasium, "registry", gymnasium.envs.registration.registry)
    try:
        with pytest.raises(OutsideError, match=f"found no environment of this id; {words}"):
            maker("gymnasium:package_of_envs:Descent-v0", {})()
    finally:
        sys.modules.pop("package_of_envs", None)


def test_an_unknown_id_names_the_nearest():
    with pytest.raises(OutsideError, match="did you mean gymnasium:LunarLander-v3"):
        maker("gymnasium:LunarLandr-v3", PLAIN)()
    with pytest.raises(OutsideError, match="found no package nowhere_to_be_found: neither installed nor"):
        maker("gymnasium:nowhere_to_be_found:World-v0", PLAIN)()
    with pytest.raises(OutsideError, match="did you mean gymnasium.wrappers:FlattenObservation"):
        maker("gymnasium:CartPole-v1", {"env_kwargs": {}, "wrappers": ["FlattenObservatio"]})


class Silent(Moody):
    def __init__(self):
        raise AssertionError


class Needy(Moody):
    def __init__(self):
        import nowhere_to_be_found.inner  # noqa: F401


def test_a_package_that_an_environment_needs_is_named():
    with pytest.raises(OutsideError, match="Needy: found no package nowhere_to_be_found"):
        maker("gymnasium:mine.py:Needy", PLAIN, Needy)()


def test_only_known_packages_become_advice_to_install_them(monkeypatch):
    monkeypatch.setitem(sys.modules, "highway_env", None)
    for package, said in (("highway_env", "pip install 'highway-env'"), ("my_robots", None)):
        with pytest.raises(OutsideError, match=f"found no .*{package}") as e:
            maker("gymnasium:CartPole-v1", {"env_kwargs": {}, "wrappers": [f"{package}:Wrapper"]})
        assert said in str(e.value) if said else "install " not in str(e.value) and "PYTHONPATH" in str(e.value)
    with pytest.raises(OutsideError, match="found the name of a file, expected a module, my_wrappers:Clip"):
        maker("gymnasium:CartPole-v1", {"env_kwargs": {}, "wrappers": ["my_wrappers.py:Clip"]})


class Sized(Moody):
    def __init__(self, shape, walls=()):
        super().__init__()
        if not isinstance(shape, tuple) or any(not isinstance(wall, tuple) for wall in walls):
            raise TypeError(f"shape and walls must be tuples, found {shape} and {walls}")
        self.shape, self.walls = shape, walls


class Listed(Moody):
    def __init__(self, path):
        super().__init__()
        self.path = path + [0]


class Drawn(Moody):
    observation_space = spaces.Box(0, 255, (16, 16, 3), np.uint8)


def test_lists_of_a_yaml_file_become_the_tuples_that_are_needed():
    section = {"env_kwargs": {"shape": [2, 3], "walls": [[0, 1], [1, 1]]}, "wrappers": []}
    env = maker("gymnasium:mine.py:Sized", section, Sized)()
    assert env.shape == (2, 3) and env.walls == ((0, 1), (1, 1))
    assert maker("gymnasium:mine.py:Listed", {"env_kwargs": {"path": [1]}}, Listed)().path == [1, 0]
    with pytest.raises(OutsideError, match="path|list|int"):
        maker("gymnasium:mine.py:Listed", {"env_kwargs": {"path": 3}}, Listed)()
    wrap = lambda shape: {"wrappers": [{"ReshapeObservation": {"shape": shape}}]}  # noqa: E731
    env = maker("gymnasium:mine.py:Drawn", wrap([768]), Drawn)()
    assert env.observation_space.shape == (768,)
    with pytest.raises(OutsideError, match="wrapper gymnasium.wrappers:ReshapeObservation: ") as e:
        maker("gymnasium:mine.py:Drawn", wrap([5]), Drawn)()
    assert "to be a tuple" not in str(e.value), "a tuple is what it got at last"


def test_an_exception_without_words_is_said_by_its_line():
    with pytest.raises(OutsideError, match=r"Silent: AssertionError at \S+_outside.py:\d+: raise AssertionError"):
        maker("gymnasium:mine.py:Silent", PLAIN, Silent)()


def test_a_strangers_description_imports_no_package(tmp_path):
    name = "gymnasium:antigravity:World-v0"
    assert needs_permission(name, []) and not needs_permission("gymnasium:CartPole-v1", ["FlattenObservation"])
    assert needs_permission("gymnasium:CartPole-v1", ["os:system"])
    with pytest.raises(OutsideError, match="--plugins DIR"):
        check_permission(name, PLAIN)
    with pytest.raises(OutsideError, match="no such subclass of gymnasium.Wrapper"):
        maker("gymnasium:CartPole-v1", {"env_kwargs": {}, "wrappers": ["os:system"]})
    plugins.trust(b"something else")
    with pytest.raises(OutsideError, match="--plugins DIR"):
        check_permission(name, PLAIN)
    with pytest.raises(OutsideError, match="--plugins DIR"):
        check_configured({"env_name": name, "envs": {name: PLAIN}})
    check_configured({"env_name": "Cliff", "envs": {"Cliff": {}}})


def test_a_world_that_needs_a_strangers_package_says_so_when_it_is_loaded(measured, tmp_path):
    """A reward network steps the task itself; an SE does not need it."""
    name, path = "gymnasium:antigravity:World-v0", str(tmp_path / "model.pt")
    config = {"env_name": name, "envs": {name: {**measured("gymnasium:CartPole-v1"), "hidden_size": 4}}}
    task = define(name, config["envs"][name])()
    for kind in ("rn", "se"):
        world = init_world(kind, task, EnvSection(hidden_size=4), torch.arange(1))
        save_world(path, kind, name, world[0], config)
        if kind == "se":
            assert envolve.load_world(path).reset(seed=0)[0].shape == (4,)
        else:
            with pytest.raises(WorldFileError, match=r"model.pt: .*antigravity.*code_from=DIR"):
                envolve.load_world(path)
        with pytest.raises(WorldFileError, match="code_from=DIR"):
            envolve.evaluate(path, agents=1)


def test_a_damaged_description_is_refused_by_its_key(measured):
    section = measured("gymnasium:CartPole-v1")
    for key, value, said in (
        ("observation_scale", [0.0] * 4, "observation_scale"),
        ("reward_scale", "x", "reward_scale"),
        ("first_observations", [[1.0]], "first_observations"),
        ("action", {"kind": "Box"}, "action"),
    ):
        with pytest.raises(ValueError, match=said):
            define("gymnasium:CartPole-v1", {**section, "measured": {**section["measured"], key: value}})
    with pytest.raises(ValueError, match="measured"):
        define("gymnasium:CartPole-v1", PLAIN)


def test_measuring_is_a_process_of_its_own_and_repeatable(measured, warm):
    assert measure("gymnasium:CartPole-v1", PLAIN) == measured("gymnasium:CartPole-v1")["measured"]
    with pytest.raises(OutsideError, match="did you mean"):
        measure("gymnasium:CartPol-v1", PLAIN)


def test_a_configuration_with_an_environment_from_outside(measured, monkeypatch):
    name = "gymnasium:CartPole-v1"
    section = measured(name)
    monkeypatch.setattr("envolve.outer.config.outside.measure", lambda *_: section["measured"])
    config = config_of({"env_name": name, "agents": {"gtn": {}, "ddqn": {}}}, [f"envs.{name}.max_steps=50"])
    assert config.data["envs"][name]["max_steps"] == 50 and make_task(name).default_max_steps == 500
    again = config_of(config.data)
    assert again.data == config.data
    with pytest.raises(ConfigError, match="wrappers"):
        config_of({"env_name": name, "envs": {name: {"wrappers": 3}}, "agents": {"gtn": {}}})


def test_another_description_takes_the_name(measured):
    name = "gymnasium:CartPole-v1"
    section = measured(name)
    register_outside(name, section)
    first = TASKS[name]
    register_outside(name, dict(section))
    assert TASKS[name] is first
    register_outside(name, {**section, "measured": {**section["measured"], "max_steps": 7}})
    assert make_task(name).max_steps == 7


OWN = """
import gymnasium
import numpy as np


class Corridor(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(0, 5, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, length=5):
        self.length = length

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x = int(self.np_random.integers(3))
        return np.array([self.x], np.float32), {}

    def step(self, action):
        self.x = max(0, min(self.length, self.x + (1 if action else -1)))
        return np.array([self.x], np.float32), -1.0, self.x == self.length, False, {}
"""


def test_an_environment_in_a_file_of_ones_own(tmp_path, monkeypatch, warm):
    from envolve.outer.config import problem
    from envolve.outer.config.load import load_config, store_config
    from envolve.outer.evaluate.networks import PROXY, REAL_BUDGET, evaluate

    (tmp_path / "my_env.py").write_text(OWN)
    name = "gymnasium:my_env.py:Corridor"
    (tmp_path / "mine.yaml").write_text(f"""
env_name: {name}
agents:
  gtn: {{agent_name: DDQN, backend: torch}}
  ddqn: {{train_steps: 60, train_episodes: 60, init_episodes: 0, batch_size: 8, hidden_size: 8, test_episodes: 2}}
envs:
  {name}: {{hidden_size: 8, max_steps: 12, contextual_bandit: true, env_kwargs: {{length: 4}}}}
""")
    config = load_config(tmp_path / "mine.yaml")
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    store_config(run_dir, config)
    assert (run_dir / "my_env.py").read_text() == OWN and (run_dir / "environment.json").is_file()
    assert load_config(run_dir / "config.yaml").data == config.data  # a run that goes on measures nothing again
    task = make_task(name, max_steps=12)
    worlds = init_world("se", task, problem.env_section(config.data), torch.tensor([1, 2]))
    for mode in (PROXY, REAL_BUDGET):
        values = evaluate(config.data, worlds, torch.tensor([3, 4]), mode)
        assert values["reason"] == ["", ""] and (values["score"] <= -2).all() and (values["real_steps"] > 0).all()
    (run_dir / "my_env.py").write_text(OWN + "# changed")
    with pytest.raises(ConfigError, match="another version"):
        load_config(run_dir / "config.yaml")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="did you mean"):
        config_of({"env_name": "gymnasium:my_en.py:Corridor", "agents": {"gtn": {}}})


PAIRS = [(2, "DDQN"), (6, "DDQN"), (2, "PPO"), (6, "PPO")]


@pytest.mark.parametrize("kind, agent", some_slow(PAIRS, fast=[(6, "DDQN"), (2, "PPO")]))
def test_reward_networks_on_the_environment(measured, agent, kind):
    from envolve.outer.config import problem
    from envolve.outer.evaluate.networks import PROXY, evaluate

    name = "gymnasium:FrozenLake-v1"
    section = measured(name)
    config = config_of(
        {
            "env_name": name,
            "agents": {
                "gtn": {"agent_name": agent, "synthetic_env_type": 1, "backend": "torch"},
                "ddqn": {
                    "train_episodes": 3,
                    "init_episodes": 0,
                    "batch_size": 8,
                    "hidden_size": 8,
                    "test_episodes": 1,
                },
                "ppo": {"train_episodes": 3, "rollout_steps": 20, "hidden_size": 8, "test_episodes": 1},
            },
            "envs": {name: {**section, "hidden_size": 8, "max_steps": 15, "reward_env_type": kind}},
        }
    )
    task = make_task(name, max_steps=15)
    worlds = init_world("rn", task, problem.env_section(config.data), torch.tensor([1, 2]))
    values = evaluate(config.data, worlds, torch.tensor([3, 4]), PROXY)
    again = evaluate(config.data, worlds, torch.tensor([3, 4]), PROXY)
    assert values["reason"] == ["", ""] and torch.equal(values["score"], again["score"])
    assert (values["mean_return"] >= 0).all() and (values["mean_return"] <= 1).all()  # unscaled
