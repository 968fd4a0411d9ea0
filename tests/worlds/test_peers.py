"""benchmarks/worlds/: the peer of the zoo's speed does the same work; what cannot be run is said."""

from __future__ import annotations

import functools
import inspect
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import envolve.worlds
from benchmarks.common import cells, harness
from benchmarks.common.settings import SETTINGS
from benchmarks.worlds import budget_figure, continuous_control, continuous_figure, library_agents, zoo
from envolve.agents import peers
from envolve.agents.train import train
from envolve.envs.task import make_task
from envolve.envs.worlds.export import WorldEnv
from envolve.envs.worlds.file import read_world
from envolve.envs.worlds.world import RealTask
from envolve.outer.checkpoint import RunError
from envolve.outer.config.load import Config

CONFIG = "default_config_pendulum_contextual_bandit.yaml"


@pytest.mark.parametrize(
    "name", ["CartPole-v1-bandit", "CliffWalking-v1-bandit", "Pendulum-v1-bandit", "Swimmer-v5-bandit"]
)
def test_torch_computes_what_numpy_computes(name: str) -> None:
    world = envolve.worlds.open_world(name)
    u = np.random.default_rng(0).random((50, world.bandit.uniforms))
    contexts, part = world.bandit.contexts(u)
    peer = zoo.TorchBandit(world.bandit)
    theirs = peer.contexts(torch.from_numpy(u).float())
    np.testing.assert_allclose(theirs.numpy(), contexts, rtol=1e-4, atol=1e-5)
    if world.action.n:
        action = np.arange(50) % world.action.n
        code = torch.eye(world.action.n)[torch.from_numpy(action)]
    else:
        action = np.random.default_rng(1).uniform(-1, 1, (50, world.action.inputs)).astype(np.float32)
        code = torch.from_numpy(action)
    np.testing.assert_allclose(peer.pay(theirs, code).numpy(), world.bandit.pay(part, action), rtol=1e-3, atol=1e-4)


def test_the_speed_of_a_world(capsys: pytest.CaptureFixture[str]) -> None:
    assert zoo.main(["--worlds", "CartPole-v1-bandit", "--envs", "2", "--seconds", "0.001"]) == 0
    assert len(capsys.readouterr().out.splitlines()[-1].split()) == 5
    assert zoo.main(["--worlds", "CartPole"]) == 1
    assert "did you mean CartPole-v1-bandit" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words, said",
    [
        (["--first", "5"], "--first: found 5, expected at least 0 and less than --seeds"),
        (["--test", "evolved", "--agents", "0"], "--agents: found 0"),
        (["--action-share", "0"], "--action-share: found 0.0, expected above 0"),
        (["--action-share", "0.9", "--learners", "sb3_td3"], "and 1 for sb3_* learners"),
    ],
)
def test_wrong_arguments(tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str) -> None:
    with pytest.raises(SystemExit):
        continuous_control.main([CONFIG, "--out", str(tmp_path), *words])
    assert said in capsys.readouterr().err


def test_agents_without_worlds_are_said_to_have_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert continuous_control.main([CONFIG, "--out", str(tmp_path), "--test", "evolved"]) == 1
    assert "found no run-N/model.pt of the seeds 0 to 4" in capsys.readouterr().err


def test_more_agents_are_those_that_are_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = continuous_control.cell

    def cell(*args: Any) -> dict[str, Any]:
        trained.append(args[5])
        return real(*args)

    def go(out: str, agents: int, tests: int = 1) -> int:
        words = ["--test", "task", "--learners", "td3", "--steps", "110", "--seeds", "1", "--tests", str(tests)]
        return continuous_control.main([CONFIG, "--out", str(tmp_path / out), *words, "--agents", str(agents)])

    trained: list[range] = []
    monkeypatch.setattr(continuous_control, "cell", cell)
    monkeypatch.setattr(continuous_control, "train", functools.partial(train, backend="torch"))
    assert go("parts", 1) == go("parts", 1) == go("parts", 3) == go("parts", 2) == go("whole", 3) == 0
    assert trained == [range(1), range(1, 3), range(3)]
    (parts,), (whole,) = (cells.results(tmp_path / name, continuous_control.READ) for name in ("parts", "whole"))
    np.testing.assert_allclose(parts["returns"], whole["returns"], rtol=1e-5)
    assert go("parts", 4, tests=2) == 1, "agents of other tests are not added to these"


