"""HalfCheetah-v3 beside Gymnasium's HalfCheetah-v5; the state is all there is; divergence; workers without MuJoCo."""

from __future__ import annotations

import logging
import subprocess
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import gymnasium
import mujoco
import numpy as np
import pytest
import torch
from gymnasium.utils.env_checker import check_env

from envolve.core import rng
from envolve.envs.classic import mujoco_task
from envolve.envs.classic.half_cheetah import HalfCheetah
from envolve.envs.classic.mujoco_task import normals
from envolve.envs.sim.mujoco_model import load_model
from envolve.envs.sim.simulator import MODELS
from envolve.envs.task import make_task
from envolve.envs.worlds.export import WorldEnv
from envolve.envs.worlds.world import RealTask

ROOT = Path(__file__).resolve().parents[3]
TASK = make_task("HalfCheetah-v3")


def uniforms(P, N, seed=0):
    return rng.uniform(torch.tensor(seed), torch.arange(P * N * TASK.reset_uniforms)).view(P, N, -1)


def actions(steps, P, N, limit=1.0):
    generator = torch.Generator().manual_seed(1)
    return (torch.rand(steps, P, N, TASK.action_size, generator=generator) * 2 - 1) * limit


def rollout(state, sequence):
    """States after each of the actions [T, P, N, A] -> [T, P, N, S]."""
    out = []
    for action in sequence:
        state, _, terminated = TASK.step(state, action)
        assert not terminated.any()
        out.append(state)
    return torch.stack(out)


def test_every_bit_is_gymnasiums_for_200_steps():
    P, N = 2, 2
    twins = [gymnasium.make("HalfCheetah-v5", disable_env_checker=True).unwrapped for _ in range(P * N)]
    state = TASK.reset(uniforms(P, N))
    for twin, row in zip(twins, state.view(P * N, -1).numpy()):
        twin.reset(seed=0)
        mujoco.mj_resetData(twin.model, twin.data)
        twin.set_state(row[:9], row[9:18])
        np.testing.assert_array_equal(row[18:], twin.data.qacc_warmstart)
    for action in actions(200, P, N, limit=1.3):  # beyond the motors' range too
        before = state
        state, reward, terminated = TASK.step(state, action)
        info, obs = TASK.info(before, action, state), TASK.observe(state)
        assert not terminated.any() and obs.dtype == info.dtype == reward.dtype == torch.float32
        for i, twin in enumerate(twins):
            p, n = divmod(i, N)
            wanted, wanted_reward, _, _, details = twin.step(action[p, n].numpy())
            np.testing.assert_array_equal(state[p, n, :9].numpy(), twin.data.qpos)
            np.testing.assert_array_equal(state[p, n, 9:18].numpy(), twin.data.qvel)
            np.testing.assert_array_equal(obs[p, n].numpy(), wanted.astype(np.float32))
            assert reward[p, n].item() == np.float32(wanted_reward)
            names = ("x_position", "x_velocity", "reward_forward", "reward_ctrl")
            assert info[p, n].tolist() == [np.float32(details[name]) for name in names]


def test_constants_are_the_models():
    model = load_model(MODELS / TASK.model, contact_forces=False)
    assert model.opt.timestep * TASK.substeps == TASK.dt and (model.nq, model.nv) == (9, 9)
    assert (model.actuator_ctrlrange == [-1, 1]).all() and model.nu == TASK.action_size
    assert (TASK.max_steps, TASK.solved_reward, TASK.info_size) == (1000, 3000.0, 4)
    assert make_task("HalfCheetah-v3", 7, 5.0).max_steps == 7


def test_a_trajectory_depends_on_its_state_alone():
    state, sequence = TASK.reset(uniforms(3, 2)), actions(40, 3, 2)
    wanted = rollout(state, sequence)
    alone = rollout(state[1:2, 1:], sequence[:, 1:2, 1:])  # in another simulation, of which others were there before
    assert torch.equal(alone, wanted[:, 1:2, 1:])
    resumed = rollout(wanted[19], sequence[20:])  # simulations were elsewhere meanwhile
    assert torch.equal(resumed, wanted[20:])
    many = rollout(state.repeat(5, 4, 1), sequence.repeat(1, 5, 4, 1))
    assert torch.equal(many[:, 12:, 6:], wanted)
    cold = wanted[19].clone()
    cold[..., 18:] = 0
    assert not torch.equal(rollout(cold, sequence[20:]), wanted[20:]), "then the state need not hold the warm start"


