"""Where kernels cannot be compiled, "auto" trains on the readable path and says so once, with the reason; "compiled" is
refused with the reason."""

from __future__ import annotations

import logging

import numpy as np
import pytest
import torch

from envolve.agents import train as entry
from envolve.agents.common.hyper import draw
from envolve.agents.common.learners import LEARNERS
from envolve.agents.common.population import initial_weights, nets_of
from envolve.agents.common.sections import PPOSection
from envolve.agents.goal.crl import CRL
from envolve.agents.goal.crl_section import CRLSection
from envolve.agents.kernels.building import ahead
from envolve.agents.kernels.off_policy import update
from envolve.agents.off_policy.td3 import TD3
from envolve.agents.shaped.ppo import ShapedPPO
from envolve.agents.shaped.ppo_torch import PyTorchBackend
from envolve.agents.train import train
from envolve.envs.section import EnvSection
from envolve.envs.task import make_task
from tests.agents.fake_shaped import PointMasses
from tests.agents.same import assert_same_bytes

REASON = "the process that compiled crashed (SIGABRT): LLVM ERROR: Cannot select"


@pytest.fixture(autouse=True)
def no_kernels(monkeypatch):
    monkeypatch.setattr(ahead, "why_not", lambda name: f"{name}: {REASON}")
    monkeypatch.setattr(entry, "_said", set())


def run(name, backend):
    small = {"train_episodes": 2, "test_episodes": 1}
    if name != "ql":
        small["hidden_size"] = 4
        small.update({"rollout_steps": 8, "ppo_epochs": 1} if name == "ppo" else {"init_episodes": 1, "batch_size": 4})
    task = make_task("Cliff" if name == "ql" else "Pendulum-v0" if name == "td3" else "CartPole-v0", max_steps=8)
    return train(
        name,
        LEARNERS[name].section(**small),
        None,
        task,
        "real",
        EnvSection(),
        torch.zeros(2, 1),
        np.arange(2),
        backend=backend,
    )


@pytest.mark.parametrize("name", ["ql", "ddqn", "td3", "ppo"])
def test_a_learner(name, caplog):
    fallen_back = [run(name, "auto") for _ in range(2)]
    messages = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert messages == [f"{name} trains on the PyTorch path, which is slower: {name}: {REASON}"], "once"
    for result in fallen_back:
        assert_same_bytes(result, run(name, "torch"))
    with pytest.raises(ValueError, match=rf"backend 'compiled': {name}: the process that compiled crashed"):
        run(name, "compiled")


def test_contrastive_rl(caplog):
    section, keys = CRLSection(batch_size=2, h_dim=2, repr_dim=2), torch.zeros(1, dtype=torch.int64)
    assert CRL(section, 1, 1, (0,), keys).compiled is None
    assert REASON in caplog.text
    with pytest.raises(ValueError, match="backend 'compiled': crl: the process"):
        CRL(section, 1, 1, (0,), keys, backend="compiled")


def test_ppo_on_shaped_tasks(caplog):
    section = PPOSection(rollout_steps=2, ppo_epochs=1, hidden_size=2)
    envs = PointMasses([(2, 1)])
    assert isinstance(ShapedPPO(envs, section, np.zeros(1, np.int64)).backend, PyTorchBackend)
    assert REASON in caplog.text
    with pytest.raises(ValueError, match="backend 'compiled': shaped_ppo: the process"):
        ShapedPPO(envs, section, np.zeros(1, np.int64), backend="compiled")


def test_single_updates(caplog):
    """Of every loop that asks for them."""
    caplog.set_level(logging.INFO, "envolve")
    section = LEARNERS["td3"].section(train_episodes=2, init_episodes=1, batch_size=4, hidden_size=4, test_episodes=1)
    task, keys = make_task("Pendulum-v0"), np.zeros(1, np.int64)
    hyper = draw(section, keys)
    nets = nets_of(TD3, task, hyper)
    weights = torch.as_tensor(initial_weights(nets, keys))
    algorithm = TD3(task, hyper, nets[0], weights, torch.ones(1, dtype=torch.int64))
    assert update.update_of(algorithm) == algorithm.update and f"td3_update: {REASON}" in caplog.text