@pytest.mark.parametrize("learner", ["ppo", "a2c"])
def test_rl_zoo_s_settings_are_keywords_of_the_learner(learner: str) -> None:
    algorithm = peers.algorithm(learner)
    known = set(inspect.signature(algorithm.__init__).parameters)
    inside = set(inspect.signature(algorithm.policy_aliases["MlpPolicy"].__init__).parameters)
    for task in ("Pendulum-v1", "MountainCarContinuous-v0", "Swimmer-v5", "Hopper-v5", "HalfCheetah-v5", "Walker2d-v5"):
        settings = library_agents.rl_zoo(task, learner)
        policy = settings.pop("policy", {})
        assert set(settings) - {"envs", "normalize"} <= known and set(policy) <= inside
    with pytest.raises(RunError, match=f"found no {learner} for Ant-v5, expected one of Pendulum, "):
        library_agents.rl_zoo("Ant-v5", learner)


@pytest.mark.parametrize("name", ["sb3_a2c_rl_zoo", "sb3_ppo_normalised", "sb3_td3"])
def test_an_agent_of_the_library_learns_and_is_tested_in_the_task_s_units(name: str) -> None:
    task = make_task("MountainCarContinuous-v0", 20)

    def make() -> WorldEnv:
        return WorldEnv(RealTask(task, 1))

    mean = library_agents.mean_return(name, make, task, "MountainCarContinuous-v0", 3, 150, 2)
    assert -2.0 <= mean <= 0.0  # 0.1 per step at most, and no agent arrives within 20 steps


def test_seed_in_a_value_of_set_is_the_seed_of_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    searched = []

    def search(folder: Path, make: Callable[[], Config], enough: object, command: str) -> None:
        data = make().data
        searched.append((folder.name, data["seed"], data["agents"]["gtn"]["first_world"], command))

    monkeypatch.setattr(continuous_control.cells, "search", search)
    words = ["--set", "agents.gtn.init=random", "agents.gtn.first_world=run-{seed}.pt"]
    assert continuous_control.main([CONFIG, "--out", str(tmp_path), "--first", "3", "--seeds", "5", *words]) == 0
    assert [found[:3] for found in searched] == [("run-3", 3, "run-3.pt"), ("run-4", 4, "run-4.pt")]
    assert searched[1][3].endswith("--first 4 --seeds 5 --set agents.gtn.init=random agents.gtn.first_world=run-4.pt")


