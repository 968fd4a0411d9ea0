"""The one entry to the learners: which path it takes and says so, what it refuses, and that learning works."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from envolve.agents import train as entry
from envolve.agents.common.learners import LEARNERS, learners_for
from envolve.agents.common.result import OK
from envolve.agents.common.sections import DDQNSection, DuelingDDQNSection, ICMSection, PPOSection, TabularSection
from envolve.agents.train import Hardware, train
from envolve.envs.section import EnvSection
from envolve.envs.task import make_task
from envolve.envs.worlds.world import init_world

ENV = EnvSection(hidden_size=13)
SMALL = DDQNSection(train_episodes=4, init_episodes=1, hidden_size=8, hidden_layer=1, batch_size=5, test_episodes=2)
KEYS = np.arange(3)


@pytest.fixture(autouse=True)
def nothing_said_yet(monkeypatch):
    monkeypatch.setattr(entry, "_said", set())


def run(name="ddqn", learner=SMALL, task="CartPole-v0", kind="real", **kw):
    task = make_task(task)
    worlds = torch.zeros(3, 1) if kind == "real" else init_world(kind, task, ENV, torch.as_tensor(KEYS))
    return train(name, learner, None, task, kind, ENV, worlds, KEYS, **kw)


def warnings(caplog):
    return [r.getMessage() for r in caplog.records if r.name == "envolve" and r.levelno == logging.WARNING]


@pytest.mark.parametrize("kind", ["real", "se", "rn"])
def test_ddqn_on_a_finite_task(kind, caplog):
    """Observations are one-hot there, and no kernel knows the task: Python takes the steps."""
    result = run(task="EmptyRoom22", kind=kind)
    assert (result.status == OK).all() and np.isfinite(result.test_return).all() and (result.updates > 0).all()
    assert result.weights.shape == (3, 4 * 8 + 8 + 8 * 4 + 4), "four cells in, four actions out"
    assert (result.episode_length.sum(1) == result.train_steps).all() and (result.episode_length <= 10).all()
    assert not warnings(caplog)


def test_ddqn_learns_a_finite_task():
    learner = DDQNSection(
        train_episodes=60,
        init_episodes=5,
        hidden_size=32,
        hidden_layer=1,
        batch_size=32,
        lr=5e-3,
        eps_init=1.0,
        eps_decay=0.9,
        test_episodes=1,
    )
    result = run(learner=learner, task="EmptyRoom22")
    np.testing.assert_allclose(result.test_return[:, 0], 0.99, atol=1e-6, err_msg="the shortest way is two steps")


def test_a_reason_is_logged_once(caplog):
    published = DuelingDDQNSection(train_episodes=2, hidden_size=8, test_episodes=1, published_dueling_mean=True)
    for _ in range(2):
        run(icm=ICMSection())
        run("duelingddqn", published)
    said = warnings(caplog)
    assert len(said) == 2 and "curiosity has no compiled twin" in said[0] and "over the batch" in said[1]


def test_who_asks_for_a_path_gets_it_without_a_word(caplog, monkeypatch):
    from envolve.agents.kernels.off_policy import population as off_policy_population
    from envolve.agents.off_policy import depths as off_policy

    for module, backend in ((off_policy, "compiled"), (off_policy, "auto"), (off_policy_population, "torch")):
        with monkeypatch.context() as patch:
            patch.setattr(module, "train_population", lambda *a, **k: pytest.fail("the other path was taken"))
            run(backend=backend)
    assert not warnings(caplog)


def test_what_has_no_kernel_is_refused_where_one_is_asked_for():
    with pytest.raises(ValueError, match="'compiled': curiosity has no compiled twin"):
        run("ppo", PPOSection(), icm=ICMSection(), backend="compiled")
    with pytest.raises(ValueError, match="'compiled': kernels run on the CPU, and the device is cuda"):
        run(hardware=Hardware("cuda"), backend="compiled")
    with pytest.raises(ValueError, match="'compiled': .*over the batch"):
        run("duelingddqn", DuelingDDQNSection(published_dueling_mean=True), backend="compiled")


def test_an_unknown_back_end_is_refused():
    with pytest.raises(ValueError, match="'numba': expected one of auto, compiled, torch"):
        run(backend="numba")


@pytest.mark.parametrize("name", [name for name, entry in LEARNERS.items() if entry.section is TabularSection])
def test_a_tabular_learner_on_a_continuous_task_is_refused(name):
    with pytest.raises(ValueError, match=f"{name} cannot learn CartPole-v0, which has discrete actions and no finite"):
        run(name, TabularSection())


def test_learners_by_kind_of_task():
    """As the spec's section 3.6 has them; ICM changes nothing about it."""
    discrete = {"ddqn", "duelingddqn", "td3_discrete", "ppo"}
    wanted = {
        "CartPole-v0": discrete,
        "MountainCar-v0": discrete,
        "Pendulum-v0": {"td3", "sac", "ppo"},
        "Cliff": discrete | {"ql", "ql_cb", "sarsa", "sarsa_cb"},
    }
    for task, names in wanted.items():
        fitting = {name for name in LEARNERS if name.replace("_icm", "") in names}
        assert set(learners_for(make_task(task))) == fitting, task
    with pytest.raises(ValueError, match="ddqn cannot learn Pendulum-v0, which has continuous actions and no finite"):
        run("ddqn", DDQNSection(), "Pendulum-v0")


@pytest.mark.parametrize("kind", ["real", "se", "rn"])
def test_tabular_learners_train_in_every_kind_of_world(kind):
    learner = TabularSection(train_episodes=20, test_episodes=2, alpha=1.0)
    a, b = (run("ql", learner, "EmptyRoom33", kind, backend=backend) for backend in ("auto", "torch"))
    assert (a.status == OK).all() and a.weights.any()
    assert a.weights.tobytes() == b.weights.tobytes() and (a.real_steps == b.real_steps).all()


@pytest.mark.slow
def test_the_torch_path_needs_no_numba():
    code = (
        "import sys; sys.modules['numba'] = None\n"  # an import of it raises
        "from tests.agents.test_train import TabularSection, run\n"
        "run(backend='torch'); run('ql', TabularSection(), 'EmptyRoom22', backend='torch'); print('trained')"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=False)
    assert done.stdout == "trained\n", done.stderr
