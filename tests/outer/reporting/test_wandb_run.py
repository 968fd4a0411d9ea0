"""Weights & Biases hears what the event files say, once, and gets models and films at the end.

``Heard`` is a stand-in for W&B's API, which starts processes of its own; ``test_the_real_one_offline`` uses W&B itself,
offline, where it is installed."""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from envolve.experiments import (
    eval_shapers,
    evolve,
    evolve_goals,
    optimize_params,
    run,
    serve_evaluator,
    train_distributed,
    train_goal,
)
from envolve.experiments.paper import train_proxy
from envolve.outer.config.yaml_lines import ConfigError
from envolve.outer.reporting import wandb_run
from envolve.outer.reporting.board import Board
from envolve.outer.reporting.wandb_run import STATE, check_wandb, followed


class Heard:
    """What ``wandb.init`` was given, and what its run was told."""

    def __init__(self, breaks_after: int = 10**9) -> None:
        self.inits: list[dict[str, Any]] = []
        self.logged: list[dict[str, Any]] = []
        self.axes: dict[str, str] = {}
        self.artifacts: dict[str, set[str]] = {}
        self.ends: list[int] = []
        self.breaks_after = breaks_after

    def module(self) -> Any:
        def init(**words: Any) -> Any:
            self.inits.append(words)
            return SimpleNamespace(
                log=self._log,
                define_metric=lambda name, step_metric: self.axes.update({name: step_metric}),
                log_artifact=lambda a: self.artifacts.update({a.kind: set(a.names)}),
                url="https://wandb.test/run",
                finish=lambda exit_code: self.ends.append(exit_code),
            )

        class Artifact:
            def __init__(self, name: str, type: str) -> None:
                self.kind, self.names = type, []

            def add_file(self, path: str, name: str) -> None:
                assert Path(path).is_file()
                self.names.append(name)

        def video(path: str, format: str) -> tuple[str, str]:
            return Path(path).name, format

        return SimpleNamespace(init=init, Artifact=Artifact, Video=video, Settings=lambda **words: words)

    def _log(self, values: dict[str, Any]) -> None:
        if len(self.logged) >= self.breaks_after:
            raise ConnectionError("no route to host\nat all")
        self.logged.append(values)

    def figures(self, tag: str) -> list[tuple[int, float]]:
        return [(row[self.axes[tag]], row[tag]) for row in self.logged if tag in row]


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> Heard:
    found = Heard()
    monkeypatch.setitem(sys.modules, "wandb", found.module())
    return found


def test_figures_of_every_folder_with_its_own_axis_and_nothing_twice(tmp_path: Path, heard: Heard) -> None:
    (tmp_path / "config.yaml").write_text("env_name: CartPole-v0\nseed: 3\n")
    top, below, trial = Board(tmp_path), Board(tmp_path / "train/0"), Board(tmp_path / "runs/0_0")
    with followed("mine", tmp_path, mode="offline", group="these"):
        top.write(1, {"score": 0.5, "left_out": float("nan")})
        below.write(100, {"score": 7.0})
        trial.write(1, {"score": 9.0})  # a run of its own, of a study
    for board in (top, below, trial):
        board.close()
    assert heard.figures("score") == [(1, 0.5)] and heard.figures("train/0/score") == [(100, 7.0)]
    assert len(heard.logged) == 2 and heard.axes == {"score": "step", "train/0/score": "train/0/step"}
    init = heard.inits[0]
    assert (init["project"], init["mode"], init["group"], init["resume"]) == ("mine", "offline", "these", "allow")
    assert init["config"] == {"env_name": "CartPole-v0", "seed": 3} and init["name"] == tmp_path.name
    resumed = Board(tmp_path)
    with followed("mine", tmp_path):
        resumed.write(2, {"score": 0.75})
    resumed.close()
    assert heard.figures("score") == [(1, 0.5), (2, 0.75)] and heard.figures("train/0/score") == [(100, 7.0)]
    assert heard.inits[1]["id"] == init["id"] and "mode" not in heard.inits[1] and heard.ends == [0, 0]


def test_it_hears_while_the_run_goes_on(tmp_path: Path, heard: Heard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wandb_run, "EVERY", 0.01)
    board = Board(tmp_path)
    with followed("mine", tmp_path):
        for step in range(3):
            board.write(step, {"score": float(step)})
            for _ in range(1000):
                if len(heard.logged) > step:
                    break
                wandb_run.threading.Event().wait(0.01)
            assert len(heard.logged) == step + 1
    board.close()


def test_models_and_films_follow_at_the_end(tmp_path: Path, heard: Heard) -> None:
    folder, elsewhere = tmp_path / "run", tmp_path / "elsewhere.gif"
    folder.mkdir()
    for name in ("model.pt", "learner.pt", "best.mp4", "notes.txt"):
        (folder / name).write_bytes(b"x")
    (folder / "policy.pt").symlink_to("/etc/hostname")  # nothing outside the folder is sent
    elsewhere.write_bytes(b"x")
    with followed("mine", folder) as films:
        films += [elsewhere, folder / "best.mp4"]
    assert heard.artifacts == {"model": {"model.pt", "learner.pt"}, "film": {"best.mp4", "elsewhere.gif"}}
    assert heard.logged == [{"films/best": ("best.mp4", "mp4"), "films/elsewhere": ("elsewhere.gif", "gif")}]