def test_threads_have_simulations_of_their_own():
    state, sequence = TASK.reset(uniforms(4, 1)), actions(30, 4, 1)
    wanted = rollout(state, sequence)
    with ThreadPoolExecutor(4) as pool:
        parts = list(pool.map(lambda i: rollout(state[i : i + 1], sequence[:, i : i + 1]), range(4)))
    assert torch.equal(torch.cat(parts, dim=1), wanted)


def test_reset_is_uniform_in_position_and_normal_in_velocity():
    state = TASK.reset(uniforms(50, 40))[..., :18].reshape(-1, 18)
    position, velocity = state[:, :9] / 0.1, state[:, 9:] / 0.1
    assert position.abs().max() <= 1 and (position.std(0) - 3**-0.5).abs().max() < 0.03
    assert position.mean(0).abs().max() < 0.05 and velocity.mean(0).abs().max() < 0.1
    assert (velocity.std(0) - 1).abs().max() < 0.06 and velocity.abs().max() > 3
    correlation = torch.corrcoef(state.t()) - torch.eye(18)
    assert correlation.abs().max() < 0.1
    assert torch.isfinite(TASK.reset(torch.zeros(1, 1, 19))).all()
    assert torch.isfinite(TASK.reset(torch.full((1, 1, 19), 1 - 2.0**-53, dtype=torch.float64))).all()


def test_normals_are_normal():
    u = torch.rand(4, 20000, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    z = normals(u)
    assert z.shape == u.shape
    for moment, value in ((1, 0.0), (2, 1.0), (3, 0.0), (4, 3.0)):
        assert abs(z.pow(moment).mean() - value) < 0.08


@pytest.mark.parametrize(("where", "poison"), [("action", "nan"), ("state", "nan"), ("state", "inf")])
def test_divergence_ends_the_episode_where_it_was_and_harms_nobody(where, poison, caplog, monkeypatch):
    monkeypatch.setattr(mujoco_task, "_said", mujoco_task.threading.Event())
    state, action = TASK.reset(uniforms(3, 1)), actions(1, 3, 1)[0]
    good, reward, _ = TASK.step(state, action)
    bad_state, bad_action = state.clone(), action.clone()
    if where == "action":
        bad_action[1, 0, 2] = float(poison)
    else:
        bad_state[1, 0, 9] = float(poison)
    with caplog.at_level(logging.WARNING, logger="envolve"):
        for _ in range(2):
            after, bad_reward, terminated = TASK.step(bad_state, bad_action)
    assert terminated[:, 0].tolist() == [False, True, False]
    assert torch.equal(after[[0, 2]], good[[0, 2]]) and torch.equal(bad_reward[[0, 2]], reward[[0, 2]])
    torch.testing.assert_close(after[1], bad_state[1], rtol=0, atol=0, equal_nan=True)
    said = "HalfCheetah-v3: a simulation diverged, which ends its episode (logged once)"
    assert [record.message for record in caplog.records] == [said]
    again, _, terminated = TASK.step(state, action)  # that simulation is as good as before
    assert torch.equal(again, good) and not terminated.any()


def test_a_state_that_explodes_diverges():
    state = TASK.reset(uniforms(2, 1))
    state[0, 0, 9:18] = 1e9
    after, reward, terminated = TASK.step(state, torch.zeros(2, 1, 6))
    assert terminated[:, 0].tolist() == [True, False]
    assert torch.equal(after[0], state[0]) and reward[0] == 0


@pytest.mark.slow
def test_workers_without_mujoco_serve_other_tasks():
    code = (
        "import sys; sys.modules['mujoco'] = None\n"
        "import torch, envs\n"
        "from envolve.envs.sim.simulator import SimulatorError\n"
        "from envolve.envs.task import TASKS, make_task\n"
        "assert make_task('CartPole-v0').reset(torch.rand(1, 1, 4)).shape == (1, 1, 4)\n"
        "task = make_task('HalfCheetah-v3')\n"
        "try:\n    task.reset(torch.rand(1, 1, task.reset_uniforms))\n"
        "except SimulatorError as e:\n    print(e)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "MuJoCo 3.17 or later is needed, found no MuJoCo" in done.stdout


def test_gymnasiums_checker_likes_the_exported_task():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        check_env(WorldEnv(RealTask(HalfCheetah(max_steps=20), 1)))
    known = ("not having a spec", "value is -infinity", "value is infinity")  # Gymnasium's own is unbounded too
    assert not [w for w in caught if not any(text in str(w.message) for text in known)]
