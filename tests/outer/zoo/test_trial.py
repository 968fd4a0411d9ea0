"""What ``envolve worlds test`` trains, and what it writes into a card."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Discrete, MultiDiscrete

from envolve.agents import peers
from envolve.experiments import worlds
from envolve.outer.auto import report, unseen
from envolve.outer.auto.unseen import RANDOM
from envolve.outer.zoo import trial
from envolve.outer.zoo.card import text_of
from envolve.outer.zoo.trial import ZooAgent
from envolve.worlds import shelf

HOPPER, CARTPOLE = "Hopper-v5-bandit", "CartPole-v1-bandit"
HELD = {"mean_return": 1.0, "interval": [0.0, 2.0], "episodes": 20}


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> list[ZooAgent]:
    """The agents that were to be trained; each returns 7 in a world, 3 on the task."""
    seen: list[ZooAgent] = []

    def train_all(jobs: list[ZooAgent], path: Path, workers: int, console: Any) -> list[dict[str, Any]]:
        seen.extend(jobs)
        value = {"world": 7.0, "real": 3.0}
        return [
            {"key": j.key, "learner": j.learner, "where": j.where, "return": value[j.where], "test_returns": [1.0, 2.0],
             "train_steps": j.steps, "real_steps": 0, "test_steps": 0, "failed": ""}
            for j in jobs
        ]  # fmt: skip

    monkeypatch.setattr(report, "train_all", train_all)
    monkeypatch.setattr(trial, "held", lambda world, bounds: HELD)
    monkeypatch.setattr(peers, "installed", lambda: True)
    monkeypatch.setattr(peers, "whole_rollouts", lambda learner, steps: steps)
    return seen


@pytest.fixture
def copy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A shelf of one world."""
    for ending in (shelf.TENSORS, shelf.CARD):
        shutil.copy(shelf.DATA / f"{HOPPER}{ending}", tmp_path)
    monkeypatch.setattr(shelf, "DATA", tmp_path)
    return tmp_path / f"{HOPPER}{shelf.CARD}"


def test_figures_stand_beside_those_of_other_learners(copy: Path, jobs: list[ZooAgent], tmp_path: Path) -> None:
    before = json.loads(copy.read_text())
    for key in ("unseen", "on_task"):
        before[key].pop("sac", None)
    copy.write_text(json.dumps(before))
    words = ["test", f"envolve/{HOPPER}", "--agents", "2", "--learners", "sac", "--steps", "4096"]
    assert worlds.main([*words, "--results-dir", str(tmp_path / "results"), "--workers", "1"]) == 0
    assert json.loads(copy.read_text()) == before, "without --save nothing is written"
    assert worlds.main([*words, "--results-dir", str(tmp_path / "results"), "--workers", "1", "--save"]) == 0
    card = json.loads(copy.read_text())
    assert card.pop("policy") == HELD != before.pop("policy")
    for key, value in (("unseen", 7.0), ("on_task", 3.0)):
        new = card[key].pop("sac")
        assert (new["mean_return"], new["agents"], new["train_steps"]) == (value, 2, 4096)
    assert card == before
    assert {j.learner for j in jobs} == {RANDOM, "sac"}


def test_all_kinds_that_can_act_in_a_world(jobs: list[ZooAgent], tmp_path: Path) -> None:
    for name, kinds in ((HOPPER, {"ppo", "sac", "td3", "a2c"}), (CARTPOLE, {"ppo", "dqn", "a2c"})):
        assert worlds.main(["test", name, "--results-dir", str(tmp_path), "--workers", "1"]) == 0
        assert {j.learner for j in jobs} == {RANDOM, *kinds}
        jobs.clear()


@pytest.mark.parametrize(
    "words, said",
    [
        (["CartPole-v1-bandi"], "did you mean CartPole-v1-bandit"),
        ([CARTPOLE, "--learners", "sac"], "--learners: found 'sac', expected one of ppo, dqn, a2c"),
        ([CARTPOLE, "--agents", "1"], "--agents"),
        (["a/file.safetensors", "--save"], "found none of this name"),
    ],
)
def test_refusals(words: list[str], said: str, jobs: list[ZooAgent], capsys: pytest.CaptureFixture[str]) -> None:
    assert worlds.main(["test", *words]) in (1, 2)
    assert said in capsys.readouterr().err and not jobs


def test_learners_by_the_kind_of_action() -> None:
    world = shelf.open_world(CARTPOLE)
    for space, kinds in ((MultiDiscrete([2, 3]), ["ppo", "a2c"]), (Discrete(2), ["ppo", "dqn", "a2c"])):
        assert trial.learners_of(world._replace(action=world.action._replace(space=space))) == kinds


def test_worlds_of_a_task_share_the_agents_that_train_on_it() -> None:
    of = [ZooAgent("", "ppo", where, 10, 1, 2, True, name).key for where in ("world", "real") for name in ("a", "b")]
    assert of[0] != of[1] and of[2] == of[3]


def test_one_agent_of_the_library_in_a_world_and_on_its_task() -> None:
    pytest.importorskip("stable_baselines3")
    for where in ("world", "real"):
        row = unseen.train_one(ZooAgent("", "a2c", where, 40, 3, 2, True, CARTPOLE))
        assert not row["failed"] and len(row["test_returns"]) == 2 and row["train_steps"] == 40
        assert row["real_steps"] == (0 if where == "world" else 40)


@pytest.mark.parametrize("name", ["ppo", "ppo_normalised"])
def test_a_normalised_learner_is_tested_with_what_it_saw(name: str) -> None:
    """In Hopper's world, whose features differ in spread, and on its task."""
    pytest.importorskip("stable_baselines3")
    model = peers.algorithm(name)("MlpPolicy", peers.shown(name, shelf.make(HOPPER)), n_steps=64, seed=0)
    assert peers.learn(model, 512) == 0
    pupil, env = peers.pupil(model), model.get_vec_normalize_env()
    assert (env is None) == (pupil is model) == (name == "ppo")
    observation = np.linspace(-1, 1, 11)
    seen = observation if env is None else env.normalize_obs(observation)
    assert np.array_equal(pupil.predict(observation, deterministic=True)[0], model.predict(seen, deterministic=True)[0])
    if env is not None:
        assert env.obs_rms.count > 500 and not env.norm_reward
    row = unseen.train_one(ZooAgent("", name, "world", 2048, 3, 1, True, HOPPER))
    assert not row["failed"] and row["train_steps"] == 2048 and row["test_steps"] > 0


def test_normalised_learners_are_trained_for_who_asks(copy: Path, jobs: list[ZooAgent], tmp_path: Path) -> None:
    words = ["test", HOPPER, "--learners", "td3_normalised", "ppo", "--results-dir", str(tmp_path), "--workers", "1"]
    assert worlds.main([*words, "--save"]) == 0
    assert [j.learner for j in jobs if j.where == "world"][0] == "td3_normalised", "the longest first"
    text = text_of(json.loads(copy.read_text()))
    assert "NAME_normalised: behind VecNormalize" in text and "\n  td3_normalised  " in text
