"""Agents on a GPU, where there is one: what they learn is what they learn on the CPU, to rounding."""

from __future__ import annotations

import gc

import numpy as np
import pytest
import torch

from envolve.agents.common.cuda_graph import EAGER_CALLS, Graphs
from envolve.agents.common.learners import LEARNERS
from envolve.agents.common.result import OK
from envolve.agents.shaped.training import default_section, make_envs, make_learner, train_shaped
from envolve.agents.train import Hardware, train
from envolve.envs.section import EnvSection
from envolve.envs.shaping.candidate import Candidate, Shaper
from envolve.envs.task import make_task
from envolve.envs.worlds.world import init_world

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
DEVICE = "cuda"
SMALL = dict(hidden_size=6, test_episodes=1)
OFF_POLICY = dict(init_episodes=1, batch_size=8, train_episodes=3)
PPO = dict(num_envs=4, rollout_steps=8, minibatches=2, train_steps=128, lr=1e-3)
TASK = {"td3": "Pendulum-v0", "sac": "Pendulum-v0"}  # the others: CartPole-v0


@pytest.mark.parametrize("kind", ["real", "se", "rn"])
@pytest.mark.parametrize("name", ["ddqn", "duelingddqn", "td3_discrete", "td3", "sac", "ppo"])
def test_a_training_is_the_cpus(name, kind):
    section = LEARNERS[name].section(**SMALL, **(PPO if name == "ppo" else OFF_POLICY))
    task, env, keys = make_task(TASK.get(name, "CartPole-v0"), max_steps=9), EnvSection(hidden_size=5), np.arange(3)
    worlds = torch.zeros(3, 1) if kind == "real" else init_world(kind, task, env, torch.as_tensor(keys))
    cpu, gpu = (
        train(name, section, None, task, kind, env, worlds, keys, backend="torch", hardware=Hardware(device))
        for device in ("cpu", DEVICE)
    )
    assert (gpu.status == OK).all()
    np.testing.assert_array_equal(gpu.train_steps, cpu.train_steps)
    np.testing.assert_allclose(gpu.weights, cpu.weights, rtol=1e-2, atol=1e-3)


def test_graphs_of_earlier_trainings_do_not_spoil_a_capture():
    """The garbage collector finds them at any time, in cycles."""

    def captured():
        graphs = Graphs(lambda variant, x: tuple([x * 2] for _ in range(2000))[0], True)
        graphs.itself = graphs
        for _ in range(EAGER_CALLS + 2):
            (doubled,) = graphs(None, torch.ones(3, device=DEVICE))
        return doubled.tolist()

    before = gc.get_threshold()
    gc.set_threshold(100, 1, 1)
    try:
        assert [captured() for _ in range(5)] == 5 * [[2.0, 2.0, 2.0]]
    finally:
        gc.set_threshold(*before)


def _half(state):
    return torch.cat((state["cart_position"][:, None], state["pole_angle"][:, None]), 1)


def _fails(state):
    raise ValueError("a bad candidate")


@pytest.mark.slow  # the engine's kernels are compiled
@pytest.mark.parametrize("learner", ["ppo", "sac", "td3"])
def test_candidates_learn_in_mujoco_warp(learner):
    """Widths differ, so there are two batches; a candidate that raises is out and the others go on."""
    pytest.importorskip("mujoco_warp")
    candidates = [
        Candidate("human"),
        Candidate("half", {"compute_observation": Shaper(_half, False)}),
        Candidate("bad", {"compute_reward": Shaper(_fails, False)}),
        Candidate("human again"),
    ]
    envs = make_envs("Cartpole", candidates, 16, [0, 1, 2, 0], "mujoco_warp", device=DEVICE)
    agents = make_learner(learner, envs, default_section(learner), np.array([0, 1, 2, 0]), "auto", 1)
    result = train_shaped(envs, agents, 4)
    assert [i for i, failure in enumerate(result.failures) if failure] == [2]
    assert np.isfinite(result.score[[0, 1, 3]]).all() and np.isnan(result.score[2])
    assert all(torch.isfinite(policy["weights"]).all() for i, policy in enumerate(result.policies) if i != 2)
    if learner == "ppo":
        assert agents.backend.groups[0].epochs.update.captured, "the update is a CUDA graph"