def test_a_failure_of_the_run_is_told_and_one_of_wandb_costs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    heard = Heard(breaks_after=1)
    monkeypatch.setitem(sys.modules, "wandb", heard.module())
    board = Board(tmp_path)
    with caplog.at_level(logging.WARNING, "envolve"), pytest.raises(RuntimeError, match="of the run"):
        with followed("mine", tmp_path):
            board.write(1, {"a": 1.0, "b": 2.0})
            raise RuntimeError("of the run")
    board.close()
    assert [r.getMessage() for r in caplog.records] == [
        "Weights & Biases hears no more of this run, which goes on: no route to host"
    ]
    assert len(heard.logged) == 1


def test_a_damaged_state_begins_a_new_run(tmp_path: Path, heard: Heard, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / STATE).write_text('{"id": "../../x", "passed": {"a": "b"}}')
    with followed("mine", tmp_path):
        pass
    assert heard.inits[0]["id"].isalnum() and f"{tmp_path / STATE} is damaged" in caplog.text
    assert json.loads((tmp_path / STATE).read_text())["id"] == heard.inits[0]["id"]


def test_without_it_nothing_happens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    with followed(None, tmp_path) as films:
        films.append(tmp_path)
    assert not list(tmp_path.iterdir())
    with pytest.raises(ConfigError, match="--wandb needs Weights & Biases, .*pip install wandb"):
        check_wandb("mine")
    with pytest.raises(ConfigError, match="--wandb: found 'a/b', expected the name of a project"):
        check_wandb("a/b")


COMMANDS = {
    run.main: ["default_config_gridworld.yaml", "--single"],
    evolve.main: ["gymnasium:CartPole-v1"],
    optimize_params.main: ["configs/spaces/gridworld_step_size.yaml"],
    eval_shapers.main: ["--task", "Cartpole", "--iterations", "1"],
    train_goal.main: ["--task", "reacher"],
    evolve_goals.main: ["--task", "simple_u_maze", "--goal-family", "cells"],
    train_distributed.main: ["--params", __file__],
    train_proxy.main: ["default_config_gridworld_reward_env.yaml"],
    serve_evaluator.main: ["--task", "Cartpole", "--port", "0"],
}


@pytest.mark.parametrize("main", COMMANDS, ids=lambda main: main.__module__.rpartition(".")[2])
def test_a_command_says_at_once_that_it_is_missing(
    main: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [str(Path(w).resolve()) if w.endswith(".yaml") else w for w in COMMANDS[main]]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "wandb", None)
    assert main([*words, "--wandb", "mine"]) == 2
    assert "--wandb needs Weights & Biases" in capsys.readouterr().err
    assert not list(tmp_path.iterdir()), "nothing was begun"


def test_a_goal_run_gives_its_policy_and_its_film(
    tmp_path: Path, heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("envolve.outer.goals.video.SECONDS", 1.0)
    words = ["--task", "simple_u_maze", "--episode_length", "12", "--num_envs", "4", "--batch_size", "16", "--h_dim",
             "8", "--repr_dim", "4", "--unroll_length", "5", "--min_replay_size", "10", "--max_replay_size", "40",
             "--num_timesteps", "200", "--num_evals", "3", "--num_eval_envs", "6", "--threads", "1"]  # fmt: skip
    assert train_goal.main([*words, "--wandb", "goals", "--video", "--run-dir", str(tmp_path / "run")]) == 0
    film = next(p.name for p in (tmp_path / "run").iterdir() if p.suffix in (".mp4", ".gif"))
    assert heard.artifacts == {"model": {"policy.pt"}, "film": {film}}
    assert len(heard.figures("eval/success")) == 3 and heard.inits[0]["config"]["learner"]["h_dim"] == 8


def test_shapers_give_curves_and_the_best_policy(tmp_path: Path, heard: Heard) -> None:
    words = ["--task", "Cartpole", "--num-envs-per-shaper", "4", "--iterations", "2", "--backend", "torch"]
    out = tmp_path / "run"
    assert eval_shapers.main([*words, "--wandb", "shapers", "--run-dir", str(out)]) == 0
    assert len(heard.figures("score/human")) == 2 and heard.artifacts["model"] == {"best.pt"}
    ranking = json.loads((out / "candidates.json").read_text())
    human = next(c for c in ranking["candidates"] if c["name"] == "human")
    assert [y for _, y in heard.figures("score/human")] == pytest.approx(human["curve"]["score"], rel=1e-4)
    assert [x for x, _ in heard.figures("score/human")] == human["curve"]["steps"]


@pytest.mark.slow
def test_the_real_one_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb", reason="wandb is not installed")
    monkeypatch.setenv("WANDB_MODE", "offline")
    (tmp_path / "model.pt").write_bytes(b"x" * 100)
    board = Board(tmp_path)
    with followed("mine", tmp_path):
        board.write(1, {"score": 0.5})
    board.close()
    (folder,) = (tmp_path / "wandb").glob("offline-run-*")
    data = next(folder.glob("*.wandb")).read_bytes()
    assert b"score" in data and b"model.pt" in data
    with followed("mine", tmp_path):  # a second session, as after --resume
        pass
    assert len(list((tmp_path / "wandb").glob("offline-run-*"))) == 2
