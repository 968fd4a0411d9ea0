"""Updates made by torch.compile equal those of PyTorch by itself."""

import numpy as np
import pytest
import torch

from envolve.agents.common import torch_compile
from envolve.agents.common.learners import LEARNERS
from envolve.agents.train import train
from envolve.envs.section import EnvSection
from envolve.envs.task import make_task
from envolve.envs.worlds.world import init_world
from tests.agents.same import same_run
from tests.examples import some_slow


def twins(name, kind="se", env_name="CartPole-v0", members=5, **values):
    task, section = make_task(env_name, max_steps=60), EnvSection(hidden_size=8, max_steps=60)
    values = {"train_episodes": 6, "test_episodes": 2, "init_episodes": 1, "batch_size": 16, "lr": 1e-3, **values}
    learner = LEARNERS[name].section(hidden_size=9, **values)
    worlds = init_world(kind, task, section, torch.arange(members)) if kind == "se" else torch.zeros(members, 1)
    return [
        train(name, learner, None, task, kind, section, worlds, np.arange(members), backend=backend)
        for backend in ("torch", "torch_compile")
    ]


DISCRETE = [
    ("ddqn", {"activation_fn": "tanh"}),
    ("ddqn", {"hidden_layer": 2, "activation_fn": "prelu"}),
    ("duelingddqn", {"hidden_layer": 2, "feature_dim": 8, "activation_fn": "leakyrelu"}),
    ("td3_discrete", {"hidden_layer": 2, "activation_fn": "relu", "use_layer_norm": True}),
    ("td3_discrete", {"activation_fn": "tanh", "use_layer_norm": False}),
]


@pytest.mark.parametrize("name, values", some_slow(DISCRETE[:1] + DISCRETE[3:4], DISCRETE[:1]))
def test_what_is_traced_equals_what_runs_by_itself(name, values, monkeypatch):
    """Without the C++ compiler, which takes half a minute; the slow tests are with it."""
    monkeypatch.setattr(torch_compile, "BACKEND", "eager")
    same_run(*twins(name, "se", members=2, **values), 1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("name, values", DISCRETE)
def test_discrete_actions(name, values):
    slow, fast = twins(name, "real", **values)
    assert len(set(slow.updates.tolist())) > 1, "members finish one by one, so sizes of populations change"
    same_run(slow, fast, 1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["td3", "sac"])
def test_continuous_actions(name):
    same_run(*twins(name, "real", "Pendulum-v0", hidden_layer=2), 1e-3)


@pytest.mark.parametrize("name, env_name", [("ppo", "CartPole-v0"), ("ql", "Cliff")])
def test_what_it_cannot_do_is_said(name, env_name):
    task, worlds = make_task(env_name), torch.zeros(1, 1)
    with pytest.raises(ValueError, match=f"backend 'torch_compile': it compiles .* and {name} is none"):
        learner = LEARNERS[name].section()
        train(name, learner, None, task, "real", EnvSection(), worlds, np.arange(1), backend="torch_compile")
