"""Every learner of continuous actions trains on HalfCheetah-v3, in each kind of world. Python takes the steps."""

from __future__ import annotations

import dataclasses
import logging

import numpy as np
import pytest
import torch

from envolve.agents import train as train_module
from envolve.agents.common.hyper import draw
from envolve.agents.common.job import Job
from envolve.agents.common.learners import LEARNERS
from envolve.agents.common.sections import ICMSection
from envolve.agents.kernels.off_policy import stepwise
from envolve.agents.off_policy import depths as off_policy
from envolve.agents.train import algorithm, train
from envolve.envs.section import EnvSection
from envolve.envs.task import make_task
from envolve.envs.worlds.world import init_world, world_size
from tests.agents.same import same_run
from tests.examples import some_slow

SMALL = {
    "td3": dict(batch_size=8, hidden_size=8, init_episodes=1),
    "sac": dict(batch_size=8, hidden_size=8, init_episodes=1),
    "ppo": dict(hidden_size=8, update_episodes=1, ppo_epochs=2),
}


def run(name, kind, rows=(0, 1, 2), icm=None, poison=(), rn_type=4):
    task = make_task("HalfCheetah-v3", max_steps=12)
    section = EnvSection(hidden_size=8, reward_env_type=rn_type, info_dim=4)
    worlds = init_world("se" if kind == "se" else "rn", task, section, torch.arange(3))
    for row in poison:
        worlds[row] = float("nan")
    rows = list(rows)
    default = LEARNERS[name].section()
    learner = dataclasses.replace(default, train_episodes=3, test_episodes=2, hidden_layer=1, **SMALL[name])
    keys = np.arange(10, 13)[rows]
    return train(name, learner, None, task, kind, section, worlds[rows], keys, kind == "rn", icm=icm)


KINDS = [("real", 0), ("rn", 4), ("rn", 101), ("se", 0)]
EVERY = [(name, *kind) for name in SMALL for kind in KINDS]
FAST = [("td3", "rn", 4), ("td3", "real", 0), ("sac", "se", 0), ("ppo", "rn", 101)]  # each learner, each kind of world


@pytest.mark.parametrize(("name", "kind", "rn_type"), some_slow(EVERY, FAST))
def test_members_train_and_do_not_depend_on_each_other(name, kind, rn_type):
    """To rounding: which kernel a matrix product runs on depends on the batch."""
    together = run(name, kind, rn_type=rn_type)
    assert (together.status == 0).all() and (together.updates > 0).all() and (together.train_steps > 0).all()
    assert np.isfinite(together.test_return).all() and len(np.unique(together.test_return)) == 6
    for i in range(3):
        alone = run(name, kind, [i], rn_type=rn_type)
        np.testing.assert_allclose(alone.test_return[0], together.test_return[i], rtol=1e-3, atol=1e-3)
        np.testing.assert_array_equal(alone.episode_length[0], together.episode_length[i])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["td3", "sac"])
def test_learners_are_compiled(name):
    """As PyTorch's, also of members that are narrower than others, that fail and that leave before the others."""
    task, keys = make_task("HalfCheetah-v3", max_steps=12), np.arange(10, 14)
    section = EnvSection(hidden_size=8, reward_env_type=4, info_dim=4)
    worlds = init_world("rn", task, section, torch.arange(4))
    worlds[1] = float("nan")
    hyper = draw(dataclasses.replace(LEARNERS[name].section(), train_episodes=5, test_episodes=2, **SMALL[name]), keys)
    hyper.values.update(
        hidden_size=np.array([8, 8, 3, 5]),
        batch_size=np.array([8, 8, 20, 5]),
        lr=np.array([1e-3, 1e-3, 1e-4, 1e-2]),
        train_steps=np.array([60, 60, 24, 60]),
    )
    job = Job(task, "rn", section, worlds, hyper, keys)
    twins = [room.train_population(algorithm(name), job) for room in (off_policy, stepwise)]
    assert twins[1].updates.tolist() == [48, 0, 12, 48]
    same_run(*twins, 1e-3)


def test_the_slower_path_says_why(caplog, monkeypatch):
    monkeypatch.setattr(train_module, "_said", set())
    with caplog.at_level(logging.WARNING, logger="envolve"):
        run("ppo", "rn", icm=ICMSection())
        run("ppo", "rn", icm=ICMSection())
        run("ppo", "rn")
    assert [record.message for record in caplog.records] == [
        "ppo trains on the PyTorch path, which is slower: curiosity has no compiled twin"
    ]


def test_a_world_that_is_not_finite_fails_alone():
    mixed, good = run("td3", "rn", poison=[1]), run("td3", "rn")
    assert mixed.status.tolist() == [0, 1, 0] and np.isnan(mixed.test_return[1]).all()
    np.testing.assert_allclose(mixed.test_return[[0, 2]], good.test_return[[0, 2]], rtol=1e-3, atol=1e-3)


def test_weights_of_the_info_vector_are_few():
    task = make_task("HalfCheetah-v3")
    assert world_size("rn", task, EnvSection(reward_env_type=102, info_dim=4)) == 4
