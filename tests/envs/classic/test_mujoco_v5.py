"""The v5 robots beside Gymnasium's: every step, the models, resets, and bandits of them."""

from __future__ import annotations

import gymnasium
import mujoco
import numpy as np
import pytest
import torch

from envolve.core import rng
from envolve.envs.section import EnvSection
from envolve.envs.sim.mujoco_model import load_model
from envolve.envs.sim.simulator import MODELS
from envolve.envs.task import make_task
from envolve.envs.worlds.contextual_bandit import ContextualBandit
from envolve.envs.worlds.export import WorldEnv
from envolve.envs.worlds.world import RealTask, init_world
from tests.envs.physics.gymnasium_twin import GYMNASIUM_ASSETS, PHYSICS

FILES = {
    "Swimmer-v5": "swimmer.xml",
    "Hopper-v5": "hopper.xml",
    "Walker2d-v5": "walker2d_v5.xml",
    "HalfCheetah-v5": "half_cheetah.xml",
    "Reacher-v5": "reacher.xml",
}
NAMES = list(FILES)


def uniforms(task, P, N, seed=0):
    return rng.uniform(torch.tensor(seed), torch.arange(P * N * task.reset_uniforms)).view(P, N, -1)


def twin_in(name, row):
    """Gymnasium's environment in a state of ours."""
    twin = gymnasium.make(name, disable_env_checker=True).unwrapped
    twin.reset(seed=0)
    put(twin, row)
    return twin


def put(twin, row):
    mujoco.mj_resetData(twin.model, twin.data)
    nq = twin.model.nq
    twin.set_state(row[:nq], row[nq : nq + twin.model.nv])


@pytest.mark.parametrize("name", NAMES)
def test_every_bit_is_gymnasiums(name):
    task, P, N = make_task(name), 2, 2
    state = task.reset(uniforms(task, P, N))
    twins = [twin_in(name, row) for row in state.view(P * N, -1).numpy()]
    nq, nv = twins[0].model.nq, twins[0].model.nv
    generator, ended = torch.Generator().manual_seed(1), 0
    for step in range(100):
        action = (2 * torch.rand(P, N, task.action_size, generator=generator) - 1) * 1.3  # beyond the motors' range
        state, reward, terminated = task.step(state, action)
        observation = task.observe(state)
        assert observation.dtype == reward.dtype == torch.float32
        for i, twin in enumerate(twins):
            p, n = divmod(i, N)
            wanted, wanted_reward, over, _, _ = twin.step(action[p, n].numpy())
            physics = np.concatenate((twin.data.qpos, twin.data.qvel))
            np.testing.assert_array_equal(state[p, n, : nq + nv].numpy(), physics)
            np.testing.assert_array_equal(observation[p, n].numpy(), wanted.astype(np.float32))
            assert reward[p, n].item() == np.float32(wanted_reward)
            assert bool(terminated[p, n]) == over
            if over:  # begin anew in both
                ended += 1
                state[p, n] = task.reset(uniforms(task, 1, 1, seed=100 + step))[0, 0]
                put(twin, state[p, n].numpy())
    assert (ended > 0) == (name in ("Hopper-v5", "Walker2d-v5"))


@pytest.mark.parametrize("name", NAMES)
def test_models_spaces_and_limits_are_gymnasiums(name):
    task, spec = make_task(name), gymnasium.spec(name)
    ours = load_model(MODELS / task.model, contact_forces=False)
    theirs = mujoco.MjModel.from_xml_path(str(GYMNASIUM_ASSETS / FILES[name]))
    for field in (f for f in dir(theirs) if f.startswith(PHYSICS)):
        assert np.array_equal(getattr(ours, field), getattr(theirs, field)), field
    for field in (f for f in dir(theirs.opt) if not f.startswith("_")):
        same = np.array_equal(getattr(ours.opt, field), getattr(theirs.opt, field))
        assert same or field == "disableflags", field
    twin = gymnasium.make(name).unwrapped
    exported = WorldEnv(RealTask(task, 1))
    assert exported.observation_space.shape == twin.observation_space.shape
    assert (exported.observation_space.low == twin.observation_space.low).all()
    assert exported.action_space == twin.action_space
    assert (task.max_steps, task.dt) == (spec.max_episode_steps, pytest.approx(twin.dt))
    assert task.solved_reward == (spec.reward_threshold or 4000.0)


@pytest.mark.parametrize("name", NAMES)
def test_resets_are_distributed_as_gymnasiums(name):
    task, n = make_task(name), 3000
    ours = task.observe(task.reset(uniforms(task, 1, n)))[0].double()
    twin = gymnasium.make(name).unwrapped
    twin.reset(seed=0)
    theirs = torch.from_numpy(np.stack([twin.reset_model() for _ in range(n)]))
    spread = theirs.std(0) + 1e-9
    assert ((ours.mean(0) - theirs.mean(0)).abs() / spread).max() < 5 * (2 / n) ** 0.5
    assert (ours.std(0) / spread - 1).abs().max() < 0.08
    if name != "HalfCheetah-v5":  # the others' draws are bounded
        assert (ours.amin(0) >= theirs.amin(0) - 0.1 * spread).all()
        assert (ours.amax(0) <= theirs.amax(0) + 0.1 * spread).all()


def test_a_step_depends_on_the_state_alone():
    task = make_task("Hopper-v5")
    state = task.reset(uniforms(task, 3, 2))
    action = torch.linspace(-1, 1, 18).view(3, 2, 3)
    for _ in range(5):
        before, state = state, task.step(state, action)[0]
    alone = task.step(before[1:2, 1:], action[1:2, 1:])[0]
    assert torch.equal(alone, state[1:2, 1:])


def test_nan_ends_an_episode():
    task = make_task("Walker2d-v5")
    state, action = task.reset(uniforms(task, 2, 1)), torch.zeros(2, 1, 6)
    action[0] = torch.nan
    after, _, terminated = task.step(state, action)
    assert terminated[:, 0].tolist() == [True, False] and torch.equal(after[0], state[0])


@pytest.mark.parametrize("name", NAMES)
def test_a_bandit_of_the_robot_steps(name):
    task, section = make_task(name), EnvSection(contextual_bandit=True, hidden_size=32)
    world = ContextualBandit(task, section, init_world("se", task, section, torch.tensor([1, 2])))
    state = world.reset(torch.rand(2, 3, world.reset_uniforms))
    _, reward, done, failed = world.step(state, torch.zeros(2, 3, task.action_size))
    assert state.shape == (2, 3, task.observation_size) and reward.shape == (2, 3)
    assert (done == 1).all() and not failed.any()
