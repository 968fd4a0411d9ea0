"""``envs.<task>.normalised``: agents see a bandit in units of its contexts' spread, and are tested without units."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch

from envolve.agents.common.learners import LEARNERS
from envolve.agents.greedy import policies
from envolve.agents.train import of_one_step_episodes, train
from envolve.core import rng
from envolve.envs.section import EnvSection
from envolve.envs.task import Task, make_task
from envolve.envs.worlds.units import in_units, units_of
from envolve.envs.worlds.world import init_world
from envolve.outer.config.load import ConfigError, config_of
from envolve.outer.distil import bandit
from envolve.outer.distil.policy import of_observation, play
from envolve.outer.distil.units import fit_in_units

KEYS = np.array([3, 4], dtype=np.int64)
SMALL: dict[str, dict[str, Any]] = {
    "td3": {"train_steps": 150, "train_episodes": 150, "init_episodes": 100, "batch_size": 32, "lr": 1e-4},
    "sac": {"train_steps": 150, "train_episodes": 150, "init_episodes": 100, "batch_size": 32, "lr": 1e-4},
    "ppo": {"train_steps": 256, "train_episodes": 256, "rollout_steps": 128, "minibatches": 4, "ppo_epochs": 4,
            "orthogonal_init": True},
    "ddqn": {"train_steps": 100, "train_episodes": 100, "init_episodes": 20, "batch_size": 32},
    "duelingddqn": {"train_steps": 100, "train_episodes": 100, "init_episodes": 20, "batch_size": 32},
}  # fmt: skip
TASK = {"td3": "Pendulum-v0", "sac": "Pendulum-v0", "ppo": "Pendulum-v0"}


def bandits(task: Task) -> tuple[EnvSection, torch.Tensor]:
    """Two bandits whose contexts are far from 0 and of unlike spread: without units an agent would see other ones."""
    section = EnvSection(contextual_bandit=True, hidden_size=8, normalised=True)
    worlds = init_world("se", task, section, torch.tensor([1, 2]))
    F = task.observation_size
    offset = 8 * F + 8  # of init_net's last layer [8, F]
    worlds[:, offset : offset + 8 * F] *= torch.linspace(0.2, 20, F).repeat(8)
    worlds[:, offset + 8 * F : offset + 8 * F + F] += torch.linspace(-5, 5, F)
    return section, worlds


def trained(name: str, backend: str) -> tuple[Task, Any, Any, Any, torch.Tensor, EnvSection]:
    """Agents in the normalised bandits, and the same ones in bandits that were put into their units by hand."""
    task = make_task(TASK.get(name, "CartPole-v0"))
    section, worlds = bandits(task)
    learner = LEARNERS[name].section(**{"hidden_size": 16, "test_episodes": 2, **SMALL[name]})
    found = train(name, learner, None, task, "se", section, worlds, KEYS, backend=backend)
    plain = dataclasses.replace(section, normalised=False)
    by_hand = torch.stack([in_units(task, plain, flat, units_of(task, plain, flat)) for flat in worlds])
    expected = train(name, learner, None, task, "se", plain, by_hand, KEYS, backend=backend)
    return task, learner, found, expected, worlds, plain


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("backend", ["torch", pytest.param("compiled", marks=pytest.mark.slow)])
def test_an_agent_acts_on_the_task_as_it_learned_to_in_units(name: str, backend: str) -> None:
    task, learner, found, expected, worlds, section = trained(name, backend)
    of = of_one_step_episodes(learner, None)
    act = policies(name, of, None, task, found.weights, KEYS)
    in_these_units = policies(name, of, None, task, expected.weights, KEYS)
    noise = torch.randn(1, 200, task.observation_size, generator=torch.Generator().manual_seed(0))
    for flat, one, other in zip(worlds, act, in_these_units):
        units = units_of(task, section, flat)
        observations = units.mean + units.deviation * noise
        wanted = other(noise)
        if task.action_size:
            assert torch.allclose(one(observations), wanted, atol=1e-3)
            assert wanted.std() > 0.01, "an agent that always acts alike would pass"
        else:
            assert (one(observations) == wanted).float().mean() > 0.98
    for counted in ("train_steps", "episodes", "updates", "status", "episode_length"):
        np.testing.assert_array_equal(getattr(found, counted), getattr(expected, counted))
    np.testing.assert_array_equal(found.episode_return, expected.episode_return)


@pytest.mark.parametrize("name", ["ppo", "td3"])
def test_its_tests_are_played_on_the_task(name: str) -> None:
    """The returns are those of its policy in the episodes of every final test, and their steps are counted."""
    task, learner, found, _, _, _ = trained(name, "torch")
    act = policies(name, of_one_step_episodes(learner, None), None, task, found.weights, KEYS)
    seeds = rng.fold(torch.from_numpy(KEYS), rng.FINAL_TEST).numpy()
    for i, one in enumerate(act):
        played = play(task, of_observation(task, one), seeds[i : i + 1], 2)
        np.testing.assert_allclose(found.test_return[i], played.returns[0], rtol=1e-4)
        assert found.real_steps[i] == played.steps[0]


def test_a_member_does_not_depend_on_the_others_and_a_broken_one_fails_alone() -> None:
    task = make_task("Pendulum-v0")
    section, worlds = bandits(task)
    learner = LEARNERS["ppo"].section(**{"hidden_size": 16, "test_episodes": 2, **SMALL["ppo"]})
    broken = worlds.clone()
    broken[0, 0] = torch.nan
    both, second = (train("ppo", learner, None, task, "se", section, w, k, backend="torch")
                    for w, k in ((broken, KEYS), (worlds[1:], KEYS[1:])))  # fmt: skip
    assert both.status.tolist() == [1, 0] and np.isnan(both.test_return[0]).all()
    np.testing.assert_array_equal(both.test_return[1], second.test_return[0])
    np.testing.assert_array_equal(both.weights[1], second.weights[0])


def test_units_let_an_agent_learn_what_it_does_not_see_without(monkeypatch: pytest.MonkeyPatch) -> None:
    """The best action follows a feature whose spread is a thousandth of the others'."""
    monkeypatch.setattr(bandit, "CONTEXT_STEPS", 200)
    task, section = make_task("Pendulum-v0"), EnvSection(contextual_bandit=True, hidden_size=16)
    spread = torch.tensor([0.001, 1.0, 1.0])
    contexts = spread * torch.randn(2000, 3, generator=torch.Generator().manual_seed(0))

    def best(x: torch.Tensor) -> torch.Tensor:
        return 1.5 * torch.tanh(x[:, :1] / spread[0])

    world = fit_in_units(task, section, contexts, best, 0, 800)[None]
    own = {"train_steps": 1536, "train_episodes": 1536, "num_envs": 8, "rollout_steps": 16, "lr": 3e-3,
           "hidden_size": 32, "test_episodes": 1, "norm_advantage": True}  # fmt: skip
    learner = LEARNERS["ppo"].section(**{**SMALL["ppo"], **own})
    follows = []
    for normalised in (False, True):
        seen = dataclasses.replace(section, normalised=normalised)
        found = train("ppo", learner, None, task, "se", seen, world, KEYS[:1], backend="torch")
        (act,) = policies("ppo", of_one_step_episodes(learner, None), None, task, found.weights, KEYS[:1])
        both = torch.stack((act(contexts[None])[0, :, 0], best(contexts)[:, 0]))
        follows.append(float(torch.corrcoef(both)[0, 1]))
    assert follows[0] < 0.5 and follows[1] > 0.8, follows


@pytest.mark.parametrize(
    ("env", "section", "words"),
    [
        ("Pendulum-v0", {}, "expected false: in a bandit alone"),
        ("Pendulum-v0", {"contextual_bandit": True, "stored_contexts": 9}, "found stored_contexts, and contexts that"),
    ],
)
def test_what_has_no_units_is_said(env: str, section: dict[str, Any], words: str) -> None:
    data = {"env_name": env, "seed": 0, "agents": {"gtn": {"agent_name": "TD3"}, "td3": {}},
            "envs": {env: {**section, "normalised": True}}}  # fmt: skip
    with pytest.raises(ConfigError, match=words):
        config_of(data, (), "test")


def test_tests_during_training_are_refused() -> None:
    task = make_task("Pendulum-v0")
    section, worlds = bandits(task)
    with pytest.raises(ValueError, match="test_each: found true"):
        train("ppo", LEARNERS["ppo"].section(), None, task, "se", section, worlds, KEYS, test_each=True)