def test_the_figure_of_continuous_control_is_drawn_from_committed_cells(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "figure.png"
    assert continuous_figure.main(["--out", str(path)]) == 0
    assert path.read_bytes().startswith(b"\x89PNG")
    assert continuous_figure.main(["--table"]) == 0
    printed = capsys.readouterr().out
    names = {**continuous_figure.TASKS, **continuous_figure.MORE}
    assert set(names) == {path.name for path in continuous_figure.DATA.iterdir()}
    assert all(f"**{name}**" in printed for name in names.values())


def test_the_figure_of_budgets_is_drawn_from_committed_cells(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "figure.png"
    assert budget_figure.main(["--out", str(path)]) == 0
    assert path.read_bytes().startswith(b"\x89PNG")
    assert budget_figure.main(["--table"]) == 0
    printed = capsys.readouterr().out
    for panel in budget_figure.PANELS:
        assert f"| {panel.task}: rollouts of 2,048 steps | 1 | 2 |" in printed
        for drawn in budget_figure.of_panel(panel):
            assert {len(means) for means in drawn.points.values()} == {5} == {len(drawn.greedy)}, drawn.curve


def test_points_of_a_budget_are_means_of_worlds_after_whole_rollouts() -> None:
    row = {"place": "evolved", "learner": "ppo", "steps": 4096, "returns": [1.0, 3.0], "seed": 0}
    rows = [row, {**row, "returns": [6.0]}, {**row, "steps": 10_000}, {**row, "place": "distilled"},
            {**row, "learner": "td3"}, {**row, "steps": 2048}]  # fmt: skip
    assert budget_figure.points(rows, "evolved", "ppo") == {2048: [2.0], 4096: [2.0, 6.0]}
    assert budget_figure.said([1000.4, 2.0]) == "1,000; 2" and budget_figure.said([]) == ""
    assert budget_figure.said([1.0, 2.0, 6.0]).startswith("3 [")


WORLDS = sorted(continuous_figure.DATA.glob("*/run-*/distilled.pt"))


@pytest.mark.parametrize("path", WORLDS, ids=lambda path: f"{path.parts[-3]}-{path.parts[-2]}")
def test_a_committed_world_is_the_one_that_its_cells_name(path: Path) -> None:
    world, task = read_world(str(path)), path.parts[-3]
    named = {**continuous_figure.TASKS, **continuous_figure.MORE}[task]
    assert world.env_name.removeprefix("gymnasium:") == named.partition(",")[0]
    assert world.config["seed"] == int(path.parts[-2].partition("-")[2])
    seeds = {row["seed"] for row in cells.results(path.parents[1], continuous_control.READ) if row["place"] != "task"}
    assert seeds <= set(range(len(list(path.parents[1].glob("run-*")))))


def test_agents_are_added_to_a_cell_of_a_gpu(tmp_path: Path) -> None:
    """Its row has no CPU seconds."""
    cells.append(tmp_path / cells.CELLS, {"cell": "a", "returns": [1.0]})
    cells.work(tmp_path, [("a",)], lambda name, had=(): {"returns": [*had, 2.0]}, str, lambda name: 2)
    (row,) = cells.results(tmp_path, {"returns": list, "cpu_seconds": float})
    assert row["returns"] == [1.0, 2.0]


def test_worlds_that_ask_for_a_share_have_a_row_of_their_own(tmp_path: Path) -> None:
    row = {"learner": "td3", "steps": 10, "seed": 0}
    for place, mean in (("distilled", 1.0), ("distilled_0.9", 2.0)):
        cells.append(tmp_path / cells.CELLS, {"cell": place, "place": place, **row, "returns": [mean]})
    lines = continuous_control.table(tmp_path).splitlines()[2:]
    assert lines == ["| td3 | 10 | - | 1.0 (1 x 1) | - |", "| td3, --action-share 0.9 | 10 | - | 2.0 (1 x 1) | - |"]


def test_a_summary_says_how_many_agents_there_were() -> None:
    assert continuous_control.summary([[1.0, 3.0], [2.0]]).startswith("2.0 [")
    assert continuous_control.summary([[1.0, 3.0], [2.0]]).endswith("(2 x 1/2)")


def test_means_of_cells() -> None:
    row = {"place": "task", "learner": "td3", "steps": 10, "returns": [1.0, 3.0], "seed": 0}
    more = {**row, "returns": [5.0], "seed": 1}
    ((steps, mean, low, high),) = continuous_figure.on_task([row, more, {**row, "learner": "sac"}], "td3")
    assert (steps, mean) == (10, 3.0) and low < 3.0 < high
    worlds = [{**row, "place": "distilled"}, {**more, "place": "distilled"}]
    assert continuous_figure.in_worlds(worlds, "td3")[:2] == (10, 3.5), "worlds count alike"
    assert continuous_figure.in_worlds([{**row, "place": "evolved"}], "td3") is None
    assert continuous_figure.of_means([2.0]) == (2.0, 2.0, 2.0)


def test_the_action_that_a_world_pays_most_for_has_a_cell_of_no_steps(tmp_path: Path) -> None:
    out, config = tmp_path / "out", "configs/zoo/pendulum.yaml"
    shutil.copytree(continuous_figure.DATA / "pendulum_v1" / "run-0", out / "run-0")
    words = [config, "--out", str(out), "--seeds", "1", "--tests", "2", "--learners", "greedy", "--test"]
    assert continuous_control.main([*words, "distilled"]) == 0
    (row,) = cells.results(out, continuous_control.READ)
    assert row["steps"] == 0 and len(row["returns"]) == 1 and row["returns"][0] > -400
    assert continuous_control.main([*words, "task"]) == 1


def test_a_rate_that_falls_to_zero() -> None:
    rate = library_agents.linear(7e-4)
    assert rate(1.0) == 7e-4 and rate(0.5) == 3.5e-4 and rate(0.0) == 0.0


def test_a_case_that_does_not_exist(capsys: pytest.CaptureFixture[str]) -> None:
    def measured(case: str, members: int | None, quick: bool) -> dict[str, object]:
        return {"case": SETTINGS[case].task}

    harness.main("doc", {"plain": measured}, ["sac_pendulum"])
    with pytest.raises(SystemExit):
        harness.main("doc", {"plain": measured}, ["sac_pendulumm"])
    said = capsys.readouterr().err
    assert "CASE: found 'sac_pendulumm'" in said and said.rstrip().endswith("nearest: sac_pendulum")
