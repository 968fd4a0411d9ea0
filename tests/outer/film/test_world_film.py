"""``envolve film``: agents in a world beside the task, from a real model.pt to the page of the run."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from envolve.envs.task import make_task
from envolve.envs.worlds.file import read_world
from envolve.envs.worlds.world import RealTask
from envolve.experiments import film_world
from envolve.outer.config.load import Config, load_config
from envolve.outer.config.problem import learner
from envolve.outer.film import drawing
from envolve.outer.film.world_film import film_scenes, play, scenes_of
from envolve.outer.page.reading import Folder
from envolve.outer.search.target import make_target
from tests.outer.small import ROOT, cartpole, cliff

imageio = pytest.importorskip("imageio.v2", reason="imageio is not installed")
pytest.importorskip("pygame", reason="pygame is not installed")


def stored(folder: Path, config: Config) -> Path:
    """A run's folder with the first world of its search as model.pt."""
    target = make_target(config.data)
    folder.mkdir()
    target.save(folder, target.begin(0), math.nan, False, None)
    return folder


def left(obs: torch.Tensor) -> torch.Tensor:
    return torch.zeros(obs.shape[:2], dtype=torch.int64)


def test_an_episode_is_the_tasks_own_and_ends_with_it() -> None:
    task = make_task("CartPole-v0")
    real = RealTask(task, 1, for_learning=False)
    e = play(task, real, left, 3, 200, False)
    assert 7 < len(e.rewards) < 12 and e.rewards.sum() == len(e.rewards) == len(e.actions) == len(e.observations) - 1
    again = play(task, real, left, 3, 5, False)
    assert len(again.rewards) == 5 and np.array_equal(again.observations, e.observations[:6])


def test_a_synthetic_world_and_the_task_have_a_tile_each(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = stored(tmp_path / "run", cartpole())
    assert film_world.main([str(folder), "--agents", "2", "--steps", "12", "--threads", "1"]) == 0
    said = capsys.readouterr().out
    assert said.count("in the world: seed 0, agent") == 2 and said.count("on the task: ") == 2
    pictures = imageio.mimread(folder / "world.gif")
    assert len(pictures) > 3 and len({p.shape for p in pictures}) == 1
    assert (pictures[0][..., :3] != pictures[3][..., :3]).any(), "it moves"
    (film,) = Folder(folder).films()
    assert film.path == folder / "world.gif" and film.caption.startswith("Agents in the evolved world, and")


def test_a_bandits_contexts_are_shown_one_by_one(tmp_path: Path) -> None:
    config = cartpole("envs.CartPole-v0.contextual_bandit=true")
    file = read_world(str(stored(tmp_path / "run", config) / "model.pt"))
    inside, outside = scenes_of(config.data, file, 0, 1, 80, 1)
    assert inside.alone and not outside.alone and len(inside.episode.rewards) == 10
    contexts = inside.episode.observations
    assert len(np.unique(contexts, axis=0)) == len(contexts), "each is another one"
    film_scenes(tmp_path / "a.gif", file.task(), [inside, outside], "")
    assert len(imageio.mimread(tmp_path / "a.gif")) > 10


def test_a_bandit_that_td3_was_trained_in(tmp_path: Path) -> None:
    """Its agents have one critic there, and two on the task."""
    path = ROOT / "default_config_pendulum_contextual_bandit.yaml"
    small = ["agents.td3.train_steps=60", "agents.td3.hidden_size=8", "agents.td3.test_episodes=1"]
    config = load_config(path, [*small, "agents.gtn.chunk_size=2"])
    file = read_world(str(stored(tmp_path / "run", config) / "model.pt"))
    inside, outside = scenes_of(config.data, file, 0, 1, 16, 1)
    assert len(inside.episode.rewards) == 2 and len(outside.episode.rewards) == 16


def test_of_a_reward_network_agents_without_it_are_beside(tmp_path: Path) -> None:
    config = cliff()
    file = read_world(str(stored(tmp_path / "run", config) / "model.pt"))
    scenes = scenes_of(config.data, file, 0, 2, 30, 1)
    assert [s.title.partition(":")[0] for s in scenes] == ["evolved reward", "the task's reward"] * 2
    for s in scenes:  # both earn what the task pays: -1 a step, -100 in the cliff
        assert (s.episode.rewards <= -1).all() and s.episode.observations.sum() == len(s.episode.observations)


def test_agents_without_a_reward_network_have_its_agents_hyperparameters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """QL_cb reads the section ql, so that a section of its own with the steps alone would hide it."""
    config = cliff("agents.gtn.agent_name=QL_cb", "agents.ql.alpha=0.3")
    file = read_world(str(stored(tmp_path / "run", config) / "model.pt"))
    seen = []

    def trained(config: dict[str, Any], *rest: Any) -> tuple[list[Any], np.ndarray]:
        seen.append(learner(config)[1])
        return [], np.array([40, 50, 60])

    monkeypatch.setattr("envolve.outer.film.world_film.trained", trained)
    scenes_of(config.data, file, 0, 3, 30, 1)
    assert seen[1] == dataclasses.replace(seen[0], train_steps=50) and seen[1].alpha == 0.3
    assert learner(config.data)[1] == seen[0], "the run's own configuration stays as it was"


def test_what_has_no_drawing_is_refused_before_an_agent_is_trained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An environment of one's own was made first, and a note spoke of --plugins, which the command has not."""
    monkeypatch.setattr(drawing, "STATES", {})
    monkeypatch.setattr(film_world, "scenes_of", lambda *_: pytest.fail("agents were trained"))
    assert film_world.main([str(stored(tmp_path / "run", cartpole()))]) == 1
    error = capsys.readouterr().err
    assert "found CartPole-v0, expected a task that can be drawn" in error and error.count("\n") == 1
    assert "your own among them, have no drawing" in " ".join(film_world.HELP.split())


def test_what_is_wrong_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words, code, text in (
        (["missing.pt"], 2, "missing.pt"),
        ([str(tmp_path)], 2, "model.pt"),
        (["missing.pt", "--agents", "5"], 2, "--agents: found 5, expected at most 4"),
        (["missing.pt", "--out", "film.avi"], 2, "--out: found film.avi, expected a name that ends in .gif or .mp4"),
        (["missing.pt", "--out", "nowhere/film.gif"], 2, "expected a file in a folder that exists"),
    ):
        assert film_world.main(words) == code
        error = capsys.readouterr().err
        assert text in error and error.count("\n") == 1
